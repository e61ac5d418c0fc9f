"""OffsetDelete (key 47)."""

from __future__ import annotations

from ...messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ..security.acls import Operation
from .api import Api
from .authorization import (
    GROUP_FAILED,
    TOPIC_FAILED,
    Access,
    Authorization,
    Authorized,
    group_requirement,
    narrow_topics,
    topic_requirement,
)
from .group_coordinator import handle_group_request


def _authorize(access: Access, request: OffsetDeleteRequest) -> Authorized:
    if not access.allows_group(Operation.DELETE, request.group_id):
        return access.call.refuse(GROUP_FAILED)
    permitted, denied = access.split_topics(Operation.READ, request.topics)
    return narrow_topics(access, permitted, denied, _refuse_topic)


def _refuse_topic(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=TOPIC_FAILED)
            for partition in topic.partitions
        ],
    )


API = Api(
    request=OffsetDeleteRequest,
    handle=handle_group_request,
    authorization=Authorization(
        (group_requirement(Operation.DELETE), topic_requirement(Operation.READ)), _authorize
    ),
    divided=("topics",),
)
