"""Plans about topics: made, grown and deleted by the controller."""

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
from ..network.connection import Call, Prepared
from .cluster import is_complete, read_metadata
from .plan import Ask, Plan, Rest, expect, lost, try_again


class _Topic(Protocol):
    """What an answer says of one topic."""

    name: Any
    error_code: int


def on_controller(
    view: ClusterView,
    request: Message | Prepared,
    names: Collection[str],
    topics: Callable[[Call], Sequence[_Topic]],
    clock: Callable[[], int],
    *,
    done: ErrorCode,
    fine: bool = False,
) -> Plan[None]:
    """Asks the controller; NOT_CONTROLLER and lost connections lead to another look at the metadata.

    `done` is what it says of a topic for which there is nothing to do (any more). After a connection that was
    lost, or an answer that leaves one of `names` out, that is how one learns that the request arrived; `fine`
    says that it always is good news. Raises BrokerError for what else it refuses.
    """
    while True:
        if view.controller is None or view.controller not in view.brokers:
            yield from read_metadata(view, [], clock)
        node = view.controller if view.controller in view.brokers else None
        [call] = yield [Ask(request, node=node)]
        if lost(call):
            fine = True
            view.controller = None
            yield from read_metadata(view, [], clock)
            yield Rest(str(call.error))
            continue
        told = [topic for topic in topics(call) if topic.name in names]
        bad = [topic for topic in told if topic.error_code and not (fine and topic.error_code == done)]
        if not bad:
            unsaid = sorted(set(names) - {topic.name for topic in told})
            if not unsaid:
                return
            fine = True
            yield Rest(f"the response to {call.name} does not contain topic {unsaid[0]!r}")
            continue
        detail = f"topic {bad[0].name!r}"
        if words := getattr(bad[0], "error_message", None):
            detail += f": {words}"
        rest = try_again(CONTROLLER, bad[0].error_code, call.name, detail)
        view.controller = None
        yield rest


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
    """Creates topics and waits until each partition has a leader."""

    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=count,
                replication_factor=replication_factor,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, count in topics.items()
        ],
        timeout_ms=timeout_ms,
    )

    def answers(call: Call) -> Sequence[_Topic]:
        return expect(CreateTopicsResponse, call).topics

    there = ErrorCode.TOPIC_ALREADY_EXISTS
    yield from on_controller(view, request, topics, answers, clock, done=there, fine=exist_ok)
    yield from _grown(view, topics, clock, may_grow=False)


def create_partitions(
    view: ClusterView, totals: Mapping[str, int], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[None]:
    """Grows topics to these numbers of partitions and waits until each has a leader."""

    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name=name, count=total, assignments=None) for name, total in totals.items()
        ],
        timeout_ms=timeout_ms,
        validate_only=False,
    )

    def answers(call: Call) -> Sequence[_Topic]:
        return expect(CreatePartitionsResponse, call).results

    # A topic that has so many already is refused as one that would shrink is: `_grown` looks.
    yield from on_controller(view, request, totals, answers, clock, done=ErrorCode.INVALID_PARTITIONS)
    yield from _grown(view, totals, clock)


def delete_topics(
    view: ClusterView, topics: Sequence[str], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[None]:
    """Deletes topics with all of their records."""

    def build(version: int) -> DeleteTopicsRequest:
        if version >= 6:
            states = [DeleteTopicState(name=name, topic_id=NO_TOPIC_ID) for name in topics]
            return DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
        return DeleteTopicsRequest(topic_names=list(topics), timeout_ms=timeout_ms)

    def answers(call: Call) -> Sequence[_Topic]:
        return expect(DeleteTopicsResponse, call).responses

    gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = Prepared(DeleteTopicsRequest, build)
    yield from on_controller(view, request, topics, answers, clock, done=gone)
    for name in topics:
        view.topics.pop(name, None)


def _grown(
    view: ClusterView, totals: Mapping[str, int], clock: Callable[[], int], *, may_grow: bool = True
) -> Plan[None]:
    """Waits until the topics have so many partitions, each with a leader. What was made with fewer, by
    somebody else, doesn't get more unless it `may_grow`: that is told when it is seen the second time, as the
    first broker may be behind."""
    fewer: set[str] = set()
    while True:
        yield from read_metadata(view, totals, clock)
        late = [
            name
            for name, total in totals.items()
            if not is_complete(view, name) or (total > 0 and len(view.topics[name].partitions) < total)
        ]
        if not late:
            return
        for name in late:
            known = view.topics.get(name)
            if known is not None and action_for(METADATA, known.error_code) is ErrorAction.RAISE:
                detail = f"topic {name!r}, which was made or grown and can't be looked at"
                raise broker_error(known.error_code, "Metadata", detail)
            if not may_grow and is_complete(view, name):
                if name in fewer:
                    detail = f"topic {name!r} has {len(view.topics[name].partitions)} partitions, and not "
                    detail += f"{totals[name]}; create_partitions adds some"
                    raise broker_error(ErrorCode.TOPIC_ALREADY_EXISTS, "CreateTopics", detail)
                fewer.add(name)
        yield Rest(f"topic {late[0]!r} has no leader for all of its partitions yet")
