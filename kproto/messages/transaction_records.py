"""Keys and values of `__transaction_state`, in which the transaction coordinator keeps its transactions.

In the topic, an int16 precedes each message. In a record's key it is the record type, and in the value the
version of the message.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, Int64, String


class TransactionLogKey(Message, versions="0"):
    transactional_id: String


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: Int64
    # The producer id before the current one; -1 if there is none (KIP-890).
    previous_producer_id: Int64 = field("1+", default=-1, tag=0)
    # The producer id that replaces the current one at the end of the transaction; -1 if there is none
    # (KIP-890).
    next_producer_id: Int64 = field("1+", default=-1, tag=1)
    producer_epoch: Int16
    # The epoch that belongs to `next_producer_id`.
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32
    # The state: 0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort, 6
    # dead, 7 prepare epoch fence.
    transaction_status: Int8
    # The partitions of the transaction; null in the state 0 (empty).
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    # The `transaction.version` that the client uses; 2 with KIP-890.
    client_transaction_version: Int16 = field("1+", default=0, tag=2)


class PartitionsSchema(Struct):
    topic: String
    partition_ids: list[Int32]
