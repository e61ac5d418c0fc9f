"""KafkaConsumer.poll of kafka-clients 2.6.2, line by line, and the commits that it sends.

Scenarios of lesson 002 (docs/lessons/002-java-reliability.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..group.subscription import TopicPartition
from ..messages.fetch import FetchRequest
from ..messages.join_group import JoinGroupRequest
from ..messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..models import contract
from ..testing.world import Client, World
from ..wire.message import Message
from .java_stage import OLD, T0, USUAL, member_of, poll_for
from .parameters import GROUP
from .scenario import ScenarioRun, join, offsets, produce, scenario


def _member_polled_by_hand(world: World, **config: Any) -> Any:
    """Start a member, wait until it has its partitions, and stop its automatic polling."""
    member = member_of(world, **config)
    world.run(4_000, until=lambda: bool(member.owned))
    world.run(500)
    member.pause_polling()
    world.run(200)
    return member


# -- acquireAndEnsureOpen, the subscription, wakeup -------------------------------------------------------


@scenario(
    "S2-7",
    "poll is for one thread, and for an open consumer",
    says="acquireAndEnsureOpen: a call from another thread throws, and so does a call after close; the "
    "lock is always released.",
    given="kafka-clients 2.6.2 whose application waits in poll",
    when="a second thread polls; a poll throws; the consumer is closed and polled again",
    then="only the second thread gets ConcurrentModificationException, the next poll works, and after "
    "close it is IllegalStateException",
    takes=GROUP,
)
def one_thread(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = _member_polled_by_hand(world)
    member.poll_once(2_000)
    world.run(500)
    actions_of_second_thread = member.model.step(member.state, contract.PollCalled(), world.now)
    run.moment("another thread polls", "a")
    run.result("the second thread", [(call.name, call.text) for call in actions_of_second_thread])
    run.claim(
        "the second thread is rejected",
        [call.name for call in actions_of_second_thread] == ["ConcurrentModificationException"],
    )
    run.claim("the first one still waits", member.polling)
    world.write("t", 0, "x")
    world.run(500)
    run.claim("and gets its record", offsets(member, T0) == [0])
    member.wakeup()
    poll_for(world, member, 100)
    run.claim("a poll throws", [name for name, _ in member.errors] == ["WakeupException"])
    world.write("t", 0, "y")
    poll_for(world, member, 1_000)
    run.claim("and released the lock: the next poll works", offsets(member, T0) == [0, 1])
    member.close()
    world.run(2_000)
    after = member.model.step(member.state, contract.PollCalled(), world.now)
    run.result("after close", [call.error for call in after])
    run.claim(
        "after close it throws",
        [call.error for call in after]
        == [("IllegalStateException", "This consumer has already been closed.")],
    )


@scenario(
    "S2-8",
    "poll without a subscription or an assignment is the application's error",
    says="If there is neither a subscription nor an assignment, poll throws IllegalStateException.",
    given="kafka-clients 2.6.2 with neither",
    when="it polls",
    then="IllegalStateException, with Java's sentence",
    fixed="its consumer has no subscription, so it joins no group",
)
def nothing_subscribed(run: ScenarioRun) -> None:
    world = run.world({"t": 1}, trace=False)
    member = join(world, "a", OLD, topics=(), **USUAL)
    member.poll_once(100)
    world.run(500)
    run.result("poll raises", member.errors)
    run.claim("it is told", [name for name, _ in member.errors] == ["IllegalStateException"])


@scenario(
    "S2-9",
    "wakeup: the only call that another thread may make, and it loses nothing",
    says="maybeTriggerWakeup is called at the start of the loop: a woken consumer throws WakeupException.",
    given="kafka-clients 2.6.2 with 20 messages waiting, its application between two polls",
    when="it is woken and polls; later it is woken while it waits in a poll of 1 min",
    then="each time one poll throws immediately, and the next one continues: every message is returned "
    "once, in order",
    takes=GROUP,
)
def wakeup(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = _member_polled_by_hand(world)
    world.write("t", 0, *map(str, range(20)))
    poll_for(world, member, 1_000, limit=10)
    run.moment("another thread wakes it", "a")
    member.wakeup()
    duration_ms = poll_for(world, member, 60_000)
    run.result("woken before: the poll took", f"{duration_ms} ms")
    run.claim("woken before a poll, the poll throws immediately", (duration_ms, len(member.errors)) == (0, 1))
    run.claim("with ten messages in its buffer it returned none", len(member.records) == 10)
    poll_for(world, member, 1_000)
    run.claim("the next poll returns the other ten", offsets(member, T0) == list(range(20)))
    started_at = world.now
    member.poll_once(60_000)
    world.run(3_000)
    run.moment("another thread wakes it", "a")
    member.wakeup()
    world.run(1_000, until=lambda: not member.polling)
    run.result("woken inside: a poll of a minute took", f"{world.now - started_at} ms")
    run.claim("woken in a poll, it throws immediately", world.now - started_at == 3_000)
    world.write("t", 0, "last")
    poll_for(world, member, 1_000)
    run.claim("all came once, in order", offsets(member, T0) == list(range(21)))
    run.claim("it threw twice", [name for name, _ in member.errors] == ["WakeupException"] * 2)


# -- the loop ---------------------------------------------------------------------------------------------


@scenario(
    "S2-10",
    "poll(Duration): work before the records takes part of its timeout",
    says="With includeMetadataInTimeout the assignment is updated without waiting for the join.",
    given="kafka-clients 2.6.2, and a group whose first rebalance takes 3 s",
    when="the application polls repeatedly with a Duration of 400 ms",
    then="each poll returns empty within its timeout until the join is complete; the join spans the "
    "polls, and is sent once",
    takes=("session_timeout_ms", "assignor", "static"),
)
def bounded(run: ScenarioRun) -> None:
    world = run.world({"t": 1}, {"group.initial.rebalance.delay.ms": 3_000})
    member = member_of(world)
    member.pause_polling()
    world.run(60)
    world.write("t", 0, "x")
    durations_ms: list[int] = []
    run.moment("polls for 400 ms at a time", "a")
    while not member.records and len(durations_ms) < 20:
        durations_ms.append(poll_for(world, member, 400))
    # The first JoinGroup of a dynamic member has no member id. The response assigns the id (KIP-394).
    joins = [
        request
        for request in world.requests_of(member, JoinGroupRequest)
        if request.member_id or request.group_instance_id
    ]
    run.result("polls, and the longest", [len(durations_ms), f"{max(durations_ms)} ms"])
    run.claim("no poll exceeded its timeout", max(durations_ms) <= 400)
    run.claim("several were empty before the join was complete", len(durations_ms) >= 7)
    run.claim("they were one join", len(joins) == 1)


@scenario(
    "S2-11",
    "poll(long), deprecated: it returns when the partitions are assigned, not when its timeout expires",
    says="Without includeMetadataInTimeout it tries until the metadata is there, and warns: Still waiting "
    "for metadata.",
    given="kafka-clients 2.6.2, and a group whose first rebalance takes 3 s",
    when="the application calls poll(0) and then, in another group, poll(400)",
    then="both return only when the partitions and their committed offsets are known; the 400 ms have "
    "long expired: no time is left for records",
    takes=("session_timeout_ms", "assignor", "static"),
)
def patient(run: ScenarioRun) -> None:
    for timeout in (0, 400):
        world = run.world({"t": 1}, {"group.initial.rebalance.delay.ms": 3_000})
        member = member_of(world)
        member.pause_polling()
        world.run(60)
        started_at = world.now
        run.moment(f"calls poll({timeout})", "a")
        duration_ms = poll_for(world, member, timeout, patient=True)
        assigned_after_ms = next(
            (
                observation.at - started_at
                for observation in world.observations
                if observation.kind == "assigned"
            ),
            None,
        )
        run.result(
            f"poll({timeout}) took, was assigned after", [f"{duration_ms} ms", f"{assigned_after_ms} ms"]
        )
        run.claim(
            f"poll({timeout}): it waited for its partitions",
            assigned_after_ms is not None and duration_ms >= assigned_after_ms,
        )
        excess_ms = duration_ms - (assigned_after_ms or 0)
        run.claim(f"poll({timeout}): then the next response ended it", excess_ms < 100)
        run.claim(f"poll({timeout}): nothing was read", not member.records)
        run.claim(f"poll({timeout}): no line was logged", not member.reports)
    run.why(
        "The warning in the loop is never logged: each turn has an unlimited timer, so no turn returns "
        "without progress. For the same reason poll(0) has no limit."
    )


@scenario(
    "S2-12",
    "The next fetch is on its way before poll returns its records",
    says="Before it returns, poll sends the next fetches, so that the broker works in parallel with the "
    "application. Nothing may throw after that, because the position has already moved.",
    given="kafka-clients 2.6.2 and a topic with 500 messages; a poll returns at most 100",
    when="the application polls, works for 1 s, and polls with a timeout of 0",
    then="the second fetch was sent at the moment the first poll returned, and the poll with timeout 0 "
    "has its records",
    takes=GROUP,
)
def pipelined(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = _member_polled_by_hand(world)
    world.write("t", 0, *["x"] * 100)
    fetches_before = len(world.requests_of(member, FetchRequest))
    poll_for(world, member, 1_000, limit=100)
    returned_at = world.now
    world.write("t", 0, *["x"] * 100)
    run.claim("a fetch is open when poll has returned", bool(member.state.pending_fetch_nodes))
    world.run(1_000)
    sent = world.requests_of(member, FetchRequest)[fetches_before:]
    run.result("fetches until the second poll", len(sent))
    duration_ms = poll_for(world, member, 0, limit=100)
    run.result("the second poll: records, and time", [len(member.records) - 100, f"{duration_ms} ms"])
    run.claim("the second poll had its records immediately", (len(member.records), duration_ms) == (200, 0))
    run.claim("nothing was fetched meanwhile", world.now == returned_at + 1_000)
    run.claim("all came once, in order", offsets(member, T0) == list(range(200)))


class _DroppingInterceptor:
    """A consumer interceptor that drops every second record."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, int]] = []

    def on_consume(self, records: tuple[contract.ModelRecord, ...]) -> tuple[contract.ModelRecord, ...]:
        return tuple(record for record in records if record.offset % 2 == 0)

    def on_commit(self, committed: Mapping[TopicPartition, int]) -> None:
        self.commits.append(dict(committed))


@scenario(
    "S2-13",
    "Interceptors decide what poll returns",
    says="poll returns interceptors.onConsume of the records.",
    given="kafka-clients 2.6.2 with an interceptor that drops every second record, and ten messages",
    when="the application reads them, and commits are made",
    then="it gets five, but all ten are committed: what an interceptor drops is lost",
    takes=GROUP,
)
def intercepted(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    interceptor = _DroppingInterceptor()
    member = member_of(world, auto_commit_ms=1_000, extra={"interceptor.classes": (interceptor,)})
    world.write("t", 0, *["x"] * 10)
    world.run(5_000)
    run.result("records, committed", [len(member.records), world.committed("g", T0)])
    run.claim("poll returns what onConsume returned", offsets(member, T0) == [0, 2, 4, 6, 8])
    run.claim("all were committed", world.committed("g", T0) == 10)
    run.claim("onCommit was called with it", {T0: 10} in interceptor.commits)
    run.why("The position moved before onConsume is called, and commits are made of positions.")


@scenario(
    "S2-14",
    "poll loops until there are records or its timeout expires",
    says="do ... while (timer.notExpired()), and then ConsumerRecords.empty().",
    given="kafka-clients 2.6.2 with an empty partition and fetch.max.wait.ms 100",
    when="it polls for 1,000 ms; then again, and a message comes after 300 ms",
    then="the first poll is empty, takes its whole timeout and fetches several times; the second returns "
    "with the message",
    takes=GROUP,
)
def ack_travels_in_the_loop(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = _member_polled_by_hand(world, fetch_wait_ms=100)
    before = len(world.requests_of(member, FetchRequest))
    duration_ms = poll_for(world, member, 1_000)
    fetches = len(world.requests_of(member, FetchRequest)) - before
    run.result("empty: took, fetches", [f"{duration_ms} ms", fetches])
    run.claim("it took its whole timeout", duration_ms == 1_000)
    run.claim("it was empty", not member.records)
    run.claim("it fetched several times", fetches >= 8)
    world.call_later(300, lambda: world.write("t", 0, "x"))
    duration_ms = poll_for(world, member, 1_000)
    run.result("with a message after 300 ms: took", f"{duration_ms} ms")
    run.claim("it returned with the message", 300 <= duration_ms <= 310 and len(member.records) == 1)


@scenario(
    "S2-15",
    "poll measures how often it is called, and how long it waits",
    says="recordPollStart at the beginning and recordPollEnd in finally.",
    given="kafka-clients 2.6.2, an application that works 900 ms after each poll, and polls that wait 100 ms "
    "for nothing",
    when="this continues for 90 s, and then a poll throws",
    then="time-between-poll is 1,000 ms, poll-idle-ratio about a tenth; the poll that throws is counted, too",
    takes=GROUP,
)
def measured(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = _member_polled_by_hand(world)
    for _ in range(90):
        poll_for(world, member, 100)
        world.run(900)
    metrics = member.state.metrics.values(world.now)
    for name, value in metrics.items():
        # Java's metricValue() is a Double, so it is printed with decimal places.
        run.result(name, repr(float(value)))
    times_between_polls = (metrics["time-between-poll-avg"], metrics["time-between-poll-max"])
    run.claim("polls are a second apart", times_between_polls == (1_000, 1_000))
    run.claim("about a tenth of the time is spent in poll", 0.08 <= metrics["poll-idle-ratio-avg"] <= 0.12)
    run.claim("the last poll was a second ago", metrics["last-poll-seconds-ago"] == 1)
    counted_polls = sum(sample.count for sample in member.state.metrics.poll_idle_ratio.samples)
    member.wakeup()
    poll_for(world, member, 100)
    after = member.state.metrics.values(world.now)
    run.claim("the throwing poll is counted", after["last-poll-seconds-ago"] == 0)
    run.claim(
        "and ended",
        sum(sample.count for sample in member.state.metrics.poll_idle_ratio.samples) == counted_polls + 1,
    )
    run.why(
        "Near 1 the application waits for records, near 0 the records wait for the application. It is the "
        "time in poll over the sum of itself and the time since the last poll began, so the last poll "
        "counts twice."
    )


# -- the commit in poll -----------------------------------------------------------------------------------


@scenario(
    "S2-16",
    "Auto commit happens inside poll, and only after the interval",
    says="coordinator.poll ends with maybeAutoCommitOffsetsAsync.",
    given="kafka-clients 2.6.2 with an interval of 5 s, 50 messages read",
    when="the application doesn't poll for 20 s, and then polls again",
    then="nothing is committed while it does not poll; it commits as soon as it polls",
    takes=GROUP,
)
def in_poll(run: ScenarioRun) -> None:
    world = run.world({"t": 1})
    member = member_of(world)
    produce(world, "t", (0,), 50, 1_000)
    world.run(1_000)
    before = len(world.requests_of(member, OffsetCommitRequest))
    member.pause_polling()
    run.moment("stops polling", "a")
    world.run(20_000)
    while_away = len(world.requests_of(member, OffsetCommitRequest)) - before
    member.resume_polling()
    run.moment("polls again", "a")
    world.run(200)
    after = len(world.requests_of(member, OffsetCommitRequest)) - before - while_away
    run.result("commits while away, and afterwards", [while_away, after])
    run.claim("none while it did not poll", while_away == 0)
    run.claim("one when it polled", after == 1)


def _refuse_commits(world: World, *codes: int) -> list[int]:
    """Reject the first commits with these codes; return a list that collects the time of every commit."""
    pending = list(codes)
    times: list[int] = []

    def tamper(client: Client, request: Message, version: int) -> Message | None:
        if not isinstance(request, OffsetCommitRequest):
            return None
        times.append(world.now)
        if not pending:
            return None
        code = pending.pop(0)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=topics)

    world.tamper = tamper
    return times


def _commit_interval_scenario(
    number: int, title: str, codes: tuple[int, ...], at_most: int, at_least: int, then: str
) -> Any:
    """Add scenario S2-`number`: the time between the first two commits.

    `codes` contains the error code in the response to the first commit, or is empty if this commit succeeds.
    """

    def play(run: ScenarioRun) -> None:
        world = run.world({"t": 1})
        times = _refuse_commits(world, *codes)
        member_of(world)
        produce(world, "t", (0,), 20, 20_000)
        gap = times[1] - times[0]
        run.result("from the first commit to the second", f"{gap} ms")
        run.claim(f"between {at_least} and {at_most} ms", at_least <= gap <= at_most)

    scenario(
        f"S2-{number}",
        title,
        says="doAutoCommitOffsetsAsync: on success a debug line; a retriable error resets the timer to "
        "retry.backoff.ms; any other is a warning.",
        given="kafka-clients 2.6.2 with an interval of 5 s and steady messages",
        when=f"the first commit is answered with {codes[0] if codes else 'no error'}",
        then=then,
        takes=GROUP,
    )(play)
    return play


commit_good = _commit_interval_scenario(
    17,
    "doAutoCommitOffsetsAsync: success",
    codes=(),
    at_most=5_600,
    at_least=4_900,
    then="the next one comes after 5 s",
)
commit_retriable = _commit_interval_scenario(
    18,
    "doAutoCommitOffsetsAsync: a retriable error",
    codes=(14,),
    at_most=1_000,
    at_least=50,
    then="the next one comes after the backoff of 100 ms, with newer offsets",
)
commit_other = _commit_interval_scenario(
    19,
    "doAutoCommitOffsetsAsync: any other error",
    codes=(28,),
    at_most=5_600,
    at_least=4_900,
    then="the next one comes after 5 s",
)
