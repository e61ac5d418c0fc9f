"""AddOffsetsToTxn (key 25): add a group's offsets to the producer's transaction."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16
