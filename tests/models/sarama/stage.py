"""One or two sarama members on a `Stage`, and helpers for their requests and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

import pytest

from kproto.group.subscription import Subscription, TopicPartition
from kproto.messages.fetch import FetchResponse
from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.messages.offset_fetch import OffsetFetchResponse
from kproto.models import contract as c
from kproto.models import sarama
from kproto.models.sarama.partition_consumer import MessageReceiver
from kproto.models.sarama.routines import States, Table
from kproto.wire.message import Message
from tests.models.stage import Stage, StageMember

USUAL = {
    "session_ms": 6_000,
    "heartbeat_ms": 200,
    "max_poll_ms": 30_000,
    "auto_commit_ms": 300,
    "metadata_ms": 300_000,
    "reset": "earliest",
}


def stage_with_client(partitions: int = 2, records: int = 5, **conf: object) -> tuple[Stage, StageMember]:
    """Return a stage with topic t, and a member that has not subscribed."""
    stage = Stage({"t": partitions})
    stage.produce("t", range(partitions), records)
    return stage, stage.add_member("A", sarama, **{**USUAL, **conf})


def stage_with_member(partitions: int = 2, records: int = 5, **conf: object) -> tuple[Stage, StageMember]:
    """Return a stage with topic t, and a member that consumes all its partitions."""
    stage, a = stage_with_client(partitions, records, **conf)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == partitions * records)
    stage.run(100)
    return stage, a


def add_second_member(stage: Stage, name: str = "B", **conf: object) -> StageMember:
    """Add a second member that consumes the topic."""
    b = stage.add_member(name, sarama, **{**USUAL, **conf})
    b.run_command("subscribe t")
    word = "setup" if conf.get("assignors") == ["cooperative-sticky"] else "assigned"
    assert stage.run(until=lambda: b.has_printed(word))
    stage.run(1_000)
    return b


def inject_offset_fetch_errors(member: StageMember, *codes: int) -> None:
    """Put error codes into the partitions of OffsetFetch responses. sarama reads these codes before the
    group's error code.
    """
    remaining, do = list(codes), member.do

    def respond(event: c.ModelEvent) -> None:
        if (
            remaining
            and isinstance(event, c.ResponseReceived)
            and isinstance(event.response, OffsetFetchResponse)
        ):
            event.response.groups[0].topics[0].partitions[0].error_code = remaining.pop(0)
        do(event)

    member.do = respond  # type: ignore[method-assign]


def inject_fetch_error(member: StageMember, code: int) -> None:
    """Put an error code into the first partition of the next Fetch response that contains a partition."""
    do = member.do

    def respond(event: c.ModelEvent) -> None:
        if (
            isinstance(event, c.ResponseReceived)
            and isinstance(event.response, FetchResponse)
            and event.response.responses
        ):
            partition = event.response.responses[0].partitions[0]
            partition.error_code, partition.records = code, b""
            member.do = do  # type: ignore[method-assign]
        do(event)

    member.do = respond  # type: ignore[method-assign]


def change_responses(
    member: StageMember, kind: type[Message], change: Callable[[Any], object], count: int = 1
) -> None:
    """Let `change` modify the next `count` responses of one type."""
    remaining, do = [None] * count, member.do

    def respond(event: c.ModelEvent) -> None:
        if remaining and isinstance(event, c.ResponseReceived) and isinstance(event.response, kind):
            remaining.pop()
            change(event.response)
        do(event)

    member.do = respond  # type: ignore[method-assign]


def requests_of(member: StageMember, *apis: str) -> list[str]:
    """Return the member's requests of these APIs with their responses, in order."""
    return [line for line in member.requests if line.split()[0] in apis]


def time_of_request(member: StageMember, api: str, number: int = 0) -> int:
    """Return the time of the member's n-th request of an API. A negative n counts from the end."""
    return [line.now for line in member.lines if line.api == api and line.is_shown][number]


def times_printed(member: StageMember, word: str) -> list[int]:
    """Return the times at which the application printed a line that starts with `word`."""
    return [time for time, _, line in member.printed if line.startswith(word)]


# A function that makes the model a mutant: it patches in a mistake, which a test must detect.
Mutate = Callable[[pytest.MonkeyPatch], None]


def assert_mutant_fails(mutate: Mutate, test: Callable[[], None]) -> None:
    """Check that `test` fails with the mutant, and passes without it."""
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        with pytest.raises((AssertionError, KeyError, StopIteration, IndexError)):
            test()
    test()


def fetches(member: StageMember) -> list[tuple[int, list[tuple[str, int, int]]]]:
    """Return each Fetch as its time and a list of (topic, partition, fetch offset)."""
    return [
        (
            line.now,
            [
                (topic.topic, partition.partition, partition.fetch_offset)
                for topic in line.request.topics
                for partition in topic.partitions
            ],
        )
        for line in member.lines
        if line.api == "Fetch"
    ]


def subscribe(*topics: str) -> Subscription:
    """Return a subscription to these topics."""
    return Subscription(topics=topics)


def partitions_of(topic: str, *indexes: int) -> list[TopicPartition]:
    """Return the partitions of `topic` that have these indexes."""
    return [TopicPartition(topic, index) for index in indexes]


# ---- one modelled goroutine at a time


class CallerState(States):
    WAITING = "waiting"


class Caller(MessageReceiver):
    """A modelled goroutine that records the signals and partition errors that others send to it."""

    __slots__ = ("errors", "signals")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {CallerState.WAITING: set()}

    def __init__(self) -> None:
        super().__init__(CallerState.WAITING)
        self.signals: list[tuple[str, Any]] = []
        self.errors: list[str] = []

    def report(self, error: Any) -> None:
        self.errors.append(error.text)


class _KeepSignals(dict[str, Any]):
    def __missing__(self, signal: str) -> Any:
        def keep(caller: Caller, payload: object) -> None:
            caller.signals.append((signal, payload))

        return {CallerState.WAITING: keep}


Caller.TABLE = _KeepSignals()


class ClientStage:
    """A sarama client with two bootstrap addresses, and a `Caller` to which the tested goroutine sends
    signals.
    """

    def __init__(self, *, connected: bool = True, **conf: Any) -> None:
        options = {"client_id": "a", "group_id": "g", "random": lambda: 0.0, **conf}
        self.client = sarama.start(c.ModelConfig(**options))
        self.client.bootstrap(c.Started((("one", 9092), ("two", 9092)), {}))
        self.client.now, self.client.out = 1_000, []
        if connected:
            self.client.metadata.update(metadata_of(1), everything=True)
        self.caller = Caller()

    @property
    def signals(self) -> list[tuple[str, Any]]:
        """The signals that the caller has received."""
        return self.caller.signals

    def requests_of(self, api: str) -> list[Any]:
        return [
            action.request
            for action in self.client.out
            if isinstance(action, c.SendRequest) and type(action.request).__name__ == f"{api}Request"
        ]

    def start(self, call: Callable[[], object]) -> ClientStage:
        call()
        self.client.run()
        return self

    def _open(self) -> c.SendRequest:
        return next(
            action
            for action in reversed(self.client.out)
            if isinstance(action, c.SendRequest) and id(action.request) in self.client.open_requests
        )

    def answer(self, response: Message) -> None:
        """Answer the newest request that has no response yet."""
        sent = self._open()
        self.client.on_response(c.ResponseReceived(sent.request, response, sent.version))
        self.client.run()

    def fail(self, why: str = "EOF") -> None:
        """Break the connection of the newest open request."""
        self.client.on_request_failed(c.RequestFailed(self._open().request, why))
        self.client.run()

    def wait(self, ms: int) -> None:
        """Advance the time, and wake each goroutine at its deadline."""
        end = self.client.now + ms
        while (due := self.client.next_deadline()) is not None and due <= end:
            self.client.now = max(due, self.client.now)
            self.client.expire()
        self.client.now = end


def metadata_of(
    *leaders: int, topic: str = "t", code: int = 0, epoch: int = 0, host: str = "broker"
) -> MetadataResponse:
    """Return the metadata of two brokers and of one topic, with the leader of each partition."""
    partitions = [
        MetadataResponsePartition(
            error_code=5 if leader < 0 else 0,
            partition_index=index,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[],
            isr_nodes=[],
            offline_replicas=[],
        )
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=f"{host}{node}", port=9092) for node in (1, 2)],
        topics=[
            MetadataResponseTopic(name=topic, topic_id=UUID(int=7), error_code=code, partitions=partitions)
        ],
    )
