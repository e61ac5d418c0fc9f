"""Who may write in transactions, and who may look at them."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

from ....error_codes import ErrorCode
from ....group.classic.coordinator.responses import error_response as group_error_response
from ....messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ....messages.describe_producers import PartitionResponse, TopicResponse
from ....messages.init_producer_id import InitProducerIdResponse
from ....transactions.description import unknown
from ....transactions.partitions import missing
from ....transactions.responses import BATCHED_SINCE, by_topic, refusal
from ....wire.message import Message
from ...security.acls import Resource
from ..authorization import CLUSTER_FAILED, GROUP_FAILED, TOPIC_FAILED, Gated, May, Op, cut_down

ID_FAILED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def init_producer_id(may: May, request: Any) -> Gated:
    if request.transactional_id is not None:
        if may(Op.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
            return may.call
        return InitProducerIdResponse(throttle_time_ms=0, error_code=ID_FAILED, producer_epoch=-1)
    if may.cluster(Op.IDEMPOTENT_WRITE) or may.broker.is_authorized_for_any(
        may.call, Op.WRITE, Resource.TOPIC
    ):
        return may.call
    return InitProducerIdResponse(throttle_time_ms=0, error_code=CLUSTER_FAILED, producer_epoch=-1)


def add_partitions(may: May, request: Any) -> Gated:
    version = may.call.version
    if version >= BATCHED_SINCE:
        if may.cluster(Op.CLUSTER_ACTION):
            return may.call
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=CLUSTER_FAILED)
    if not may(Op.WRITE, Resource.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return refusal(request, ID_FAILED, version)
    asked = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    denied = {name for name, _ in asked if not may.topic(Op.WRITE, name)}
    if not denied:
        return may.call
    codes = dict.fromkeys(asked, ErrorCode.OPERATION_NOT_ATTEMPTED)
    codes.update(dict.fromkeys(missing(may.broker.topics, asked), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    codes.update({one: TOPIC_FAILED for one in asked if one[0] in denied})
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=by_topic(codes))


def add_offsets(may: May, request: Any) -> Gated:
    if not may(Op.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return refusal(request, ID_FAILED, may.call.version)
    if not may.group(Op.READ, request.group_id):
        return refusal(request, GROUP_FAILED, may.call.version)
    return may.call


def end(may: May, request: Any) -> Gated:
    if may(Op.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return may.call
    return refusal(request, ID_FAILED, may.call.version)


def offset_commit(may: May, request: Any) -> Gated:
    if not may(Op.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return group_error_response(request, ID_FAILED, may.call.version)
    if not may.group(Op.READ, request.group_id):
        return group_error_response(request, GROUP_FAILED, may.call.version)
    allowed, denied = may.parted(Op.READ, request.topics)
    if not denied:
        return may.call
    part = copy(request)
    part.topics = denied
    told: Any = group_error_response(part, TOPIC_FAILED, may.call.version)

    def amend(response: Any) -> Message:
        response.topics.extend(told.topics)
        return cast("Message", response)

    return cut_down(may, amend, topics=allowed) if allowed else told


def describe(may: May, request: Any) -> Gated:
    denied = [
        name for name in request.transactional_ids if not may(Op.DESCRIBE, Resource.TRANSACTIONAL_ID, name)
    ]

    def amend(response: Any) -> Message:
        for one in response.transaction_states:
            one.topics = [topic for topic in one.topics if may.topic(Op.DESCRIBE, topic.topic)]
        response.transaction_states.extend(unknown(name, ID_FAILED) for name in denied)
        return cast("Message", response)

    allowed = [name for name in request.transactional_ids if name not in denied]
    return cut_down(may, amend, transactional_ids=allowed)


def listed(may: May, request: Any) -> Gated:
    def amend(response: Any) -> Message:
        response.transaction_states = [
            one
            for one in response.transaction_states
            if may(Op.DESCRIBE, Resource.TRANSACTIONAL_ID, one.transactional_id)
        ]
        return cast("Message", response)

    return cut_down(may, amend)


def producers(topic: Any) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        partitions=[
            PartitionResponse(partition_index=index, error_code=TOPIC_FAILED, active_producers=[])
            for index in topic.partition_indexes
        ],
    )
