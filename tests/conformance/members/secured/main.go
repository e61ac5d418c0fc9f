// sarama or franz-go with SASL:
//
//	secured sarama|franz BOOTSTRAP CA MECHANISM USER SECRET write VALUE...
//	secured sarama|franz BOOTSTRAP CA MECHANISM USER SECRET read GROUP
//
// `write` sends the values to the topic flights and ends. `read` joins the group, prints each value on its own line, and
// leaves when stdin ends. SECRET is a password, or the token of OAUTHBEARER; CA is empty without TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	xdg "github.com/xdg-go/scram"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type xdgClient struct {
	make xdg.HashGeneratorFcn
	talk *xdg.ClientConversation
}

func (x *xdgClient) Begin(user, password, authzID string) error {
	client, err := x.make.NewClient(user, password, authzID)
	if err == nil {
		x.talk = client.NewConversation()
	}
	return err
}
func (x *xdgClient) Step(challenge string) (string, error) { return x.talk.Step(challenge) }
func (x *xdgClient) Done() bool                            { return x.talk.Done() }

type tokens string

func (t tokens) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

type handler struct{}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (handler) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		fmt.Println(string(m.Value))
		s.MarkMessage(m, "")
	}
	return nil
}

func ofSarama(place, mechanism, user, secret string, trust *tls.Config, mode string, words []string) {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Net.TLS.Enable, c.Net.TLS.Config = trust != nil, trust
	c.Net.SASL.Enable, c.Net.SASL.Mechanism = true, sarama.SASLMechanism(mechanism)
	c.Net.SASL.User, c.Net.SASL.Password = user, secret
	switch mechanism {
	case "SCRAM-SHA-256":
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &xdgClient{make: xdg.SHA256} }
	case "SCRAM-SHA-512":
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &xdgClient{make: xdg.SHA512} }
	case "OAUTHBEARER":
		c.Net.SASL.TokenProvider = tokens(secret)
	}
	c.Producer.Return.Successes = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Metadata.RefreshFrequency = time.Second
	if mode == "write" {
		producer, err := sarama.NewSyncProducer([]string{place}, c)
		check(err)
		for _, value := range words {
			_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "flights", Value: sarama.StringEncoder(value)})
			check(err)
		}
		check(producer.Close())
		return
	}
	group, err := sarama.NewConsumerGroup([]string{place}, words[0], c)
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); stop() }()
	for ctx.Err() == nil {
		check(group.Consume(ctx, []string{"flights"}, handler{}))
	}
	check(group.Close())
}

func ofFranz(place, mechanism, user, secret string, trust *tls.Config, mode string, words []string) {
	how := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: user, Pass: secret}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: user, Pass: secret}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: user, Pass: secret}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: secret}.AsMechanism(),
	}[mechanism]
	options := []kgo.Opt{kgo.SeedBrokers(place), kgo.ClientID("franz"), kgo.SASL(how)}
	if trust != nil {
		options = append(options, kgo.DialTLSConfig(trust))
	}
	if mode == "write" {
		client, err := kgo.NewClient(options...)
		check(err)
		for _, value := range words {
			check(client.ProduceSync(context.Background(), &kgo.Record{Topic: "flights", Value: []byte(value)}).FirstErr())
		}
		client.Close()
		return
	}
	options = append(options, kgo.ConsumerGroup(words[0]), kgo.ConsumeTopics("flights"), kgo.Balancers(kgo.RangeBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	client, err := kgo.NewClient(options...)
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); stop() }()
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) { fmt.Println(string(r.Value)) })
	}
	client.Close()
}

func main() {
	a := os.Args
	var trust *tls.Config
	if a[3] != "" {
		pem, err := os.ReadFile(a[3])
		check(err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		trust = &tls.Config{RootCAs: pool}
	}
	run := map[string]func(string, string, string, string, *tls.Config, string, []string){
		"sarama": ofSarama, "franz": ofFranz,
	}[a[1]]
	run(a[2], a[4], a[5], a[6], trust, a[7], a[8:])
}
