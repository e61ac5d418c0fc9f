"""Plans about topics: made, grown and deleted by the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
from ..answers import CONTROLLER, Do, to_do
from ..connection import Call, Prepared
from ..metadata import NO_TOPIC_ID, ClusterView
from .cluster import is_complete, read_metadata
from .plan import Ask, Plan, Rest, expect, lost, try_again


def on_controller(
    view: ClusterView,
    request: Callable[[], Message],
    clock: Callable[[], int],
    codes: Callable[[Call], list[int]],
) -> Plan[Call]:
    """Asks the controller; NOT_CONTROLLER and lost connections lead to another look at the metadata."""
    while True:
        if view.controller is None or view.controller not in view.brokers:
            yield from read_metadata(view, [], clock)
        node = view.controller if view.controller in view.brokers else None
        [call] = yield [Ask(request(), node=node)]
        if lost(call):
            view.controller = None
            yield from read_metadata(view, [], clock)
            yield Rest(str(call.error))
            continue
        again = [code for code in codes(call) if to_do(CONTROLLER, code) not in (Do.take, Do.told)]
        if not again:
            return call
        view.controller = None
        yield try_again(CONTROLLER, again[0], call.name, "the controller")


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

    def request() -> CreateTopicsRequest:
        return CreateTopicsRequest(
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

    def codes(call: Call) -> list[int]:
        return [topic.error_code for topic in expect(CreateTopicsResponse, call).topics]

    call = yield from on_controller(view, request, clock, codes)
    for topic in expect(CreateTopicsResponse, call).topics:
        if topic.error_code and not (exist_ok and topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS):
            raise broker_error(
                topic.error_code, "CreateTopics", f"topic {topic.name!r}: {topic.error_message or ''}"
            )
    yield from _grown(view, topics, clock)


def create_partitions(
    view: ClusterView, totals: Mapping[str, int], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[None]:
    """Grows topics to these numbers of partitions and waits until each has a leader."""

    def request() -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=total, assignments=None)
                for name, total in totals.items()
            ],
            timeout_ms=timeout_ms,
            validate_only=False,
        )

    def codes(call: Call) -> list[int]:
        return [topic.error_code for topic in expect(CreatePartitionsResponse, call).results]

    call = yield from on_controller(view, request, clock, codes)
    for topic in expect(CreatePartitionsResponse, call).results:
        if topic.error_code:
            detail = f"topic {topic.name!r}: {topic.error_message or ''}"
            raise broker_error(topic.error_code, "CreatePartitions", detail)
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

    yield from read_metadata(view, [], clock)
    [call] = yield [Ask(Prepared(DeleteTopicsRequest, build), node=view.controller)]
    for topic in expect(DeleteTopicsResponse, call).responses:
        if topic.error_code:
            raise broker_error(topic.error_code, "DeleteTopics", f"topic {topic.name!r}")
    for name in topics:
        view.topics.pop(name, None)


def _grown(view: ClusterView, totals: Mapping[str, int], clock: Callable[[], int]) -> Plan[None]:
    while True:
        yield from read_metadata(view, totals, clock)
        late = [
            name
            for name, total in totals.items()
            if not is_complete(view, name) or (total > 0 and len(view.topics[name].partitions) < total)
        ]
        if not late:
            return
        yield Rest(f"topic {late[0]!r} has no leader for all of its partitions yet")
