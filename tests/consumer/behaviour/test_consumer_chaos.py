"""After random faults, each partition has one owner, which reads it to its end.

The future of each call completes, unless the member of the call was killed.

Each schedule is derived from a seed. Brokers stop and restart, connections break, and coordinators and
leaders move. Applications and callbacks are slow. The applications call seek and commit at random times, also
during rebalances.

The schedules must also detect the bug of each mutant, a copy of the engine with one broken rule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from consumer.engine.fetch.fetcher import Fetcher
from consumer.engine.group.commits import Committer
from consumer.engine.group.coordinator import CoordinatorLookup
from consumer.engine.group.membership import Membership
from kproto.errors import IllegalState, KprotoError
from tests.consumer.stage import Consumer, World, tp
from tests.seeds import expect_failure

pytestmark = pytest.mark.thorough

SEEDS = range(12)


class Schedule:
    """A schedule of a group's members, calls and faults, derived from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.partitions = self.random.choice([1, 2, 4])
        self.world = World({"t": self.partitions}, seed=seed, brokers=self.random.choice([1, 2, 3]))
        self.strategy = self.random.choice(["range", "cooperative-sticky"])
        self.members: list[Consumer] = []
        self.killed: list[Consumer] = []
        self.tokens: list[tuple[Consumer, object]] = []

    def running_members(self) -> list[Consumer]:
        return [member for member in self.members if member.alive and not member._closing_tokens]

    def join(self) -> Consumer:
        random = self.random
        member = self.world.consumer(
            group_id="g",
            auto_offset_reset="earliest",
            session_timeout_ms=3000,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=2000,
            max_poll_interval_ms=random.choice([2000, 20_000]),
            partition_assignment_strategy=self.strategy,
            enable_auto_commit=random.random() < 0.6,
            auto_commit_interval_ms=random.choice([50, 500, 5000]),
            request_timeout_ms=random.choice([1500, 5000]),
            default_api_timeout_ms=5000,
            max_poll_records=random.choice([3, 500]),
            policy=random.choice(["kproto", "kproto", "java"]),
        )
        member.callback_ms = random.choice([0, 0, 0, 50, 1000])
        member.works_ms = random.choice([0, 0, 10, 300])
        member.subscribe("t")
        self.members.append(member)
        return member

    def random_event(self) -> None:
        """Perform one random event."""
        random, world = self.random, self.world
        members = self.running_members()
        if random.random() < 0.3 and world.brokers:
            world.write("t", random.randrange(self.partitions), *map(str, range(random.randrange(1, 20))))
            return
        if not members or (random.random() < 0.07 and len(members) < 4):
            self.join()
            return
        member = random.choice(members)
        move = random.choice(MOVES)
        if member.owns() or move not in (seek, commit_one, pause):
            move(self, member)

    def play(self) -> None:
        world = self.world
        self.join()
        for _ in range(self.random.randrange(5, 40)):
            # The drawn call may raise IllegalState: the call may be invalid, all brokers may be down, or the
            # member may be closed.
            with contextlib.suppress(IllegalState):
                self.random_event()
            world.run(self.random.choice([1, 10, 100, 1000]))
        world.heal()
        world.run(8000)
        for member in self.running_members() or [self.join()]:
            member.callback_ms = member.works_ms = 0
            if member.owns():
                member.resume(*member.owns())
            member.resume_polling()
        world.run(12_000)
        for partition in range(self.partitions):
            world.write("t", partition, "last")
        world.run(8000)
        self.check_progress()
        self.end()

    def check_progress(self) -> None:
        for index in range(self.partitions):
            partition = tp("t", index)
            owners = [member for member in self.running_members() if partition in member.owns()]
            assert len(owners) == 1, f"{partition}: {owners}"
            assert owners[0].position(partition) == self.world.log(partition).end_offset, partition

    def end(self) -> None:
        last = [(member, member.commit()) for member in self.running_members()]
        self.world.run(6000)
        last += [(member, member.close(timeout_ms=3000)) for member in self.running_members()]
        self.world.run(4000)
        self.tokens += last
        for member, token in self.tokens:
            assert token in member.done or member in self.killed, (
                f"{member.name}: the future of {token} is not done"
            )
            error = member.done.get(token, (None, None))[1]
            assert error is None or isinstance(error, KprotoError)
            assert error is None or (member, token) not in last, (
                f"{member.name} failed without a fault: {error}"
            )


def kill(schedule: Schedule, member: Consumer) -> None:
    schedule.world.kill(member)
    schedule.killed.append(member)


def commit(schedule: Schedule, member: Consumer) -> None:
    schedule.tokens.append((member, member.commit()))


def commit_one(schedule: Schedule, member: Consumer) -> None:
    schedule.tokens.append((member, member.commit({min(member.owns()): schedule.random.randrange(5)})))


def close(schedule: Schedule, member: Consumer) -> None:
    schedule.tokens.append((member, member.close(timeout_ms=schedule.random.choice([500, 3000]))))


def seek(schedule: Schedule, member: Consumer) -> None:
    member.seek(min(member.owns()), 0)


def seek_to(schedule: Schedule, member: Consumer) -> None:
    member.seek_to(schedule.random.choice(["earliest", "latest", "committed", schedule.world.now - 1000]))


def pause(schedule: Schedule, member: Consumer) -> None:
    member.pause(min(member.owns()))


def rejoin(schedule: Schedule, member: Consumer) -> None:
    member.rejoin()


def cut(schedule: Schedule, member: Consumer) -> None:
    schedule.world.cut(member)


def interrupt_polling(schedule: Schedule, member: Consumer) -> None:
    member.pause_polling()
    wait = schedule.random.choice([500, 3000])
    schedule.world.call_later(
        wait, lambda: member.resume_polling() if member in schedule.running_members() else None
    )


def elect(schedule: Schedule, member: Consumer) -> None:
    schedule.world.elect("t", schedule.random.randrange(schedule.partitions))


def move_coordinator(schedule: Schedule, member: Consumer) -> None:
    schedule.world.move_coordinator("g", loading_ms=schedule.random.choice([0, 500]))


def delay(schedule: Schedule, member: Consumer) -> None:
    random = schedule.random
    schedule.world.fault("delay", member, ms=random.choice([50, 2000]), lasts=random.choice([500, 4000]))


def stop_broker(schedule: Schedule, member: Consumer) -> None:
    world = schedule.world
    node = schedule.random.choice(sorted(world.brokers) or [1])
    world.stop_broker(node)
    wait = schedule.random.choice([200, 2500, 5000])
    world.call_later(wait, lambda: None if node in world.brokers else world.start_broker(node))


MOVES: list[Callable[[Schedule, Consumer], None]] = [
    kill, commit, commit_one, close, seek, seek_to, pause, rejoin, cut, interrupt_polling, elect,
    move_coordinator, delay, stop_broker,
]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_after_every_schedule_each_partition_is_read_to_its_end_and_all_futures_are_done(seed: int) -> None:
    Schedule(seed).play()


# ---- mutants: one broken rule each, which a schedule must detect


def a_broker_that_failed_is_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    def for_ever(self: Any, lane: Any) -> None:
        lane.not_before = 1 << 60

    patch.setattr(Fetcher, "_back_off", for_ever)


def a_lost_coordinator_is_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    def again(self: Any, why: str) -> None:
        self._forget_node(why)

    patch.setattr(CoordinatorLookup, "look_up_again", again)
    patch.setattr(CoordinatorLookup, "require", lambda self: self.node)


def commits_are_forgotten_at_close(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "_retry", lambda self, commit, reason, error=None: None)


def nothing_is_released(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "_release", lambda self, callback: None)


MUTANTS = [
    a_broker_that_failed_is_not_asked_again,
    a_lost_coordinator_is_not_looked_up,
    commits_are_forgotten_at_close,
    nothing_is_released,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_is_detected(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    expect_failure(lambda seed: Schedule(seed).play(), range(40))
