"""DeleteTopics (key 20): delete topics by name, and from v6 on also by id (KIP-516)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from ...error_codes import ErrorCode
from ...messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from ..topics import NO_ID
from .api import Api
from .authorization import TOPIC_FAILED, Access, Authorization, Authorized, omission, topic_requirement
from .partitions import missing_topic


def handle_delete_topics(broker: Broker, call: Call) -> Result:
    """Delete topics; a topic that the request names twice, or by name and by id, is rejected."""
    request = call.request
    assert isinstance(request, DeleteTopicsRequest)
    states = request.topics or [DeleteTopicState(name=name, topic_id=NO_ID) for name in request.topic_names]
    counts = Counter((state.name, state.topic_id) for state in states)
    requested_ids = {state.topic_id for state in states if state.name is None}
    requested_names = {state.name for state in states if state.topic_id == NO_ID}

    def delete_topic(state: DeleteTopicState) -> DeletableTopicResult | None:
        """Delete a topic, and return its result.

        Returns None for an id whose topic the request also names: the result for the name contains the error.
        """
        by_id = state.topic_id != NO_ID
        topic = broker.topics.with_id(state.topic_id) if by_id else broker.topics.named(state.name or "")
        if by_id == (state.name is not None):
            message = "A topic must have either a name or an id."
            return _refuse_state(state, ErrorCode.INVALID_REQUEST, message)
        if counts[state.name, state.topic_id] > 1:
            return _refuse_state(state, ErrorCode.INVALID_REQUEST, "The topic appears twice in the request.")
        if topic is None:
            return _refuse_state(state, missing_topic(by_id=by_id), "The topic does not exist.")
        if by_id and topic.name in requested_names:
            # The request also lists the topic by name. The result for the name contains the error.
            return None
        if topic.id in requested_ids and not by_id:
            message = "The topic appears in the request by name and by id."
            name_and_id = DeleteTopicState(name=topic.name, topic_id=topic.id)
            return _refuse_state(name_and_id, ErrorCode.INVALID_REQUEST, message)
        if not broker.settings.delete_topic_enable:
            return _refuse_state(state, ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false.")
        broker.delete_topic(topic, call.now)
        return DeletableTopicResult(name=topic.name, topic_id=topic.id, error_code=0)

    results = [delete_topic(state) for state in _without_duplicates(states)]
    return DeleteTopicsResponse(
        throttle_time_ms=0, responses=[result for result in results if result is not None]
    )


def _without_duplicates(states: Sequence[DeleteTopicState]) -> list[DeleteTopicState]:
    """Return the requested topics without repetitions of a name or an id.

    An entry with both a name and an id, or with neither, is invalid. As in Kafka, each invalid entry gets an
    error, even if several of them are equal.
    """
    unique: dict[tuple[str | None, UUID, int], DeleteTopicState] = {}
    for number, state in enumerate(states):
        is_invalid = (state.name is None) == (state.topic_id == NO_ID)
        unique[state.name, state.topic_id, number if is_invalid else -1] = state
    return list(unique.values())


def _refuse_state(state: DeleteTopicState, error: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=error, error_message=message
    )


def _authorize(access: Access, request: DeleteTopicsRequest) -> Authorized:
    """Require DELETE on each topic.

    The error for a topic id contains the topic's name only if the caller has DESCRIBE on the topic.
    """

    def refuse(name: str | None, topic_id: UUID) -> DeletableTopicResult:
        state = DeleteTopicState(name=name, topic_id=topic_id)
        return _refuse_state(state, TOPIC_FAILED, "Topic authorization failed.")

    refusals: list[DeletableTopicResult] = []
    permitted_states: list[DeleteTopicState] = []
    name_counts = Counter(state.name for state in request.topics if state.topic_id == NO_ID)
    permitted_names = [name for name in request.topic_names if access.allows_topic(Operation.DELETE, name)]
    refusals.extend(refuse(name, NO_ID) for name in request.topic_names if name not in permitted_names)
    for state in request.topics:
        by_id = state.topic_id != NO_ID
        name = access.topic_name(state)
        is_duplicate = not by_id and name_counts[state.name] > 1
        has_name_and_id = by_id and state.name is not None
        # Permissions for duplicates, invalid entries and unknown ids are not checked, because the handler
        # rejects these for every caller.
        if name is None or is_duplicate or has_name_and_id or access.allows_topic(Operation.DELETE, name):
            permitted_states.append(state)
        elif by_id:
            may_describe = access.allows_topic(Operation.DESCRIBE, name)
            refusals.append(refuse(name if may_describe else None, state.topic_id))
        else:
            refusals.append(refuse(name, NO_ID))
    if not refusals:
        return access.call
    if not permitted_names and not permitted_states:
        return DeleteTopicsResponse(throttle_time_ms=0, responses=refusals)
    return access.narrow(
        lambda response: response.responses.extend(refusals),
        topics=permitted_states,
        topic_names=permitted_names,
    )


API = Api(
    request=DeleteTopicsRequest,
    handle=handle_delete_topics,
    authorization=Authorization(
        (topic_requirement(Operation.DELETE), omission(Operation.DESCRIBE, Resource.TOPIC)), _authorize
    ),
    divided=("responses",),
)
