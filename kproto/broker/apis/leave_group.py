"""LeaveGroup (key 13)."""

from __future__ import annotations

from ...messages.leave_group import LeaveGroupRequest
from ..security.acls import Operation
from .api import Api
from .authorization import on_group
from .group_coordinator import handle_group_request

API = Api(
    request=LeaveGroupRequest,
    handle=handle_group_request,
    authorization=on_group(Operation.READ),
)
