"""The consumer protocol: the content of JoinGroup's `metadata` and of SyncGroup's `assignment`.

The metadata and the assignment start with an int16, the version. `kproto.group.subscription` reads and writes
the version, which is not part of these messages. A reader that does not know a version uses its own newest
version.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bytes, Int32, String


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[String]
    user_data: Bytes | None = None
    # The partitions that the member owns now, for cooperative rebalances (KIP-429).
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field(
        "1+", default=[], ignorable=True
    )
    # The generation of the owned partitions. Of two members that report the same partition, the one with the
    # newer generation keeps it (KIP-792).
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", default=None, ignorable=True)  # The rack of the member (KIP-881).


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition]
    user_data: Bytes | None = None


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]
