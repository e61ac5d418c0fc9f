"""EndTxn (key 26): commit or abort a transaction."""

from __future__ import annotations

from ..wire.message import Message, field
from ..wire.types import Bool, Int16, Int32, Int64, String


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16
    # The producer id for the next transaction. From v5 on, each transaction gets a new epoch, and also a new
    # producer id if the epochs of the old id are exhausted (KIP-890).
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)
