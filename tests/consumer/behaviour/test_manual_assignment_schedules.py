"""In random schedules of faults, consumers with manual assignment read to the end and commit.

In a schedule without faults, the consumers must report no errors.

Each schedule is derived from a seed, as in `test_consumer_chaos`. KPROTO_SCHEDULES sets the number of
schedules.
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
from tests.seeds import expect_failure, repeatable, seeds

pytestmark = pytest.mark.thorough

SCHEDULES = int(os.environ.get("KPROTO_SCHEDULES", "60"))


class Schedule:
    """Consumers, each with its own group, and random actions of these consumers. A seed determines both."""

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

    def add_consumer(self) -> None:
        random = self.random
        consumer = self.world.consumer(
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
        consumer.works_ms = random.choice([0, 5, 30, 300])
        self.readers.append(consumer)
        assign(self, consumer)

    def random_action(self) -> None:
        random, living = self.random, self.living()
        if random.random() < 0.3 and self.world.brokers:
            self.world.write("t", random.choice(self.partitions).partition, *["x"] * random.randrange(1, 20))
        elif not living or (random.random() < 0.1 and len(living) < 3):
            self.add_consumer()
        else:
            move = random.choice(CALM if self.calm else CALM + TROUBLE)
            consumer = random.choice(living)
            if consumer.owns() or move not in NEED_SOME:
                move(self, consumer)

    def expect_result(self, consumer: Consumer, operation: str, token: object) -> None:
        self.tokens.append((consumer, operation, token))

    def play(self) -> None:
        world = self.world
        self.add_consumer()
        for _ in range(self.random.randrange(5, 40)):
            with contextlib.suppress(IllegalState):  # The consumer is already closed.
                self.random_action()
            world.run(self.random.choice([0, 1, 10, 100, 1000]))
        world.heal()
        for node in world.nodes.keys() - world.brokers.keys():
            world.start_broker(node)
        world.run(8000)
        for consumer in self.living():
            consumer.works_ms = 0
            if consumer.owns():
                consumer.resume(*consumer.owns())
            consumer.resume_polling()
        for partition in self.partitions:
            world.write("t", partition.partition, "last")
        world.run(12_000)
        self.end()

    def end(self) -> None:
        ends = {partition: self.world.log(partition).end_offset for partition in self.partitions}
        last: list[object] = []
        for consumer in self.living():
            assert consumer.owns() == self.assigned[consumer]
            for partition in consumer.owns():
                assert consumer.position(partition) == ends[partition], (consumer.name, partition)
        for consumer in self.living():
            if not consumer.options.enable_auto_commit:
                last.append(consumer.commit())
                self.expect_result(consumer, "commit", last[-1])
        self.world.run(2000)
        for consumer in self.living():
            last.append(consumer.close(timeout_ms=self.random.choice([3000, 30_000])))
            self.expect_result(consumer, "close", last[-1])
        self.world.run(4000)
        for consumer, operation, token in self.tokens:
            assert token in consumer.done, f"{operation} of {consumer.name} never ended"
            error = consumer.done[token][1]
            assert error is None or isinstance(error, KprotoError)
            if self.calm or token in last:
                assert error is None, f"{operation} of {consumer.name}: {error}"
        for consumer, operation, token in self.tokens:
            if operation == "close" and token in last:
                group = consumer.options.group_id
                assert {p: self.world.committed(group, p) for p in self.assigned[consumer]} == {
                    p: ends[p] for p in self.assigned[consumer]
                }, consumer.name


def assign(schedule: Schedule, consumer: Consumer) -> None:
    random = schedule.random
    chosen = random.sample(schedule.partitions, random.randrange(1, len(schedule.partitions) + 1))
    consumer.assign({partition: random.choice([None, None, 0]) for partition in chosen})
    schedule.assigned[consumer] = set(chosen)


def commit(schedule: Schedule, consumer: Consumer) -> None:
    schedule.expect_result(consumer, "commit", consumer.commit())


def commit_one(schedule: Schedule, consumer: Consumer) -> None:
    schedule.expect_result(
        consumer, "commit", consumer.commit({min(consumer.owns()): schedule.random.randrange(5)})
    )


def close(schedule: Schedule, consumer: Consumer) -> None:
    if schedule.random.random() < 0.3:
        seek_to(schedule, consumer)
    schedule.expect_result(consumer, "close", consumer.close(timeout_ms=schedule.random.choice([1000, 5000])))


def unsubscribe(schedule: Schedule, consumer: Consumer) -> None:
    schedule.expect_result(consumer, "unsubscribe", consumer.unsubscribe())
    schedule.assigned[consumer] = set()


def seek(schedule: Schedule, consumer: Consumer) -> None:
    consumer.seek(min(consumer.owns()), 0)


def seek_to(schedule: Schedule, consumer: Consumer) -> None:
    random, owned = schedule.random, sorted(consumer.owns())
    where = random.choice(["earliest", "latest", "committed", schedule.world.now - 1000])
    consumer.seek_to(where, *random.sample(owned, random.randrange(len(owned) + 1)))


def pause(schedule: Schedule, consumer: Consumer) -> None:
    consumer.pause(min(consumer.owns()))


def pause_polling(schedule: Schedule, consumer: Consumer) -> None:
    consumer.pause_polling()
    wait = schedule.random.choice([20, 500, 3000])
    schedule.world.call_later(
        wait, lambda: consumer.resume_polling() if consumer in schedule.living() else None
    )


def cut(schedule: Schedule, consumer: Consumer) -> None:
    schedule.world.fault(schedule.random.choice(["cut", "half_close"]), consumer)


def delay(schedule: Schedule, consumer: Consumer) -> None:
    random = schedule.random
    schedule.world.fault("delay", consumer, ms=random.choice([50, 2000]), lasts=random.choice([500, 4000]))


def elect(schedule: Schedule, consumer: Consumer) -> None:
    if schedule.world.brokers:
        index = schedule.random.choice(schedule.partitions).partition
        schedule.world.elect("t", index, schedule.random.choice(sorted(schedule.world.brokers)))


def move_coordinator(schedule: Schedule, consumer: Consumer) -> None:
    group = consumer.options.group_id
    if group is not None and schedule.world.brokers:
        schedule.world.move_coordinator(group, loading_ms=schedule.random.choice([0, 500]))


def stop_broker(schedule: Schedule, consumer: Consumer) -> None:
    if schedule.world.brokers:
        schedule.world.stop_broker(schedule.random.choice(sorted(schedule.world.brokers)))


def start_broker(schedule: Schedule, consumer: Consumer) -> None:
    for node in schedule.world.nodes.keys() - schedule.world.brokers.keys():
        schedule.world.start_broker(node)


Move = Callable[[Schedule, Consumer], None]
CALM: list[Move] = [
    assign, commit, commit, commit_one, close, unsubscribe, seek, seek_to, pause, pause_polling
]  # fmt: skip
TROUBLE: list[Move] = [cut, delay, elect, move_coordinator, stop_broker, start_broker, start_broker]
NEED_SOME: list[Move] = [commit_one, seek, pause]


def check(seed: int) -> None:
    with repeatable(seed, "KPROTO_SCHEDULES=1"):
        Schedule(seed).play()


def test_every_partition_is_read_and_committed_to_its_end() -> None:
    for seed in seeds(SCHEDULES):
        check(seed)


# ---- mutants: one broken rule each, which a schedule must detect


def interval_commits_continue_during_close(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "prepare_close", lambda self: None)


def close_commits_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ConsumerShutdown, "_commit_processed", lambda self, partitions, timeout_ms, proceed: proceed()
    )


def commits_in_progress_are_never_reset(patch: pytest.MonkeyPatch) -> None:
    def on_committed(self: Any, offset: int, by: object = None) -> None:
        self.committed = offset
        self._subscription.update_uncommitted(self)

    patch.setattr(PartitionState, "on_committed", on_committed)


@pytest.mark.parametrize(
    "mutant",
    [
        interval_commits_continue_during_close,
        close_commits_nothing,
        commits_in_progress_are_never_reset,
    ],
)
def test_the_schedules_detect_a_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    expect_failure(lambda seed: Schedule(seed).play(), range(40))
