// The program of document 000, as printed there: getConsumer, sub, seek, poll, and a handler of HTTP requests.
//
//	offset_minus_1000 BOOTSTRAP GROUP TOPIC SCHEDULE_JSON
//
// SCHEDULE_JSON: inside (each request subscribes), sleep_ms (after it), waits_ms (before each request), polls.
// It prints a line for each request with the output of each poll: [the assignment's offset or null, the event].
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const offset = 2

var (
	groupList, groupID, topic = os.Args[1], os.Args[2], os.Args[3]
	schedule                  struct {
		Inside  bool
		SleepMs int   `json:"sleep_ms"`
		WaitsMs []int `json:"waits_ms"`
		Polls   int
	}
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func getConsumer() *kafka.Consumer {
	kconsumer, err := kafka.NewConsumer(&kafka.ConfigMap{
		"metadata.broker.list":     groupList,
		"group.id":                 groupID,
		"client.id":                "hostname",
		"enable.auto.commit":       false,
		"enable.auto.offset.store": false,
		"auto.offset.reset":        "earliest",
		"enable.partition.eof":     true,
		"debug":                    "msg",
	})
	must(err)
	return kconsumer
}

func sub(kconsumer *kafka.Consumer) {
	must(kconsumer.SubscribeTopics([]string{topic}, nil))
}

func seek(kconsumer *kafka.Consumer) {
	must(kconsumer.Assign([]kafka.TopicPartition{{Topic: &topic, Partition: 0, Offset: kafka.Offset(offset)}}))
	// It may reach the old fetcher: "Erroneous state". The document prints that and continues, as here.
	_ = kconsumer.Seek(kafka.TopicPartition{Topic: &topic, Partition: 0, Offset: kafka.Offset(offset)}, 400)
}

func poll(kconsumer *kafka.Consumer) {
	printed := [][2]any{}
	for i := 0; i < schedule.Polls; i++ {
		ev := kconsumer.Poll(400)
		as, err := kconsumer.Assignment()
		must(err)
		line := [2]any{nil, "nil"}
		if len(as) > 0 {
			line[0] = int64(as[0].Offset)
		}
		switch one := ev.(type) {
		case *kafka.Message:
			line[1] = fmt.Sprintf("message %d", int64(one.TopicPartition.Offset))
		case kafka.PartitionEOF:
			line[1] = fmt.Sprintf("EOF at %d", int64(one.Offset))
		}
		printed = append(printed, line)
	}
	must(json.NewEncoder(os.Stdout).Encode(printed))
}

func main() {
	must(json.Unmarshal([]byte(os.Args[4]), &schedule))
	kconsumer := getConsumer()
	if !schedule.Inside {
		sub(kconsumer)
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if schedule.Inside {
			sub(kconsumer)
			time.Sleep(time.Duration(schedule.SleepMs) * time.Millisecond)
		}
		seek(kconsumer)
		poll(kconsumer)
	}))
	for _, wait := range schedule.WaitsMs {
		time.Sleep(time.Duration(wait) * time.Millisecond)
		_, err := http.Get(server.URL)
		must(err)
	}
	must(kconsumer.Close())
}
