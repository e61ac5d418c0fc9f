"""DescribeLogDirs (key 35): which replicas are on which disk, and how large they are (KIP-113)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, Int64, String


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None


class DescribableLogDirTopic(Struct):
    topic: String = field(map_key=True)
    partitions: list[Int32]


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]


class DescribeLogDirsResult(Struct):
    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)  # KIP-827
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: Bool = field("5+", default=False, ignorable=True)  # KIP-1066


class DescribeLogDirsTopic(Struct):
    name: String
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool
