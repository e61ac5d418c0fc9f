"""Document 002: KafkaConsumer.poll, line by line, and the commits in it (2.6.2)."""

from __future__ import annotations

from typing import Any

from ..messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..testing.world import Client, World
from ..wire.message import Message
from .frame import Told, join, produce, scenario
from .java_stage import OLD, USUAL, member_of


@scenario(
    "S2-8",
    "poll without a subscription or an assignment is an error of the application's",
    says="If there is neither a subscription nor an assignment, poll throws IllegalStateException.",
    given="Java 2.6.2 with neither",
    when="it polls",
    then="IllegalStateException, with Java's sentence",
)
def nothing_subscribed(told: Told) -> None:
    world = told.world({"t": 1}, trace=False)
    member = join(world, "a", OLD, topics=(), **USUAL)
    member.poll_once(100)
    world.run(500)
    told.result("poll raises", member.errors)
    told.claim("it is told", [name for name, _ in member.errors] == ["IllegalStateException"])


@scenario(
    "S2-16",
    "Auto commit happens inside of poll, and only when the interval is over",
    says="coordinator.poll ends with maybeAutoCommitOffsetsAsync.",
    given="Java 2.6.2 with an interval of 5 s, 50 messages read",
    when="the application doesn't poll for 20 s, and then polls again",
    then="nothing is committed while it doesn't poll, and at once when it does",
)
def in_poll(told: Told) -> None:
    world = told.world({"t": 1})
    member = member_of(world)
    produce(world, "t", (0,), 50, 1_000)
    world.run(1_000)
    before = len(world.asked(member, OffsetCommitRequest))
    member.pause_polling()
    told.moment("stops polling", "a")
    world.run(20_000)
    while_away = len(world.asked(member, OffsetCommitRequest)) - before
    member.go_on_polling()
    told.moment("polls again", "a")
    world.run(200)
    after = len(world.asked(member, OffsetCommitRequest)) - before - while_away
    told.result("commits while away, and after", [while_away, after])
    told.claim("none while it didn't poll", while_away == 0)
    told.claim("one when it polled", after == 1)


def _refuse_commits(world: World, *codes: int) -> list[int]:
    """The times at which commits came; the first ones are answered with these codes."""
    left = list(codes)
    times: list[int] = []

    def tamper(client: Client, request: Message, version: int) -> Message | None:
        if not isinstance(request, OffsetCommitRequest):
            return None
        times.append(world.now)
        if not left:
            return None
        code = left.pop(0)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=topics)

    world.tamper = tamper
    return times


def _after_commit(
    number: int, title: str, codes: tuple[int, ...], at_most: int, at_least: int, then: str
) -> Any:
    def play(told: Told) -> None:
        world = told.world({"t": 1})
        times = _refuse_commits(world, *codes)
        member_of(world)
        produce(world, "t", (0,), 20, 20_000)
        gap = times[1] - times[0]
        told.result("from the first commit to the second", f"{gap} ms")
        told.claim(f"between {at_least} and {at_most} ms", at_least <= gap <= at_most)

    scenario(
        f"S2-{number}",
        title,
        says="doAutoCommitOffsetsAsync: on success a debug line; a retriable error resets the timer to "
        "retry.backoff.ms; any other is a warning.",
        given="Java 2.6.2 with an interval of 5 s and steady messages",
        when=f"the first commit is answered with {codes[0] if codes else 'no error'}",
        then=then,
    )(play)
    return play


commit_good = _after_commit(
    17, "doAutoCommitOffsetsAsync: success", (), 5_600, 4_900, "the next one comes after 5 s"
)
commit_retriable = _after_commit(
    18,
    "doAutoCommitOffsetsAsync: a retriable error",
    (14,),
    1_000,
    50,
    "the next one comes after the backoff of 100 ms, with newer offsets",
)
commit_other = _after_commit(
    19, "doAutoCommitOffsetsAsync: any other error", (28,), 5_600, 4_900, "the next one comes after 5 s"
)
