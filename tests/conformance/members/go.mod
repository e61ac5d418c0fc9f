module members

go 1.24

require (
	github.com/IBM/sarama v1.61.1
	github.com/Shopify/sarama v1.17.0
	github.com/bsm/sarama-cluster v2.1.15+incompatible
	github.com/segmentio/kafka-go v0.4.51
	github.com/twmb/franz-go v1.22.2
	github.com/xdg-go/scram v1.1.2
)
