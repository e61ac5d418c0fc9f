"""AddPartitionsToTxn (key 24): add partitions to a transaction before writing to them."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, Int64, String


class AddPartitionsToTxnRequest(Message, api_key=24, versions="0-5", flexible="3+"):
    # The transactions to add partitions to, or to verify. Only brokers send v4 and above (KIP-890).
    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default=[])
    # The transactional id. Clients send versions up to v3, which have this field and the following ones.
    v3_and_below_transactional_id: String = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default=[])


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = field(map_key=True)
    producer_id: Int64
    producer_epoch: Int16
    # Whether to verify that the partitions are in the transaction, instead of adding them (KIP-890).
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnTopic(Struct):
    name: String = field(map_key=True)
    partitions: list[Int32]


class AddPartitionsToTxnResponse(Message, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default=[])


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = field(map_key=True)
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnTopicResult(Struct):
    name: String = field(map_key=True)
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = field(map_key=True)
    partition_error_code: Int16
