// Handlers that fail, mark and reset: handlers BOOTSTRAP. Prints a line for each session: the offsets read, the result of Consume, and Errors().
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	. "github.com/IBM/sarama"
)

type handler struct {
	setup, cleanup func(ConsumerGroupSession) error
	claim          func(ConsumerGroupSession, ConsumerGroupClaim) error
}

func (h handler) Setup(s ConsumerGroupSession) error   { return h.setup(s) }
func (h handler) Cleanup(s ConsumerGroupSession) error { return h.cleanup(s) }
func (h handler) ConsumeClaim(s ConsumerGroupSession, c ConsumerGroupClaim) error {
	return h.claim(s, c)
}

func group(name string, auto bool) ConsumerGroup {
	c := NewConfig()
	c.Version = MaxVersion
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = auto
	g, err := NewConsumerGroup([]string{os.Args[1]}, name, c)
	if err != nil {
		panic(err)
	}
	return g
}

var read []int64

// one reads a record of partition 0, marks it, and ends the session.
func one(s ConsumerGroupSession, c ConsumerGroupClaim) error {
	if c.Partition() != 0 {
		<-s.Context().Done()
		return nil
	}
	m := <-c.Messages()
	read = append(read, m.Offset)
	s.MarkMessage(m, "")
	return nil
}

func nothing(ConsumerGroupSession) error { return nil }

func session(g ConsumerGroup, name string, h handler) {
	read = []int64{}
	err := g.Consume(context.Background(), []string{"t"}, h)
	told := []string{}
	for quiet := false; !quiet; {
		select {
		case e := <-g.Errors():
			var of *ConsumerError
			if errors.As(e, &of) {
				e = of.Err
			}
			told = append(told, e.Error())
		case <-time.After(300 * time.Millisecond):
			quiet = true
		}
	}
	sort.Strings(told)
	returned := ""
	if err != nil {
		returned = err.Error()
	}
	line, _ := json.Marshal([]any{name, read, returned, told})
	fmt.Println(string(line))
}

func main() {
	fails := func(text string) func(ConsumerGroupSession) error {
		return func(ConsumerGroupSession) error { return errors.New(text) }
	}
	g := group("sarama", true)
	session(g, "a mark of setup behind the commit", handler{func(s ConsumerGroupSession) error { s.MarkOffset("t", 0, 3, ""); return nil }, nothing, one})
	session(g, "a reset of setup behind the commit", handler{func(s ConsumerGroupSession) error { s.ResetOffset("t", 0, 2, ""); return nil }, nothing, one})
	session(g, "cleanup fails", handler{nothing, fails("no disk"), one})
	session(g, "setup fails", handler{fails("no database"), nothing, one})
	session(g, "claims fail", handler{nothing, nothing, func(ConsumerGroupSession, ConsumerGroupClaim) error { return errors.New("no flight") }})
	session(g, "a claim fails behind its loop", handler{nothing, nothing, func(s ConsumerGroupSession, c ConsumerGroupClaim) error {
		if c.Partition() == 1 {
			return nil
		}
		<-s.Context().Done()
		return errors.New("the last flush failed")
	}})
	g.Close()
	g = group("sarama-by-hand", false)
	for range 2 {
		session(g, "marked without auto commit", handler{nothing, nothing, one})
	}
	g.Close()
}
