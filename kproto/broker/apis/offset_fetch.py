"""OffsetFetch (key 9): the committed offsets of one group, or from v8 on of several groups (KIP-709)."""

from __future__ import annotations

from typing import Any, Final

from ...error_codes import ErrorCode
from ...messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ..broker import Broker
from ..call import Call, Result, replace_fields
from ..security.acls import Operation
from .api import Api
from .authorization import (
    GROUP_FAILED,
    TOPIC_FAILED,
    Access,
    Authorization,
    Authorized,
    group_requirement,
    topic_requirement,
)
from .group_coordinator import errors_of_other_groups, handle_group_request, send_to_coordinator

GROUPS_SINCE: Final = 8  # KIP-709


def handle_offset_fetch(broker: Broker, call: Call) -> Result:
    """Pass the request to the group coordinator; groups that other nodes coordinate get an error."""
    if call.version < GROUPS_SINCE:
        return handle_group_request(broker, call)
    request = call.request
    assert isinstance(request, OffsetFetchRequest)
    errors = errors_of_other_groups(broker, call, [group.group_id for group in request.groups])
    if errors:
        refusals = [_refuse_group(group_id, error) for group_id, error in errors.items()]
        own_groups = [group for group in request.groups if group.group_id not in errors]
        call = broker.replace_call(
            call.with_fields(groups=own_groups),
            lambda response: response.groups.extend(refusals),
        )
    return send_to_coordinator(broker, call)


def _refuse_group(group_id: str, error: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error)


def _refuse_topic(topic: OffsetFetchRequestTopic) -> OffsetFetchResponseTopic:
    """Return the result of a denied topic, for a response of version 7 or lower."""
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_FAILED
            )
            for index in topic.partition_indexes
        ],
    )


def _refuse_group_topic(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    """Return the result of a denied topic, for a response of version 8 or higher."""
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_FAILED
            )
            for index in topic.partition_indexes
        ],
    )


def _authorize(access: Access, request: OffsetFetchRequest) -> Authorized:
    """Require DESCRIBE on each group and topic; if every group is denied, reject the request."""
    if access.call.version < GROUPS_SINCE:
        return _authorize_single_group(access, request)
    permitted_groups: list[Any] = []
    denied_groups: dict[str, OffsetFetchResponseGroup] = {}
    # Group id -> the denied topics, for each group whose topics the request lists.
    denied_topics: dict[str, list[OffsetFetchRequestTopics]] = {}
    for group in request.groups:
        if not access.allows_group(Operation.DESCRIBE, group.group_id):
            denied_groups[group.group_id] = _refuse_group(group.group_id, GROUP_FAILED)
        elif group.topics is None:
            permitted_groups.append(group)
        else:
            topics, denied_topics[group.group_id] = access.split_topics(Operation.DESCRIBE, group.topics)
            permitted_groups.append(replace_fields(group, topics=topics))

    def add_refusals(response: OffsetFetchResponse) -> None:
        for group in response.groups:
            denied = denied_topics.get(group.group_id)
            if denied is None:
                # The request is for all topics of the group. Denied topics are removed from the response: an
                # error would reveal their names.
                group.topics, _ = access.split_topics(Operation.DESCRIBE, group.topics)
            elif not group.error_code:
                group.topics.extend(map(_refuse_group_topic, denied))
        response.groups.extend(denied_groups.values())

    if denied_groups and not permitted_groups:
        return access.call.refuse(GROUP_FAILED)
    return access.narrow(add_refusals, groups=permitted_groups)


def _authorize_single_group(access: Access, request: OffsetFetchRequest) -> Authorized:
    """Authorize a request of version 7 or lower, which names one group."""
    if not access.allows_group(Operation.DESCRIBE, request.group_id):
        return access.call.refuse(GROUP_FAILED)
    if request.topics is None:

        def remove_denied(response: OffsetFetchResponse) -> None:
            response.topics, _ = access.split_topics(Operation.DESCRIBE, response.topics)

        return access.narrow(remove_denied)
    permitted, denied = access.split_topics(Operation.DESCRIBE, request.topics)
    refusals = [_refuse_topic(topic) for topic in denied]
    return access.narrow(lambda response: response.topics.extend(refusals), topics=permitted)


API = Api(
    request=OffsetFetchRequest,
    handle=handle_offset_fetch,
    authorization=Authorization(
        (group_requirement(Operation.DESCRIBE), topic_requirement(Operation.DESCRIBE)), _authorize
    ),
    divided=("topics", "groups"),
)
