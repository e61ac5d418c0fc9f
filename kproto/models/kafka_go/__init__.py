"""kafka-go 0.4.51: a Reader with a GroupID, as it is.

Its structure is three loops over channels, and this package has a module for each:

* `consumergroup` is `consumergroup.go` (ConsumerGroup.run, nextGeneration): one generation after the other,
  each with a connection of its own to the coordinator. A generation is a set of routines (heartbeat,
  a watcher per topic, commits, readers); when one of them ends, for whatever reason, all end, and only when
  the last has ended the next generation begins.
* `reader` is `reader.go`, the type Reader: the queue that the application reads, and the commit loops
  (commitLoopInterval, commitLoopImmediate, commitOffsetsWithRetry).
* `partition_reader` is `reader.go`, the type reader: one routine and one connection for each partition.

What follows from this structure, and is so in the original:

* Every answer to a heartbeat that isn't OK is the same: commit, and join again with the same member id.
* No heartbeat goes out while a JoinGroup or SyncGroup is open, nor while an open fetch is waited for: with
  MaxWait above the session timeout, two members put each other out of the group for ever.
* Partitions that a topic gains are seen only with WatchPartitionChanges (`Config.watch`), and help only
  when the leader sees them: a follower's JoinGroup starts no rebalance.
* What is queued when a generation ends is still handed out, and committed with the next generation.
* The application is told nothing but every third error in a row of the group, and only while it waits.
* Joined without a topic's partitions being known, a member stays without, until somebody rebalances.

`Tell` says "assigned" where the original logs "subscribed to topics and partitions", and "revoked" where it
logs "stopped commit for group"; nobody waits for them. `Config.max_poll_ms` is RebalanceTimeout,
`metadata_ms` PartitionWatchInterval, `auto_commit` ReadMessage with CommitInterval `auto_commit_ms` (one
second unless said) and otherwise FetchMessage with CommitMessages, `reset` StartOffset; `extra` takes
QueueCapacity (records), MaxBytes, JoinGroupBackoff (milliseconds).
"""

from .machine import next_deadline, step
from .state import EDGES, VERSIONS, ConsumerGroupPhase, KafkaGoState, start

__all__ = ["EDGES", "VERSIONS", "ConsumerGroupPhase", "KafkaGoState", "next_deadline", "start", "step"]
