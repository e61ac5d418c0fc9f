"""Admin operations that create and delete topics and add partitions, through the cluster's controller."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from kproto.error_codes import ErrorCode
from kproto.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kproto.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kproto.wire.message import Message

from ...errors import broker_error
from ..error_actions import (
    CONTROLLER,
    METADATA,
    ErrorAction,
    action_for,
)
from ..metadata.cluster import NO_TOPIC_ID, ClusterView
from ..network.call import Call, Prepared
from .cluster import is_complete, read_metadata
from .plan import (
    Ask,
    Plan,
    Rest,
    expect_response,
    failed_without_response,
    pause_after_error,
)


class _Topic(Protocol):
    """A topic in a response, with the fields that `send_to_controller` reads.

    Some responses also have an `error_message`.
    """

    name: Any
    error_code: int


def send_to_controller(
    view: ClusterView,
    request: Callable[[Collection[str]], Message | Prepared],
    names: Collection[str],
    read_topics: Callable[[Call], Sequence[_Topic]],
    clock: Callable[[], int],
    *,
    done_code: ErrorCode,
    done_is_success: bool = False,
) -> Plan[None]:
    """Send requests about the topics `names` to the controller until each topic has succeeded.

    `request(names)` builds a request, and `read_topics(call)` returns the topics of its response.

    A topic that has succeeded is not sent again, since the controller may accept only some topics of a
    request (THROTTLING_QUOTA_EXCEEDED, KIP-599).

    The plan refreshes the metadata after NOT_CONTROLLER and after a lost connection.

    `done_code` is the error code for a topic that is already in the requested state. With `done_is_success`
    the code always counts as success. Otherwise it counts as success only if an earlier attempt may have
    succeeded: after a lost connection, or after a response that lacks one of `names`.

    Raises BrokerError for an error code that is not retriable.
    """
    remaining = dict.fromkeys(names)
    while True:
        if view.controller is None or view.controller not in view.brokers:
            yield from read_metadata(view, [], clock)
        node = view.controller if view.controller in view.brokers else None
        [call] = yield [Ask(request(remaining), node=node)]
        if failed_without_response(call):
            done_is_success = True
            view.controller = None
            yield from read_metadata(view, [], clock)
            yield Rest(str(call.error))
            continue
        results = [topic for topic in read_topics(call) if topic.name in remaining]
        failed = [
            topic
            for topic in results
            if topic.error_code and not (done_is_success and topic.error_code == done_code)
        ]
        pauses: list[Rest] = []
        for topic in failed:
            detail = f"topic {topic.name!r}"
            if message := getattr(topic, "error_message", None):
                detail += f": {message}"
            pauses.append(pause_after_error(CONTROLLER, topic.error_code, call.name, detail))
        missing = sorted(set(remaining) - {topic.name for topic in results})
        if missing:
            done_is_success = True
            pauses.append(Rest(f"the response to {call.name} does not contain topic {missing[0]!r}"))
        if not pauses:
            return
        unfinished = {*missing, *(topic.name for topic in failed)}
        remaining = dict.fromkeys(name for name in remaining if name in unfinished)
        if failed:
            # The error may be NOT_CONTROLLER, so the next attempt looks up the controller.
            view.controller = None
        yield pauses[0]


def create_topics(
    view: ClusterView,
    topics: Mapping[str, int],
    clock: Callable[[], int],
    *,
    replication_factor: int,
    configs: Mapping[str, str],
    timeout_ms: int,
    exist_ok: bool,
) -> Plan[None]:
    """Create topics, and wait until each partition has a leader."""

    def request(names: Collection[str]) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=topics[name],
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
                for name in names
            ],
            timeout_ms=timeout_ms,
        )

    def read_topics(creation: Call) -> Sequence[_Topic]:
        return expect_response(CreateTopicsResponse, creation).topics

    exists = ErrorCode.TOPIC_ALREADY_EXISTS
    yield from send_to_controller(
        view, request, topics, read_topics, clock, done_code=exists, done_is_success=exist_ok
    )
    yield from _await_partition_counts(view, topics, clock, may_grow=False)


def create_partitions(
    view: ClusterView, totals: Mapping[str, int], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[None]:
    """Increase the number of partitions of each topic, and wait until each partition has a leader."""

    def request(names: Collection[str]) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=totals[name], assignments=None) for name in names],
            timeout_ms=timeout_ms,
            validate_only=False,
        )

    def read_topics(call: Call) -> Sequence[_Topic]:
        return expect_response(CreatePartitionsResponse, call).results

    # After a lost response, INVALID_PARTITIONS may mean that the first request has already added the
    # partitions. `_await_partition_counts` checks this.
    yield from send_to_controller(
        view, request, totals, read_topics, clock, done_code=ErrorCode.INVALID_PARTITIONS
    )
    yield from _await_partition_counts(view, totals, clock)


def delete_topics(
    view: ClusterView, topics: Sequence[str], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[None]:
    """Delete topics and all of their records."""

    def request(names: Collection[str]) -> Prepared:
        def build(version: int) -> DeleteTopicsRequest:
            if version >= 6:
                states = [DeleteTopicState(name=name, topic_id=NO_TOPIC_ID) for name in names]
                return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
            return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)

        return Prepared(DeleteTopicsRequest, build)

    def read_topics(call: Call) -> Sequence[_Topic]:
        return expect_response(DeleteTopicsResponse, call).responses

    deleted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    yield from send_to_controller(view, request, topics, read_topics, clock, done_code=deleted)
    for name in topics:
        view.topics.pop(name, None)


def _await_partition_counts(
    view: ClusterView, totals: Mapping[str, int], clock: Callable[[], int], *, may_grow: bool = True
) -> Plan[None]:
    """Wait until the topics have at least these numbers of partitions, each with a leader.

    `may_grow` is false after a request to create the topics. If a topic then has too few partitions, it
    existed before the request with a smaller number of partitions, and the plan raises an error.

    The error is raised after the second response with too few partitions, because the first may be outdated.
    """
    # Topics for which a response contained too few partitions.
    too_small: set[str] = set()
    while True:
        yield from read_metadata(view, totals, clock)
        incomplete = [
            name
            for name, total in totals.items()
            if not is_complete(view, name) or (total > 0 and len(view.topics[name].partitions) < total)
        ]
        if not incomplete:
            return
        for name in incomplete:
            topic = view.topics.get(name)
            if topic is not None and action_for(METADATA, topic.error_code) is ErrorAction.RAISE:
                detail = f"topic {name!r} was created or got partitions, but this client may not describe it"
                raise broker_error(topic.error_code, "Metadata", detail)
            if not may_grow and is_complete(view, name):
                if name in too_small:
                    detail = f"topic {name!r} has {len(view.topics[name].partitions)} partitions instead of "
                    detail += f"{totals[name]}; create_partitions() adds some"
                    raise broker_error(ErrorCode.TOPIC_ALREADY_EXISTS, "CreateTopics", detail)
                too_small.add(name)
        yield Rest(f"some partitions of topic {incomplete[0]!r} are missing or have no leader yet")
