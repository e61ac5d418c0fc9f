"""Java's consumer 4.3.1 (kafka-clients, group.protocol classic), as a state machine.

The model reproduces these defects of the Java consumer. A member that receives FENCED_INSTANCE_ID joins
again, and so fences the member that replaced it. An exception of the rebalance listener does not undo the new
assignment. onPartitionsLost is called only in the poll that follows the loss of the membership.
`kproto.group.classic.member` follows the same protocol without these defects.

Java 4.3.1 and 2.6.2 (`java_2_6`) share this code. `release` holds every difference between the two releases.
In both releases, the sources are KafkaConsumer (ClassicKafkaConsumer), AbstractCoordinator,
ConsumerCoordinator, SubscriptionState, Fetcher and OffsetFetcher, FetchSessionHandler, and Metadata. A module
that follows one of these classes is named after the class.

* There are two threads. The application's thread works only inside a call (`kafka_consumer`). The heartbeat
  thread sends heartbeats, looks up the coordinator and leaves the group (`heartbeat_thread`).
* `BlockedOn` states what the application's thread waits for inside a call. The event that ends the wait lets
  the call continue.
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
