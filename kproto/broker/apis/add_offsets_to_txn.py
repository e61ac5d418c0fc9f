"""AddOffsetsToTxn (key 25)."""

from __future__ import annotations

from ...messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ...transactions.responses import error_response
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import (
    GROUP_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Access,
    Authorization,
    Authorized,
    group_requirement,
    transactional_id_requirement,
)
from .transaction_coordinator import send_to_coordinator


def handle_add_offsets_to_txn(broker: Broker, call: Call) -> Result:
    """Pass the request to the transaction coordinator; return NOT_COORDINATOR if it is on another node."""
    request = call.request
    assert isinstance(request, AddOffsetsToTxnRequest)
    return send_to_coordinator(broker, call, [request.transactional_id])


def _authorize(access: Access, request: AddOffsetsToTxnRequest) -> Authorized:
    if not access.allows_transactional_id(Operation.WRITE, request.transactional_id):
        return access.call.refuse(TRANSACTIONAL_ID_FAILED)
    if not access.allows_group(Operation.READ, request.group_id):
        return access.call.refuse(GROUP_FAILED)
    return access.call


API = Api(
    request=AddOffsetsToTxnRequest,
    handle=handle_add_offsets_to_txn,
    authorization=Authorization(
        (transactional_id_requirement(Operation.WRITE), group_requirement(Operation.READ)), _authorize
    ),
    refuse=error_response,
)
