// The programs of lesson 003, as printed in the author's document.
//
//	sarama_walk auto|manual|produce|partitions BOOTSTRAP GROUP TOPIC [CONFIG_JSON]
//
// auto and manual print "setup MEMBER_ID CLAIMS", "R PARTITION OFFSET", "drained PARTITION" when Messages() is closed,
// "ERROR NAME TEXT" of Errors(), "errors closed", and "panic NAME TEXT" where the document's program panics. The end of
// stdin triggers their deferred Close, then "closed". partitions uses only ConsumePartition. CONFIG_JSON
// changes settings of the document.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/sarama"
)

var (
	example, group, topic = os.Args[1], os.Args[3], os.Args[4]
	brokers               = []string{os.Args[2]}
	conf                  struct {
		Version         string `json:"version"`
		ClientID        string `json:"client_id"`
		RetentionMs     int    `json:"retention_ms"`
		SessionMs       int    `json:"session_ms"`
		MaxProcessingMs int    `json:"max_processing_ms"`
		Channel         int    `json:"channel"`
		WorkMs          int    `json:"work_ms"`   // the sleep that the document has as a comment
		StandMs         int    `json:"stand_ms"`  // the same, but once for each claim
		ReturnMs        int    `json:"return_ms"` // how long ConsumeClaim takes to return after its last message
		HeartbeatMs     int    `json:"heartbeat_ms"`
		CommitAt        int    `json:"commit_at"` // Commit only after this mark, twice
		Again           bool   `json:"again"`     // another Consume instead of a panic
	}
	printing sync.Mutex
	marks    atomic.Int64
)

func say(words ...any) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(words...)
}

type exampleConsumerGroupHandler struct{}

func (exampleConsumerGroupHandler) Setup(se sarama.ConsumerGroupSession) error {
	say("setup", se.MemberID(), se.Claims()[topic])
	return nil
}

func (exampleConsumerGroupHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (exampleConsumerGroupHandler) ConsumeClaim(sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	stand := conf.StandMs
	for msg := range claim.Messages() {
		time.Sleep(time.Duration(stand) * time.Millisecond)
		stand = 0
		time.Sleep(time.Duration(conf.WorkMs) * time.Millisecond)
		sess.MarkMessage(msg, "")
		if at := marks.Add(1); example == "manual" && conf.CommitAt == 0 {
			sess.Commit()
		} else if at == int64(conf.CommitAt) {
			sess.Commit()
			sess.Commit()
		}
		say("R", msg.Partition, msg.Offset)
	}
	say("drained", claim.Partition())
	time.Sleep(time.Duration(conf.ReturnMs) * time.Millisecond)
	return nil
}

func name(err error) string {
	var code sarama.KError
	if errors.As(err, &code) {
		return fmt.Sprintf("KError(%d)", int16(code))
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
}

// made returns the document's config with the changes of CONFIG_JSON.
func made() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetNewest
	config.Consumer.Offsets.AutoCommit.Enable = example == "auto"
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Retention = time.Duration(conf.RetentionMs) * time.Millisecond
	if conf.Version != "" {
		version, err := sarama.ParseKafkaVersion(conf.Version)
		if err != nil {
			panic(err)
		}
		config.Version = version
	}
	if conf.ClientID != "" {
		config.ClientID = conf.ClientID
	}
	if conf.SessionMs > 0 {
		config.Consumer.Group.Session.Timeout = time.Duration(conf.SessionMs) * time.Millisecond
		config.Consumer.Group.Heartbeat.Interval = config.Consumer.Group.Session.Timeout / 3
	}
	if conf.HeartbeatMs > 0 {
		config.Consumer.Group.Heartbeat.Interval = time.Duration(conf.HeartbeatMs) * time.Millisecond
	}
	if conf.MaxProcessingMs > 0 {
		config.Consumer.MaxProcessingTime = time.Duration(conf.MaxProcessingMs) * time.Millisecond
	}
	if conf.Channel > 0 {
		config.ChannelBufferSize = conf.Channel
	}
	return config
}

func consume() {
	config := made()
	joined, err := sarama.NewConsumerGroup(brokers, group, config)
	if err != nil {
		panic(err)
	}
	go func() {
		for err := range joined.Errors() {
			say("ERROR", strings.TrimPrefix(fmt.Sprintf("%T", err), "*"), err)
		}
		say("errors closed")
	}()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		if err := joined.Close(); err != nil {
			say("close", err)
		}
		say("closed")
	}()
	for {
		if err := joined.Consume(context.Background(), []string{topic}, exampleConsumerGroupHandler{}); err != nil {
			say("panic", name(err), err)
			if conf.Again && err != sarama.ErrClosedConsumerGroup {
				continue
			}
			if err == sarama.ErrClosedConsumerGroup {
				time.Sleep(time.Second) // let Close report its errors
			}
			return
		}
	}
}

// produce sends k1 twice with each of the document's RequiredAcks.
func produce() {
	config := sarama.NewConfig()
	if _, err := sarama.NewSyncProducer(brokers, config); err != nil {
		say("without Return.Successes:", err)
	}
	config.Producer.Return.Successes = true
	for _, acks := range []sarama.RequiredAcks{sarama.WaitForAll, sarama.WaitForLocal, sarama.NoResponse} {
		config.Producer.RequiredAcks = acks
		producer, err := sarama.NewSyncProducer(brokers, config)
		if err != nil {
			panic(err)
		}
		for range [2]int{} {
			message := &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder("k1"), Value: sarama.StringEncoder("v1")}
			partition, offset, err := producer.SendMessage(message)
			if err != nil {
				say("Failed to produce message:", err)
				continue
			}
			say("acks", acks, partition, offset)
		}
		if err := producer.Close(); err != nil {
			say("Failed to close Kafka producer cleanly:", err)
		}
	}
}

// partitions consumes 0 from its end and 1 from its start, then 0 once more, and 2 from an offset out of range.
func partitions() {
	consumer, err := sarama.NewConsumer(brokers, made())
	if err != nil {
		panic(err)
	}
	for _, one := range []struct {
		partition int32
		offset    int64
	}{{0, sarama.OffsetNewest}, {1, sarama.OffsetOldest}, {0, 3}, {2, 99}} {
		claim, err := consumer.ConsumePartition(topic, one.partition, one.offset)
		if err != nil {
			say("refused", name(err))
			continue
		}
		go func() {
			for msg := range claim.Messages() {
				say("R", msg.Partition, msg.Offset)
			}
		}()
	}
	say("started")
	io.Copy(io.Discard, os.Stdin)
}

func main() {
	if len(os.Args) > 5 {
		if err := json.Unmarshal([]byte(os.Args[5]), &conf); err != nil {
			panic(err)
		}
	}
	switch example {
	case "produce":
		produce()
	case "partitions":
		partitions()
	default:
		consume()
	}
}
