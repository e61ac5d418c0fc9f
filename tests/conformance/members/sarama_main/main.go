// The sarama program of lesson 001: main() as printed in the author's document, with the handling of SIGUSR1 that its
// first line promises.
//
//	sarama_main BOOTSTRAP GROUP TOPIC [CONFIG_JSON]
//
// It prints "session CLAIMS" in Setup, "R PARTITION OFFSET", "claim closed" or "claim done" when ConsumeClaim returns,
// "cleanup", "returned" for each end of Consume without an error, "paused", "resumed", "logged TEXT" where the document
// logs and exits, "panic TEXT" where it panics, "terminating" and "closed". The client id is GROUP, or CONFIG_JSON's.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/Shopify/sarama"
)

var (
	bootstrap, group, topic = os.Args[1], os.Args[2], os.Args[3]
	conf                    = struct {
		ClientID    string `json:"client_id"`
		Version     string `json:"version"`
		RetentionMs int    `json:"retention_ms"`
		RefreshMs   int    `json:"refresh_ms"`
		SessionMs   int    `json:"session_ms"`
		HeartbeatMs int    `json:"heartbeat_ms"`
		User        string `json:"user"`
		Password    string `json:"password"`
		Once        bool   `json:"once"`        // Consume without a loop
		StaleReady  bool   `json:"stale_ready"` // ready is not created again
	}{ClientID: group, Version: "2.0.0", RefreshMs: 3_000, SessionMs: 10_000, HeartbeatMs: 3_000}
	printing sync.Mutex
)

func say(words ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(words...)
}

// dies stands for log.Panicf, and prints its text to stdout.
func dies(why any) {
	say("panic", why)
	os.Exit(2)
}

type Consumer struct{ ready chan bool }

func (consumer *Consumer) Setup(session sarama.ConsumerGroupSession) error {
	defer func() {
		if why := recover(); why != nil {
			dies(why)
		}
	}()
	say("session", session.Claims()[topic])
	close(consumer.ready)
	return nil
}

func (consumer *Consumer) Cleanup(sarama.ConsumerGroupSession) error {
	say("cleanup")
	return nil
}

func (consumer *Consumer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				say("claim closed")
				return nil
			}
			say("R", message.Partition, message.Offset)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			say("claim done")
			return nil
		}
	}
}

func made() *sarama.Config {
	config := sarama.NewConfig()
	version, err := sarama.ParseKafkaVersion(conf.Version)
	if err != nil {
		panic(err)
	}
	config.Version = version
	config.ClientID = conf.ClientID
	config.Consumer.Offsets.Initial = sarama.OffsetNewest
	config.Consumer.Offsets.Retention = time.Duration(conf.RetentionMs) * time.Millisecond
	config.Metadata.RefreshFrequency = time.Duration(conf.RefreshMs) * time.Millisecond
	config.Consumer.Group.Session.Timeout = time.Duration(conf.SessionMs) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = time.Duration(conf.HeartbeatMs) * time.Millisecond
	if conf.User != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLTypePlaintext
		config.Net.SASL.User, config.Net.SASL.Password = conf.User, conf.Password
	}
	return config
}

func main() {
	if len(os.Args) > 4 {
		if err := json.Unmarshal([]byte(os.Args[4]), &conf); err != nil {
			panic(err)
		}
	}
	consumer := Consumer{ready: make(chan bool)}
	ctx, cancel := context.WithCancel(context.Background())
	client, err := sarama.NewConsumerGroup(strings.Split(bootstrap, ","), group, made())
	if err != nil {
		say("logged Error creating consumer group client:", err)
		return
	}
	wg := &sync.WaitGroup{}
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			if err := client.Consume(ctx, []string{topic}, &consumer); err != nil {
				if errors.Is(err, sarama.ErrClosedConsumerGroup) {
					return
				}
				dies(fmt.Sprint("Error from consumer: ", err))
			}
			say("returned")
			if ctx.Err() != nil || conf.Once {
				return
			}
			if !conf.StaleReady {
				consumer.ready = make(chan bool)
			}
		}
	}()
	<-consumer.ready
	sigterm := make(chan os.Signal, 1)
	signal.Notify(sigterm, syscall.SIGINT, syscall.SIGTERM)
	sigusr1 := make(chan os.Signal, 1)
	signal.Notify(sigusr1, syscall.SIGUSR1)
	for running, paused := true, false; running; {
		select {
		case <-sigterm:
			say("terminating")
			running = false
		case <-sigusr1:
			if paused = !paused; paused {
				client.PauseAll()
				say("paused")
			} else {
				client.ResumeAll()
				say("resumed")
			}
		}
	}
	cancel()
	wg.Wait()
	if err = client.Close(); err != nil {
		dies(fmt.Sprint("Error closing client: ", err))
	}
	say("closed")
}
