module sarama_walk

go 1.21

require github.com/Shopify/sarama v1.27.2
