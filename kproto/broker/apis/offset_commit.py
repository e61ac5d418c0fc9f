"""OffsetCommit (key 8)."""

from __future__ import annotations

from ...messages.offset_commit import OffsetCommitRequest
from ..security.acls import Operation
from .api import Api
from .authorization import (
    GROUP_FAILED,
    Access,
    Authorization,
    Authorized,
    group_requirement,
    narrow_commit,
    topic_requirement,
)
from .group_coordinator import handle_group_request


def _authorize(access: Access, request: OffsetCommitRequest) -> Authorized:
    if not access.allows_group(Operation.READ, request.group_id):
        return access.call.refuse(GROUP_FAILED)
    permitted, denied = access.split_topics(Operation.READ, request.topics)
    return narrow_commit(access, permitted, denied)


API = Api(
    request=OffsetCommitRequest,
    handle=handle_group_request,
    authorization=Authorization(
        (group_requirement(Operation.READ), topic_requirement(Operation.READ)), _authorize
    ),
    divided=("topics",),
)
