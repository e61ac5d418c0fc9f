"""ListTransactions (key 66)."""

from __future__ import annotations

from ...messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import Access, Authorization, Authorized, omission
from .transaction_coordinator import send_to_coordinator


def handle_list_transactions(broker: Broker, call: Call) -> Result:
    """Pass the request to the transaction coordinator.

    The response lists only the transactional ids that this node coordinates.
    """
    cluster, node_id = broker.cluster, broker.node.id
    if len(cluster.brokers) > 1:

        def keep_own_ids(response: ListTransactionsResponse) -> None:
            response.transaction_states = [
                state
                for state in response.transaction_states
                if cluster.transaction_coordinator_of(state.transactional_id) == node_id
            ]

        call = broker.replace_call(call, keep_own_ids)
    return send_to_coordinator(broker, call)


def _authorize(access: Access, request: ListTransactionsRequest) -> Authorized:
    """Authorize every caller; list only the transactional ids that the caller may describe."""

    def remove_denied(response: ListTransactionsResponse) -> None:
        response.transaction_states = [
            state
            for state in response.transaction_states
            if access.allows_transactional_id(Operation.DESCRIBE, state.transactional_id)
        ]

    return access.narrow(remove_denied)


API = Api(
    request=ListTransactionsRequest,
    handle=handle_list_transactions,
    authorization=Authorization((omission(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID),), _authorize),
)
