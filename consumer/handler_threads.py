"""`ConsumerGroup` is in `sarama.group_threads`."""

from .sarama.group_threads import ConsumerGroup as ConsumerGroup
