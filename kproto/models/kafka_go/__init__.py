"""kafka-go 0.4.51 as a state machine: a Reader with a GroupID.

kafka-go consists of goroutines that communicate over channels. The modules follow its files:

* `consumergroup` and `generation` follow consumergroup.go (ConsumerGroup.run, nextGeneration, Generation).

* One generation runs at a time, with its own connection to the coordinator. A generation is a set of
  goroutines: the heartbeat loop, one watcher per topic, the commit loop and the partition readers.

* When one goroutine of a generation ends, the context that all of them share is cancelled. When the last one
  has ended, the next generation begins.

* `reader` follows the type Reader of reader.go: the queue that the application reads, and the commit loops
  (commitLoopInterval, commitLoopImmediate, commitOffsetsWithRetry).

* `partition_reader` follows the type reader of reader.go: one goroutine and one connection per partition.

* `machine` handles the events.

The structure of kafka-go's goroutines leads to the following behaviour:

* Every heartbeat error has the same effect: the member commits, and rejoins with the same member id.

* No heartbeat is sent while a JoinGroup or SyncGroup is in flight, or while an ended generation waits for a
  Fetch in flight.

* If MaxWait exceeds the session timeout, a member with a Fetch in flight can therefore expire during a
  rebalance. It joins again, which starts a rebalance in which another member can expire. Two members can
  repeat this endlessly.

* New partitions of a topic are noticed only with WatchPartitionChanges (`ModelConfig.watch`). Only the leader
  acts on them: the JoinGroup of a follower starts no rebalance.

* Records that are queued when a generation ends are still delivered. The next generation commits them.

* Of three consecutive errors of the group, only the last is returned to the application. If no call of the
  application is waiting at that time, even the last error is only logged.

* If a topic does not exist when the leader assigns the partitions, no member gets a partition of any topic
  until the next rebalance.

kafka-go has no rebalance callbacks, only log lines. RunCallback("assigned") stands for the line "subscribed
to topics and partitions", and RunCallback("revoked") for "stopped commit for group". The model does not wait
for the return of these callbacks.

Options of `ModelConfig` and of kafka-go: `max_poll_ms` is RebalanceTimeout, `metadata_ms` is
PartitionWatchInterval, and `reset` is StartOffset. `extra` may contain QueueCapacity (records), MaxBytes and
JoinGroupBackoff (milliseconds).

If `auto_commit` is true, the application calls ReadMessage, and CommitInterval is `auto_commit_ms` (default
one second). Otherwise the application calls FetchMessage and CommitMessages.
"""

from .machine import next_deadline, step
from .state import EDGES, VERSIONS, ConsumerGroupPhase, KafkaGoState, start

__all__ = ["EDGES", "VERSIONS", "ConsumerGroupPhase", "KafkaGoState", "next_deadline", "start", "step"]
