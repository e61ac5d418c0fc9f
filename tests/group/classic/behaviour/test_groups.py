"""Whole groups in virtual time become stable again after faults in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kproto.group.classic.member import CoordinatorLost, RejoinRequested, SubscriptionChanged
from tests.group.classic.behaviour.stage import Actor, GroupStage, no_partition_has_two_owners
from tests.group.classic.member.stage import AdoptAssignment, Fatal, Lose, MemberState, Revoke, parts

COOPERATIVE = ("cooperative-sticky",)
EAGER = ("range",)
ALL = [COOPERATIVE, EAGER, ("roundrobin",), ("sticky",), ("cooperative-sticky", "range")]
every_assignor = pytest.mark.parametrize("assignors", ALL, ids=lambda names: "+".join(names))


def group(*names: str, assignors: tuple[str, ...] = COOPERATIVE, **options: Any) -> GroupStage:
    """Return a stable group whose members joined one after the other."""
    stage = GroupStage({"t": 6, "u": 2}, group_initial_rebalance_delay_ms=0, **options)
    for name in names:
        stage.add(name, assignors=assignors)
        stage.settle()
    return stage


def generation(stage: GroupStage) -> int:
    return max(actor.member.generation or 0 for actor in stage.actors.values())


# Scenarios


@every_assignor
def test_three_members_share_the_partitions(assignors: tuple[str, ...]) -> None:
    stage = group("a", "b", "c", assignors=assignors)
    assert sorted(len(actor.in_use) for actor in stage.actors.values()) == [2, 2, 2]


@every_assignor
def test_the_partitions_of_a_closed_member_are_reassigned(assignors: tuple[str, ...]) -> None:
    stage = group("a", "b", "c", assignors=assignors)
    closed = stage.actors["b"]
    stage.close("b")
    stage.settle()
    assert closed.state is MemberState.CLOSED
    assert sorted(len(a.in_use) for a in stage.actors.values() if a is not closed) == [3, 3]


@every_assignor
def test_partitions_of_a_killed_member_are_reassigned_after_its_session(
    assignors: tuple[str, ...],
) -> None:
    stage = group("a", "b", assignors=assignors)
    stage.kill("a")
    stage.wait(9_000)
    assert len(stage.actors["b"].in_use) == 3
    stage.settle()
    assert len(stage.actors["b"].in_use) == 6


@pytest.mark.rule("M92")
@every_assignor
def test_new_partitions_are_assigned(assignors: tuple[str, ...]) -> None:
    stage = group("a", "b", assignors=assignors)
    stage.grow("t", 9)
    stage.settle()
    assert "cached metadata has changed" in stage.actors["a"].reasons + stage.actors["b"].reasons


@pytest.mark.rule("M206")
def test_every_owner_of_a_new_partition_knows_that_it_is_new() -> None:
    stage = group("a", "b")
    stage.grow("t", 8)
    stage.settle()
    stage.add("c")
    stage.settle()
    new = {tp for actor in stage.actors.values() for assign in actor.of(AdoptAssignment) for tp in assign.new}
    assert new == set(parts("t", 6, 7))


@pytest.mark.rule("I5", "M91")
def test_a_cooperative_move_takes_exactly_two_rebalances() -> None:
    """librdkafka#3891, confluent-kafka-go#622."""
    stage = group("a")
    before = generation(stage)
    newcomer = stage.add("b")
    stage.settle()
    assert generation(stage) == before + 2
    assert [len(action.owned) for action in newcomer.of(AdoptAssignment)] == [0, 3]


@pytest.mark.rule("I5")
def test_a_cooperative_join_moves_as_few_partitions_as_possible() -> None:
    stage = group("a", "b")
    stage.add("c")
    stage.settle()
    moved = [tp for actor in stage.actors.values() for revoke in actor.of(Revoke) for tp in revoke.partitions]
    assert (
        len(moved) == 3 + 2
    )  # Three partitions move to b when it joins. Then c gets one from each of a and b.


def test_a_cooperative_leave_takes_one_rebalance() -> None:
    stage = group("a", "b", "c")
    before = generation(stage)
    stage.close("c")
    stage.settle()
    assert generation(stage) == before + 1


def test_a_rebalance_without_faults_loses_no_partitions() -> None:
    stage = group("a", "b", "c")
    assert [actor.name for actor in stage.actors.values() if actor.of(Lose)] == []


def test_members_with_different_topics_own_only_partitions_of_their_topics() -> None:
    stage = group("a")
    stage.add("b", ["u"], assignors=COOPERATIVE)
    stage.settle()
    assert stage.actors["b"].in_use == set(parts("u", 0, 1))


@pytest.mark.rule("M100")
def test_a_changed_subscription_ends_with_partitions_of_the_new_topics() -> None:
    stage = group("a", "b")
    stage.apply(stage.actors["a"], SubscriptionChanged(frozenset({"u"})))
    stage.settle()
    assert stage.actors["a"].in_use == set(parts("u", 0, 1))
    assert stage.actors["b"].in_use == set(parts("t", *range(6)))


@pytest.mark.rule("M115")
def test_a_restarted_static_member_gets_its_partitions_back_without_a_rebalance() -> None:
    stage = group("a")
    stage.add("s", assignors=COOPERATIVE, group_instance_id="s-1")
    stage.settle()
    had, before = set(stage.actors["s"].in_use), generation(stage)
    stage.kill("s")
    stage.wait(2_000)
    stage.add("s", assignors=COOPERATIVE, group_instance_id="s-1")
    stage.settle()
    assert (stage.actors["s"].in_use, generation(stage)) == (had, before)


@pytest.mark.rule("M59")
def test_the_older_of_two_members_with_one_instance_id_stops_for_good() -> None:
    stage = group("a")
    stage.add("s", assignors=COOPERATIVE, group_instance_id="s-1")
    stage.settle()
    old = stage.actors["s"]
    # Disable the check for two owners of a partition. Until its next heartbeat, the older member does not
    # know that it was fenced.
    stage.check = lambda stage: None
    stage.add("s2", assignors=COOPERATIVE, group_instance_id="s-1")
    stage.wait(10_000)
    stage.check = no_partition_has_two_owners
    assert old.state is MemberState.FENCED
    assert [fatal.final for fatal in old.of(Fatal)] == [True]
    stage.settle()
    assert len(stage.actors["s2"].in_use) == 3


@pytest.mark.rule("M43")
def test_a_full_group_is_fatal_only_for_the_new_member() -> None:
    stage = group("a", group_max_size=1)
    stage.add("b", assignors=COOPERATIVE).asleep = True
    stage.wait(1_000)
    assert stage.actors["b"].state is MemberState.FAILED
    assert len(stage.actors["a"].in_use) == 6


@pytest.mark.rule("M43")
def test_a_member_with_another_protocol_is_refused_and_the_group_continues() -> None:
    stage = group("a")
    stage.add("b", assignors=EAGER).asleep = True
    stage.wait(1_000)
    assert stage.actors["b"].of(Fatal)
    assert len(stage.actors["a"].in_use) == 6


@pytest.mark.rule("M110")
def test_an_application_that_stops_polling_loses_its_partitions_and_rejoins() -> None:
    stage = group("a", "b")
    lazy = stage.add("z", assignors=COOPERATIVE, rebalance_timeout_ms=5_000)
    stage.settle()
    lazy.asleep = True
    stage.wait(10_000)
    assert lazy.state is MemberState.EXPIRED
    assert sorted(len(actor.in_use) for actor in stage.actors.values()) == [0, 3, 3]
    lazy.asleep = False
    stage.settle()
    assert sorted(len(actor.in_use) for actor in stage.actors.values()) == [2, 2, 2]


@pytest.mark.rule("I19", "M71")
def test_a_group_can_be_upgraded_from_eager_to_cooperative_member_by_member() -> None:
    """A group is upgraded from eager to cooperative member by member (KIP-429).

    Each member restarts twice for the upgrade: to add cooperative-sticky, and then to drop range. For the
    downgrade, it restarts twice more, and reverses both steps.
    """
    cooperative_or_range = ("cooperative-sticky", "range")
    stage = group("a", "b", "c", assignors=EAGER)
    for assignors in (cooperative_or_range, COOPERATIVE, cooperative_or_range, EAGER):
        for name in "abc":
            stage.close(name)
            stage.run()
            del stage.actors[name]
            stage.add(name, assignors=assignors)
            stage.settle()
    assert sorted(len(actor.in_use) for actor in stage.actors.values()) == [2, 2, 2]


@pytest.mark.rule("I17", "M26")
def test_a_lost_connection_at_any_moment_of_a_join_is_recovered() -> None:
    for moment in range(30):
        stage = group("a")
        late = stage.add("b", assignors=COOPERATIVE)
        for _ in range(moment):
            for actor in list(stage.actors.values()):
                stage.deliver_request(actor)
                stage.deliver_event(actor)
                if actor.must_release:
                    stage.release(actor)
        stage.apply(late, CoordinatorLost("broken"))
        stage.settle()
        assert len(late.in_use) == 3


# ---- random events in random order


class Group(RuleBasedStateMachine):
    """Random events in a group. After the last event the group must become stable."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = GroupStage()
        self.count = 0
        self.kinds: list[tuple[str, ...]] = [COOPERATIVE]
        self.newest: dict[str, int] = {}

    @initialize(
        kinds=st.sampled_from([[COOPERATIVE], [COOPERATIVE], [EAGER], [("sticky",)], [COOPERATIVE, ALL[4]]]),
        delay=st.sampled_from([0, 3_000]),
    )
    def start(self, kinds: list[tuple[str, ...]], delay: int) -> None:
        self.stage = GroupStage({"t": 4, "u": 2}, group_initial_rebalance_delay_ms=delay)
        self.kinds = kinds
        self.join(0, ["t"], static=False)
        self.join(1, ["t"], static=False)

    def some(self, index: int) -> Actor:
        actors = list(self.stage.actors.values())
        return actors[index % len(actors)]

    @precondition(lambda self: len(self.stage.actors) < 5)
    @rule(kind=st.integers(0, 1), topics=st.sampled_from([["t"], ["t", "u"], ["u"]]), static=st.booleans())
    def join(self, kind: int, topics: list[str], static: bool) -> None:
        self.count += 1
        name = f"m{self.count}"
        options: dict[str, Any] = {"group_instance_id": name} if static else {}
        self.stage.add(name, topics, assignors=self.kinds[kind % len(self.kinds)], **options)

    @precondition(lambda self: self.stage.actors)
    @rule(index=st.integers(0, 4), rounds=st.integers(1, 3))
    def deliver(self, index: int, rounds: int) -> None:
        actor = self.some(index)
        for _ in range(rounds):
            self.stage.deliver_request(actor)
            self.stage.deliver_event(actor)

    @precondition(lambda self: any(actor.must_release for actor in self.stage.actors.values()))
    @rule(index=st.integers(0, 4))
    def release(self, index: int) -> None:
        holding = [actor for actor in self.stage.actors.values() if actor.must_release]
        self.stage.release(holding[index % len(holding)])

    @rule(ms=st.sampled_from([1, 100, 1_000, 3_000, 12_000]))
    def wait(self, ms: int) -> None:
        self.stage.wait(ms)

    @precondition(lambda self: len(self.stage.actors) > 1)
    @rule(index=st.integers(0, 4), kill=st.booleans())
    def go(self, index: int, kill: bool) -> None:
        actor = self.some(index)
        if kill:
            self.stage.kill(actor.name)
        elif actor.state not in (MemberState.CLOSING, MemberState.LEAVING, MemberState.CLOSED):
            self.stage.close(actor.name)

    @precondition(lambda self: self.stage.actors)
    @rule(index=st.integers(0, 4))
    def disconnect(self, index: int) -> None:
        actor = self.some(index)
        actor.normal.unread.clear()
        self.stage.apply(actor, CoordinatorLost("broken"))

    @precondition(lambda self: self.stage.actors)
    @rule(index=st.integers(0, 4), topics=st.sampled_from([["t"], ["t", "u"]]))
    def subscribe(self, index: int, topics: list[str]) -> None:
        self.stage.apply(self.some(index), SubscriptionChanged(frozenset(topics)))

    @precondition(lambda self: self.stage.actors)
    @rule(index=st.integers(0, 4))
    def rejoin(self, index: int) -> None:
        self.stage.apply(self.some(index), RejoinRequested("because"))

    @precondition(lambda self: self.stage.topics.get("t", 9) < 8)
    @rule()
    def grow(self) -> None:
        self.stage.grow("t", self.stage.topics["t"] + 1)

    @invariant()
    def a_generation_never_goes_back(self) -> None:
        for name, actor in self.stage.actors.items():
            generation = actor.member.generation
            if generation is not None:
                assert generation >= self.newest.get(name, 0)
                self.newest[name] = generation

    @invariant()
    def what_the_member_owns_is_what_its_application_holds(self) -> None:
        for actor in self.stage.actors.values():
            assert actor.in_use <= set(actor.member.owned)

    def teardown(self) -> None:
        self.stage.settle()


TestGroup = Group.TestCase
TestGroup.settings = settings(stateful_step_count=40)
