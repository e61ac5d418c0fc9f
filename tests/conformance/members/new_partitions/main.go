// The programs of lesson 001 around kafka-go and confluent-kafka-go, with a metadata refresh every 3 s.
//
//	new_partitions CLIENT BOOTSTRAP GROUP TOPIC [USER PASSWORD]
//
// CLIENT: kafka-go, kafka-go-watch (WatchPartitionChanges), confluent, confluent-eof (enable.partition.eof),
// confluent-static (group.instance.id is one). Its client id is GROUP.
// It prints "R PARTITION OFFSET" for each record, and with confluent "timeout" if ReadMessage times out, and "error CODE"
// for each other error. It subscribes to a topic named on stdin, and prints "subscribed" or "error CODE".
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	confluent "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
)

const refresh = 3 * time.Second

var (
	client, bootstrap, group, topic = os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	user, password                  string
)

func withKafkaGo() {
	dialer := &kafka.Dialer{Timeout: 10 * time.Second, DualStack: true}
	if user != "" {
		dialer.SASLMechanism = plain.Mechanism{Username: user, Password: password}
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:                strings.Split(bootstrap, ","),
		Topic:                  topic,
		Dialer:                 dialer,
		QueueCapacity:          2000,
		CommitInterval:         time.Second,
		StartOffset:            kafka.LastOffset,
		MaxBytes:               10e6,
		GroupID:                group,
		WatchPartitionChanges:  client == "kafka-go-watch",
		PartitionWatchInterval: refresh,
	})
	for {
		message, err := reader.ReadMessage(context.Background())
		if err == nil {
			fmt.Println("R", message.Partition, message.Offset)
		}
	}
}

func withConfluent() {
	config := &confluent.ConfigMap{
		"bootstrap.servers":                  bootstrap,
		"group.id":                           group,
		"client.id":                          group,
		"auto.offset.reset":                  "earliest",
		"topic.metadata.refresh.interval.ms": int(refresh / time.Millisecond),
	}
	switch client {
	case "confluent-eof":
		_ = config.SetKey("enable.partition.eof", true)
	case "confluent-static":
		_ = config.SetKey("group.instance.id", "one")
		_ = config.SetKey("heartbeat.interval.ms", 500)
	}
	if user != "" {
		for name, value := range map[string]string{
			"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN",
			"sasl.username": user, "sasl.password": password,
		} {
			_ = config.SetKey(name, value)
		}
	}
	consumer, err := confluent.NewConsumer(config)
	if err != nil {
		panic(err)
	}
	if err = consumer.Subscribe(topic, nil); err != nil {
		panic(err)
	}
	again := make(chan bool)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			again <- true
		}
	}()
	for {
		message, err := consumer.ReadMessage(time.Second)
		if err == nil {
			fmt.Println("R", message.TopicPartition.Partition, int64(message.TopicPartition.Offset))
		} else if err.(confluent.Error).IsTimeout() {
			fmt.Println("timeout")
		} else {
			said(err)
		}
		select {
		case <-again:
			if err := consumer.Subscribe(topic, nil); err != nil {
				said(err)
			} else {
				fmt.Println("subscribed")
			}
		default:
		}
	}
}

func said(err error) { fmt.Println("error", int(err.(confluent.Error).Code()), err) }

func main() {
	if len(os.Args) > 6 {
		user, password = os.Args[5], os.Args[6]
	}
	switch {
	case strings.HasPrefix(client, "kafka-go"):
		withKafkaGo()
	default:
		withConfluent()
	}
}
