"""Producers of transactions through random schedules of faults, in virtual time, with the embedded broker's
own coordinator: what they say of a transaction holds, and each is there as a whole or not at all.

Two applications run, each under an id of its own, and now and then one of them is killed, or comes back while
it still lives. Some schedules run by default; KPROTO_SCHEDULES=5000 runs as many. Each mutant below breaks
one rule of the engine, and has to be found out.
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
from tests.seeds import found_out, repeatable, seeds

pytestmark = pytest.mark.thorough

SCHEDULES = int(os.environ.get("KPROTO_SCHEDULES", "40"))
PARTITIONS = [("t", 0), ("t", 1), ("u", 0)]
TIMEOUT = 5_000  # transaction.timeout.ms


@dataclass(eq=False)
class Transaction:
    """What an application did between two calls of `begin`."""

    name: str
    producer: Producer
    values: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    offset: int | None = None
    deliveries: list[Delivery] = field(default_factory=list)
    committed: bool | None = None  # None: nobody knows


@dataclass(eq=False)
class Application:
    """Who writes under one transactional id; `producer` is the process that does it now."""

    id: str
    producer: Producer
    current_call: PendingCall | None = None
    open: Transaction | None = None
    past: list[Transaction] = field(default_factory=list)

    @property
    def machine(self) -> TransactionManager:
        found = self.producer.engine.transactions
        assert found is not None
        return found

    @property
    def group(self) -> str:
        return f"group of {self.id}"


class Chaos:
    """One schedule, all of it from its seed."""

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
        self.applications = [Application(name, self.process(name)) for name in ("a", "b")]

    def process(self, transactional_id: str) -> Producer:
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

    # ---- what an application does

    def act(self, one: Application) -> None:
        """The next thing that it may do."""
        if one.current_call is not None:
            if one.current_call.done:
                self.ended(one, one.current_call)
            return
        machine, random = one.machine, self.random
        if machine.state is ProducerTransactionState.FATAL_ERROR:
            self.restart(one)
        elif machine.state is ProducerTransactionState.ABORTABLE_ERROR:
            self.call(one, "abort")
        elif machine.state is not ProducerTransactionState.IN_TRANSACTION:
            self.call(one, "begin")
        else:
            what = random.random()
            if what < 0.6:
                self.send(one)
            elif what < 0.7:
                self.send_offsets(one)
            else:
                self.call(one, "commit" if what < 0.92 else "abort")

    def call(self, one: Application, what: str) -> None:
        try:
            one.current_call = one.machine.call(what)
        except KprotoError:
            return  # it is spoiled, or lost, since we looked
        one.producer.tick()

    def ended(self, one: Application, wish: PendingCall) -> None:
        one.current_call, wish.reported = None, True
        if wish.name == "begin":
            if wish.error is None:
                one.open = Transaction(f"{one.id}{len(one.past)}", one.producer)
                one.past.append(one.open)
        elif one.open is not None and wish.error is None:
            one.open.committed = wish.name == "commit"
            one.open = None

    def send(self, one: Application) -> None:
        assert one.open is not None
        topic, index = self.random.choice(PARTITIONS)
        for _ in range(self.random.randrange(1, 6)):
            self.values += 1
            value = f"{one.open.name} {self.values}"
            try:
                delivery = one.producer.send(topic, value, partition=index)
            except KprotoError:
                return
            if delivery is None:
                one.producer.tick()
                return
            one.open.values.setdefault((topic, index), []).append(value)
            one.open.deliveries.append(delivery)
        if self.random.random() < 0.5:
            one.producer.flush()

    def send_offsets(self, one: Application) -> None:
        assert one.open is not None
        self.values += 1
        try:
            one.machine.send_offsets(
                GroupMetadata(one.group, -1, "", None), {tp("t", 0): (self.values, None, "")}
            )
        except KprotoError:
            return
        one.open.offset = self.values
        one.producer.tick()

    def restart(self, one: Application) -> None:
        """Another process takes over; the old one may live on, and doesn't know."""
        if one.machine.state is not ProducerTransactionState.FATAL_ERROR and self.random.random() < 0.5:
            self.fenced.append(one.producer)
        else:
            self.world.kill(one.producer)
        one.producer, one.current_call, one.open = self.process(one.id), None, None

    def zombie(self) -> None:
        """Who was replaced goes on with what it was at."""
        old = self.random.choice(self.fenced)
        machine = old.engine.transactions
        assert machine is not None
        for what in ("commit", "begin"):
            if what in CALLS[machine.state] and (machine.current_call is None or machine.current_call.done):
                machine.call(what)
                old.tick()
                return

    # ---- what happens to all

    def something(self) -> None:
        random, world = self.random, self.world
        what = random.random()
        if self.calm or what < 0.75:
            self.act(random.choice(self.applications))
        elif what < 0.78:
            self.restart(random.choice(self.applications))
        elif what < 0.82 and self.fenced:
            self.zombie()
        else:
            who = random.choice([None, random.choice(self.applications).producer])
            random.choice(
                [
                    lambda: world.fault(random.choice(["cut", "half_close"]), who),
                    lambda: world.fault("stall", who, lasts=random.choice([20, 200, 600])),
                    lambda: world.fault("drop", who, chance=0.3, lasts=30),
                    lambda: world.fault("delay", who, ms=50, chance=0.3, lasts=100),
                    lambda: setattr(self, "late", random.choice([0, 0.3, 1])),
                    self.elect,
                    self.stop,
                    self.start,
                    self.start,
                ]
            )()

    def tamper(self, client: Any, request: Any, version: int) -> Any:
        """Some Produce requests arrive long after their connection has ended, or in the next transaction."""
        if isinstance(request, AddPartitionsToTxnRequest):
            held, self.held = self.held, []
            for one in held:
                self.world.call_later(self.random.choice([0, 1, 5]), functools.partial(self.arrives, *one))
        if not isinstance(request, ProduceRequest) or not request.topic_data:
            return None
        if self.random.random() >= self.late:
            return None
        if self.random.random() < 0.5:
            self.held.append((request, version))
        else:
            wait = self.random.choice([10, 100, 500, 1_000])
            self.world.call_later(wait, lambda: self.arrives(request, version))
        self.world.cut(client)
        return ProduceResponse(responses=[])

    def arrives(self, request: ProduceRequest, version: int) -> None:
        topic = request.topic_data[0]
        name = topic.name or next(one.name for one in self.world.cluster.topics if one.id == topic.topic_id)
        leader = self.world._leader(tp(name, topic.partition_data[0].index))
        self.world._request(request, version, leader)

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
            self.something()
            world.run(self.random.choice([0, 1, 3, 10, 40, 200]))
        world.heal()
        self.late = 0
        self.start()
        for application in self.applications:
            self.come_to_an_end(application)
        world.run(3 * TIMEOUT)  # the broker looks each ten seconds for those whose time is over

    def come_to_an_end(self, one: Application) -> None:
        for _ in range(6):
            if one.current_call is not None:
                assert self.world.run(
                    20_000, until=lambda: one.current_call is None or one.current_call.done
                ), one.machine.open_reason()
                self.ended(one, one.current_call)
            state = one.machine.state
            if state is ProducerTransactionState.READY:
                return
            if state is ProducerTransactionState.FATAL_ERROR:
                self.restart(one)
            self.call(
                one,
                {
                    ProducerTransactionState.IN_TRANSACTION: "commit",
                    ProducerTransactionState.ABORTABLE_ERROR: "abort",
                }.get(state, "begin"),
            )
        raise AssertionError(f"{one.id} comes to no end: {one.machine.open_reason()}")


# ---- what is claimed


def seen(chaos: Chaos) -> dict[tuple[str, int], list[str]]:
    """What those read who see only what was committed."""
    reader = chaos.world.consumer(isolation_level="read_committed", auto_offset_reset="earliest")
    reader.assign({tp(*partition): 0 for partition in PARTITIONS})
    ends = {tp(*partition): chaos.world.log(tp(*partition)).end_offset for partition in PARTITIONS}
    assert chaos.world.run(20_000, until=lambda: all(reader.position(p) == end for p, end in ends.items())), (
        "a transaction is open for ever",
        {str(p): (reader.position(p), end) for p, end in ends.items()},
    )
    return {partition: reader.values(*partition) for partition in PARTITIONS}


def check(seed: int) -> Chaos:
    chaos = Chaos(seed)
    chaos.run()
    there = seen(chaos)
    for partition, values in there.items():
        assert len(values) == len(set(values)), f"twice in {partition}"
    for application in chaos.applications:
        offsets: set[int | None] = {None}
        for transaction in application.past:
            name = transaction.name
            found = {
                partition: [value for value in values if value.split()[0] == name]
                for partition, values in there.items()
            }
            found = {partition: values for partition, values in found.items() if values}
            assert found in ({}, transaction.values), f"a part of {name}: {found} of {transaction.values}"
            if transaction.committed is True:
                assert found == transaction.values, f"{name} was committed"
            elif transaction.committed is False:
                assert not found, f"{name} was aborted"
            ended = [delivery.done() for delivery in transaction.deliveries]
            assert all(ended) or not transaction.producer.alive, name
            if transaction.offset is not None:
                is_there = bool(found) if transaction.values else transaction.committed
                if is_there:
                    offsets = {transaction.offset}
                elif is_there is None:
                    offsets.add(transaction.offset)
        assert chaos.world.committed(application.group, tp("t", 0)) in offsets, application.id
        order = [
            [value.split()[0] for value in values if value.startswith(application.id)]
            for values in there.values()
        ]
        names = [transaction.name for transaction in application.past]
        for column in order:
            assert column == sorted(column, key=names.index), "transactions are out of order"
        if chaos.calm:
            assert not application.past or all(t.committed is not None for t in application.past), (
                "nothing was wrong"
            )
    return chaos


def test_a_transaction_is_there_as_a_whole_or_not_at_all() -> None:
    known = unknown = 0
    for seed in seeds(SCHEDULES):
        with repeatable(seed, "KPROTO_SCHEDULES=1"):
            chaos = check(seed)
        ends = [
            transaction.committed for application in chaos.applications for transaction in application.past
        ]
        known, unknown = known + len(ends) - ends.count(None), unknown + ends.count(None)
    assert SCHEDULES < 40 or known > SCHEDULES
    assert SCHEDULES < 40 or unknown > 0  # else there was no chaos


# ---- mutants


def a_lost_record_spoils_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionManager, "on_batch_failed", lambda self, batch, error: None)


def what_may_still_arrive_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The next transaction has the same epoch."""
    patch.setattr(
        TransactionManager,
        "_needs_new_epoch",
        property(lambda self: False, lambda self, value: None),
        raising=False,
    )


def nobody_waits_for_offsets(patch: pytest.MonkeyPatch) -> None:
    right = TransactionManager._next_step

    def todo(self: Any) -> Any:
        if self.state is ProducerTransactionState.COMMITTING_TRANSACTION:
            self._offsets.clear()
        return right(self)

    patch.setattr(TransactionManager, "_next_step", todo)


def what_was_aborted_goes_out_with_the_next_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionManager, "_discard", lambda self, error: None)


def an_end_without_an_answer_is_taken_for_one(patch: pytest.MonkeyPatch) -> None:
    right = TransactionManager._on_end

    def ended(self: Any, call: Any) -> None:
        if call.error is not None:
            self._complete()
        else:
            right(self, call)

    patch.setattr(TransactionManager, "_on_end", ended)


def who_was_fenced_goes_on(patch: pytest.MonkeyPatch) -> None:
    def lose(self: Any, error: KprotoError) -> None:
        self._identity = self._identity._replace(epoch=self._identity.epoch + 1)
        self._back_off()

    patch.setattr(TransactionManager, "fail", lose)


@pytest.mark.parametrize(
    "mutant",
    [
        a_lost_record_spoils_nothing,
        what_may_still_arrive_is_forgotten,
        nobody_waits_for_offsets,
        what_was_aborted_goes_out_with_the_next_one,
        an_end_without_an_answer_is_taken_for_one,
        who_was_fenced_goes_on,
    ],
)
def test_a_mutant_does_not_live_through_these_schedules(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    found_out(check, range(400), KprotoError)
