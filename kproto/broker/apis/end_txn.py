"""EndTxn (key 26)."""

from __future__ import annotations

from ...messages.end_txn import EndTxnRequest
from ...transactions.responses import error_response
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import on_transactional_id
from .transaction_coordinator import send_to_coordinator


def handle_end_txn(broker: Broker, call: Call) -> Result:
    """Pass the request to the transaction coordinator; return NOT_COORDINATOR if it is on another node."""
    request = call.request
    assert isinstance(request, EndTxnRequest)
    return send_to_coordinator(broker, call, [request.transactional_id])


API = Api(
    request=EndTxnRequest,
    handle=handle_end_txn,
    authorization=on_transactional_id(Operation.WRITE),
    refuse=error_response,
)
