"""Document 002: how reliable Kafka's Java consumer is (2.6.2): auto commit, poll, rebalances.

Where a scenario runs the Java of the document it is the machine java-2.6, and today's (4.3.1) beside it where
they differ; what an application of today would use is kproto's own consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from consumer.options import consumer_options

from ..clients import zookeeper as zk
from ..errors import ConfigError
from ..group.subscription import TopicPartition
from ..messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..messages.join_group import JoinGroupRequest
from ..messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ..testing.world import Client, World
from ..wire.message import Message
from .frame import Told, join, lost_and_doubled, offsets, produce, read, scenario

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NOW = "java-2.6", "java"
USUAL: dict[str, Any] = {
    "reset": "earliest",
    "session_ms": 10_000,
    "heartbeat_ms": 500,
    "max_poll_ms": 60_000,
    "auto_commit": True,
    "auto_commit_ms": 5_000,
    "metadata_ms": 5_000,
}


def _member(world: World, name: str = "a", kind: str = OLD, **config: Any) -> Any:
    return join(world, name, kind, **{**USUAL, **config})


def _stored(world: World) -> list[dict[TopicPartition, int]]:
    return [one.detail for one in world.seen if one.what == "stored"]


# -- enable.auto.commit -----------------------------------------------------------------------------------


def _auto_commit(told: Told, **options: Any) -> object:
    try:
        found: object = consumer_options(options).enable_auto_commit
    except ConfigError as error:
        found = f"refused: {error}"
    told.result("enable.auto.commit", found)
    return found


def _config(number: int, given: str, then: str) -> Callable[[Callable[[Told], None]], Callable[[Told], None]]:
    return scenario(
        f"S2-{number}",
        f"maybeOverrideEnableAutoCommit: {given}",
        says="Without a group id enable.auto.commit is false unless it was set; set to true, it is an error.",
        given=given,
        when="a consumer is made",
        then=then,
    )


@_config(1, "group.id set, enable.auto.commit not", "it commits automatically")
def group_unset(told: Told) -> None:
    told.claim("true", _auto_commit(told, group_id="g") is True)


@_config(2, "group.id set, enable.auto.commit false", "it does not")
def group_false(told: Told) -> None:
    told.claim("false", _auto_commit(told, group_id="g", enable_auto_commit=False) is False)


@_config(3, "no group.id, enable.auto.commit not set", "it does not")
def alone_unset(told: Told) -> None:
    told.claim("false", _auto_commit(told) is False)


@_config(4, "no group.id, enable.auto.commit true", "that is refused by name")
def alone_true(told: Told) -> None:
    told.claim("refused", "needs a group_id" in str(_auto_commit(told, enable_auto_commit=True)))


@_config(5, "no group.id, enable.auto.commit false", "it does not")
def alone_false(told: Told) -> None:
    told.claim("false", _auto_commit(told, enable_auto_commit=False) is False)


@scenario(
    "S2-6",
    "auto.commit.interval.ms: 5 seconds unless said",
    says="AUTO_COMMIT_INTERVAL_MS is 5000 by default, at least 0.",
    given="a consumer's options",
    when="the interval is left out, 0 and -1",
    then="5000, 0, and a refusal",
)
def interval(told: Told) -> None:
    plain = consumer_options({"group_id": "g"}).auto_commit_interval_ms
    zero = consumer_options({"group_id": "g", "auto_commit_interval_ms": 0}).auto_commit_interval_ms
    refused = ""
    try:
        consumer_options({"group_id": "g", "auto_commit_interval_ms": -1})
    except ConfigError as error:
        refused = str(error)
    told.result("left out, 0, -1", [plain, zero, refused])
    told.claim("5000 and 0 are taken, -1 is not", (plain, zero) == (5_000, 0) and bool(refused))


# -- poll and its commits ---------------------------------------------------------------------------------


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
    member = _member(world)
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
        _member(world)
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


# -- rebalances: then and now -----------------------------------------------------------------------------


@scenario(
    "S2-20",
    "Kafka 0.8: where a group stood in ZooKeeper",
    says="The old coordinator watched /consumers/<group>/ids and /brokers/topics/<topic>; offsets were under "
    "/consumers/<group>/offsets/<topic>/<partition>.",
    given="the builders of paths",
    when="they are asked for group g and topic t",
    then="the document's paths come out",
)
def paths(told: Told) -> None:
    found = [zk.ids_path("g"), zk.topic_path("t"), zk.offset_path("g", "t", 0)]
    told.result("paths", found)
    told.claim(
        "as the document has them",
        found == ["/consumers/g/ids", "/brokers/topics/t", "/consumers/g/offsets/t/0"],
    )


@scenario(
    "S2-21",
    "Kafka 0.8: everybody decides alone, and they run into each other",
    says="Each consumer decided by itself which partitions it takes, and tried to be first to write "
    "it down; there "
    "was no sense of a group that agrees.",
    given="three consumers whose watches fire at different times",
    when="they start one after the other, one dies, and the topic grows",
    then="consumers that hear early find partitions still owned and try again; in the end each "
    "partition has one "
    "owner; every change made everybody begin anew",
)
def zookeeper(told: Told) -> None:
    state = zk.start("g", {"t": 6})
    now, conflicts = 0, 0
    events: list[tuple[int, zk.Event, str]] = [
        (0, zk.Join("a", delay_ms=900), "a starts"),
        (3_000, zk.Join("b", delay_ms=300), "b starts"),
        (6_000, zk.Join("c", delay_ms=5), "c starts"),
        (30_000, zk.End("a"), "a's session ends"),
        (60_000, zk.Grow("t", 8), "the topic grows to 8 partitions"),
    ]

    def note(actions: list[zk.Action]) -> int:
        for action in actions:
            told.moment(_told(action), action.consumer, told.started + now)
        return sum(isinstance(action, zk.Conflict) for action in actions)

    for at, event, what in [*events, (90_000, zk.Tick(), "")]:
        while (due := zk.next_deadline(state)) is not None and due <= at:
            now = due
            conflicts += note(zk.step(state, zk.Tick(), now))
        now = at
        if what:
            told.moment(what, "operator", told.started + now)
        conflicts += note(zk.step(state, event, now))
    owners = [zk.owner(state, TopicPartition("t", one)) for one in range(8)]
    told.result("owners", owners)
    told.result("conflicts", conflicts)
    told.result("rebalances for 5 changes", state.rebalances)
    told.claim("somebody ran into somebody", conflicts > 0)
    told.claim("each partition has one owner in the end", owners == ["b"] * 4 + ["c"] * 4)
    told.claim("each change made everybody begin anew", state.rebalances >= 9)
    told.why(
        "Nobody is asked, so nobody can say that all have let go; the owners' nodes only refuse the "
        "second one."
    )


def _told(action: zk.Action) -> str:
    match action:
        case zk.Released(partitions=partitions):
            return f"lets go of {len(partitions)} partitions"
        case zk.Owns(partitions=partitions):
            return f"owns {', '.join(map(str, partitions)) or 'nothing'}"
        case zk.Conflict(partition=tp, owner=owner):
            return f"wants {tp}, which {owner} still has: tries again"
        case zk.GaveUp():
            return "gives up"


@scenario(
    "S2-22",
    "The group coordinator: everybody finds the same one, and joins and commits there",
    says="Since 0.9 each group has a coordinator on a broker, for membership and for offsets.",
    given="three brokers and three members of one group",
    when="they join and commit",
    then="one broker got every JoinGroup and OffsetCommit",
)
def coordinator(told: Told) -> None:
    world = told.world({"t": 3}, brokers=3)
    members = [_member(world, name) for name in ("a", "b", "c")]
    produce(world, "t", range(3), 20, 3_000)
    world.run(10_000)
    nodes = {
        entry.data.node
        for entry in world.entries
        if entry.what == "asks" and entry.data.body[:2] in (b"\x00\x08", b"\x00\x0b")
    }
    told.result("brokers that were joined at and committed to", sorted(nodes))
    told.claim("one broker", len(nodes) == 1)
    told.claim("all three are members", all(one.is_stable() for one in members))


@scenario(
    "S2-23",
    "What makes a group rebalance: members, topics, partitions",
    says="A rebalance has three causes: members come, go or crash; the set of subscribed topics "
    "changes; a topic's "
    "partitions change.",
    given="a Java member that subscribed to a pattern",
    when="a second member comes, leaves, a third crashes, a matching topic is made, a topic grows",
    then="each time the group rebalances, and settles",
)
def triggers(told: Told) -> None:
    world = told.world({"t": 2}, trace=False)
    first = join(world, "a", OLD, topics=(), **USUAL)
    first.subscribe(pattern="t.*")
    world.run(5_000)

    def generation() -> int:
        return world.cluster.coordinator.groups["g"].generation

    def after(what: str, ms: int) -> None:
        before = generation()
        told.moment(what, "operator")
        world.run(ms)
        told.result(what, f"{generation() - before} more generations")
        told.claim(f"{what}: the group rebalanced", generation() > before)
        told.claim(f"{what}: it settled", world.is_stable("g"))

    second = join(world, "b", OLD, topics=(), **USUAL)
    second.subscribe(pattern="t.*")
    after("a member joins", 10_000)
    second.close()
    after("a member leaves", 10_000)
    third = join(world, "c", OLD, topics=(), **USUAL)
    third.subscribe(pattern="t.*")
    after("another joins", 10_000)
    world.kill(third)
    after("it crashes", 25_000)
    world.create("t2", 2)
    after("a topic that matches is made", 15_000)
    world.grow("t", 4)
    after("a topic grows", 15_000)


@scenario(
    "S2-25",
    "onJoinPrepare commits: 2.6.2 blocks poll for it, today's does not",
    says="onJoinPrepare calls maybeAutoCommitOffsetsSync with a timer of max.poll.interval.ms.",
    given="a member with messages read since its last commit, and a coordinator whose commit answers "
    "are slow",
    when="a second member comes",
    then="both commit before they join again; nothing is read twice",
)
def prepare(told: Told) -> None:
    for kind in (OLD, NOW):
        world = told.world({"t": 2})
        first = _member(world, "a", kind, auto_commit_ms=60_000)
        produce(world, "t", (0, 1), 50, 2_000)
        world.run(500)
        told.claim(f"{kind}: nothing was committed by the timer", not _stored(world))
        second = _member(world, "b", kind, auto_commit_ms=60_000)
        world.run(10_000)
        lost, doubled = lost_and_doubled(world, [first, second], (T0, T1))
        told.result(f"{kind}: committed before it joined again", _stored(world)[:1])
        told.claim(f"{kind}: it was committed", _stored(world)[0] == {T0: 100, T1: 100})
        told.claim(f"{kind}: nothing is lost or read twice", lost == doubled == 0)


@scenario(
    "S2-26",
    "Lost: generation AND member id gone in 2.6.2, one of them in today's",
    says="If generation and member id were reset, what was owned is lost: onPartitionsLost, no commit.",
    given="a member that reads; its heartbeat is answered with ILLEGAL_GENERATION, or with UNKNOWN_MEMBER_ID",
    when="it joins again",
    then="its listener hears of lost, in both versions; nothing is committed on the way",
)
def lost(told: Told) -> None:
    for kind in (OLD, NOW):
        for code in (22, 25):
            world = told.world({"t": 2})
            left = [code]

            def tamper(
                client: Client,
                request: Message,
                version: int,
                left: list[int] = left,
                world: World = world,
            ) -> Message | None:
                late = isinstance(request, HeartbeatRequest) and world.now > told.started + 4_000
                return HeartbeatResponse(error_code=left.pop()) if late and left else None

            world.tamper = tamper
            member = _member(world, "a", kind, auto_commit_ms=60_000, session_ms=6_000)
            world.run(20_000)
            calls = [call for call, _ in member.calls]
            told.result(f"{kind}, error {code}", calls)
            told.claim(
                f"{kind}, error {code}: assigned, lost, assigned", calls == ["assigned", "lost", "assigned"]
            )


@scenario(
    "S2-27",
    "EAGER: everything is revoked before the join, and the callback can still commit",
    says="EAGER revokes all partitions before it joins; the assignment changes only after the callback.",
    given="an eager member without auto commit, whose revoked callback takes a second and commits",
    when="a second member comes",
    then="the commit in the callback is taken; nothing is read twice",
)
def eager(told: Told) -> None:
    world = told.world({"t": 2}, trace=False)
    first = _member(world, "a", NOW, auto_commit=False, assignors=("range",))
    produce(world, "t", (0, 1), 50, 2_000)
    world.run(500)
    first.callback_ms = 1_000
    second = _member(world, "b", NOW, auto_commit=False, assignors=("range",))
    world.run(3_000, until=lambda: ("revoked", (T0, T1)) in first.calls)
    token = first.commit()
    world.run(10_000)
    told.result("the commit in the callback", first.committed.get(token, "unanswered") or "taken")
    told.claim("all of it was revoked", ("revoked", (T0, T1)) in first.calls)
    told.claim("the commit was taken", first.committed.get(token, "open") is None)
    _, doubled = lost_and_doubled(world, [first, second], (T0, T1))
    told.claim("nothing is read twice", doubled == 0)


@scenario(
    "S2-37",
    "COOPERATIVE: only what moves is revoked, and then it joins once more",
    says="onJoinComplete, COOPERATIVE: owned minus assigned is revoked, and requestRejoin follows.",
    given="a cooperative member of 2.6.2 with four partitions",
    when="a second member comes",
    then="two partitions are revoked, the other two never; it sends two JoinGroups",
)
def cooperative(told: Told) -> None:
    world = told.world({"t": 4})
    first = _member(world, "a", assignors=("cooperative-sticky",))
    world.run(4_000)
    joins = len(world.asked(first, JoinGroupRequest))
    _member(world, "b", assignors=("cooperative-sticky",))
    world.run(10_000)
    revoked = [partitions for call, partitions in first.calls if call == "revoked"]
    told.result("revoked", [str(tp) for found in revoked for tp in found])
    told.result("JoinGroups", len(world.asked(first, JoinGroupRequest)) - joins)
    told.claim("two partitions were revoked, once", [len(found) for found in revoked] == [2])
    told.claim("it joined twice", len(world.asked(first, JoinGroupRequest)) - joins == 2)


@scenario(
    "S2-44",
    "onPartitionsAssigned is called, also with nothing",
    says="invokePartitionsAssigned(addedPartitions) comes at the end of every onJoinComplete.",
    given="two Java members and a topic with one partition",
    when="both have joined",
    then="the one without a partition was told of its empty assignment",
)
def assigned_nothing(told: Told) -> None:
    world = told.world({"t": 1}, trace=False)
    members = [_member(world, name) for name in ("a", "b")]
    world.run(10_000)
    idle = next(one for one in members if not one.owned)
    told.result("callbacks of the idle one", [f"{call} {len(found)}" for call, found in idle.calls])
    told.claim("its last callback is assigned, with nothing", idle.calls[-1] == ("assigned", ()))


@scenario(
    "S2-46",
    "COOPERATIVE keeps reading what it keeps: no gap for partitions that stay",
    says="EAGER divides everything anew; COOPERATIVE keeps partitions until they have to move.",
    given="two members with six partitions, steady messages",
    when="a third member comes, with range and with cooperative-sticky",
    then="with cooperative the partitions that stay have no gap; with range all have one",
)
def no_gap(told: Told) -> None:
    longest: dict[str, int] = {}
    for assignor in ("range", "cooperative-sticky"):
        world = told.world({"t": 6}, trace=False)
        members = [
            _member(world, name, NOW, assignors=(assignor,), heartbeat_ms=beat)
            for name, beat in (("a", 500), ("b", 1_700))
        ]
        produce(world, "t", range(6), 20, 4_000)
        kept_before = {one.name: set(one.owned) for one in members}
        begun = world.now
        newcomer = _member(world, "c", NOW, assignors=(assignor,))
        produce(world, "t", range(6), 20, 6_000)
        stayed = {tp: one for one in members for tp in kept_before[one.name] & one.owned}
        gaps = [_gap(world, one.name, tp, begun) for tp, one in stayed.items()]
        longest[assignor] = max(gaps)
        told.result(f"{assignor}: longest gap of a partition that stayed", f"{longest[assignor]} ms")
        told.claim(f"{assignor}: the newcomer has partitions", bool(newcomer.owned))
    told.claim("with range everybody waits for the slowest heartbeat", longest["range"] >= 300)
    told.claim("with cooperative they are read as before", longest["cooperative-sticky"] <= 150)


def _gap(world: World, who: str, tp: TopicPartition, begun: int) -> int:
    times = [
        one.at for one in world.seen if one.what == "delivered" and one.who == who and tp in one.partitions
    ]
    late = [at for at in times if at >= begun - 200]
    return max((later - earlier for earlier, later in pairwise(late)), default=0)


@scenario(
    "S2-47",
    "At least once: after a crash before the commit it is read again, never lost",
    says="Reliability is consumer, producer and broker together.",
    given="a member that read 100 messages since its last commit, automatic and by hand",
    when="it dies, and another takes over",
    then="the 100 come again; none is missing",
)
def at_least_once(told: Told) -> None:
    for auto in (True, False):
        world = told.world({"t": 1}, trace=False)
        first = _member(world, "a", auto_commit=auto, auto_commit_ms=60_000)
        produce(world, "t", (0,), 100, 1_000)
        world.run(1_000)
        given = len(read(first, "t"))
        world.kill(first)
        second = _member(world, "b", auto_commit=auto)
        world.run(30_000)
        missing, doubled = lost_and_doubled(world, [first, second], [T0])
        told.result(f"auto commit {auto}: read, lost, read again", [given, missing, doubled])
        told.claim(f"auto commit {auto}: none is lost, the 100 come again", (missing, doubled) == (0, 100))
        told.claim(f"auto commit {auto}: in order", offsets(second, T0) == list(range(100)))


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
    "S2-24",
    "GroupRebalanceConfig: the rebalance timeout is max.poll.interval.ms",
    says="For consumers rebalanceTimeoutMs is max.poll.interval.ms, 5 minutes unless said; "
    "sessionTimeoutMs is "
    "session.timeout.ms.",
    given="Java 2.6.2, with both left out and with both set",
    when="it joins",
    then="its JoinGroup says 300000 and 10000; or what was set",
)
def rebalance_timeout(told: Told) -> None:
    plain: dict[str, Any] = {}
    said_so: dict[str, Any] = {"max_poll_ms": 7_000, "session_ms": 6_500}
    for config, wanted in ((plain, (300_000, 10_000)), (said_so, (7_000, 6_500))):
        world = told.world({"t": 1})
        member = join(world, "a", OLD, reset="earliest", **config)
        world.run(2_000)
        request = world.asked(member, JoinGroupRequest)[-1]
        said = (request.rebalance_timeout_ms, request.session_timeout_ms)
        told.result(f"{config or 'defaults'}: rebalance and session timeout", list(said))
        told.claim(f"{config or 'defaults'}: {wanted}", said == wanted)


@scenario(
    "S2-28",
    "onJoinPrepare, COOPERATIVE: only topics that are not wanted any more are revoked",
    says="COOPERATIVE revokes in onJoinPrepare what is no longer in the subscription.",
    given="a cooperative member of 2.6.2 that reads t and u",
    when="it subscribes to t alone",
    then="u is revoked before the join, t never",
)
def no_longer_wanted(told: Told) -> None:
    world = told.world({"t": 2, "u": 1}, trace=False)
    member = join(world, "a", OLD, topics=("t", "u"), **{**USUAL, "assignors": ("cooperative-sticky",)})
    world.run(4_000)
    member.subscribe("t")
    world.run(6_000)
    revoked = [partitions for call, partitions in member.calls if call == "revoked"]
    told.result("revoked", [str(tp) for found in revoked for tp in found])
    told.claim("u was revoked and nothing else", revoked == [(TopicPartition("u", 0),)])
    told.claim("t is still there", member.owned == {T0, T1})


@scenario(
    "S2-36",
    "onJoinComplete: what is told as assigned is what was added",
    says="addedPartitions = assigned minus owned; invokePartitionsAssigned gets these.",
    given="two cooperative members of 2.6.2 with four partitions",
    when="one leaves",
    then="the other's callback names only the two that it got",
)
def added(told: Told) -> None:
    world = told.world({"t": 4}, trace=False)
    first = _member(world, "a", assignors=("cooperative-sticky",))
    second = _member(world, "b", assignors=("cooperative-sticky",))
    world.run(10_000)
    kept = set(first.owned)
    second.close()
    world.run(8_000)
    last = next(set(found) for call, found in reversed(first.calls) if call == "assigned" and found)
    told.result("had, was told", [len(kept), sorted(map(str, last))])
    told.claim("only what was added is told", last == set(world.partitions()) - kept)
    told.claim("it owns all four", first.owned == set(world.partitions()))
