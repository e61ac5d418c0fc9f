module sarama_cluster_main

go 1.21

require (
	github.com/Shopify/sarama v1.29.1
	github.com/bsm/sarama-cluster v2.1.15+incompatible
)
