"""Consumers that read by hand, whatever happens in whatever order: when all is well again, each has read its
partitions to their end, and has committed what it read; and where nothing was wrong, nothing says so.

A schedule is a seed, as in `test_consumer_chaos`. KPROTO_SCHEDULES=5000 runs as many.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from consumer.engine.group.commits import Committer
from consumer.engine.positions.partition_states import PartitionState
from consumer.engine.shutdown import ConsumerShutdown
from kproto.errors import IllegalState, KprotoError
from kproto.group.subscription import TopicPartition
from tests.consumer.stage import Consumer, World, tp
from tests.seeds import found_out, repeatable, seeds

pytestmark = pytest.mark.thorough

SCHEDULES = int(os.environ.get("KPROTO_SCHEDULES", "60"))


class Schedule:
    """The lives of some consumers, each with a group of its own, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/by hand")
        self.calm = random.random() < 0.5
        self.partitions = [tp("t", index) for index in range(random.choice([1, 2, 4]))]
        self.world = World(
            {"t": len(self.partitions)},
            seed=seed,
            brokers=random.choice([1, 2]),
            latency=random.choice([(1, 1), (1, 30), (40, 40)]),
            trace=False,
        )
        self.readers: list[Consumer] = []
        self.tokens: list[tuple[Consumer, str, object]] = []
        self.assigned: dict[Consumer, set[TopicPartition]] = {}

    def living(self) -> list[Consumer]:
        return [reader for reader in self.readers if reader.alive and not reader.is_closing]

    def come(self) -> None:
        random = self.random
        one = self.world.consumer(
            group_id=f"g{len(self.readers)}",
            auto_offset_reset="earliest",
            metadata_max_age_ms=2000,
            enable_auto_commit=random.random() < 0.7,
            auto_commit_interval_ms=random.choice([1, 20, 50, 500]),
            request_timeout_ms=random.choice([1500, 5000]),
            default_api_timeout_ms=5000,
            max_poll_records=random.choice([1, 3, 500]),
            policy=random.choice(["kproto", "kproto", "java"]),
        )
        one.works_ms = random.choice([0, 5, 30, 300])
        self.readers.append(one)
        assign(self, one)

    def something(self) -> None:
        random, living = self.random, self.living()
        if random.random() < 0.3 and self.world.brokers:
            self.world.write("t", random.choice(self.partitions).partition, *["x"] * random.randrange(1, 20))
        elif not living or (random.random() < 0.1 and len(living) < 3):
            self.come()
        else:
            move = random.choice(CALM if self.calm else CALM + TROUBLE)
            one = random.choice(living)
            if one.owns() or move not in NEED_SOME:
                move(self, one)

    def ask(self, one: Consumer, what: str, token: object) -> None:
        self.tokens.append((one, what, token))

    def play(self) -> None:
        world = self.world
        self.come()
        for _ in range(self.random.randrange(5, 40)):
            with contextlib.suppress(IllegalState):  # it is closed already
                self.something()
            world.run(self.random.choice([0, 1, 10, 100, 1000]))
        world.heal()
        for node in world.nodes.keys() - world.brokers.keys():
            world.start_broker(node)
        world.run(8000)
        for one in self.living():
            one.works_ms = 0
            if one.owns():
                one.resume(*one.owns())
            one.resume_polling()
        for partition in self.partitions:
            world.write("t", partition.partition, "last")
        world.run(12_000)
        self.end()

    def end(self) -> None:
        ends = {partition: self.world.log(partition).end_offset for partition in self.partitions}
        last: list[object] = []
        for one in self.living():
            assert one.owns() == self.assigned[one]
            for partition in one.owns():
                assert one.position(partition) == ends[partition], (one.name, partition)
        for one in self.living():
            if not one.options.enable_auto_commit:
                last.append(one.commit())
                self.ask(one, "commit", last[-1])
        self.world.run(2000)
        for one in self.living():
            last.append(one.close(timeout_ms=self.random.choice([3000, 30_000])))
            self.ask(one, "close", last[-1])
        self.world.run(4000)
        for one, what, token in self.tokens:
            assert token in one.done, f"{what} of {one.name} never ended"
            error = one.done[token][1]
            assert error is None or isinstance(error, KprotoError)
            if self.calm or token in last:
                assert error is None, f"{what} of {one.name}: {error}"
        for one, what, token in self.tokens:
            if what == "close" and token in last:
                group = one.options.group_id
                assert {p: self.world.committed(group, p) for p in self.assigned[one]} == {
                    p: ends[p] for p in self.assigned[one]
                }, one.name


def assign(schedule: Schedule, who: Consumer) -> None:
    random = schedule.random
    chosen = random.sample(schedule.partitions, random.randrange(1, len(schedule.partitions) + 1))
    who.assign({partition: random.choice([None, None, 0]) for partition in chosen})
    schedule.assigned[who] = set(chosen)


def commit(schedule: Schedule, who: Consumer) -> None:
    schedule.ask(who, "commit", who.commit())


def commit_one(schedule: Schedule, who: Consumer) -> None:
    schedule.ask(who, "commit", who.commit({min(who.owns()): schedule.random.randrange(5)}))


def close(schedule: Schedule, who: Consumer) -> None:
    if schedule.random.random() < 0.3:
        seek_to(schedule, who)
    schedule.ask(who, "close", who.close(timeout_ms=schedule.random.choice([1000, 5000])))


def unsubscribe(schedule: Schedule, who: Consumer) -> None:
    schedule.ask(who, "unsubscribe", who.unsubscribe())
    schedule.assigned[who] = set()


def seek(schedule: Schedule, who: Consumer) -> None:
    who.seek(min(who.owns()), 0)


def seek_to(schedule: Schedule, who: Consumer) -> None:
    random, owned = schedule.random, sorted(who.owns())
    where = random.choice(["earliest", "latest", "committed", schedule.world.now - 1000])
    who.seek_to(where, *random.sample(owned, random.randrange(len(owned) + 1)))


def pause(schedule: Schedule, who: Consumer) -> None:
    who.pause(min(who.owns()))


def stay_away(schedule: Schedule, who: Consumer) -> None:
    who.pause_polling()
    wait = schedule.random.choice([20, 500, 3000])
    schedule.world.call_later(wait, lambda: who.resume_polling() if who in schedule.living() else None)


def cut(schedule: Schedule, who: Consumer) -> None:
    schedule.world.fault(schedule.random.choice(["cut", "half_close"]), who)


def delay(schedule: Schedule, who: Consumer) -> None:
    random = schedule.random
    schedule.world.fault("delay", who, ms=random.choice([50, 2000]), lasts=random.choice([500, 4000]))


def elect(schedule: Schedule, who: Consumer) -> None:
    if schedule.world.brokers:
        index = schedule.random.choice(schedule.partitions).partition
        schedule.world.elect("t", index, schedule.random.choice(sorted(schedule.world.brokers)))


def move_coordinator(schedule: Schedule, who: Consumer) -> None:
    group = who.options.group_id
    if group is not None and schedule.world.brokers:
        schedule.world.move_coordinator(group, loading_ms=schedule.random.choice([0, 500]))


def stop_broker(schedule: Schedule, who: Consumer) -> None:
    if schedule.world.brokers:
        schedule.world.stop_broker(schedule.random.choice(sorted(schedule.world.brokers)))


def start_broker(schedule: Schedule, who: Consumer) -> None:
    for node in schedule.world.nodes.keys() - schedule.world.brokers.keys():
        schedule.world.start_broker(node)


Move = Callable[[Schedule, Consumer], None]
CALM: list[Move] = [
    assign, commit, commit, commit_one, close, unsubscribe, seek, seek_to, pause, stay_away
]  # fmt: skip
TROUBLE: list[Move] = [cut, delay, elect, move_coordinator, stop_broker, start_broker, start_broker]
NEED_SOME: list[Move] = [commit_one, seek, pause]


def check(seed: int) -> None:
    with repeatable(seed, "KPROTO_SCHEDULES=1"):
        Schedule(seed).play()


def test_all_is_read_and_committed_and_nothing_says_otherwise() -> None:
    for seed in seeds(SCHEDULES):
        check(seed)


# ---- mutants


def commits_in_time_come_beside_that_of_close(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "prepare_close", lambda self: None)


def nothing_is_saved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ConsumerShutdown, "_commit_processed", lambda self, partitions, timeout_ms, proceed: proceed()
    )


def what_was_asked_for_stays_so(patch: pytest.MonkeyPatch) -> None:
    def on_committed(self: Any, offset: int, by: object = None) -> None:
        self.committed = offset
        self._home.update_uncommitted(self)

    patch.setattr(PartitionState, "on_committed", on_committed)


@pytest.mark.parametrize(
    "mutant",
    [
        commits_in_time_come_beside_that_of_close,
        nothing_is_saved,
        what_was_asked_for_stays_so,
    ],
)
def test_a_mutant_does_not_live_through_these_schedules(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    found_out(lambda seed: Schedule(seed).play(), range(40))
