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
    names = request.transactional_ids
    ids = list(dict.fromkeys(names))
    if len(ids) < len(names):

        def repeat(response: DescribeTransactionsResponse) -> None:
            states = {state.transactional_id: state for state in response.transaction_states}
            response.transaction_states = repeat_as_named(states, names, _size)

        call = broker.replace_call(call.with_fields(transactional_ids=ids), repeat)
    cluster, node_id = broker.cluster, broker.node.id
    if len(cluster.brokers) > 1:

        def refuse_other_ids(response: DescribeTransactionsResponse) -> None:
            response.transaction_states = [
                state
                if not state.transactional_id
                or cluster.transaction_coordinator_of(state.transactional_id) == node_id
                else describe_error(state.transactional_id, ErrorCode.NOT_COORDINATOR)
                for state in response.transaction_states
            ]

        call = broker.replace_call(call, refuse_other_ids)
    return send_to_coordinator(broker, call)


def _size(state: TransactionState) -> int:
    return 100 + sum(50 + len(topic.topic) + 4 * len(topic.partitions) for topic in state.topics)


def _authorize(access: Access, request: DescribeTransactionsRequest) -> Authorized:
    denied = [
        transactional_id
        for transactional_id in request.transactional_ids
        if not access.allows_transactional_id(Operation.DESCRIBE, transactional_id)
    ]

    def restrict(response: DescribeTransactionsResponse) -> None:
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
    return access.narrow(restrict, transactional_ids=permitted)


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
