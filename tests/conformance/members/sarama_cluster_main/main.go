// The program of lesson 001 around sarama-cluster: newConsumer, InitConsumer, and consume with its two loops.
//
//	sarama_cluster_main BOOTSTRAP GROUP TOPIC,.. [CONFIG_JSON]
//
// It prints "started" or "logged TEXT", "R TOPIC PARTITION OFFSET" for each message, "alive" at each tick, "error TEXT"
// and "printed &{..}" (as the document prints it) and "notification TYPE claimed=.. released=.. current=.." of the other loop, "blocked" and "unblocked" when a line
// on stdin toggles the sink of the messages. SIGTERM and the end of stdin call Close, and it prints "closed". The client id
// is GROUP, or CONFIG_JSON's.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/Shopify/sarama"
	cluster "github.com/bsm/sarama-cluster"
)

var (
	bootstrap, group = os.Args[1], os.Args[2]
	topics           = strings.Split(os.Args[3], ",")
	conf             = struct {
		ClientID    string `json:"client_id"`
		Version     string `json:"version"` // the document's own, 0.10.2.1, uses a Fetch version that Kafka 4 does not support
		RefreshMs   int    `json:"refresh_ms"`
		TickMs      int    `json:"tick_ms"`
		SessionMs   int    `json:"session_ms"`
		HeartbeatMs int    `json:"heartbeat_ms"`
		Whitelist   string `json:"whitelist"`
		RoundRobin  bool   `json:"round_robin"` // Group.PartitionStrategy, which the document does not set
	}{ClientID: group, Version: "0.11.0.0", RefreshMs: 60_000, TickMs: 5_000, SessionMs: 10_000, HeartbeatMs: 500}
	printing sync.Mutex
	sink     sync.Mutex
)

func say(words ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(words...)
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func newConsumer() (*cluster.Consumer, error) {
	config := cluster.NewConfig()
	config.ClientID = conf.ClientID
	config.Consumer.Return.Errors = true
	config.Group.Return.Notifications = true
	config.Consumer.MaxWaitTime = 800 * time.Millisecond
	config.Consumer.Offsets.CommitInterval = time.Second
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Metadata.RefreshFrequency = ms(conf.RefreshMs)
	config.Consumer.Group.Rebalance.Strategy = sarama.BalanceStrategyRoundRobin
	if conf.RoundRobin {
		config.Group.PartitionStrategy = cluster.StrategyRoundRobin
	}
	config.Group.Session.Timeout, config.Group.Heartbeat.Interval = ms(conf.SessionMs), ms(conf.HeartbeatMs)
	version, err := sarama.ParseKafkaVersion(conf.Version)
	if err != nil {
		return nil, err
	}
	config.Version = version
	if conf.Whitelist != "" {
		config.Group.Topics.Whitelist = regexp.MustCompile(conf.Whitelist)
		topics = nil
	}
	return cluster.NewConsumer([]string{bootstrap}, group, topics, config)
}

func listed(claims map[string][]int32) string {
	var out []string
	for topic, partitions := range claims {
		for _, partition := range partitions {
			out = append(out, fmt.Sprintf("%s-%d", topic, partition))
		}
	}
	sort.Strings(out)
	return strings.Join(out, ",")
}

func consume(consumer *cluster.Consumer) {
	go func() {
		for {
			msg, ok := <-consumer.Messages()
			if !ok {
				return // the document loops forever here
			}
			sink.Lock()
			consumer.MarkOffset(msg, "")
			say("R", msg.Topic, msg.Partition, msg.Offset)
			sink.Unlock()
		}
	}()
	go func() {
		heartbeat := time.Tick(ms(conf.TickMs))
		errors, notifications := consumer.Errors(), consumer.Notifications()
		for {
			select {
			case <-heartbeat:
				say("alive")
			case err, ok := <-errors:
				if ok {
					say("error", err)
				} else {
					errors = nil
				}
			case ntf, ok := <-notifications:
				if ok {
					say("printed", fmt.Sprintf("%+v", ntf))
					say("notification", ntf.Type.String()+":",
						"claimed="+listed(ntf.Claimed), "released="+listed(ntf.Released), "current="+listed(ntf.Current))
				} else {
					notifications = nil
				}
			}
		}
	}()
}

func main() {
	if len(os.Args) > 4 {
		if err := json.Unmarshal([]byte(os.Args[4]), &conf); err != nil {
			panic(err)
		}
	}
	consumer, err := newConsumer()
	if err != nil {
		say("logged", err)
		return
	}
	say("started")
	consume(consumer)
	q := make(chan os.Signal, 1)
	signal.Notify(q, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		in, blocked := bufio.NewScanner(os.Stdin), false
		for in.Scan() {
			if blocked = !blocked; blocked {
				sink.Lock()
				say("blocked")
			} else {
				sink.Unlock()
				say("unblocked")
			}
		}
		q <- syscall.SIGTERM
	}()
	<-q
	if err := consumer.Close(); err != nil {
		say("error", err)
	}
	say("closed")
}
