"""How onJoinComplete of kafka-clients 2.6.2 computes the revoked and added partitions.

Scenarios of lesson 002 (docs/lessons/002-java-reliability.md).
"""

from __future__ import annotations

from ..group.subscription import TopicPartition
from ..messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..messages.join_group import JoinGroupRequest, JoinGroupResponse
from ..messages.offset_commit import OffsetCommitRequest
from ..messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ..models.java.state import JavaGeneration, JavaMemberState
from ..testing.world import Client
from ..wire.message import Message
from .java_stage import COOPERATIVE, called, joins_of, member_of
from .parameters import GROUP, TIMEOUTS
from .scenario import ScenarioRun, is_shared_evenly, living_members, numbers, produce, scenario

# -- before the assignment is read --------------------------------------------------------------------------


@scenario(
    "S2-31",
    "Only the leader watches for new partitions; a former leader forgets its snapshot",
    says="A member that is not the leader sets assignmentSnapshot to null: only the leader checks for "
    "changed metadata.",
    given="the leader of a group of 2.6.2, which lost the leadership because its process was frozen",
    when="the topic grows, and the former leader sees it first",
    then="it does nothing; when the new leader sees it, the group rebalances",
    takes=GROUP,
)
def snapshot(run: ScenarioRun) -> None:
    world = run.world({"t": 2})
    first = member_of(world, metadata_ms=1_000)
    world.run(3_000)
    second = member_of(world, "b", metadata_ms=40_000)
    world.run(5_000)
    freeze_ms = run.longer(15_000)
    first.freeze(freeze_ms)
    run.moment(f"is frozen for {freeze_ms / 1000:g} s", "a")
    world.run(freeze_ms + 10_000)
    run.claim("the other member is the leader now", second.state.is_leader and not first.state.is_leader)
    run.claim("the group is stable", world.is_stable("g"))
    joins = joins_of(world, first)
    world.grow("t", 4)
    run.moment("the topic grows", "operator")
    world.run(5_000)
    partition_count = len(first.state.cluster.topics["t"])
    run.result("the follower sees partitions, and joins", [partition_count, joins_of(world, first) - joins])
    run.claim("the follower has seen it", partition_count == 4)
    run.claim("and has not joined for it", joins_of(world, first) == joins)
    world.run(40_000)
    run.result("partitions in the end", [len(first.owned), len(second.owned)])
    run.claim("the leader has, once it saw it", len(first.owned) == len(second.owned) == 2)


def chose_best() -> JoinGroupResponse:
    """Build a follower's JoinGroup response with a protocol name that no member has offered."""
    return JoinGroupResponse(
        error_code=0,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="best",
        leader="somebody",
        member_id="a-1",
        members=[],
    )


@scenario(
    "S2-32",
    "The coordinator chose an assignor that the member does not have: IllegalStateException",
    says="lookupAssignor finds nothing: Coordinator selected invalid assignment protocol.",
    given="kafka-clients 2.6.2 and a coordinator that chose the assignor named best",
    when="it joins as a follower",
    then="each poll throws, the heartbeats continue, and it never reads: for its group it is alive",
    takes=GROUP,
)
def unknown_assignor(run: ScenarioRun) -> None:
    world = run.world({"t": 1})

    def tamper(client: Client, request: Message, version: int) -> Message | None:
        if isinstance(request, JoinGroupRequest):
            return chose_best()
        if isinstance(request, SyncGroupRequest):
            return SyncGroupResponse(error_code=0, assignment=ONE_PARTITION)
        return HeartbeatResponse(error_code=0) if isinstance(request, HeartbeatRequest) else None

    world.tamper = tamper
    member = member_of(world)
    world.run(2_000)
    thrown = set(member.errors)
    run.result("polls that threw, and the exceptions", [len(member.errors), sorted(thrown)])
    run.result(
        "JoinGroups, SyncGroups",
        [len(world.requests_of(member, kind)) for kind in (JoinGroupRequest, SyncGroupRequest)],
    )
    text = "Coordinator selected invalid assignment protocol: best"
    run.claim("IllegalStateException, in Java's words", thrown == {("IllegalStateException", text)})
    run.claim("every poll throws", len(member.errors) > 100)
    run.claim("its heartbeats continue", len(world.requests_of(member, HeartbeatRequest)) >= 3)
    run.claim("no callback ran", not member.calls)


# An assignment of t-0, as a leader encodes it.
ONE_PARTITION = bytes.fromhex("000100000001000174000000010000000000000000")


@scenario(
    "S2-33",
    "groupMetadata is updated before any callback",
    says="groupMetadata is set first: generation and member id of the join that is being completed.",
    given="a member of 2.6.2 in generation 1",
    when="a second member joins",
    then="until the SyncGroup is answered groupMetadata is that of generation 1, in onPartitionsAssigned "
    "that of 2",
    takes=("members", "partitions", *GROUP),
)
def group_metadata(run: ScenarioRun) -> None:
    world = run.world({"t": 2}, members=2)
    first = member_of(world)
    world.run(4_000)
    old_generation = first.state.generation.number
    callbacks: list[tuple[str, int]] = []

    def listener(kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        callbacks.append((kind, first.state.group_metadata.number))

    first.listener = listener
    member_of(world, "b")
    world.run(5_000, until=lambda: first.state.generation.number > old_generation)
    generations_before_sync: tuple[int, int] = (
        first.state.generation.number,
        first.state.group_metadata.number,
    )
    world.run(5_000)
    run.result("JoinGroup answered: generation, groupMetadata", list(generations_before_sync))
    run.result("groupMetadata in callbacks", callbacks)
    run.claim(
        "not before the join is complete", generations_before_sync == (old_generation + 1, old_generation)
    )
    expected = [("revoked", old_generation), ("assigned", old_generation + 1)]
    run.claim("in onPartitionsAssigned it is the new one", callbacks == expected)
    current_metadata: JavaGeneration = first.state.group_metadata
    run.claim("with the member's id", current_metadata.member_id == first.state.generation.member_id)


@scenario(
    "S2-34",
    "An assignment of 0 or 1 bytes is invalid: IllegalStateException",
    says="An assignment has at least the two bytes of its version; with fewer, the leader or the protocol "
    "is broken.",
    given="kafka-clients 2.6.2, and a leader that sends it no assignment, not even an empty one",
    when="its SyncGroup is answered with 0 bytes, and with 1",
    then="each poll throws and names the size; it stays a member and reads nothing",
    takes=GROUP,
)
def too_short(run: ScenarioRun) -> None:
    for size in (0, 1):
        world = run.world({"t": 1})
        short_response = SyncGroupResponse(error_code=0, assignment=bytes(size))
        world.tamper = lambda client, request, version, short_response=short_response: (
            short_response if isinstance(request, SyncGroupRequest) else None
        )
        member = member_of(world)
        world.run(2_000)
        run.result(f"{size} bytes: poll throws", sorted({f"{name}: {text}" for name, text in member.errors}))
        run.claim(
            f"{size} bytes: every poll throws",
            len(member.errors) > 100
            and all(
                name == "IllegalStateException" and f"actual byte size {size}" in text
                for name, text in member.errors
            ),
        )
        run.claim(f"{size} bytes: no callback ran", not member.calls)
        run.claim(f"{size} bytes: it stays a member", member.state.state is JavaMemberState.STABLE)
        run.claim(f"{size} bytes: groupMetadata was set before", member.state.group_metadata.number == 1)


@scenario(
    "S2-35",
    "An assignment for a topic that is no longer subscribed: rejoin, no callback",
    says="If the assignment does not match the subscription, the member logs a warning and rejoins.",
    given="a member of 2.6.2 whose SyncGroup for t is open",
    when="the application subscribes to u instead",
    then="the assignment of t is dropped without a callback, and the member joins again, for u",
    takes=GROUP,
)
def mismatch(run: ScenarioRun) -> None:
    world = run.world({"t": 1, "u": 1})
    member = member_of(world)
    world.run(3_000, until=lambda: member.state.state is JavaMemberState.COMPLETING_REBALANCE)
    joins = joins_of(world, member)
    member.subscribe("u")
    run.moment("subscribes to u while its SyncGroup is open", "a")
    world.run(2_000)
    run.result(
        "callbacks",
        [f"{kind} {', '.join(map(str, partitions)) or 'nothing'}" for kind, partitions in member.calls],
    )
    run.result("warnings", [report.text for report in member.reports])
    run.claim("there is a warning", [report.name for report in member.reports] == ["WARN"])
    run.claim(
        "no callback named t", all(tp.topic == "u" for _, partitions in member.calls for tp in partitions)
    )
    run.claim("it has joined once more", joins_of(world, member) == joins + 1)
    run.claim("and owns u", member.owned == {TopicPartition("u", 0)})


# -- revoked and added partitions ----------------------------------------------------------------------------


@scenario(
    "S2-36",
    "onJoinComplete: onPartitionsAssigned gets only the added partitions",
    says="addedPartitions = assigned minus owned; invokePartitionsAssigned gets these.",
    given="two cooperative members of 2.6.2 with four partitions",
    when="one leaves",
    then="the other member's callback names only its two new partitions",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def added(run: ScenarioRun) -> None:
    world = run.world({"t": 4}, members=2, trace=False)
    first = member_of(world, "a", assignors=COOPERATIVE)
    second = member_of(world, "b", assignors=COOPERATIVE)
    world.run(10_000)
    retained = set(first.owned)
    second.close()
    world.run(8_000)
    last_assigned = next(
        set(partitions) for call, partitions in reversed(first.calls) if call == "assigned" and partitions
    )
    run.result("partitions before", sorted(map(str, retained)))
    run.result("the callback's partitions", sorted(map(str, last_assigned)))
    run.claim("only the added partitions are passed", last_assigned == first.owned - retained)
    run.claim("the members that stay own all partitions", is_shared_evenly(world))


@scenario(
    "S2-37",
    "COOPERATIVE: only partitions that move are revoked, followed by one more join",
    says="onJoinComplete, COOPERATIVE: owned minus assigned is revoked, and requestRejoin follows.",
    given="a cooperative member of 2.6.2 with four partitions",
    when="a second member joins",
    then="two partitions are revoked, the other two never; the member sends two JoinGroups",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def cooperative(run: ScenarioRun) -> None:
    world = run.world({"t": 4}, members=2)
    first = member_of(world, "a", assignors=COOPERATIVE)
    world.run(4_000)
    joins, owned = len(world.requests_of(first, JoinGroupRequest)), len(first.owned)
    member_of(world, "b", assignors=COOPERATIVE)
    world.run(10_000)
    moved_count = owned - len(first.owned)
    revoked = [partitions for call, partitions in first.calls if call == "revoked"]
    run.result("revoked", [str(tp) for call in revoked for tp in call])
    run.result("JoinGroups", len(world.requests_of(first, JoinGroupRequest)) - joins)
    run.claim("the partitions that move were revoked, once", [len(call) for call in revoked] == [moved_count])
    run.claim("it joined twice", len(world.requests_of(first, JoinGroupRequest)) - joins == 2)


@scenario(
    "S2-38",
    "COOPERATIVE: without partitions to revoke there is no revoked callback, and one join",
    says="There is a callback and a rejoin only if owned minus assigned is not empty.",
    given="two cooperative members of 2.6.2",
    when="one of them leaves",
    then="the other member's callback names the added partitions; it revokes nothing, and sends one "
    "JoinGroup",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def nothing_to_revoke(run: ScenarioRun) -> None:
    world = run.world({"t": 4}, members=2)
    first = member_of(world, "a", assignors=COOPERATIVE)
    second = member_of(world, "b", assignors=COOPERATIVE)
    world.run(10_000)
    joins, calls_before = joins_of(world, first), len(first.calls)
    second.close()
    world.run(8_000)
    calls = first.calls[calls_before:]
    run.result("callbacks", [f"{kind} {len(partitions)}" for kind, partitions in calls])
    run.result("JoinGroups", joins_of(world, first) - joins)
    run.claim("its callback named the added partitions only", [kind for kind, _ in calls] == ["assigned"])
    run.claim("it joined once", joins_of(world, first) == joins + 1)
    run.claim("the members that stay own all partitions", is_shared_evenly(world))


@scenario(
    "S2-39",
    "EAGER: nothing is revoked after the join, whatever was lost",
    says="onJoinComplete checks for revoked partitions only if COOPERATIVE; EAGER has revoked all before.",
    given="an eager member of 2.6.2 with four partitions and messages to commit",
    when="a second member joins; in another run the member's poll is woken while it commits in onJoinPrepare",
    then="normally revoked is called once, before the JoinGroup; if woken, it is never called, and two "
    "partitions are lost silently",
    takes=("members", "partitions", "static", *TIMEOUTS),
)
def nothing_after(run: ScenarioRun) -> None:
    for woken in (False, True):
        _rebalance_eagerly(run, woken)
    run.why(
        "The join is marked as prepared before the commit. An exception in between leaves the mark, and "
        "the next poll continues with the JoinGroup. In EAGER nothing later compares the owned with the "
        "assigned partitions."
    )


def _rebalance_eagerly(run: ScenarioRun, woken: bool) -> None:
    """Let a second member join an eager group; with `woken`, wake the first member during its commit."""
    world = run.world({"t": 4}, members=2)
    first = member_of(world, auto_commit_ms=60_000)
    produce(world, "t", numbers(world), 20, 3_000)
    world.run(500)
    first.poll_timeout_ms = 1_000
    world.run(100)
    calls_before, joins_before, joins_at_revocation = len(first.calls), joins_of(world, first), list[int]()

    def listener(kind: str, partitions: object) -> None:
        if kind == "revoked":
            joins_at_revocation.append(joins_of(world, first))

    first.listener = listener
    second = member_of(world, "b", auto_commit_ms=60_000)
    if woken:
        world.run(5_000, until=lambda: bool(world.requests_of(first, OffsetCommitRequest)))
        run.moment("another thread wakes it while it commits", "a")
        first.wakeup()
    world.run(10_000)
    label = "woken" if woken else "as a rule"
    run.result(f"{label}: callbacks", called(first)[calls_before:])
    run.result(f"{label}: partitions in the end", [len(first.state.assigned), len(second.owned)])
    others = [len(member.owned) for member in living_members(world) if member is not first]
    counts = [len(first.state.assigned), *others]
    is_even = sum(counts) == len(world.partitions()) and max(counts) - min(counts) <= 1
    run.claim(f"{label}: each member is assigned its share", is_even)
    run.claim(f"{label}: one JoinGroup", joins_of(world, first) == joins_before + 1)
    if woken:
        run.claim("woken: onPartitionsRevoked was never called", not joins_at_revocation)
        run.claim(
            "woken: no revoked partitions were reported", called(first)[calls_before:] == ["assigned 0"]
        )
    else:
        run.claim("normally: revoked is called before the JoinGroup", joins_at_revocation == [joins_before])
