"""AllocateProducerIds (key 67): a broker requests a block of producer ids (KIP-730)."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Int16, Int32, Int64


class AllocateProducerIdsRequest(Message, api_key=67, versions="0", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message, api_key=67, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32
