module new_partitions

go 1.21

require (
	github.com/confluentinc/confluent-kafka-go/v2 v2.2.0
	github.com/segmentio/kafka-go v0.4.47
)
