"""SyncGroup (key 14)."""

from __future__ import annotations

from ...messages.sync_group import SyncGroupRequest
from ..security.acls import Operation
from .api import Api
from .authorization import Access, Authorization, Authorized, group_requirement, on_group
from .group_coordinator import handle_group_request

PROTOCOL_REQUIRED_SINCE = 5  # KIP-559

_READ_GROUP = on_group(Operation.READ)


def _authorize(access: Access, request: SyncGroupRequest) -> Authorized:
    # KafkaApis reports a missing protocol before a missing permission. So the permission is not checked here
    # if the protocol is missing: the coordinator returns the error.
    is_protocol_missing = None in (request.protocol_type, request.protocol_name)
    if access.call.version >= PROTOCOL_REQUIRED_SINCE and is_protocol_missing:
        return access.call
    return _READ_GROUP.narrow(access, request)


API = Api(
    request=SyncGroupRequest,
    handle=handle_group_request,
    authorization=Authorization((group_requirement(Operation.READ),), _authorize),
)
