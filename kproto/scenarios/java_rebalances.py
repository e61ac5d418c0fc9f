"""What causes a rebalance, and what onJoinPrepare of kafka-clients 2.6.2 does before a join.

Scenarios of lesson 002 (docs/lessons/002-java-reliability.md).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ..group.subscription import Subscription, TopicPartition
from ..messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..messages.join_group import JoinGroupRequest
from ..messages.metadata import MetadataRequest
from ..testing.world import Client, World
from ..wire.message import Message
from .java_stage import (
    COOPERATIVE,
    NOW,
    OLD,
    T0,
    T1,
    USUAL,
    RuntimeException,
    joins_of,
    member_of,
    poll_for,
    stored,
)
from .parameters import GROUP, TIMEOUTS
from .scenario import (
    ScenarioRun,
    is_shared_evenly,
    join,
    living_members,
    lost_and_doubled,
    numbers,
    produce,
    scenario,
)


@scenario(
    "S2-23",
    "What makes a group rebalance: members, topics, partitions",
    says="A rebalance has three causes: members join, leave or crash; the subscribed topics change; a "
    "topic's partitions change.",
    given="a Java member that subscribed to a pattern",
    when="a second member joins and leaves, a third crashes, a matching topic is created, a topic grows",
    then="the group rebalances each time, and becomes stable",
    takes=("refresh_ms", "partitions", *GROUP),
)
def triggers(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    first = join(world, "a", OLD, topics=(), **USUAL)
    first.subscribe(pattern="t.*")
    world.run(5_000)

    def generation() -> int:
        group = world.cluster.coordinator.describe("g")
        return 0 if group is None else group.epoch

    def expect_rebalance(trigger: str, ms: int) -> None:
        """Record the trigger, run for `ms`, and claim that the group has rebalanced and is stable."""
        before = generation()
        run.moment(trigger, "operator")
        world.run(ms)
        run.result(trigger, f"{generation() - before} more generations")
        run.claim(f"{trigger}: the group rebalanced", generation() > before)
        run.claim(f"{trigger}: it settled", world.is_stable("g"))

    second = join(world, "b", OLD, topics=(), **USUAL)
    second.subscribe(pattern="t.*")
    expect_rebalance("a member joins", 10_000)
    second.close()
    expect_rebalance("a member leaves", 10_000)
    third = join(world, "c", OLD, topics=(), **USUAL)
    third.subscribe(pattern="t.*")
    expect_rebalance("another joins", 10_000)
    world.kill(third)
    expect_rebalance("it crashes", run.longer(25_000))
    world.create("t2", 2)
    expect_rebalance("a topic that matches is created", run.longer(15_000))
    world.grow("t", len(numbers(world)) + 2)
    expect_rebalance("a topic grows", run.longer(15_000))


@scenario(
    "S2-46",
    "COOPERATIVE keeps reading retained partitions: they have no gap",
    says="EAGER reassigns everything; COOPERATIVE keeps partitions until they have to move.",
    given="two members with six partitions, steady messages",
    when="a third member joins, with range and with cooperative-sticky",
    then="with cooperative-sticky retained partitions have no gap; with range all have one",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def no_gap(run: ScenarioRun) -> None:
    longest: dict[str, int] = {}
    for assignor in ("range", "cooperative-sticky"):
        world = run.world({"t": 6}, members=3, trace=False)
        members = [
            member_of(world, name, NOW, assignors=(assignor,), heartbeat_ms=heartbeat_ms)
            for name, heartbeat_ms in (("a", 500), ("b", 1_700))
        ]
        produce(world, "t", numbers(world), 20, 4_000)
        kept_before = {member.name: set(member.owned) for member in members}
        joined_at = world.now
        newcomer = member_of(world, "c", NOW, assignors=(assignor,))
        produce(world, "t", numbers(world), 20, 6_000)
        owners_of_retained = {
            tp: member for member in members for tp in kept_before[member.name] & member.owned
        }
        gaps = [_longest_gap(world, owner.name, tp, joined_at) for tp, owner in owners_of_retained.items()]
        longest[assignor] = max(gaps, default=0)
        run.result(f"{assignor}: longest gap of a partition that stayed", f"{longest[assignor]} ms")
        run.claim(f"{assignor}: the newcomer has partitions", bool(newcomer.owned))
    run.claim("with range every member waits for the slowest heartbeat", longest["range"] >= 300)
    run.claim("with cooperative-sticky they are read as before", longest["cooperative-sticky"] <= 150)


def _longest_gap(world: World, member_name: str, tp: TopicPartition, since: int) -> int:
    """Return the longest time in ms between two deliveries of the partition to the member."""
    times = [
        observation.at
        for observation in world.observations
        if observation.kind == "delivered"
        and observation.source == member_name
        and tp in observation.partitions
    ]
    later_times = [at for at in times if at >= since - 200]
    return max((later - earlier for earlier, later in pairwise(later_times)), default=0)


# -- onJoinPrepare ----------------------------------------------------------------------------------------


@scenario(
    "S2-25",
    "onJoinPrepare commits: 2.6.2 blocks poll meanwhile, 4.3.1 does not",
    says="onJoinPrepare calls maybeAutoCommitOffsetsSync with a timer of max.poll.interval.ms.",
    given="a member with messages read since its last commit, which polls for 50 ms at a time, and a "
    "coordinator that answers 1 s late",
    when="a second member joins",
    then="both versions commit before they rejoin, and nothing is read twice; a poll of 2.6.2 lasts until "
    "the response, one of 4.3.1 ends after its 50 ms",
    takes=("members", "partitions", *GROUP),
)
def prepare(run: ScenarioRun) -> None:
    for kind in (OLD, NOW):
        world = run.world({"t": 2}, members=2)
        first = member_of(world, "a", kind, auto_commit_ms=60_000)
        produce(world, "t", numbers(world), 50, 2_000)
        world.run(500)
        run.claim(f"{kind}: nothing was committed by the timer", not stored(world))
        first_owned = sorted(first.owned)
        first.pause_polling()
        world.run(100)
        world.fault("delay", first, ms=500)
        member_of(world, "b", kind, auto_commit_ms=60_000)
        joins, deadline = joins_of(world, first), world.now + run.longer(20_000)
        durations_ms: list[int] = []
        while joins_of(world, first) == joins and world.now < deadline:
            durations_ms.append(poll_for(world, first, 50))
        world.heal()
        first.resume_polling()
        world.run(10_000)
        lost, doubled = lost_and_doubled(world, living_members(world), world.partitions())
        commits = [offsets for offsets in stored(world) if sorted(offsets) == first_owned]
        run.result(f"{kind}: committed before it rejoined", commits[:1])
        run.result(f"{kind}: the longest poll of 50 ms", f"{max(durations_ms)} ms")
        expected = dict.fromkeys(first_owned, 100)
        run.claim(f"{kind}: it was committed", commits[:1] == [expected])
        if kind == OLD:
            run.claim(f"{kind}: poll waited for the commit", max(durations_ms) >= 1_000)
        else:
            run.claim(f"{kind}: poll did not wait for the commit", max(durations_ms) <= 50)
        run.claim(f"{kind}: nothing is lost or read twice", lost == doubled == 0)


@scenario(
    "S2-26",
    "Lost: generation and member id are reset in 2.6.2, one of them in 4.3.1",
    says="If generation and member id were reset, the owned partitions are lost: onPartitionsLost, no "
    "commit.",
    given="a member whose heartbeat is answered with ILLEGAL_GENERATION, or with UNKNOWN_MEMBER_ID",
    when="it joins again",
    then="onPartitionsLost is called in both versions; nothing is committed before it",
    takes=("partitions", *GROUP),
)
def lost(run: ScenarioRun) -> None:
    for kind in (OLD, NOW):
        for code in (22, 25):
            world = run.world({"t": 2})
            pending = [code]

            def tamper(
                client: Client,
                request: Message,
                version: int,
                pending: list[int] = pending,
                world: World = world,
            ) -> Message | None:
                is_due = isinstance(request, HeartbeatRequest) and world.now > run.started + 4_000
                return HeartbeatResponse(error_code=pending.pop()) if is_due and pending else None

            world.tamper = tamper
            member = member_of(world, "a", kind, auto_commit_ms=60_000, session_ms=6_000)
            world.run(run.longer(20_000))
            calls = [call for call, _ in member.calls]
            run.result(f"{kind}, error {code}", calls)
            run.claim(
                f"{kind}, error {code}: assigned, lost, assigned", calls == ["assigned", "lost", "assigned"]
            )
            kinds = [observation.kind for observation in world.observations]
            run.claim(
                f"{kind}, error {code}: nothing was committed before",
                "lost" in kinds and "stored" not in kinds[: kinds.index("lost")],
            )


@scenario(
    "S2-27",
    "EAGER: everything is revoked before the join, and the callback can still commit",
    says="EAGER revokes all partitions before it joins; the assignment changes only after the callback.",
    given="an eager member without auto commit, whose revoked callback takes 1 s and commits",
    when="a second member joins",
    then="the commit in the callback succeeds; nothing is read twice",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def eager(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, members=2, trace=False)
    first = member_of(world, "a", NOW, auto_commit=False, assignors=("range",))
    produce(world, "t", numbers(world), 50, 2_000)
    world.run(500)
    first.callback_ms = 1_000
    revoked = ("revoked", tuple(sorted(first.owned)))
    member_of(world, "b", NOW, auto_commit=False, assignors=("range",))
    world.run(run.longer(3_000), until=lambda: revoked in first.calls)
    token = first.commit()
    world.run(10_000)
    run.result("the commit in the callback", first.committed.get(token, "unanswered") or "taken")
    run.claim("all of it was revoked", revoked in first.calls)
    run.claim("the commit succeeded", first.committed.get(token, "open") is None)
    _, doubled = lost_and_doubled(world, living_members(world), world.partitions())
    run.claim("nothing is read twice", doubled == 0)


@scenario(
    "S2-28",
    "onJoinPrepare, COOPERATIVE: only unsubscribed topics are revoked",
    says="COOPERATIVE revokes in onJoinPrepare what is no longer in the subscription.",
    given="a cooperative member of 2.6.2 that reads t and u",
    when="it subscribes to t only",
    then="u is revoked before the join, t never is",
    takes=("static", *TIMEOUTS),
)
def partitions_not_assigned_again(run: ScenarioRun) -> None:
    world = run.world({"t": 2, "u": 1})
    member = join(world, "a", OLD, topics=("t", "u"), **{**USUAL, "assignors": COOPERATIVE})
    world.run(4_000)
    joins = len(world.requests_of(member, JoinGroupRequest))
    member.subscribe("t")
    world.run(6_000)
    revoked = [partitions for call, partitions in member.calls if call == "revoked"]
    run.result("revoked", [str(tp) for call in revoked for tp in call])
    run.claim("u was revoked and nothing else", revoked == [(TopicPartition("u", 0),)])
    request: JoinGroupRequest = world.requests_of(member, JoinGroupRequest)[joins]
    owned = Subscription.decode(request.protocols[0].metadata).owned
    run.result("owned partitions in its JoinGroup", [str(tp) for tp in owned])
    run.claim("revoked before the join: its JoinGroup does not claim it", set(owned) == {T0, T1})
    run.claim("t is still owned", member.owned == {T0, T1})


@scenario(
    "S2-29",
    "After onJoinPrepare it leads no group, and watches its own topics only",
    says="At the end of onJoinPrepare isLeader is false and the group's subscription is reset.",
    given="two members of 2.6.2: the leader reads t, the other member reads u",
    when="the leader's process is frozen until its session expires, and returns as a follower",
    then="as the leader it requested the metadata of both topics, as a follower of its own",
    takes=GROUP,
)
def leads_nobody(run: ScenarioRun) -> None:
    world = run.world({"t": 1, "u": 1})
    first = member_of(world, metadata_ms=1_000)
    world.run(3_000)
    second = member_of(world, "b", topics=("u",), metadata_ms=1_000)
    world.run(8_000)
    topics_as_leader = _requested_topics(world, first)
    run.claim("it leads", first.state.is_leader)
    freeze_ms = run.longer(15_000)
    first.freeze(freeze_ms)
    run.moment(f"is frozen for {freeze_ms / 1000:g} s", "a")
    world.run(freeze_ms)
    world.run(10_000)
    topics_as_follower = _requested_topics(world, first)
    run.result("topics requested as the leader", sorted(topics_as_leader))
    run.result("topics requested as a follower", sorted(topics_as_follower))
    run.claim("the leader watches what the group reads", topics_as_leader == {"t", "u"})
    run.claim("the other member is the leader now", second.state.is_leader and not first.state.is_leader)
    run.claim("it watches what it reads itself", topics_as_follower == {"t"})


def _requested_topics(world: World, member: Any) -> set[str]:
    """Return the topics of the member's last Metadata request."""
    request = world.requests_of(member, MetadataRequest)[-1]
    return {topic.name for topic in request.topics}


@scenario(
    "S2-30",
    "A callback that raises before the join: the partitions are revoked nevertheless",
    says="The callback's exception is kept, the assignment changes, and then a KafkaException with that "
    "cause is thrown.",
    given="an eager member of 2.6.2, and one of 4.3.1, whose onPartitionsRevoked raises once",
    when="a second member joins",
    then="poll throws KafkaException with that cause, nothing is assigned, and the rebalance continues",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def callback_raises(run: ScenarioRun) -> None:
    for kind in (OLD, NOW):
        _raise_in_callback(run, kind)


def _raise_in_callback(run: ScenarioRun, kind: str) -> None:
    """Run S2-30 with one version of Java's client."""
    world = run.world({"t": 4}, members=2)
    first = member_of(world, "a", kind, assignors=("range",))
    world.run(4_000)
    pending = [RuntimeException("the database is away")]

    def listener(call: str, partitions: object) -> None:
        if call == "revoked" and pending:
            raise pending.pop()

    first.listener = listener
    second = member_of(world, "b", kind, assignors=("range",))
    world.run(10_000, until=lambda: bool(first.errors))
    name, text = first.errors[0] if first.errors else ("nothing", "")
    run.result(f"{kind}: poll throws", f"{name}: {text}")
    run.claim(
        f"{kind}: KafkaException, and its cause",
        name == "KafkaException" and "RuntimeException: the database is away" in text,
    )
    run.claim(f"{kind}: nothing is assigned after it", not first.state.assigned)
    world.run(run.longer(10_000))
    run.result(f"{kind}: partitions in the end", [len(first.owned), len(second.owned)])
    run.claim(f"{kind}: the rebalance continues", is_shared_evenly(world) and len(first.errors) == 1)
