"""What anyone may know of transactions: DescribeTransactions and ListTransactions (KIP-664).

Follows TransactionCoordinator.handleDescribeTransactions and TransactionStateManager.listTransactionStates of
Kafka 4.3. Kafka reads the pattern of KIP-1152 as RE2 does, here it is Python's.
"""

from __future__ import annotations

import re

from ..error_codes import ErrorCode
from ..messages import describe_transactions as described
from ..messages import list_transactions as listed
from ..patterns import compiled
from .state import STATE_NAMES, Received, S, Transaction, Turn


def describe_transactions(turn: Turn, call: Received[described.DescribeTransactionsRequest]) -> None:
    """Answer with every id asked for, in that order."""
    states = [_describe(turn.coordinator.find(name)) for name in call.request.transactional_ids]
    turn.reply(call, described.DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states))


def _describe(txn: Transaction) -> described.TransactionState:
    if txn.state is S.DEAD:
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if txn.transactional_id else ErrorCode.INVALID_REQUEST
        return unknown(txn.transactional_id, missing)
    topics: dict[str, described.TopicData] = {}
    for name, index in txn.partitions:
        topics.setdefault(name, described.TopicData(topic=name, partitions=[])).partitions.append(index)
    return described.TransactionState(
        error_code=0,
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.value,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.started_at,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=list(topics.values()),
    )


def unknown(transactional_id: str, code: ErrorCode) -> described.TransactionState:
    """DescribeTransactions' way of saying no."""
    return described.TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def list_transactions(turn: Turn, call: Received[listed.ListTransactionsRequest]) -> None:
    """Answer with the ids that pass all filters; an empty filter lets everything pass."""
    request = call.request
    try:
        pattern = compiled(request.transactional_id_pattern or ".*")
    except re.error:
        turn.reply(call, _listed(ErrorCode.INVALID_REGULAR_EXPRESSION, [], []))
        return
    states, ids = set(request.state_filters), set(request.producer_id_filters)
    found = [
        listed.TransactionState(
            transactional_id=txn.transactional_id,
            producer_id=txn.producer_id,
            transaction_state=txn.state.value,
        )
        for txn in turn.coordinator.transactions.values()
        if (not states or txn.state.value in states)
        and (not ids or txn.producer_id in ids)
        and (request.duration_filter < 0 or turn.now - txn.started_at > request.duration_filter)
        and pattern.fullmatch(txn.transactional_id)
    ]
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in STATE_NAMES]
    turn.reply(call, _listed(ErrorCode.NONE, unknown, found))


def _listed(
    code: ErrorCode, unknown: list[str], found: list[listed.TransactionState]
) -> listed.ListTransactionsResponse:
    return listed.ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=unknown, transaction_states=found
    )
