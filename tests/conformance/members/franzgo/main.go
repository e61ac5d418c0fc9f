// franz-go as a group member controlled through stdin: franzgo BOOTSTRAP CLIENT_ID GROUP CONFIG_JSON. kproto/testing/driver.py
// describes the protocol; only its commands subscribe, commit and close exist here.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type Conf struct {
	SessionMs    int    `json:"session_ms"`
	HeartbeatMs  int    `json:"heartbeat_ms"`
	MaxPollMs    int    `json:"max_poll_ms"`
	AutoCommit   bool   `json:"auto_commit"`
	AutoCommitMs int    `json:"auto_commit_ms"`
	Reset        string `json:"reset"`
	MetadataMs   int    `json:"metadata_ms"`
}

var mu sync.Mutex

func say(x ...any) {
	mu.Lock()
	defer mu.Unlock()
	fmt.Printf("%.6f ", float64(time.Now().UnixMicro())/1e6)
	fmt.Println(x...)
}

func told(word string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, found map[string][]int32) {
		var all []string
		for topic, partitions := range found {
			for _, partition := range partitions {
				all = append(all, fmt.Sprint(topic, ":", partition))
			}
		}
		sort.Strings(all)
		say(word, strings.Join(all, " "))
	}
}

func main() {
	var conf Conf
	if err := json.Unmarshal([]byte(os.Args[4]), &conf); err != nil {
		panic(err)
	}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	options := []kgo.Opt{
		kgo.SeedBrokers(os.Args[1]), kgo.ClientID(os.Args[2]), kgo.ConsumerGroup(os.Args[3]),
		kgo.SessionTimeout(ms(conf.SessionMs)), kgo.HeartbeatInterval(ms(conf.HeartbeatMs)), kgo.RebalanceTimeout(ms(conf.MaxPollMs)),
		kgo.MetadataMaxAge(ms(conf.MetadataMs)), kgo.MetadataMinAge(100 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(told("assigned")), kgo.OnPartitionsRevoked(told("revoked")), kgo.OnPartitionsLost(told("lost")),
		kgo.ConsumeResetOffset(map[string]kgo.Offset{"earliest": kgo.NewOffset().AtStart(), "latest": kgo.NewOffset().AtEnd()}[conf.Reset]),
	}
	if conf.AutoCommit {
		options = append(options, kgo.AutoCommitInterval(ms(conf.AutoCommitMs)))
	} else {
		options = append(options, kgo.DisableAutoCommit())
	}
	var client *kgo.Client
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	say("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() && in.Text() != "close" {
		words := strings.Fields(in.Text())
		switch {
		case words[0] == "subscribe" && client == nil:
			var err error
			if client, err = kgo.NewClient(append(options, kgo.ConsumeTopics(words[1:]...))...); err != nil {
				panic(err)
			}
			go func() {
				defer close(over)
				for ctx.Err() == nil {
					client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { say("R", fmt.Sprint(r.Topic, ":", r.Partition), r.Offset) })
				}
			}()
		case words[0] == "commit":
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				say("commit", "Error", err)
			} else {
				say("commit ok")
			}
		default:
			say("error UnknownCommand", in.Text())
		}
		say("done", in.Text())
	}
	stop()
	if client != nil {
		<-over
		client.Close()
	}
	say("closed")
}
