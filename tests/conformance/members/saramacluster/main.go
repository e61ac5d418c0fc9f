// A group member controlled through stdin: saramacluster BOOTSTRAP CLIENT_ID GROUP CONFIG_JSON. kproto/testing/driver.py
// describes the protocol.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/sarama"
	cluster "github.com/bsm/sarama-cluster"
)

type Conf struct {
	SessionMs    int    `json:"session_ms"`
	HeartbeatMs  int    `json:"heartbeat_ms"`
	AutoCommitMs int    `json:"auto_commit_ms"`
	Reset        string `json:"reset"`
	MetadataMs   int    `json:"metadata_ms"`
}

var (
	conf     Conf
	mu       sync.Mutex
	busy     sync.RWMutex // held during "sleep", so that no record is read
	told     sync.Mutex   // protects claimed
	claimed  = sync.NewCond(&told)
	open     bool // "assigned" was printed; no record is printed before
	consumer *cluster.Consumer
	loops    sync.WaitGroup
)

func say(x ...any) {
	mu.Lock()
	fmt.Printf("%.6f ", float64(time.Now().UnixMicro())/1e6)
	fmt.Println(x...)
	mu.Unlock()
}

// The cluster package hides the error code; it is found by the text of the error.
func failed(what string, err error) {
	name := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
	var inner *sarama.ConsumerError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	for code := -1; code < 100; code++ {
		if code != 0 && sarama.KError(code).Error() == err.Error() {
			name = fmt.Sprintf("KError(%d)", code)
		}
	}
	say(what, name, strings.ReplaceAll(err.Error(), "\n", " "))
}

func listed(claims map[string][]int32) string {
	var out []string
	for topic, partitions := range claims {
		for _, partition := range partitions {
			out = append(out, fmt.Sprint(topic, ":", partition))
		}
	}
	sort.Strings(out)
	return strings.Join(out, " ")
}

func stop() {
	if consumer == nil {
		return
	}
	if err := consumer.Close(); err != nil {
		failed("error", err)
	}
	loops.Wait()
	consumer = nil
}

func start(topics []string, config *cluster.Config) {
	stop()
	made, err := cluster.NewConsumer([]string{os.Args[1]}, os.Args[3], topics, config)
	if err != nil {
		failed("error", err)
		return
	}
	consumer = made
	loops.Add(3)
	go func() {
		defer loops.Done()
		for m := range made.Messages() {
			told.Lock()
			for !open {
				claimed.Wait()
			}
			told.Unlock()
			busy.RLock()
			say("R", fmt.Sprint(m.Topic, ":", m.Partition), m.Offset)
			made.MarkOffset(m, "")
			busy.RUnlock()
		}
	}()
	go func() {
		defer loops.Done()
		for err := range made.Errors() {
			failed("error", err)
		}
	}()
	go func() {
		defer loops.Done()
		for one := range made.Notifications() {
			if one.Type == cluster.RebalanceStart && len(one.Current) > 0 {
				say("revoked", listed(one.Current))
			} else if one.Type == cluster.RebalanceOK {
				say("assigned", listed(one.Current))
			}
			told.Lock()
			open = one.Type == cluster.RebalanceOK
			claimed.Broadcast()
			told.Unlock()
		}
		told.Lock()
		open = true
		claimed.Broadcast()
		told.Unlock()
	}()
}

func main() {
	if err := json.Unmarshal([]byte(os.Args[4]), &conf); err != nil {
		panic(err)
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	c := cluster.NewConfig()
	c.ClientID, c.Config.Version = os.Args[2], sarama.V0_11_0_0
	c.Consumer.Return.Errors, c.Group.Return.Notifications = true, true
	c.Group.Session.Timeout, c.Group.Heartbeat.Interval = ms(conf.SessionMs), ms(conf.HeartbeatMs)
	c.Consumer.Offsets.CommitInterval = ms(conf.AutoCommitMs)
	c.Consumer.Offsets.Initial = map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}[conf.Reset]
	c.Metadata.RefreshFrequency = ms(conf.MetadataMs)
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	say("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		a := strings.Fields(in.Text())
		switch a[0] {
		case "subscribe":
			start(a[1:], c)
		case "unsubscribe":
			stop()
		case "sleep":
			var n int
			fmt.Sscan(a[1], &n)
			busy.Lock()
			time.Sleep(ms(n))
			busy.Unlock()
			say("slept")
		case "commit":
			if consumer == nil {
				break
			}
			if err := consumer.CommitOffsets(); err != nil {
				failed("commit", err)
			} else {
				say("commit ok")
			}
		case "close":
			stop()
			say("closed")
			os.Exit(0)
		}
		say("done", in.Text())
	}
	stop()
}
