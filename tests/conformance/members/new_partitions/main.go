// Three programs of document 001 as they stand there, with metadata that is refreshed every three seconds.
//
//	new_partitions CLIENT BOOTSTRAP GROUP TOPIC [USER PASSWORD]
//
// CLIENT: sarama, sarama-once (Consume outside of a loop), sarama-old (the document's V0_10_2_1), sarama-retention
// (Offsets.Retention is set), kafka-go, kafka-go-watch (WatchPartitionChanges), confluent. sarama's others say
// V2_0_0_0. It prints "R PARTITION OFFSET" for each record and "session CLAIMS" for each of sarama's.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/Shopify/sarama"
	confluent "github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
)

const refresh = 3 * time.Second

var (
	client, bootstrap, group, topic = os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	user, password                  string
)

type Consumer struct{ ready chan bool }

func (consumer *Consumer) Setup(session sarama.ConsumerGroupSession) error {
	fmt.Println("session", session.Claims()[topic])
	close(consumer.ready)
	return nil
}

func (consumer *Consumer) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (consumer *Consumer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			fmt.Println("R", message.Partition, message.Offset)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func withSarama() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetNewest
	config.Metadata.RefreshFrequency = refresh
	switch client {
	case "sarama-old":
		config.Version = sarama.V0_10_2_1
	case "sarama-retention":
		config.Consumer.Offsets.Retention = time.Hour
	}
	if user != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLTypePlaintext
		config.Net.SASL.User, config.Net.SASL.Password = user, password
	}
	consumer := Consumer{ready: make(chan bool)}
	ctx, cancel := context.WithCancel(context.Background())
	joined, err := sarama.NewConsumerGroup(strings.Split(bootstrap, ","), group, config)
	if err != nil {
		panic(err)
	}
	wg := &sync.WaitGroup{}
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			if err := joined.Consume(ctx, []string{topic}, &consumer); err != nil {
				if errors.Is(err, sarama.ErrClosedConsumerGroup) {
					return
				}
				panic(err)
			}
			if ctx.Err() != nil || client == "sarama-once" {
				return
			}
			consumer.ready = make(chan bool)
		}
	}()
	<-consumer.ready
	sigterm := make(chan os.Signal, 1)
	signal.Notify(sigterm, syscall.SIGINT, syscall.SIGTERM)
	<-sigterm
	cancel()
	wg.Wait()
	if err = joined.Close(); err != nil {
		panic(err)
	}
}

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
		"auto.offset.reset":                  "earliest",
		"topic.metadata.refresh.interval.ms": int(refresh / time.Millisecond),
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
	for {
		message, err := consumer.ReadMessage(time.Second)
		if err == nil {
			fmt.Println("R", message.TopicPartition.Partition, int64(message.TopicPartition.Offset))
		}
	}
}

func main() {
	if len(os.Args) > 6 {
		user, password = os.Args[5], os.Args[6]
	}
	switch {
	case strings.HasPrefix(client, "sarama"):
		withSarama()
	case strings.HasPrefix(client, "kafka-go"):
		withKafkaGo()
	default:
		withConfluent()
	}
}
