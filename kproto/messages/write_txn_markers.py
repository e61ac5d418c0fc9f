"""WriteTxnMarkers (key 27): the transaction coordinator writes markers into partitions."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, Int64, String


class WriteTxnMarkersRequest(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker]


class WritableTxnMarker(Struct):
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    # The transaction version of the marker. From transaction version 2 on, the producer epoch of a marker
    # must be above the epoch that the partition leader knows. The leader rejects any other marker, unless it
    # is a retry (KIP-1228).
    transaction_version: Int8 = field("2+", default=0, ignorable=True)


class WritableTxnMarkerTopic(Struct):
    name: String
    partition_indexes: list[Int32]


class WriteTxnMarkersResponse(Message, api_key=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult]


class WritableTxnMarkerResult(Struct):
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


class WritableTxnMarkerTopicResult(Struct):
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32
    error_code: Int16
