"""DescribeTransactions (key 65)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ...transactions.description import describe_error
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import (
    TRANSACTIONAL_ID_FAILED,
    Access,
    Authorization,
    Authorized,
    omission,
    transactional_id_requirement,
)
from .repeated_names import repeat_as_named
from .transaction_coordinator import send_to_coordinator


def handle_describe_transactions(broker: Broker, call: Call) -> Result:
    """Pass the request to the transaction coordinator.

    The result for a transactional id that another node coordinates is NOT_COORDINATOR.

    An id that the request names twice is described twice. If all repetitions together are larger than
    `MAX_REPEATED` bytes, each id is described once.
    """
    request = call.request
    assert isinstance(request, DescribeTransactionsRequest)
    requested_ids = request.transactional_ids
    unique_ids = list(dict.fromkeys(requested_ids))
    if len(unique_ids) < len(requested_ids):

        def repeat_states(response: DescribeTransactionsResponse) -> None:
            states = {state.transactional_id: state for state in response.transaction_states}
            response.transaction_states = repeat_as_named(states, requested_ids, _approximate_size)

        call = broker.replace_call(call.with_fields(transactional_ids=unique_ids), repeat_states)
    if len(broker.cluster.brokers) > 1:
        call = broker.replace_call(call, lambda response: _refuse_other_ids(broker, response))
    return send_to_coordinator(broker, call)


def _refuse_other_ids(broker: Broker, response: DescribeTransactionsResponse) -> None:
    """Answer NOT_COORDINATOR for the ids that other nodes coordinate.

    An empty id has no coordinator: every node rejects it with the same error.
    """
    states: list[TransactionState] = []
    for state in response.transaction_states:
        transactional_id = state.transactional_id
        if transactional_id and broker.cluster.transaction_coordinator_of(transactional_id) != broker.node.id:
            state = describe_error(transactional_id, ErrorCode.NOT_COORDINATOR)
        states.append(state)
    response.transaction_states = states


def _approximate_size(state: TransactionState) -> int:
    """Return the approximate size of a result in bytes."""
    return 100 + sum(50 + len(topic.topic) + 4 * len(topic.partitions) for topic in state.topics)


def _authorize(access: Access, request: DescribeTransactionsRequest) -> Authorized:
    """Reject each transactional id, and omit each topic, that the caller may not DESCRIBE."""
    denied = [
        transactional_id
        for transactional_id in request.transactional_ids
        if not access.allows_transactional_id(Operation.DESCRIBE, transactional_id)
    ]

    def omit_topics_and_add_refusals(response: DescribeTransactionsResponse) -> None:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if access.allows_topic(Operation.DESCRIBE, topic.topic)
            ]
        response.transaction_states.extend(
            describe_error(transactional_id, TRANSACTIONAL_ID_FAILED) for transactional_id in denied
        )

    permitted = [
        transactional_id for transactional_id in request.transactional_ids if transactional_id not in denied
    ]
    return access.narrow(omit_topics_and_add_refusals, transactional_ids=permitted)


API = Api(
    request=DescribeTransactionsRequest,
    handle=handle_describe_transactions,
    authorization=Authorization(
        (
            transactional_id_requirement(Operation.DESCRIBE),
            omission(Operation.DESCRIBE, Resource.TOPIC),
        ),
        _authorize,
    ),
    divided=("transaction_states",),
    unique=True,
)
