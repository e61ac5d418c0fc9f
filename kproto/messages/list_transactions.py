"""ListTransactions (key 66): list the transactions that this broker coordinates (KIP-664)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, Int64, String


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[String]
    producer_id_filters: list[Int64]
    # List only transactions that have been open longer than this, in ms; if negative, list all (KIP-994).
    duration_filter: Int64 = field("1+", default=-1)
    # List only transactional ids that match this regular expression in RE2 syntax (KIP-1152).
    transactional_id_pattern: String | None = field("2+", default=None)


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]


class TransactionState(Struct):
    transactional_id: String
    producer_id: Int64
    transaction_state: String
