"""One or two sarama members on a `Stage`, and helpers for their requests and callbacks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.group.subscription import Subscription, TopicPartition
from kproto.messages.fetch import FetchResponse
from kproto.messages.offset_fetch import OffsetFetchResponse
from kproto.models import contract as c
from kproto.models import sarama
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
    """Put an error code into the first partition of the next Fetch response that has one."""
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


def requests_of(member: StageMember, *apis: str) -> list[str]:
    """Return the member's requests of these APIs with their responses, in order."""
    return [line for line in member.requests if line.split()[0] in apis]


def time_of_request(member: StageMember, api: str, number: int = 0) -> int:
    """Return the time of the member's n-th request of an API. Negative n counts from the last."""
    return [line.now for line in member.lines if line.api == api and line.is_shown][number]


def times_printed(member: StageMember, word: str) -> list[int]:
    """Return the times at which the application printed a line that starts with `word`."""
    return [time for time, _, line in member.printed if line.startswith(word)]


# A mutant: a function that patches the model with a mistake, which the test must detect.
Mutate = Callable[[pytest.MonkeyPatch], None]


def assert_mutant_fails(mutate: Mutate, test: Callable[[], None]) -> None:
    """Check that `test` fails with the mutant, and passes without it."""
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        with pytest.raises((AssertionError, KeyError, StopIteration, IndexError)):
            test()
    test()


def fetches(member: StageMember) -> list[tuple[int, list[tuple[str, int, int]]]]:
    """Return the time of each Fetch, and its partitions with their offsets."""
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
    """Return these partitions of a topic."""
    return [TopicPartition(topic, index) for index in indexes]
