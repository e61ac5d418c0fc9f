// The program of lesson 000, as printed in the author's document: getConsumer, sub, seek, poll, and a handler
// of HTTP requests.
//
//	offset_minus_1000 BOOTSTRAP GROUP TOPIC SCHEDULE_JSON
//
// SCHEDULE_JSON: inside (each request subscribes), sleep_ms (after it), waits_ms (before each request), polls.
// It prints a line for each request with the output of each poll as the document prints it: [assignment, event].
// The schedule "mistakes" makes calls with errors instead. The program then prints [call, text of the error] for each.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const offset int64 = 2

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

func at(offset int64) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: &topic, Partition: 0, Offset: kafka.Offset(offset)}
}

// println returns what fmt.Println prints, without the line break.
func println(words ...any) string {
	return strings.TrimSuffix(fmt.Sprintln(words...), "\n")
}

func mistakes() {
	said := [][2]string{}
	say := func(call string, err error) { said = append(said, [2]string{call, println(err)}) }
	for _, setting := range [][2]string{
		{"metadata.brokers.list", "localhost"}, {"enable.auto.commit", "no"}, {"debug", "mesg"}, {"security.protocol", "SASL"},
	} {
		_, err := kafka.NewConsumer(&kafka.ConfigMap{"group.id": groupID, setting[0]: setting[1]})
		say(setting[0]+"="+setting[1], err)
	}
	kconsumer := getConsumer()
	say("subscribe", kconsumer.SubscribeTopics([]string{topic, topic}, nil))
	say("assign", kconsumer.Assign([]kafka.TopicPartition{at(-5)}))
	say("seek", kconsumer.Seek(at(offset), 400))
	say("assign", kconsumer.Assign([]kafka.TopicPartition{at(offset)}))
	must(kconsumer.Close())
	must(json.NewEncoder(os.Stdout).Encode(said))
}

func sub(kconsumer *kafka.Consumer) {
	must(kconsumer.SubscribeTopics([]string{topic}, nil))
}

func seek(kconsumer *kafka.Consumer) {
	must(kconsumer.Assign([]kafka.TopicPartition{at(offset)}))
	// It may reach the old fetcher: "Erroneous state". The document prints that and continues, as here.
	_ = kconsumer.Seek(at(offset), 400)
}

func poll(kconsumer *kafka.Consumer) {
	printed := [][2]string{}
	for i := 0; i < schedule.Polls; i++ {
		ev := kconsumer.Poll(400)
		as, err := kconsumer.Assignment()
		must(err)
		line := [2]string{"", println(ev)}
		if len(as) > 0 {
			line[0] = println(as, err, int64(as[0].Offset))
		}
		printed = append(printed, line)
	}
	must(json.NewEncoder(os.Stdout).Encode(printed))
}

func main() {
	if os.Args[4] == "mistakes" {
		mistakes()
		return
	}
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
