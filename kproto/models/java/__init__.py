"""Java's consumer 4.3.1 (kafka-clients, group.protocol classic), as a state machine.

The model reproduces these defects of the Java consumer, which `kproto.group.classic.member` does not have:

* A member that receives FENCED_INSTANCE_ID in a heartbeat response raises the error once. Then it joins
  again, and so fences the member that replaced it.

* An exception in the rebalance listener does not undo the new assignment.

* The loss of the membership is reported late: the next poll calls onPartitionsLost.

kafka-clients 4.3.1 and 2.6.2 (`java_2_6`) share this code. `release` contains all differences between them. A
module that follows one of Java's classes has the name of that class.

In both releases, the model follows KafkaConsumer (in 4.3: ClassicKafkaConsumer), AbstractCoordinator,
ConsumerCoordinator, SubscriptionState, Fetcher, OffsetFetcher, FetchSessionHandler and Metadata.

* There are two threads. The application's thread works only inside a call (`kafka_consumer`). The heartbeat
  thread sends heartbeats, looks up an unknown coordinator, and leaves the group when max.poll.interval.ms
  expires (`heartbeat_thread`).

* `BlockedOn` is the event for which the application's thread waits inside a call. When the event occurs, the
  call continues.
"""

from __future__ import annotations

from ..contract import ModelConfig
from .machine import next_deadline, step
from .release import JAVA_4_3
from .state import JavaState, new_consumer

VERSIONS = dict(JAVA_4_3.versions)
HEARS_DISCONNECTS = True

__all__ = ["HEARS_DISCONNECTS", "VERSIONS", "JavaState", "next_deadline", "start", "step"]


def start(config: ModelConfig) -> JavaState:
    """Return the state of a consumer before its first event."""
    return new_consumer(config, JAVA_4_3)
