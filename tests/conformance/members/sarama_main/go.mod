module sarama_main

go 1.21

require github.com/Shopify/sarama v1.38.1
