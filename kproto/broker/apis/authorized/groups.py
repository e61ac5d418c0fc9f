"""Who may find, join, read and end a group."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

from ....error_codes import ErrorCode
from ....group.classic.coordinator.responses import error_response
from ....messages.delete_groups import DeletableGroupResult
from ....messages.describe_groups import DescribedGroup
from ....messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ....messages.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from ....messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ....wire.message import Message
from ...cluster import refused
from ...security.acls import Resource
from ..authorization import GROUP_FAILED, SAID, TOPIC_FAILED, Gated, May, Op, cut_down, each_topic


def find_coordinator(may: May, request: Any) -> Gated:
    resource = Resource.GROUP if request.key_type == 0 else Resource.TRANSACTIONAL_ID
    code = GROUP_FAILED if request.key_type == 0 else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    keys = request.coordinator_keys if may.call.version >= 4 else [request.key]
    denied = {key for key in keys if not may(Op.DESCRIBE, resource, key)}
    if not denied or request.key_type not in (0, 1):
        return may.call
    if may.call.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=SAID, node_id=-1, host="", port=-1)

    def amend(response: Any) -> Message:
        response.coordinators.extend(
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=SAID)
            for key in denied
        )
        return cast("Message", response)

    return cut_down(may, amend, coordinator_keys=[key for key in keys if key not in denied])


def member(may: May, request: Any) -> Gated:
    if may.group(Op.READ, request.group_id):
        return may.call
    return error_response(request, GROUP_FAILED, may.call.version)


def sync_group(may: May, request: Any) -> Gated:
    if may.call.version >= 5 and None in (request.protocol_type, request.protocol_name):
        return may.call  # the coordinator refuses that, and Kafka asks it first
    return member(may, request)


def offset_commit(may: May, request: Any) -> Gated:
    if not may.group(Op.READ, request.group_id):
        return error_response(request, GROUP_FAILED, may.call.version)
    allowed, denied = may.parted(Op.READ, request.topics)
    if not denied:
        return may.call
    part = copy(request)
    part.topics = denied
    told: Any = error_response(part, TOPIC_FAILED, may.call.version)

    def amend(response: Any) -> Message:
        response.topics.extend(told.topics)
        return cast("Message", response)

    return cut_down(may, amend, topics=allowed) if allowed else told


def offset_delete(may: May, request: Any) -> Gated:
    if not may.group(Op.DELETE, request.group_id):
        return error_response(request, GROUP_FAILED, may.call.version)

    def refuse(topic: Any) -> OffsetDeleteResponseTopic:
        return OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=TOPIC_FAILED)
                for one in topic.partitions
            ],
        )

    return each_topic(Op.READ, refuse)(may, request)


def offset_fetch(may: May, request: Any) -> Gated:
    version = may.call.version
    if version < 8:
        return offset_fetch_one(may, request)
    groups: list[Any] = []
    told: dict[str, OffsetFetchResponseGroup] = {}
    denied: dict[str, list[Any]] = {}
    for group in request.groups:
        if not may.group(Op.DESCRIBE, group.group_id):
            told[group.group_id] = OffsetFetchResponseGroup(
                group_id=group.group_id, topics=[], error_code=GROUP_FAILED
            )
            continue
        part = copy(group)
        if group.topics is not None:
            part.topics, denied[group.group_id] = may.parted(Op.DESCRIBE, group.topics)
        groups.append(part)

    def amend(response: Any) -> Message:
        for group in response.groups:
            if group.group_id in denied and not group.error_code:
                group.topics.extend(
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=index,
                                committed_offset=-1,
                                metadata="",
                                error_code=TOPIC_FAILED,
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in denied[group.group_id]
                )
            elif group.group_id not in denied:
                group.topics, _ = may.parted(Op.DESCRIBE, group.topics)
        response.groups.extend(told.values())
        return cast("Message", response)

    if not groups and told:
        return refused(request, GROUP_FAILED, version)
    return cut_down(may, amend, groups=groups)


def offset_fetch_one(may: May, request: Any) -> Gated:
    if not may.group(Op.DESCRIBE, request.group_id):
        return refused(request, GROUP_FAILED, may.call.version)
    everything = request.topics is None
    allowed, denied = may.parted(Op.DESCRIBE, request.topics or [])

    def amend(response: Any) -> Message:
        if everything:
            response.topics, _ = may.parted(Op.DESCRIBE, response.topics)
        response.topics.extend(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_FAILED
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in denied
        )
        return cast("Message", response)

    return cut_down(may, amend) if everything else cut_down(may, amend, topics=allowed)


def describe_groups(may: May, request: Any) -> Gated:
    denied = [name for name in request.groups if not may.group(Op.DESCRIBE, name)]

    def amend(response: Any) -> Message:
        for one in response.groups:
            one.authorized_operations = may.bits(one.authorized_operations, Resource.GROUP, one.group_id)
        response.groups.extend(
            DescribedGroup(
                error_code=GROUP_FAILED,
                group_id=name,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
            for name in denied
        )
        return cast("Message", response)

    return cut_down(may, amend, groups=[name for name in request.groups if name not in denied])


def list_groups(may: May, request: Any) -> Gated:
    if may.cluster(Op.DESCRIBE):
        return may.call

    def amend(response: Any) -> Message:
        response.groups = [one for one in response.groups if may.group(Op.DESCRIBE, one.group_id)]
        return cast("Message", response)

    return cut_down(may, amend)


def delete_groups(may: May, request: Any) -> Gated:
    denied = dict.fromkeys(name for name in request.groups_names if not may.group(Op.DELETE, name))

    def amend(response: Any) -> Message:
        response.results.extend(
            DeletableGroupResult(group_id=name, error_code=GROUP_FAILED) for name in denied
        )
        return cast("Message", response)

    return cut_down(may, amend, groups_names=[name for name in request.groups_names if name not in denied])
