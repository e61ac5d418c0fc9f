"""`kproto.testing.groups` finds planted defects in a user's assignor and listener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import invariant, precondition, run_state_machine_as_test

from consumer import RebalanceListener
from kproto.errors import ConfigError
from kproto.group.assignors import Assignor
from kproto.group.subscription import Subscription, TopicPartition
from kproto.testing.groups import Group
from kproto.testing.invariants import InvariantBroken
from kproto.testing.world import Consumer, World

# ---- a user's assignor: each topic goes to the member with the fewest partitions


def by_topic(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Any
) -> dict[str, list[TopicPartition]]:
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic in sorted(partitions):
        able = [member for member in sorted(members) if topic in members[member].topics]
        owner = min(able, key=lambda member: len(assignment[member]))
        assignment[owner] += [TopicPartition(topic, number) for number in range(partitions[topic])]
    return assignment


def by_share(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Any
) -> dict[str, list[TopicPartition]]:
    """Assign equal shares, with a defect: no member gets the remainder of the division."""
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for topic, count in partitions.items():
        for turn, member in enumerate(sorted(members)):
            share = count // len(members)
            assignment[member] += [TopicPartition(topic, turn * share + number) for number in range(share)]
    return assignment


class WholeTopics(Group):
    topics: ClassVar = {"t": 2, "u": 3}
    options: ClassVar = ({"partition_assignment_strategy": [Assignor("whole-topics", by_topic), "range"]},)


class Shares(Group):
    topics: ClassVar = {"t": 3}
    options: ClassVar = ({"partition_assignment_strategy": [Assignor("shares", by_share)]},)


# ---- a user's listener that writes results and positions together into one store


class Stored(RebalanceListener):
    """A listener that stores each record with the next position, and starts at the stored positions."""

    NEXT = 1

    def __init__(self, consumer: Consumer, store: dict[TopicPartition, tuple[list[str], int]]) -> None:
        self.consumer = consumer
        self.store = store

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self.store:
                self.consumer.seek(partition, self.store[partition][1])

    def records(self, records: list[Any]) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            values, _ = self.store.setdefault(partition, ([], 0))
            values.append(bytes(record.value).decode())
            self.store[partition] = values, record.offset + self.NEXT


class Forgetful(Stored):
    """A listener with a defect: it stores the offset of the last record instead of the next one."""

    NEXT = 0


class ExactlyOnce(Group):
    kind: ClassVar[type[Stored]] = Stored
    trouble: ClassVar = False

    def application(self, consumer: Consumer) -> Stored:
        if not self.applications:
            self.store: dict[TopicPartition, tuple[list[str], int]] = {}
        return self.kind(consumer, self.store)

    def teardown(self) -> None:
        super().teardown()
        for partition, (values, _) in self.store.items():
            if len(values) != len(set(values)):
                raise InvariantBroken(f"{partition}: {values}")


class AtLeastOnce(ExactlyOnce):
    kind: ClassVar = Forgetful


# ---- a user's listener that counts the records of the partitions that its consumer owns


class Balance:
    def __init__(self, consumer: Consumer) -> None:
        self.counts: Counter[TopicPartition] = Counter()

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.counts.pop(partition, None)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.revoked(partitions)

    def records(self, records: list[Any]) -> None:
        for record in records:
            self.counts[TopicPartition(record.topic, record.partition)] += 1


class IgnoresLosses(Balance):
    """A listener with a defect: it keeps the counts of lost partitions."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None: ...


class Balances(Group):
    topics: ClassVar = {"t": 3}
    kind: ClassVar[type[Balance]] = Balance

    def application(self, consumer: Consumer) -> Balance:
        return self.kind(consumer)

    @invariant()
    def counts_belong_to_owned_partitions(self) -> None:
        for name, balance in self.applications.items():
            assert isinstance(balance, Balance)
            assert set(balance.counts) <= self.world.clients[name].owned, name


class BalancesThatIgnoreLosses(Balances):
    kind: ClassVar = IgnoresLosses


# ---- the defects that `kproto.testing.groups` finds


def test_the_state_of_a_killed_application_is_gone() -> None:
    group = ExactlyOnce()
    group.begin(seed=2)
    group.wait(500)
    group.kill(0)
    assert list(group.applications) == ["member2"]


def run(machine: type[Group], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
        ),
    )


SOUND: list[type[Group]] = [Group, WholeTopics, ExactlyOnce, Balances]


@pytest.mark.parametrize("machine", SOUND)
def test_correct_applications_keep_every_invariant(machine: type[Group]) -> None:
    run(machine, 2, 10)


@pytest.mark.thorough
@pytest.mark.parametrize("machine", SOUND)
def test_correct_applications_keep_every_invariant_for_long(machine: type[Group]) -> None:
    run(machine, 60, 40)


def test_an_assignor_that_leaves_a_partition_out_is_found() -> None:
    with pytest.raises(InvariantBroken, match=r"delivered to no member|should own"):
        run(Shares, 8, 15)


def test_a_listener_that_is_off_by_one_is_found() -> None:
    with pytest.raises(InvariantBroken):
        run(AtLeastOnce, 20, 15)


def test_a_listener_that_ignores_losses_is_found() -> None:
    with pytest.raises(AssertionError, match="member"):
        run(BalancesThatIgnoreLosses, 30, 15)


@pytest.mark.parametrize("cause", ["removal", "session timeout", "poll interval"])
def test_a_member_loses_its_partitions_within_one_step(cause: str) -> None:
    group = BalancesThatIgnoreLosses()
    group.begin(seed=0)
    group.counts_belong_to_owned_partitions()
    group.lose(0, cause)
    with pytest.raises(AssertionError, match=r"member[12]"):
        group.counts_belong_to_owned_partitions()


def test_the_calls_of_a_loss_reproduce_its_world(tmp_path: Path) -> None:
    group = Balances()
    group.begin(seed=0)
    group.lose(0, "removal")
    group.world.save(tmp_path / "run.jsonl")
    loaded = World.load(tmp_path / "run.jsonl")
    calls = [consumer.calls for consumer in group.world.alive_clients(Consumer)]
    assert [consumer.calls for consumer in loaded.alive_clients(Consumer)] == calls


def test_own_invariants_are_checked_after_the_world_has_settled() -> None:
    """`teardown` checks a user's own invariants after it has written the last records.

    The invariant in this test holds until a member reads the last record.
    """

    class Lasts(Group):
        @invariant()
        def no_member_reads_the_last_record(self) -> None:
            for consumer in self.world.alive_clients(Consumer):
                assert "the last" not in consumer.values()

        @precondition(lambda self: False)
        @invariant()
        def is_never_checked(self) -> None:
            raise AssertionError

    group = Lasts()
    group.begin(seed=0)
    with pytest.raises(AssertionError, match="assert"):
        group.teardown()


def test_a_listener_that_raises_is_found() -> None:
    class Raises(Group):
        def application(self, consumer: Consumer) -> Any:
            class Listener(RebalanceListener):
                def revoked(self, partitions: Any) -> None:
                    raise KeyError("oh")

            return Listener()

    with pytest.raises(KeyError):
        run(Raises, 20, 15)


def test_an_application_with_names_of_another_library_is_rejected() -> None:
    class ForeignNames(Group):
        def application(self, consumer: Consumer) -> Any:
            class Listener:
                def on_partitions_assigned(self, partitions: Any) -> None: ...

            return Listener()

    with pytest.raises(ConfigError, match="on_partitions_assigned is another library's name for a callback"):
        run(ForeignNames, 1, 1)


def test_the_calls_of_a_failure_reproduce_its_world(tmp_path: Path) -> None:
    state = Shares()
    state.begin(seed=0)
    with pytest.raises(InvariantBroken):
        state.teardown()
    state.world.save(tmp_path / "run.jsonl")
    own = state.options[0]["partition_assignment_strategy"]
    assert World.load(tmp_path / "run.jsonl", assignors=own).turns == state.world.turns


def test_a_final_invariant_is_checked_at_the_end() -> None:
    checked_worlds: list[World] = []

    class Mine(Group):
        final_invariants: ClassVar = (checked_worlds.append,)

    run(Mine, 1, 5)
    assert checked_worlds
