"""In random schedules of faults, workers write the output of each input record once, in order.

The schedules run in virtual time. Each worker has a consumer in the group and a transactional producer. The
worker commits the offsets of its input in the same transaction as its output (KIP-447).

Members join and leave, and brokers and coordinators move. Some workers are killed. Others pause until the
group has removed them, and then try to complete their transaction.

KPROTO_SCHEDULES sets the number of schedules. The schedules must detect each mutant below, a client or
broker with one broken rule.
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
from tests.seeds import expect_failure, repeatable, seeds

pytestmark = pytest.mark.thorough

SCHEDULES = int(os.environ.get("KPROTO_SCHEDULES", "30"))


class Worker:
    """A process that polls in a loop, and writes the output of each poll in a transaction."""

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
            # With a smaller batch size, there would be too many batches to send in time.
            batch_size=random.choice([200, 2_000]),
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
        self.away_until = 0  # The worker is suspended until this time (ms).
        self.reader.worker = self.receive
        self.reader.subscribe("in")

    def receive(self, rows: list[Any]) -> None:
        """Keep the records of a poll, and do not poll again until all of them are processed."""
        self.rows += rows
        self.reader.pause_polling()

    def act(self) -> None:
        """Perform the next step of a transaction, unless the worker is suspended or has no records."""
        if self.chaos.world.now < self.away_until or not self.rows:
            return
        if self.current_call is not None:
            if self.current_call.done:
                call, self.current_call = self.current_call, None
                call.reported = True
                self.on_call_done(call)
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

    def call(self, name: str) -> None:
        with contextlib.suppress(KprotoError):
            self.current_call = self.machine.call(name)
        self.writer.tick()

    def write(self) -> None:
        offsets = {tp("in", row.partition): (row.offset + 1, None, "") for row in self.rows}
        try:
            for row in self.rows:
                delivery = self.writer.send("out", row.value, partition=row.partition)
                # `send` returns no delivery if metadata is missing or the buffer is full. The worker then
                # aborts the transaction and repeats it.
                if delivery is None:
                    self.call("abort")
                    return
            # Applications get the member id and the generation from the consumer's group_metadata().
            member_id, generation = self.reader.engine.group_status.member_for_transaction()
            self.machine.send_offsets(GroupMetadata("g", generation, member_id, None), offsets)
        except KprotoError:
            return  # The transaction has failed. The next call of `act` aborts it.
        self.written = True
        self.writer.flush()
        if self.random.random() < self.chaos.slow:
            self.away_until = self.chaos.world.now + self.random.choice([10, 100, 1_200, 2_500])

    def on_call_done(self, call: PendingCall) -> None:
        self.written = False
        if call.name == "begin":
            return
        if call.error is not None and self.machine.state in (
            ProducerTransactionState.ABORTABLE_ERROR,
            ProducerTransactionState.FATAL_ERROR,
        ):
            return
        self.rows = []
        if call.name == "abort" or call.error is not None:
            with contextlib.suppress(IllegalState):
                self.reader.seek_to("committed")
        self.reader.resume_polling()


class Chaos:
    """A schedule of actions and faults, derived from its seed."""

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
        self.add_worker()

    def add_worker(self, name: str | None = None) -> None:
        if name is None:
            self.names += 1
            name = f"w{self.names}"
        self.workers.append(Worker(self, name))

    def replace(self, worker: Worker) -> None:
        """Kill a worker, and start a new process that replaces it."""
        self.workers.remove(worker)
        self.world.kill(worker.reader)
        self.world.kill(worker.writer)
        self.add_worker(worker.name if self.random.random() < 0.7 else None)

    def feed(self) -> None:
        index = self.random.choice(self.partitions)
        if self.world.brokers:
            values = [f"{index}-{len(self.written[index]) + n}" for n in range(self.random.randrange(1, 8))]
            self.world.write("in", index, *values)
            self.written[index] += values

    def random_action(self) -> None:
        random, world = self.random, self.world
        choice = random.random()
        worker = random.choice(self.workers)
        if choice < 0.3:
            self.feed()
        elif choice < 0.35 and len(self.workers) < 3:
            self.add_worker()
        elif choice < 0.4:
            self.replace(worker)
        elif choice < 0.45:
            worker.away_until = world.now + random.choice([100, 1_500, 3_000])
        elif choice < 0.65:
            client = random.choice([None, worker.reader, worker.writer])
            random.choice(
                [
                    lambda: world.fault(random.choice(["cut", "half_close"]), client),
                    lambda: world.fault("stall", client, lasts=random.choice([20, 200, 600])),
                    lambda: world.fault("drop", client, chance=0.3, lasts=30),
                    lambda: world.fault("delay", client, ms=50, chance=0.3, lasts=100),
                    lambda: world.move_coordinator("g", loading_ms=random.choice([0, 100])),
                    lambda: world.stop_broker(random.choice([1, 2])) if len(world.brokers) == 2 else None,
                    self.start_brokers,
                    self.start_brokers,
                ]
            )()

    def start_brokers(self) -> None:
        for node in self.world.nodes.keys() - self.world.brokers.keys():
            self.world.start_broker(node)

    def pass_time(self, ms: int) -> None:
        """Let the workers run for `ms` milliseconds."""
        for _ in range(-(-ms // 5)):
            for worker in list(self.workers):
                worker.act()
            self.world.run(min(ms, 5))

    def run(self) -> None:
        for _ in range(self.random.randrange(10, 60)):
            self.random_action()
            self.pass_time(self.random.choice([0, 5, 20, 100, 400]))
        self.world.heal()
        self.start_brokers()
        self.slow = 0
        for _ in range(60):
            self.pass_time(1_000)
            done = {index: self.world.committed("g", tp("in", index)) for index in self.partitions}
            if all((done[index] or 0) == len(self.written[index]) for index in self.partitions):
                return
        raise AssertionError(
            f"committed offsets after a minute: {done}; expected: the number of records in {self.written}"
        )


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


def test_every_input_record_comes_out_once_and_in_order() -> None:
    for seed in seeds(SCHEDULES):
        with repeatable(seed, "KPROTO_SCHEDULES=1"):
            check(seed)


# ---- mutants: one broken rule each, which a schedule must detect


def offsets_of_an_open_transaction_are_fetched(patch: pytest.MonkeyPatch) -> None:
    """A mutant: a new owner does not wait for the end of the previous owner's transaction.

    The new owner starts at the old committed offset, so it processes the transaction's input again.
    """
    patch.setattr(
        offset_lookup,
        "offset_fetch_request",
        functools.partial(offset_lookup.offset_fetch_request, require_stable=False),
    )


def a_member_without_partitions_has_no_generation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupStatus, "member_for_transaction", lambda self: self.member_and_generation)


def an_aborted_transaction_is_not_read_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kproto.testing.world.consumers.Consumer.seek_to", lambda self, where: None)


@pytest.mark.parametrize(
    "mutant",
    [
        offsets_of_an_open_transaction_are_fetched,
        a_member_without_partitions_has_no_generation,
        an_aborted_transaction_is_not_read_again,
    ],
)
def test_the_schedules_detect_a_mutant(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    expect_failure(check, range(200), KprotoError)
