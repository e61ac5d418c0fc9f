"""What consumers tell each other inside JoinGroup's `metadata` and SyncGroup's `assignment`.

The bytes there begin with an int16, the version, which is not part of these bodies:
`kproto.group.subscription` reads and writes it. A reader that meets a newer version than it knows reads it
as the newest it knows.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bytes, Int32, String


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[String]
    user_data: Bytes | None = None
    # KIP-429: what the member holds now, for cooperative rebalances
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = field(
        "1+", default=[], ignorable=True
    )
    # KIP-792: tells which of two claims to a partition is older
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", default=None, ignorable=True)  # KIP-881


class ConsumerProtocolSubscriptionTopicPartition(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition]
    user_data: Bytes | None = None


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]
