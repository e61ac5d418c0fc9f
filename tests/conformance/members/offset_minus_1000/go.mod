module offset_minus_1000

go 1.21

require github.com/confluentinc/confluent-kafka-go/v2 v2.2.0
