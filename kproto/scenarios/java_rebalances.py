"""Document 002: what makes a group rebalance, and what comes before a join: onJoinPrepare (2.6.2)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ..group.subscription import Subscription, TopicPartition
from ..messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..messages.join_group import JoinGroupRequest
from ..messages.metadata import MetadataRequest
from ..testing.world import Client, World
from ..wire.message import Message
from .java_stage import COOPERATIVE, NOW, OLD, T0, T1, USUAL, RuntimeException, member_of, stored
from .scenario import ScenarioRun, join, lost_and_doubled, produce, scenario


@scenario(
    "S2-23",
    "What makes a group rebalance: members, topics, partitions",
    says="A rebalance has three causes: members come, go or crash; the set of subscribed topics changes; a "
    "topic's partitions change.",
    given="a Java member that subscribed to a pattern",
    when="a second member comes, leaves, a third crashes, a matching topic is made, a topic grows",
    then="each time the group rebalances, and settles",
)
def triggers(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    first = join(world, "a", OLD, topics=(), **USUAL)
    first.subscribe(pattern="t.*")
    world.run(5_000)

    def generation() -> int:
        return world.cluster.classic_coordinator.groups["g"].generation

    def after(trigger: str, ms: int) -> None:
        before = generation()
        run.moment(trigger, "operator")
        world.run(ms)
        run.result(trigger, f"{generation() - before} more generations")
        run.claim(f"{trigger}: the group rebalanced", generation() > before)
        run.claim(f"{trigger}: it settled", world.is_stable("g"))

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
    "S2-46",
    "COOPERATIVE keeps reading what it keeps: no gap for partitions that stay",
    says="EAGER divides everything anew; COOPERATIVE keeps partitions until they have to move.",
    given="two members with six partitions, steady messages",
    when="a third member comes, with range and with cooperative-sticky",
    then="with cooperative the partitions that stay have no gap; with range all have one",
)
def no_gap(run: ScenarioRun) -> None:
    longest: dict[str, int] = {}
    for assignor in ("range", "cooperative-sticky"):
        world = run.world({"t": 6}, trace=False)
        members = [
            member_of(world, name, NOW, assignors=(assignor,), heartbeat_ms=beat)
            for name, beat in (("a", 500), ("b", 1_700))
        ]
        produce(world, "t", range(6), 20, 4_000)
        kept_before = {member.name: set(member.owned) for member in members}
        begun = world.now
        newcomer = member_of(world, "c", NOW, assignors=(assignor,))
        produce(world, "t", range(6), 20, 6_000)
        stayed = {tp: member for member in members for tp in kept_before[member.name] & member.owned}
        gaps = [_gap(world, owner.name, tp, begun) for tp, owner in stayed.items()]
        longest[assignor] = max(gaps)
        run.result(f"{assignor}: longest gap of a partition that stayed", f"{longest[assignor]} ms")
        run.claim(f"{assignor}: the newcomer has partitions", bool(newcomer.owned))
    run.claim("with range everybody waits for the slowest heartbeat", longest["range"] >= 300)
    run.claim("with cooperative they are read as before", longest["cooperative-sticky"] <= 150)


def _gap(world: World, who: str, tp: TopicPartition, begun: int) -> int:
    times = [
        observation.at
        for observation in world.seen
        if observation.what == "delivered" and observation.who == who and tp in observation.partitions
    ]
    late = [at for at in times if at >= begun - 200]
    return max((later - earlier for earlier, later in pairwise(late)), default=0)


# -- onJoinPrepare ----------------------------------------------------------------------------------------


@scenario(
    "S2-25",
    "onJoinPrepare commits: 2.6.2 blocks poll for it, today's does not",
    says="onJoinPrepare calls maybeAutoCommitOffsetsSync with a timer of max.poll.interval.ms.",
    given="a member with messages read since its last commit, and a coordinator whose commit answers are "
    "slow",
    when="a second member comes",
    then="both commit before they join again; nothing is read twice",
)
def prepare(run: ScenarioRun) -> None:
    for kind in (OLD, NOW):
        world = run.world({"t": 2})
        first = member_of(world, "a", kind, auto_commit_ms=60_000)
        produce(world, "t", (0, 1), 50, 2_000)
        world.run(500)
        run.claim(f"{kind}: nothing was committed by the timer", not stored(world))
        second = member_of(world, "b", kind, auto_commit_ms=60_000)
        world.run(10_000)
        lost, doubled = lost_and_doubled(world, [first, second], (T0, T1))
        run.result(f"{kind}: committed before it joined again", stored(world)[:1])
        run.claim(f"{kind}: it was committed", stored(world)[0] == {T0: 100, T1: 100})
        run.claim(f"{kind}: nothing is lost or read twice", lost == doubled == 0)


@scenario(
    "S2-26",
    "Lost: generation AND member id gone in 2.6.2, one of them in today's",
    says="If generation and member id were reset, what was owned is lost: onPartitionsLost, no commit.",
    given="a member that reads; its heartbeat is answered with ILLEGAL_GENERATION, or with UNKNOWN_MEMBER_ID",
    when="it joins again",
    then="its listener hears of lost, in both versions; nothing is committed on the way",
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
                late = isinstance(request, HeartbeatRequest) and world.now > run.started + 4_000
                return HeartbeatResponse(error_code=pending.pop()) if late and pending else None

            world.tamper = tamper
            member = member_of(world, "a", kind, auto_commit_ms=60_000, session_ms=6_000)
            world.run(20_000)
            calls = [call for call, _ in member.calls]
            run.result(f"{kind}, error {code}", calls)
            run.claim(
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
def eager(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, trace=False)
    first = member_of(world, "a", NOW, auto_commit=False, assignors=("range",))
    produce(world, "t", (0, 1), 50, 2_000)
    world.run(500)
    first.callback_ms = 1_000
    second = member_of(world, "b", NOW, auto_commit=False, assignors=("range",))
    world.run(3_000, until=lambda: ("revoked", (T0, T1)) in first.calls)
    token = first.commit()
    world.run(10_000)
    run.result("the commit in the callback", first.committed.get(token, "unanswered") or "taken")
    run.claim("all of it was revoked", ("revoked", (T0, T1)) in first.calls)
    run.claim("the commit was taken", first.committed.get(token, "open") is None)
    _, doubled = lost_and_doubled(world, [first, second], (T0, T1))
    run.claim("nothing is read twice", doubled == 0)


@scenario(
    "S2-28",
    "onJoinPrepare, COOPERATIVE: only topics that are not wanted any more are revoked",
    says="COOPERATIVE revokes in onJoinPrepare what is no longer in the subscription.",
    given="a cooperative member of 2.6.2 that reads t and u",
    when="it subscribes to t alone",
    then="u is revoked before the join, t never",
)
def no_longer_wanted(run: ScenarioRun) -> None:
    world = run.world({"t": 2, "u": 1})
    member = join(world, "a", OLD, topics=("t", "u"), **{**USUAL, "assignors": COOPERATIVE})
    world.run(4_000)
    joins = len(world.asked(member, JoinGroupRequest))
    member.subscribe("t")
    world.run(6_000)
    revoked = [partitions for call, partitions in member.calls if call == "revoked"]
    run.result("revoked", [str(tp) for call in revoked for tp in call])
    run.claim("u was revoked and nothing else", revoked == [(TopicPartition("u", 0),)])
    request: JoinGroupRequest = world.asked(member, JoinGroupRequest)[joins]
    owned = Subscription.decode(request.protocols[0].metadata).owned
    run.result("owned, as its JoinGroup says", [str(tp) for tp in owned])
    run.claim("before the join: its JoinGroup doesn't claim it", set(owned) == {T0, T1})
    run.claim("t is still there", member.owned == {T0, T1})


@scenario(
    "S2-29",
    "After onJoinPrepare it leads nobody, and watches its own topics only",
    says="At the end of onJoinPrepare isLeader is false and the group's subscription is reset.",
    given="two members of 2.6.2: the leader reads t, the other one reads u",
    when="the leader's process stands still until its session is over, and comes back as a follower",
    then="as the leader it asked for the metadata of both topics, as a follower it asks for its own",
)
def leads_nobody(run: ScenarioRun) -> None:
    world = run.world({"t": 1, "u": 1})
    first = member_of(world, metadata_ms=1_000)
    world.run(3_000)
    second = member_of(world, "b", topics=("u",), metadata_ms=1_000)
    world.run(8_000)
    leading = _topics_asked_for(world, first)
    run.claim("it leads", first.state.is_leader)
    first.freeze(15_000)
    run.moment("stands still for 15 s", "a")
    world.run(15_000)
    world.run(10_000)
    following = _topics_asked_for(world, first)
    run.result("asked for as the leader", sorted(leading))
    run.result("asked for as a follower", sorted(following))
    run.claim("the leader watches what the group reads", leading == {"t", "u"})
    run.claim("the other one leads now", second.state.is_leader and not first.state.is_leader)
    run.claim("it watches what it reads itself", following == {"t"})


def _topics_asked_for(world: World, member: Any) -> set[str]:
    """By its last request for metadata."""
    request = world.asked(member, MetadataRequest)[-1]
    return {topic.name for topic in request.topics}


@scenario(
    "S2-30",
    "A callback that raises before the join: the partitions are gone all the same",
    says="The exception of the callback is kept, the assignment changes, and then KafkaException is thrown "
    "around it.",
    given="an eager member of 2.6.2, and one of today, whose onPartitionsRevoked raises once",
    when="a second member comes",
    then="poll throws KafkaException with that cause, nothing is assigned any more, and the rebalance goes "
    "on",
)
def callback_raises(run: ScenarioRun) -> None:
    for kind in (OLD, NOW):
        _callback_raises(run, kind)


def _callback_raises(run: ScenarioRun, kind: str) -> None:
    world = run.world({"t": 4})
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
    run.claim(f"{kind}: nothing is assigned then", not first.state.assigned)
    world.run(10_000)
    shares = [len(first.owned), len(second.owned)]
    run.result(f"{kind}: partitions in the end", shares)
    run.claim(f"{kind}: the rebalance goes on", shares == [2, 2] and len(first.errors) == 1)
