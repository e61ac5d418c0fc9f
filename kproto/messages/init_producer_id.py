"""InitProducerId (key 22): get the producer id and epoch of an idempotent producer."""

from __future__ import annotations

from ..wire.message import Message, field
from ..wire.types import Bool, Int16, Int32, Int64, String


class InitProducerIdRequest(Message, api_key=22, versions="0-6", flexible="2+"):
    # The transactional id. Null for a producer that is idempotent but not transactional.
    transactional_id: String | None
    transaction_timeout_ms: Int32
    # The current producer id; -1 if the producer has none. A producer that sends its id and epoch gets a new
    # epoch, and can continue after an error (KIP-360).
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    # Whether the producer takes part in a two-phase commit (KIP-939).
    enable2_pc: Bool = field("6+", default=False)
    # Whether to keep a prepared transaction instead of aborting it (KIP-939).
    keep_prepared_txn: Bool = field("6+", default=False)


class InitProducerIdResponse(Message, api_key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
