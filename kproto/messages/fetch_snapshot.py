"""FetchSnapshot (key 59): read a chunk of a snapshot of the metadata log (KIP-630)."""

from __future__ import annotations

from ..wire.message import FRESH, Message, Struct, field
from ..wire.types import ZERO_UUID, Int16, Int32, Int64, Records, String, UInt16, Uuid


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: String | None = field(default=None, tag=0)
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFFFFFF
    topics: list[FetchSnapshotRequestTopicSnapshot]


class FetchSnapshotRequestTopicSnapshot(Struct):
    name: String
    partitions: list[FetchSnapshotRequestPartitionSnapshot]


class FetchSnapshotRequestPartitionSnapshot(Struct):
    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: FetchSnapshotRequestSnapshotId
    position: Int64
    replica_directory_id: Uuid = field("1+", default=ZERO_UUID, tag=0, ignorable=True)


class FetchSnapshotRequestSnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[FetchSnapshotResponseTopicSnapshot]
    node_endpoints: list[NodeEndpoint] = field("1+", default=[], tag=0)


class FetchSnapshotResponseTopicSnapshot(Struct):
    name: String
    partitions: list[FetchSnapshotResponsePartitionSnapshot]


class FetchSnapshotResponsePartitionSnapshot(Struct):
    index: Int32
    error_code: Int16
    snapshot_id: FetchSnapshotResponseSnapshotId
    current_leader: LeaderIdAndEpoch = field(default=FRESH, tag=0)
    size: Int64
    position: Int64
    unaligned_records: Records


class FetchSnapshotResponseSnapshotId(Struct):
    end_offset: Int64
    epoch: Int32


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class NodeEndpoint(Struct):
    node_id: Int32 = field(map_key=True)
    host: String
    port: UInt16
