"""Keys and values of `__share_group_state`, in which the share coordinator keeps its state (KIP-932).

In the topic, an int16 precedes each message. In a record's key it is the record type, and in the value the
version of the message.

The state of a share partition is its latest ShareSnapshot, with the later ShareUpdates of the same snapshot
epoch applied.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, Int64, String, Uuid


class ShareSnapshotKey(Message, versions="0"):
    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    # The epoch of this snapshot. A ShareUpdate carries the epoch of the snapshot that it extends.
    snapshot_epoch: Int32
    # The epoch of the state. It increases when the start offset is reset.
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    # The number of offsets at or above `start_offset` whose delivery is complete; -1 if it is unknown
    # (KIP-1226).
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


class StateBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    # The state of the records: 0 available, 2 acknowledged, 4 archived.
    delivery_state: Int8
    delivery_count: Int16


class ShareUpdateKey(Message, versions="0"):
    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: Int32
    leader_epoch: Int32
    # The new start offset; -1 if it is unchanged.
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    # The changed batches only.
    state_batches: list[StateBatch]
