"""Consume, transform, produce, through random schedules of faults in virtual time: whatever happens to some
workers of a group, each record that goes in comes out once, and in order.

Each worker has a consumer in the group and a producer of transactions, and commits the offsets of what it
read together with what it wrote (KIP-447). Workers are killed, stay away until the group has put them out,
and end what they were at afterwards; members come and go, brokers and coordinators move. Some schedules run
by default; KPROTO_SCHEDULES=5000 runs as many. Each mutant below has to be found out.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from consumer.engine.group.status import GroupStatus
from consumer.engine.positions import offset_lookup
from consumer.engine.producer.transaction_states import PendingCall, ProducerTransactionState
from consumer.records import GroupMetadata
from kproto.errors import IllegalState, KprotoError
from tests.consumer.stage import BEFORE_KIP_890, QUICK_AGAIN, World, tp
from tests.seeds import found_out, repeatable, seeds

pytestmark = pytest.mark.thorough

SCHEDULES = int(os.environ.get("KPROTO_SCHEDULES", "30"))


class Worker:
    """One process: a loop of polls, each followed by a transaction."""

    def __init__(self, chaos: Chaos, name: str) -> None:
        self.chaos, self.random, self.name = chaos, chaos.random, name
        world, random = chaos.world, chaos.random
        self.reader = world.consumer(
            group_id="g",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            partition_assignment_strategy=chaos.strategy,
            session_timeout_ms=2_000,
            heartbeat_interval_ms=200,
            max_poll_interval_ms=random.choice([1_000, 20_000]),
            max_poll_records=random.choice([1, 5, 500]),
            fetch_max_wait_ms=100,
            request_timeout_ms=400,
            metadata_max_age_ms=1_000,
            socket_connection_setup_timeout_ms=100,
        )
        self.writer = world.producer(
            transactional_id=name,
            transaction_timeout_ms=random.choice([1_500, 10_000]),
            linger_ms=0,
            batch_size=random.choice([200, 2_000]),  # smaller ones are never in time
            request_timeout_ms=400,
            delivery_timeout_ms=random.choice([600, 3_000]),
            **QUICK_AGAIN,
        )
        machine = self.writer.engine.transactions
        assert machine is not None
        self.machine = machine
        self.current_call: PendingCall | None = None
        self.rows: list[Any] = []
        self.written = False
        self.away_until = 0
        self.reader.worker = self.works
        self.reader.subscribe("in")

    def works(self, rows: list[Any]) -> None:
        """A poll has brought these: it doesn't poll again before they are done."""
        self.rows += rows
        self.reader.pause_polling()

    def act(self) -> None:
        """What comes next, if there is something."""
        if self.chaos.world.now < self.away_until or not self.rows:
            return
        if self.current_call is not None:
            if self.current_call.done:
                wish, self.current_call = self.current_call, None
                wish.reported = True
                self.ended(wish)
        elif self.machine.state is ProducerTransactionState.ABORTABLE_ERROR:
            self.call("abort")
        elif self.machine.state is ProducerTransactionState.IN_TRANSACTION and not self.written:
            self.write()
        elif self.machine.state is ProducerTransactionState.IN_TRANSACTION:
            self.call("commit" if self.random.random() < 0.95 else "abort")
        elif self.machine.state is ProducerTransactionState.FATAL_ERROR:
            self.chaos.replace(self)
        else:
            self.call("begin")

    def call(self, what: str) -> None:
        with contextlib.suppress(KprotoError):
            self.current_call = self.machine.call(what)
        self.writer.tick()

    def write(self) -> None:
        offsets = {tp("in", row.partition): (row.offset + 1, None, "") for row in self.rows}
        try:
            for row in self.rows:
                delivery = self.writer.send("out", row.value, partition=row.partition)
                if delivery is None:  # no metadata, or no room: it gives up, and begins anew
                    self.call("abort")
                    return
            # The same as the consumer's group_metadata().
            member_id, generation = self.reader.engine.group_status.assigned_member_and_generation
            self.machine.send_offsets(GroupMetadata("g", generation, member_id, None), offsets)
        except KprotoError:
            return  # it is spoiled, which the next look finds
        self.written = True
        self.writer.flush()
        if self.random.random() < self.chaos.slow:
            self.away_until = self.chaos.world.now + self.random.choice([10, 100, 1_200, 2_500])

    def ended(self, wish: PendingCall) -> None:
        self.written = False
        if wish.name == "begin":
            return
        if wish.error is not None and self.machine.state in (
            ProducerTransactionState.ABORTABLE_ERROR,
            ProducerTransactionState.FATAL_ERROR,
        ):
            return
        self.rows = []
        if wish.name == "abort" or wish.error is not None:
            with contextlib.suppress(IllegalState):
                self.reader.seek_to("committed")
        self.reader.resume_polling()


class Chaos:
    """One schedule, all of it from its seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/exactly once")
        self.partitions = range(random.choice([1, 2, 3]))
        self.world = World(
            {"in": len(self.partitions), "out": len(self.partitions)},
            {"group.min.session.timeout.ms": "100"},
            brokers=2,
            seed=seed,
            latency=(1, random.choice([1, 5, 30])),
            highest=random.choice([None, BEFORE_KIP_890]),
            trace=False,
        )
        self.strategy = random.choice(["range", "cooperative-sticky"])
        self.slow = random.choice([0, 0.1, 0.5])
        self.written: dict[int, list[str]] = {index: [] for index in self.partitions}
        self.names = 0
        self.workers: list[Worker] = []
        self.come()

    def come(self, name: str | None = None) -> None:
        if name is None:
            self.names += 1
            name = f"w{self.names}"
        self.workers.append(Worker(self, name))

    def replace(self, one: Worker) -> None:
        """It dies, and a new process comes in its place."""
        self.workers.remove(one)
        self.world.kill(one.reader)
        self.world.kill(one.writer)
        self.come(one.name if self.random.random() < 0.7 else None)

    def feed(self) -> None:
        index = self.random.choice(self.partitions)
        if self.world.brokers:
            values = [f"{index}-{len(self.written[index]) + n}" for n in range(self.random.randrange(1, 8))]
            self.world.write("in", index, *values)
            self.written[index] += values

    def something(self) -> None:
        random, world = self.random, self.world
        what = random.random()
        one = random.choice(self.workers)
        if what < 0.3:
            self.feed()
        elif what < 0.35 and len(self.workers) < 3:
            self.come()
        elif what < 0.4:
            self.replace(one)
        elif what < 0.45:
            one.away_until = world.now + random.choice([100, 1_500, 3_000])
        elif what < 0.65:
            who = random.choice([None, one.reader, one.writer])
            random.choice(
                [
                    lambda: world.fault(random.choice(["cut", "half_close"]), who),
                    lambda: world.fault("stall", who, lasts=random.choice([20, 200, 600])),
                    lambda: world.fault("drop", who, chance=0.3, lasts=30),
                    lambda: world.fault("delay", who, ms=50, chance=0.3, lasts=100),
                    lambda: world.move_coordinator("g", loading_ms=random.choice([0, 100])),
                    lambda: world.stop_broker(random.choice([1, 2])) if len(world.brokers) == 2 else None,
                    self.start,
                    self.start,
                ]
            )()

    def start(self) -> None:
        for node in self.world.nodes.keys() - self.world.brokers.keys():
            self.world.start_broker(node)

    def pass_time(self, ms: int) -> None:
        """So long, in which the workers work."""
        for _ in range(-(-ms // 5)):
            for worker in list(self.workers):
                worker.act()
            self.world.run(min(ms, 5))

    def run(self) -> None:
        for _ in range(self.random.randrange(10, 60)):
            self.something()
            self.pass_time(self.random.choice([0, 5, 20, 100, 400]))
        self.world.heal()
        self.start()
        self.slow = 0
        for _ in range(60):
            self.pass_time(1_000)
            done = {index: self.world.committed("g", tp("in", index)) for index in self.partitions}
            if all((done[index] or 0) == len(self.written[index]) for index in self.partitions):
                return
        raise AssertionError(f"not everything was done in a minute: {done} of {self.written}")


def check(seed: int) -> Chaos:
    chaos = Chaos(seed)
    chaos.run()
    reader = chaos.world.consumer(isolation_level="read_committed", auto_offset_reset="earliest")
    places = [tp("out", index) for index in chaos.partitions]
    reader.assign(dict.fromkeys(places, 0))
    ends = {place: chaos.world.log(place).end_offset for place in places}
    chaos.world.run(20_000, until=lambda: all(reader.position(place) == ends[place] for place in places))
    for index, written in chaos.written.items():
        assert reader.values("out", index) == written, f"partition {index}"
    return chaos


def test_what_goes_in_comes_out_once_and_in_order() -> None:
    for seed in seeds(SCHEDULES):
        with repeatable(seed, "KPROTO_SCHEDULES=1"):
            check(seed)


# ---- mutants


def offsets_of_an_open_transaction_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    """Who takes a partition over begins before what another one is about to commit."""
    patch.setattr(
        offset_lookup,
        "offset_fetch_request",
        functools.partial(offset_lookup.offset_fetch_request, require_stable=False),
    )


def who_lost_its_partitions_is_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        GroupStatus, "assigned_member_and_generation", property(lambda self: self.member_and_generation)
    )


def an_aborted_transaction_is_not_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kproto.testing.world.consumers.Consumer.seek_to", lambda self, where: None)


@pytest.mark.parametrize(
    "mutant",
    [
        offsets_of_an_open_transaction_are_passed_over,
        who_lost_its_partitions_is_nobody,
        an_aborted_transaction_is_not_read_again,
    ],
)
def test_a_mutant_does_not_live_through_these_schedules(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    found_out(check, range(200), KprotoError)
