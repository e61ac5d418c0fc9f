"""Brokers that answer a producer with any error, or any number, in any place: each delivery and each call
ends, nobody is asked all the time, and what was claimed is in the log when they are themselves again."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from consumer import Delivery
from consumer.engine.producer.transaction_states import ProducerTransactionState
from consumer.engine.producer.transactions import TransactionManager
from consumer.records import GroupMetadata
from kproto.error_codes import ErrorCode
from kproto.errors import KprotoError
from kproto.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kproto.records import rows
from kproto.testing.world import Producer
from tests.consumer.test_hostile import CODES, MOST, Hostile
from tests.consumer.world import World, tp

# With the version of the protocol of transactions before KIP-890's second one, or that one.
FIRST = {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4, "AddPartitionsToTxn": 3}
WRITES = "Produce responses.partition_responses.error_code"
PLACES = [
    "ApiVersions error_code",
    "FindCoordinator coordinators.error_code",
    "Metadata error_code",
    "Metadata topics.error_code",
    "Metadata topics.partitions.error_code",
    "InitProducerId error_code",
    WRITES,
    "AddPartitionsToTxn results_by_topic_v3_and_below.results_by_partition.partition_error_code",
    "AddOffsetsToTxn error_code",
    "TxnOffsetCommit topics.partitions.error_code",
    "EndTxn error_code",
]
NUMBERS = [
    "Metadata topics.partitions.leader_epoch",
    "Metadata topics.partitions.leader_id",
    "Metadata topics.partitions.partition_index",
    "Metadata brokers.node_id",
    "Metadata brokers.port",
    "InitProducerId throttle_time_ms",
    "Produce responses.partition_responses.base_offset",
    "Produce responses.partition_responses.log_append_time_ms",
    "Produce responses.partition_responses.index",
    "Produce throttle_time_ms",
]
NUMBERS_OF_TRANSACTIONS = [
    "FindCoordinator coordinators.node_id",
    "FindCoordinator coordinators.port",
    "InitProducerId producer_id",
    "InitProducerId producer_epoch",
    "EndTxn producer_id",
    "EndTxn producer_epoch",
    "TxnOffsetCommit topics.partitions.partition_index",
]
# No larger: who is told to be quiet for weeks is quiet for weeks, as in Java.
WILD = [0, -1, 1, 7, 2**15 - 1, -(2**15)]
GROUP = GroupMetadata("g", -1, "", None)
# Said only by who has the batch.
HAS_IT = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
AT_ONCE = {"linger_ms": 0, "delivery_timeout_ms": 20_000, "request_timeout_ms": 5_000}


class Refusing(Hostile):
    """Its brokers keep nothing of what they refuse to write."""

    def __init__(self, place: str, code: int, **made: Any) -> None:
        super().__init__(place, code, **made)
        if place == WRITES and code != HAS_IT:
            self.tamper = self.refuse

    def refuse(self, client: Any, request: Any, version: int) -> ProduceResponse | None:
        if not self.bad or not isinstance(request, ProduceRequest):
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=entry.index, error_code=0, base_offset=-1)
                        for entry in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def values(self) -> Counter[tuple[int, str]]:
        """How often each value is in each partition's log."""
        found: Counter[tuple[int, str]] = Counter()
        for partition in self.partitions():
            data = b"".join(self.log(partition).read(0, 2**30, at_least_one=True))
            found.update((partition.partition, (row.value or b"").decode()) for row in rows(data))
        return found

    def busiest(self, since: int) -> Counter[str]:
        return Counter(type(request).__name__ for _, request, _ in self.requests[since:])


class Application:
    """Writes one numbered record after the other, to both partitions in turn."""

    def __init__(self, world: Refusing, **options: Any) -> None:
        self.world = world
        self.producer: Producer = world.producer(**AT_ONCE, **options)
        self.sent: list[tuple[Delivery, int, str]] = []
        self.count = 0

    def send(self, wait_ms: int = 0) -> None:
        """Two records; a refusal is an answer, too."""
        for partition in (0, 1):
            value, self.count = str(self.count), self.count + 1
            end = self.world.now + wait_ms
            while True:
                try:
                    delivery = self.producer.send("t", value, partition=partition)
                except KprotoError:
                    break
                self.producer.tick()
                if delivery is not None:
                    self.sent.append((delivery, partition, value))
                if delivery is not None or self.world.now >= end:
                    break
                self.world.run(20)

    def done(self) -> bool:
        return all(delivery.done() for delivery, _, _ in self.sent)

    def delivered(self, since: int = 0) -> list[tuple[int, str]]:
        return [(at, value) for one, at, value in self.sent[since:] if one.exception() is None]


@given(
    place=st.sampled_from(PLACES[2:7]),
    late=st.booleans(),
    code=st.sampled_from(CODES),
    lies=st.booleans(),
)
@example(WRITES, True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False)
@example(WRITES, False, ErrorCode.INVALID_PRODUCER_EPOCH, False)
@example(WRITES, True, ErrorCode.MESSAGE_TOO_LARGE, False)
def test_any_error_in_any_place_is_waited_out_or_told(place: str, late: bool, code: int, lies: bool) -> None:
    check_writing(place, late, code, lies=lies)


@given(place=st.sampled_from(NUMBERS), late=st.booleans(), number=st.sampled_from(WILD))
@example("Metadata topics.partitions.partition_index", False, 7)
def test_any_number_in_any_place_is_outlived(place: str, late: bool, number: int) -> None:
    check_writing(place, late, number, lies=True)


def check_writing(place: str, late: bool, code: int, *, lies: bool) -> None:
    world = Refusing(place, code)
    if lies:
        world.tamper = None
    app = outlived(world, late, 6)
    if lies:
        return
    found = world.values()
    assert all(found[one] == 1 for one in app.delivered())
    assert max(found.values()) == 1
    assert (app.producer.engine.open_records, app.producer.engine.buffered) == (0, 0)


def outlived(world: Refusing, late: bool, times: int) -> Application:
    """Who wrote so often while the brokers were bad: each delivery ended, and two came through after."""
    app = Application(world)
    if late:
        app.send(2_000)
    world.bad = True
    for _ in range(times):
        asked = len(world.requests)
        app.send()
        world.run(10_000)
        per = world.busiest(asked)
        assert max(per.values(), default=0) <= MOST, per
    world.run(25_000)
    assert app.done()
    world.bad = False
    world.run(15_000)
    before = len(app.sent)
    app.send(20_000)
    world.run(25_000)
    assert len(app.delivered(before)) == 2
    return app


class Clerk(Application):
    """Writes in transactions, offsets too, and aborts what it can't commit."""

    def __init__(self, world: Refusing) -> None:
        super().__init__(world, transactional_id="x", max_block_ms=20_000)
        machine = self.producer.engine.transactions
        assert machine is not None
        self.machine: TransactionManager = machine
        self.committed: list[tuple[int, str]] = []

    def call(self, what: str, ms: int) -> bool:
        """Whether it was done; a refusal is told, and one who waits in vain may call again."""
        try:
            wish = self.machine.call(what)
        except KprotoError:
            return False
        self.producer.tick()
        if not self.world.run(ms, until=lambda: wish.done):
            assert self.machine.open_reason()
            return False
        wish.reported = True
        assert wish.error is None or str(wish.error)
        return wish.error is None

    def transaction(self, ms: int) -> bool:
        if not self.call("begin", ms):
            return False
        before = len(self.sent)
        self.send(2_000)
        with suppress(KprotoError):
            self.machine.send_offsets(GROUP, {tp("t", 0): (self.count, None, ""), tp("t", 1): (1, None, "")})
        self.producer.tick()
        if self.call("commit", ms):
            self.committed += self.delivered(before)
            return True
        self.call("abort", ms)
        return False

    def settle(self, ms: int) -> None:
        """Ends what was begun while the brokers were mad."""
        for state, call in (
            (ProducerTransactionState.INITIALIZING, "begin"),
            (ProducerTransactionState.COMMITTING_TRANSACTION, "commit"),
            (ProducerTransactionState.IN_TRANSACTION, "abort"),
            (ProducerTransactionState.ABORTABLE_ERROR, "abort"),
            (ProducerTransactionState.ABORTING_TRANSACTION, "abort"),
        ):
            if self.machine.state is state:
                self.call(call, ms)


@given(
    place=st.sampled_from(PLACES),
    late=st.booleans(),
    code=st.sampled_from(CODES),
    second=st.booleans(),
)
@example("EndTxn error_code", False, ErrorCode.CONCURRENT_TRANSACTIONS, True)
@example("InitProducerId error_code", False, ErrorCode.CONCURRENT_TRANSACTIONS, True)
@example("TxnOffsetCommit topics.partitions.error_code", True, ErrorCode.CONCURRENT_TRANSACTIONS, False)
@example("AddPartitionsToTxn " + PLACES[7].split()[1], True, ErrorCode.CONCURRENT_TRANSACTIONS, False)
@example(WRITES, True, ErrorCode.TRANSACTION_ABORTABLE, True)
def test_a_transaction_meets_any_error_in_any_place(place: str, late: bool, code: int, second: bool) -> None:
    check_transactions(place, late, code, second)


@given(
    place=st.sampled_from(NUMBERS + NUMBERS_OF_TRANSACTIONS),
    late=st.booleans(),
    number=st.sampled_from(WILD),
    second=st.booleans(),
)
@example("TxnOffsetCommit topics.partitions.partition_index", False, 7, True)
@example("InitProducerId producer_id", False, -1, True)
def test_a_transaction_meets_any_number_in_any_place(
    place: str, late: bool, number: int, second: bool
) -> None:
    check_transactions(place, late, number, second)


def check_transactions(place: str, late: bool, code: int, second: bool) -> None:
    clerk = committed_once(Refusing(place, code, highest=None if second else FIRST), late, 4)
    if clerk.machine.state is not ProducerTransactionState.FATAL_ERROR:
        assert (clerk.producer.engine.open_records, clerk.producer.engine.buffered) == (0, 0)


def committed_once(world: Refusing, late: bool, times: int) -> Clerk:
    """Who tried so many transactions while the brokers were bad; what it committed is there once."""
    clerk = Clerk(world)
    if late:
        assert clerk.transaction(5_000)
    world.bad = True
    for _ in range(times):
        asked, began = len(world.requests), world.now
        clerk.transaction(10_000)
        per, tens = world.busiest(asked), max(1.0, (world.now - began) / 10_000)
        assert max(per.values(), default=0) <= MOST * tens, per
    world.bad = False
    clerk.settle(40_000)
    world.run(30_000)
    assert clerk.done()
    if clerk.machine.state is ProducerTransactionState.FATAL_ERROR:
        assert str(clerk.machine.error)
    else:
        assert clerk.transaction(20_000)
    found = world.values()
    assert all(found[one] == 1 for one in clerk.committed)
    assert max(found.values(), default=0) <= 1
    return clerk


def test_a_refusal_is_not_told_to_who_sends_long_after_it() -> None:
    """Who had waited for the topic gave up before brokers said often enough that it isn't there."""
    world = Hostile("Metadata topics.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    producer = world.producer()
    world.bad = True
    assert producer.send("t", "x", partition=0) is None
    world.run(60_000)
    world.bad = False
    assert producer.deliver("t", "x", partition=0) is not None


def test_a_partition_is_looked_for_anew_by_who_comes_long_after_somebody_else() -> None:
    world = World({"t": 1})
    producer = world.producer(metadata_max_age_ms=60_000)
    producer.deliver("t", "x", partition=0)
    assert producer.send("t", "x", partition=1) is None
    world.run(200_000)
    world.grow("t", 2)
    assert producer.deliver("t", "x", partition=1) is not None
