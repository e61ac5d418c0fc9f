"""sarama's way of programming, on our engines: the names of its package, for threads and for asyncio.

group, group_threads              ConsumerGroup: a handler, sessions, a claim for each partition
partitions, partitions_threads    PartitionConsumers: partitions that one names, without a group
producers                         SyncProducer waits for each message, QueueProducer has queues at both ends
session, inbox, outlet            a session and its claims; what waits for who reads
"""
