"""In random schedules of faults, transactions are atomic, and reported outcomes are correct.

The schedules run in virtual time against the embedded broker's coordinator. Each of two applications has its
own transactional id. At random times an application is killed, or is replaced while it still runs.

KPROTO_SCHEDULES=5000 runs 5,000 schedules. Each mutant below breaks one rule of the engine, and the schedules
must detect it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from consumer import Delivery
from consumer.engine.producer.transaction_states import CALLS, PendingCall, ProducerTransactionState
from consumer.engine.producer.transactions import TransactionManager
from consumer.records import GroupMetadata
from kproto.errors import KprotoError
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproto.messages.produce import ProduceRequest, ProduceResponse
from tests.consumer.stage import BEFORE_KIP_890, QUICK_AGAIN, Producer, World, tp
from tests.seeds import expect_failure, repeatable, seeds

pytestmark = pytest.mark.thorough

SCHEDULES = int(os.environ.get("KPROTO_SCHEDULES", "40"))
PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]
TIMEOUT = 5_000  # transaction.timeout.ms


@dataclass(eq=False)
class Transaction:
    """A transaction of an application, from one call of `begin` to the next: its records and its outcome."""

    name: str
    producer: Producer
    values: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    offset: int | None = None
    deliveries: list[Delivery] = field(default_factory=list)
    # Whether the transaction was committed (True) or aborted (False), or None while the outcome is unknown.
    committed: bool | None = None


@dataclass(eq=False)
class Application:
    """An application with a transactional id. `producer` is the producer of its current process."""

    id: str
    producer: Producer
    current_call: PendingCall | None = None
    open: Transaction | None = None
    past: list[Transaction] = field(default_factory=list)

    @property
    def machine(self) -> TransactionManager:
        manager = self.producer.engine.transactions
        assert manager is not None
        return manager

    @property
    def group(self) -> str:
        return f"group of {self.id}"


class Chaos:
    """A schedule of actions and faults, derived from its seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(f"{seed}/transactions")
        self.calm = random.random() < 0.3
        self.world = World(
            {"t": 2, "u": 1},
            brokers=2,
            seed=seed,
            latency=(1, random.choice([1, 5, 30])),
            highest=random.choice([None, BEFORE_KIP_890]),
            trace=False,
        )
        self.world.tamper = self.tamper
        self.late = 0.0
        self.held: list[tuple[ProduceRequest, int]] = []
        self.values = 0
        self.fenced: list[Producer] = []
        self.applications = [Application(name, self.new_process(name)) for name in ("a", "b")]

    def new_process(self, transactional_id: str) -> Producer:
        random = self.random
        return self.world.producer(
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT,
            linger_ms=random.choice([0, 0, 5]),
            batch_size=random.choice([1, 200, 2000]),
            max_in_flight_requests_per_connection=random.choice([1, 5]),
            connections_per_broker=random.choice([1, 3]),
            request_timeout_ms=400,
            delivery_timeout_ms=random.choice([600, 3_000]),
            **QUICK_AGAIN,
        )

    # ---- actions of an application

    def perform_next_action(self, application: Application) -> None:
        """Perform an action that the state of the transaction allows."""
        if application.current_call is not None:
            if application.current_call.done:
                self.on_call_done(application, application.current_call)
            return
        machine, random = application.machine, self.random
        if machine.state is ProducerTransactionState.FATAL_ERROR:
            self.restart(application)
        elif machine.state is ProducerTransactionState.ABORTABLE_ERROR:
            self.call(application, "abort")
        elif machine.state is not ProducerTransactionState.IN_TRANSACTION:
            self.call(application, "begin")
        else:
            draw = random.random()
            if draw < 0.6:
                self.send(application)
            elif draw < 0.7:
                self.send_offsets(application)
            else:
                self.call(application, "commit" if draw < 0.92 else "abort")

    def call(self, application: Application, operation: str) -> None:
        try:
            application.current_call = application.machine.call(operation)
        except KprotoError:
            return  # The transaction has failed or the producer was fenced since the operation was drawn.
        application.producer.tick()

    def on_call_done(self, application: Application, call: PendingCall) -> None:
        application.current_call, call.reported = None, True
        if call.name == "begin":
            if call.error is None:
                application.open = Transaction(
                    f"{application.id}{len(application.past)}", application.producer
                )
                application.past.append(application.open)
        elif application.open is not None and call.error is None:
            application.open.committed = call.name == "commit"
            application.open = None

    def send(self, application: Application) -> None:
        assert application.open is not None
        topic, index = self.random.choice(PARTITIONS)
        for _ in range(self.random.randrange(1, 6)):
            self.values += 1
            value = f"{application.open.name} {self.values}"
            try:
                delivery = application.producer.send(topic, value, partition=index)
            except KprotoError:
                return
            if delivery is None:
                application.producer.tick()
                return
            application.open.values.setdefault((topic, index), []).append(value)
            application.open.deliveries.append(delivery)
        if self.random.random() < 0.5:
            application.producer.flush()

    def send_offsets(self, application: Application) -> None:
        assert application.open is not None
        self.values += 1
        try:
            application.machine.send_offsets(
                GroupMetadata(application.group, -1, "", None), {tp("t", 0): (self.values, None, "")}
            )
        except KprotoError:
            return
        application.open.offset = self.values
        application.producer.tick()

    def restart(self, application: Application) -> None:
        """Start another process with the application's transactional id.

        The old process is killed, or continues because it has not noticed the new process.
        """
        if (
            application.machine.state is not ProducerTransactionState.FATAL_ERROR
            and self.random.random() < 0.5
        ):
            self.fenced.append(application.producer)
        else:
            self.world.kill(application.producer)
        application.producer, application.current_call, application.open = (
            self.new_process(application.id),
            None,
            None,
        )

    def continue_fenced_producer(self) -> None:
        """Let a replaced process try the next operation of its transaction."""
        old = self.random.choice(self.fenced)
        machine = old.engine.transactions
        assert machine is not None
        for operation in ("commit", "begin"):
            if operation in CALLS[machine.state] and (
                machine.current_call is None or machine.current_call.done
            ):
                machine.call(operation)
                old.tick()
                return

    # ---- faults

    def random_event(self) -> None:
        random, world = self.random, self.world
        draw = random.random()
        if self.calm or draw < 0.75:
            self.perform_next_action(random.choice(self.applications))
        elif draw < 0.78:
            self.restart(random.choice(self.applications))
        elif draw < 0.82 and self.fenced:
            self.continue_fenced_producer()
        else:
            target = random.choice([None, random.choice(self.applications).producer])
            random.choice(
                [
                    lambda: world.fault(random.choice(["cut", "half_close"]), target),
                    lambda: world.fault("stall", target, lasts=random.choice([20, 200, 600])),
                    lambda: world.fault("drop", target, chance=0.3, lasts=30),
                    lambda: world.fault("delay", target, ms=50, chance=0.3, lasts=100),
                    lambda: setattr(self, "late", random.choice([0, 0.3, 1])),
                    self.elect,
                    self.stop,
                    self.start,
                    self.start,
                ]
            )()

    def tamper(self, client: Any, request: Any, version: int) -> Any:
        """Make some Produce requests arrive late.

        The connection closes immediately after such a request is sent. The leader receives the request up to
        1,000 ms later, or shortly after the next AddPartitionsToTxn, which may belong to a later transaction.
        """
        if isinstance(request, AddPartitionsToTxnRequest):
            held, self.held = self.held, []
            for arguments in held:
                self.world.call_later(
                    self.random.choice([0, 1, 5]), functools.partial(self.append_late, *arguments)
                )
        if not isinstance(request, ProduceRequest) or not request.topic_data:
            return None
        if self.random.random() >= self.late:
            return None
        if self.random.random() < 0.5:
            self.held.append((request, version))
        else:
            wait = self.random.choice([10, 100, 500, 1_000])
            self.world.call_later(wait, lambda: self.append_late(request, version))
        self.world.cut(client)
        return ProduceResponse(responses=[])

    def append_late(self, request: ProduceRequest, version: int) -> None:
        topic = request.topic_data[0]
        name = topic.name or next(
            known_topic.name for known_topic in self.world.cluster.topics if known_topic.id == topic.topic_id
        )
        leader = self.world._leader_or_first_up(tp(name, topic.partition_data[0].index))
        self.world._send_request(request, version, leader)

    def elect(self) -> None:
        self.world.elect(*self.random.choice(PARTITIONS), self.random.choice(sorted(self.world.brokers)))

    def stop(self) -> None:
        if len(self.world.brokers) == 2:
            self.world.stop_broker(self.random.choice([1, 2]))

    def start(self) -> None:
        for node in self.world.nodes.keys() - self.world.brokers.keys():
            self.world.start_broker(node)

    def run(self) -> None:
        world = self.world
        for _ in range(self.random.randrange(20, 120)):
            self.random_event()
            world.run(self.random.choice([0, 1, 3, 10, 40, 200]))
        world.heal()
        self.late = 0
        self.start()
        for application in self.applications:
            self.finish(application)
        world.run(3 * TIMEOUT)  # The broker checks for expired transactions every ten seconds.

    def finish(self, application: Application) -> None:
        for _ in range(6):
            if application.current_call is not None:
                assert self.world.run(
                    20_000, until=lambda: application.current_call is None or application.current_call.done
                ), application.machine.open_reason()
                self.on_call_done(application, application.current_call)
            state = application.machine.state
            if state is ProducerTransactionState.READY:
                return
            if state is ProducerTransactionState.FATAL_ERROR:
                self.restart(application)
            self.call(
                application,
                {
                    ProducerTransactionState.IN_TRANSACTION: "commit",
                    ProducerTransactionState.ABORTABLE_ERROR: "abort",
                }.get(state, "begin"),
            )
        raise AssertionError(
            f"the transaction of {application.id} does not end: {application.machine.open_reason()}"
        )


# ---- what must hold after each schedule


def committed_records(chaos: Chaos) -> dict[tuple[str, int], list[str]]:
    """Return the records that a read_committed consumer reads."""
    reader = chaos.world.consumer(isolation_level="read_committed", auto_offset_reset="earliest")
    reader.assign({tp(*partition): 0 for partition in PARTITIONS})
    ends = {tp(*partition): chaos.world.log(tp(*partition)).end_offset for partition in PARTITIONS}
    assert chaos.world.run(20_000, until=lambda: all(reader.position(p) == end for p, end in ends.items())), (
        "a transaction stays open",
        {str(p): (reader.position(p), end) for p, end in ends.items()},
    )
    return {partition: reader.values(*partition) for partition in PARTITIONS}


def check(seed: int) -> Chaos:
    chaos = Chaos(seed)
    chaos.run()
    committed_values = committed_records(chaos)
    for partition, values in committed_values.items():
        assert len(values) == len(set(values)), f"duplicates in {partition}"
    for application in chaos.applications:
        offsets: set[int | None] = {None}
        for transaction in application.past:
            name = transaction.name
            visible = {
                partition: [value for value in values if value.split()[0] == name]
                for partition, values in committed_values.items()
            }
            visible = {partition: values for partition, values in visible.items() if values}
            assert visible in ({}, transaction.values), (
                f"only a part of {name} is visible: {visible} of {transaction.values}"
            )
            if transaction.committed is True:
                assert visible == transaction.values, f"{name} was committed"
            elif transaction.committed is False:
                assert not visible, f"{name} was aborted but is visible"
            ended = [delivery.done() for delivery in transaction.deliveries]
            assert all(ended) or not transaction.producer.alive, name
            if transaction.offset is not None:
                is_visible = bool(visible) if transaction.values else transaction.committed
                if is_visible:
                    offsets = {transaction.offset}
                elif is_visible is None:
                    offsets.add(transaction.offset)
        assert chaos.world.committed(application.group, tp("t", 0)) in offsets, application.id
        order = [
            [value.split()[0] for value in values if value.startswith(application.id)]
            for values in committed_values.values()
        ]
        names = [transaction.name for transaction in application.past]
        for partition_order in order:
            assert partition_order == sorted(partition_order, key=names.index), (
                "transactions are out of order"
            )
        if chaos.calm:
            assert not application.past or all(t.committed is not None for t in application.past), (
                "an outcome is unknown without a fault"
            )
    return chaos


def test_each_transaction_is_atomic_in_every_schedule() -> None:
    known = unknown = 0
    for seed in seeds(SCHEDULES):
        with repeatable(seed, "KPROTO_SCHEDULES=1"):
            chaos = check(seed)
        ends = [
            transaction.committed for application in chaos.applications for transaction in application.past
        ]
        known, unknown = known + len(ends) - ends.count(None), unknown + ends.count(None)
    assert SCHEDULES < 40 or known > SCHEDULES
    # At least one transaction in 40 schedules must have an unknown outcome: otherwise the faults had no
    # effect.
    assert SCHEDULES < 40 or unknown > 0


# ---- mutants: one broken rule each, which a schedule must detect


def a_failed_batch_does_not_fail_the_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionManager, "on_batch_failed", lambda self, batch, error: None)


def the_epoch_is_reused_after_a_lost_batch(patch: pytest.MonkeyPatch) -> None:
    """A mutant: after a lost batch, the next transaction keeps the epoch."""
    patch.setattr(
        TransactionManager,
        "_needs_new_epoch",
        property(lambda self: False, lambda self, value: None),
        raising=False,
    )


def a_commit_does_not_wait_for_offsets(patch: pytest.MonkeyPatch) -> None:
    original = TransactionManager._next_step

    def next_step(self: Any) -> Any:
        if self.state is ProducerTransactionState.COMMITTING_TRANSACTION:
            self._offsets.clear()
        return original(self)

    patch.setattr(TransactionManager, "_next_step", next_step)


def aborted_records_are_sent_in_the_next_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionManager, "_discard_records_and_offsets", lambda self, error: None)


def a_lost_end_response_counts_as_success(patch: pytest.MonkeyPatch) -> None:
    original = TransactionManager._on_end_txn

    def ended(self: Any, call: Any) -> None:
        if call.error is not None:
            self._complete_transaction()
        else:
            original(self, call)

    patch.setattr(TransactionManager, "_on_end_txn", ended)


def a_fenced_producer_continues(patch: pytest.MonkeyPatch) -> None:
    def restart_with_next_epoch(self: Any, error: KprotoError) -> None:
        self._identity = self._identity._replace(epoch=self._identity.epoch + 1)
        self._back_off()

    patch.setattr(TransactionManager, "fail", restart_with_next_epoch)


@pytest.mark.parametrize(
    "mutant",
    [
        a_failed_batch_does_not_fail_the_transaction,
        the_epoch_is_reused_after_a_lost_batch,
        a_commit_does_not_wait_for_offsets,
        aborted_records_are_sent_in_the_next_transaction,
        a_lost_end_response_counts_as_success,
        a_fenced_producer_continues,
    ],
)
def test_every_mutant_is_detected(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    expect_failure(check, range(400), KprotoError)
