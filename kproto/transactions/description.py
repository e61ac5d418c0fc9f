"""DescribeTransactions and ListTransactions (KIP-664).

The module follows TransactionCoordinator.handleDescribeTransactions and
TransactionStateManager.listTransactionStates of Kafka 4.3. A pattern of ListTransactions (KIP-1152) is in the
syntax of Python's `re`, whereas Kafka uses RE2.
"""

from __future__ import annotations

import re

from ..error_codes import ErrorCode
from ..machine import RequestReceived
from ..messages import describe_transactions as describe
from ..messages import list_transactions as listing
from ..patterns import compiled
from .state import STATE_NAMES, S, TransactionContext, TransactionMetadata


def describe_transactions(
    context: TransactionContext, call: RequestReceived[describe.DescribeTransactionsRequest]
) -> None:
    """Describe every requested transactional id, in the order of the request."""
    states = [_describe(context.coordinator.find(name)) for name in call.request.transactional_ids]
    context.reply(call, describe.DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states))


def _describe(txn: TransactionMetadata) -> describe.TransactionState:
    if txn.state is S.DEAD:
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if txn.transactional_id else ErrorCode.INVALID_REQUEST
        return describe_error(txn.transactional_id, missing)
    topics: dict[str, describe.TopicData] = {}
    for name, index in txn.partitions:
        topics.setdefault(name, describe.TopicData(topic=name, partitions=[])).partitions.append(index)
    return describe.TransactionState(
        error_code=0,
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.value,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.started_at,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=list(topics.values()),
    )


def describe_error(transactional_id: str, code: ErrorCode) -> describe.TransactionState:
    """Return the error entry of a transactional id for DescribeTransactions."""
    return describe.TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def list_transactions(
    context: TransactionContext, call: RequestReceived[listing.ListTransactionsRequest]
) -> None:
    """List the transactional ids that match all filters; an empty filter matches all."""
    request = call.request
    try:
        pattern = compiled(request.transactional_id_pattern or ".*")
    except re.error:
        context.reply(call, _list_response(ErrorCode.INVALID_REGULAR_EXPRESSION, [], []))
        return
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    matches = [
        listing.TransactionState(
            transactional_id=txn.transactional_id,
            producer_id=txn.producer_id,
            transaction_state=txn.state.value,
        )
        for txn in context.coordinator.transactions.values()
        if (not states or txn.state.value in states)
        and (not producer_ids or txn.producer_id in producer_ids)
        and (request.duration_filter < 0 or context.now - txn.started_at > request.duration_filter)
        and pattern.fullmatch(txn.transactional_id)
    ]
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in STATE_NAMES]
    context.reply(call, _list_response(ErrorCode.NONE, unknown, matches))


def _list_response(
    code: ErrorCode, unknown: list[str], matches: list[listing.TransactionState]
) -> listing.ListTransactionsResponse:
    return listing.ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=unknown, transaction_states=matches
    )
