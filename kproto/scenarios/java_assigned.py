"""How onJoinComplete of kafka-clients 2.6.2 ends, what it changes, and what poll throws.

Scenarios of lesson 002 (docs/lessons/002-java-reliability.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..group.assignors import ASSIGNORS
from ..group.subscription import Subscription, TopicPartition
from ..messages.join_group import JoinGroupRequest
from ..messages.offset_commit import OffsetCommitRequest
from ..messages.offset_fetch import OffsetFetchRequest
from ..models.java.plugins import CustomAssignor
from ..models.java.release import CALLBACK
from .java_stage import COOPERATIVE, OLD, T0, T1, USUAL, RuntimeException, called, joins_of, member_of
from .parameters import GROUP, TIMEOUTS
from .scenario import ScenarioRun, is_shared_evenly, join, numbers, offsets, produce, scenario


def _assign_t2_to_a_late_member(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Any
) -> dict[str, list[TopicPartition]]:
    """Assign as range does, but give t2 to a member that has not subscribed to t2 yet."""
    plan = ASSIGNORS["range"].assign(partitions, members, racks)
    members_without_t2 = [name for name, subscription in members.items() if "t2" not in subscription.topics]
    if not members_without_t2:
        return plan
    t2_partitions = [tp for owned in plan.values() for tp in owned if tp.topic == "t2"]
    other_partitions = {name: [tp for tp in owned if tp.topic != "t2"] for name, owned in plan.items()}
    return {
        **other_partitions,
        members_without_t2[0]: other_partitions[members_without_t2[0]] + t2_partitions,
    }


@scenario(
    "S2-40",
    "A pattern: the member adopts an assigned topic that it did not know",
    says="The leader may assign topics that match the pattern but were not subscribed; the joined "
    "subscription is extended by them.",
    given="two members of 2.6.2 that subscribed to t.*; the leader has an assignor of its own",
    when="topic t2 is created after the follower's JoinGroup, and the leader assigns it to the follower",
    then="the follower requests metadata immediately, reads t2, and does not rejoin for it",
    takes=("static", *TIMEOUTS),
)
def extended(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    assignor = CustomAssignor("range", _assign_t2_to_a_late_member)
    leader_options: dict[str, Any] = {**USUAL, "metadata_ms": 60_000}
    leader = join(
        world, "b", OLD, topics=(), extra={"partition.assignment.strategy": (assignor,)}, **leader_options
    )
    leader.subscribe(pattern="t.*")
    world.run(4_000)
    member = join(world, "a", OLD, topics=(), **{**USUAL, "metadata_ms": 2_000})
    member.subscribe(pattern="t.*")
    world.run(2_000, until=lambda: joins_of(world, member) == 2)
    world.create("t2", 1)
    run.moment("makes the topic t2", "operator")
    world.write("t2", 0, "x")
    world.run(3_000, until=lambda: bool(member.owned))
    request: JoinGroupRequest = world.requests_of(member, JoinGroupRequest)[-1]
    subscribed = Subscription.decode(request.protocols[0].metadata).topics
    joins = joins_of(world, member)
    run.result("subscribed to when it joined", list(subscribed))
    run.result("assigned", sorted(map(str, member.owned)))
    run.claim("it joined without t2", tuple(subscribed) == ("t",))
    run.claim("and was assigned t2", TopicPartition("t2", 0) in member.owned)
    world.run(10_000)
    run.claim("it reads it", offsets(member, TopicPartition("t2", 0)) == [0])
    run.result("JoinGroups since", joins_of(world, member) - joins)
    run.claim("it did not rejoin for it", joins_of(world, member) == joins)


@scenario(
    "S2-41",
    "An assignor that raises in onAssignment: the callbacks run, and then poll throws",
    says="invokeOnAssignment catches what the assignor raises, so that the callbacks can be completed.",
    given="a member of 2.6.2 with an assignor of its own, whose onAssignment raises once",
    when="it joins",
    then="onPartitionsAssigned is called with its partitions, poll throws KafkaException with that cause, "
    "and the next poll completes the join again, with nothing added",
    takes=("static", *TIMEOUTS),
)
def assignor_raises(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    counts: list[int] = []

    def on_assignment(assigned: tuple[TopicPartition, ...], generation: int) -> None:
        counts.append(len(assigned))
        if len(counts) == 1:
            raise RuntimeException("a bug in the assignor")

    assignor = CustomAssignor("range", ASSIGNORS["range"].assign, on_assignment=on_assignment)
    member = member_of(world, extra={"partition.assignment.strategy": (assignor,)})
    produce(world, "t", (0, 1), 20, 5_000)
    run.result("poll throws", member.errors)
    run.result("onAssignment with", counts)
    run.result("callbacks", called(member))
    cause = f"{CALLBACK}; caused by RuntimeException: a bug in the assignor"
    run.claim("KafkaException around it", member.errors == [("KafkaException", cause)])
    run.claim(
        "the listener was called, and once more with nothing", called(member) == ["assigned 2", "assigned 0"]
    )
    run.claim("onAssignment as often, each time with all", counts == [2, 2])
    run.claim("it reads both", {record.partition for record in member.records} == {T0, T1})


@scenario(
    "S2-42",
    "The timer of auto commit restarts with the assignment",
    says="With enable.auto.commit the timer is set to a whole interval.",
    given="a member of 2.6.2 that commits every 5 s, and one that commits by hand",
    when="a second member joins in the middle of an interval",
    then="the next commit is 5 s after the assignment; the manual committer has none",
    takes=GROUP,
)
def timer(run: ScenarioRun) -> None:
    for auto in (True, False):
        world = run.world({"t": 2})
        first = member_of(world, auto_commit=auto, assignors=COOPERATIVE)
        produce(world, "t", (0, 1), 20, 8_000)
        member_of(world, "b", auto_commit=False, assignors=COOPERATIVE)
        produce(world, "t", (0, 1), 20, 12_000)
        assigned_at = max(
            observation.at
            for observation in world.observations
            if observation.source == "a" and observation.kind == "assigned"
        )
        commits = [
            observation.at - assigned_at for observation in world.observations if observation.kind == "stored"
        ]
        run.result(f"auto commit {auto}: commits, in ms after the assignment", [f"{at} ms" for at in commits])
        if auto:
            next_commit_ms = min((at for at in commits if at > 0), default=0)
            run.claim("one whole interval after the assignment", 5_000 <= next_commit_ms <= 5_200)
            old_interval_end_ms = max((at for at in commits if at < -1_000), default=0) + 5_000
            run.claim("and not at the end of the old interval", next_commit_ms - old_interval_end_ms >= 1_000)
        else:
            run.claim("no commit without auto commit", not world.requests_of(first, OffsetCommitRequest))


@scenario(
    "S2-43",
    "assignFromSubscribed: retained partitions keep their position, new ones look one up",
    says="assignFromSubscribed replaces the assignment; partitions that were assigned before keep their "
    "state.",
    given="two cooperative members of 2.6.2 that commit nothing, each with two partitions and messages read",
    when="one leaves",
    then="the other member fetches the committed offsets of its two new partitions, and continues with "
    "its own",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def positions(run: ScenarioRun) -> None:
    world = run.world({"t": 4}, members=2)
    first = member_of(world, "a", assignors=COOPERATIVE, auto_commit=False)
    second = member_of(world, "b", assignors=COOPERATIVE, auto_commit=False)
    world.run(10_000)
    retained = set(first.owned)
    produce(world, "t", numbers(world), 20, 3_000)
    fetches_before = len(world.requests_of(first, OffsetFetchRequest))
    second.close()
    produce(world, "t", numbers(world), 20, 5_000)
    fetched_partitions = {
        TopicPartition(topic.name, number)
        for request in world.requests_of(first, OffsetFetchRequest)[fetches_before:]
        for topic in request.topics
        for number in topic.partition_indexes
    }
    received = {tp: offsets(first, tp) for tp in world.partitions()}
    run.result("kept", sorted(map(str, retained)))
    run.result("in its OffsetFetch", sorted(map(str, fetched_partitions)))
    run.claim(
        "it fetches offsets of its new partitions only",
        fetched_partitions == first.owned - retained,
    )
    run.claim(
        "retained partitions are read on, once",
        all(received[tp] == list(range(len(received[tp]))) for tp in retained),
    )
    run.claim(
        "new partitions are read from the beginning",
        all(received[tp][:1] == [0] for tp in fetched_partitions),
    )
    run.claim("the members that stay own all partitions", is_shared_evenly(world))


@scenario(
    "S2-44",
    "onPartitionsAssigned is called even with nothing",
    says="invokePartitionsAssigned(addedPartitions) comes at the end of every onJoinComplete.",
    given="two Java members and a topic with one partition",
    when="both have joined",
    then="the member without a partition got a callback with its empty assignment",
    takes=("client", "members", "partitions", *GROUP),
)
def assigned_nothing(run: ScenarioRun) -> None:
    world = run.world({"t": 1}, trace=False)
    members = [member_of(world, name) for name in run.names("a", "b")]
    world.run(10_000)
    idle = [member for member in members if not member.owned]
    for member in idle:
        calls = [f"{call} {len(partitions)}" for call, partitions in member.calls]
        run.result("callbacks of the idle one" + f", {member.name}" * (len(idle) > 1), calls)
    assigned_last = [member.calls[-1:] == [("assigned", ())] for member in idle]
    run.claim("its last callback is assigned, with nothing", assigned_last != [] and all(assigned_last))


@scenario(
    "S2-45",
    "Of several exceptions the first is thrown: Kafka's own unchanged, any other in a KafkaException",
    says="firstException is set once; a KafkaException is thrown unchanged, others are wrapped.",
    given="a cooperative member of 2.6.2 whose callbacks both raise: revoked raises the application's "
    "exception or Kafka's CommitFailedException, assigned another one",
    when="a second member joins",
    then="poll throws the first, wrapped or unchanged, and the second is dropped; both members have their "
    "share",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def first_of_several(run: ScenarioRun) -> None:
    class CommitFailedException(Exception):
        """The exception that a failed commit in a Java callback raises, under its Java name."""

    for cause in (RuntimeException("first"), CommitFailedException("first")):
        world = run.world({"t": 4}, members=2)
        first = member_of(world, assignors=COOPERATIVE)
        world.run(4_000)
        first.listener = _raising_listener({"revoked": cause, "assigned": RuntimeException("second")})
        member_of(world, "b", assignors=COOPERATIVE)
        world.run(10_000)
        name = type(cause).__name__
        wrapped = ("KafkaException", f"{CALLBACK}; caused by {name}: first")
        expected_error = wrapped if isinstance(cause, RuntimeException) else (name, "first")
        run.result(f"{name} in revoked: poll throws", first.errors)
        run.result(f"{name}: callbacks", called(first))
        run.claim(f"{name}: only the first one is thrown", first.errors == [expected_error])
        run.claim(
            f"{name}: both were called", {"revoked", "assigned"} <= {kind for kind, _ in first.calls[1:]}
        )
        run.claim(f"{name}: both members have their share", is_shared_evenly(world))


def _raising_listener(causes: dict[str, Exception]) -> Callable[[str, object], None]:
    """Return a rebalance listener. Each callback in `causes` raises its exception on the first call."""
    pending = dict(causes)

    def call(kind: str, partitions: object) -> None:
        if kind in pending:
            raise pending.pop(kind)

    return call
