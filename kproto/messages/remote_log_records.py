"""Values of `__remote_log_metadata`: which segments tiered storage holds (KIP-405).

In the topic, three unsigned varints precede each message: the frame version (1), the record type and the
message's version.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Bytes, Int8, Int32, Int64, String, Uuid


class RemoteLogSegmentMetadataRecord(Message, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry
    start_offset: Int64
    end_offset: Int64
    # The broker that wrote the record.
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    # The leader epochs of the segment, each with its first offset.
    segment_leader_epochs: list[SegmentLeaderEpochEntry]
    segment_size_in_bytes: Int32
    # Data of the storage plugin (KIP-917).
    custom_metadata: Bytes | None = None
    # The state: 0 copy started, 1 copy finished, 2 delete started, 3 delete finished.
    remote_log_segment_state: Int8
    # Whether the segment has no transaction index (KIP-1058).
    txn_index_empty: Bool = field(default=False, tag=0)


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry
    id: Uuid


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: Int32
    offset: Int64


class TopicIdPartitionEntry(Struct):
    name: String
    id: Uuid
    partition: Int32


class RemoteLogSegmentMetadataUpdateRecord(Message, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry
    broker_id: Int32
    event_timestamp_ms: Int64
    custom_metadata: Bytes | None = None
    # The new state, as in RemoteLogSegmentMetadataRecord.
    remote_log_segment_state: Int8


class RemotePartitionDeleteMetadataRecord(Message, versions="0", flexible="0+"):
    topic_id_partition: TopicIdPartitionEntry
    broker_id: Int32
    event_timestamp_ms: Int64
    # The state of the partition's deletion: 0 marked, 1 started, 2 finished.
    remote_partition_delete_state: Int8


class RemoteLogSegmentMetadataSnapshotRecord(Message, versions="0", flexible="0+"):
    segment_id: Uuid
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[SegmentLeaderEpochEntry]
    segment_size_in_bytes: Int32
    custom_metadata: Bytes | None = None
    remote_log_segment_state: Int8
    txn_index_empty: Bool = field(default=False, tag=0)
