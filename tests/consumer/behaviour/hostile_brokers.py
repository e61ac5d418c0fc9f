"""Simulated clusters whose brokers send error codes and wrong field values.

The functions `check_...` check that clients recover when the brokers respond correctly again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from consumer import Delivery
from consumer.engine.producer.transaction_states import ProducerTransactionState
from consumer.engine.producer.transactions import TransactionManager
from consumer.records import GroupMetadata
from kproto.error_codes import ErrorCode
from kproto.errors import KprotoError
from kproto.messages.headers import decode_response, encode_response
from kproto.messages.index import API_NAMES, response_class
from kproto.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kproto.records import rows
from kproto.testing.world import Producer
from kproto.testing.world.clients import Wire
from kproto.wire.message import Message
from tests.consumer.stage import Consumer, World, tp

KEYS = {name: key for key, name in API_NAMES.items()}
CODES = [*(code for code in ErrorCode if code), 9999, -32768]
TELLS = {"lost", "missing", "refused", "reset", "truncated", "uncommitted", "unreachable"}
# The maximum number of requests of one type in ten seconds. A client that backs off between retries sends
# fewer, even if it retries on two brokers.
MOST = 60
# The highest API versions of a broker that does not support transaction version 2 (KIP-890).
FIRST = {"Produce": 11, "EndTxn": 4, "TxnOffsetCommit": 4, "AddPartitionsToTxn": 3}
WRITES = "Produce responses.partition_responses.error_code"
GROUP = GroupMetadata("g", -1, "", None)
# A broker returns this error code only after it has appended the batch to its log.
HAS_IT = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
AT_ONCE = {"linger_ms": 0, "delivery_timeout_ms": 20_000, "request_timeout_ms": 5_000}


def parts(message: Message, path: list[str]) -> Iterator[Message]:
    """Yield the structs in `message` that contain the last field of `path`, a list of nested field names."""
    if len(path) == 1:
        yield message
        return
    field: Any = getattr(message, path[0])
    for part in field or ():
        yield from parts(part, path[1:])


class Hostile(World):
    """A cluster whose brokers, while `bad` is true, write `code` into the field `place` of responses.

    `place` names the API and the path of the field, as `WRITES` does.
    """

    def __init__(self, place: str, code: int, **options: Any) -> None:
        super().__init__({"t": 2}, brokers=2, **options)
        api, _, path = place.partition(" ")
        self.key, self.path, self.code = KEYS[api], path.split("."), code
        self.bad, self.hits = False, 0

    def _send_response(self, wire: Wire, body: bytes) -> None:
        key, version = self.pending_requests[wire.conn]
        if self.bad and key == self.key:
            correlation_id, answer = decode_response(body, response_class(key), version)
            for part in parts(answer, self.path):
                setattr(part, self.path[-1], self.code)
                self.hits += 1
            body = encode_response(answer, version, correlation_id)
        super()._send_response(wire, body)

    def put(self) -> None:
        for partition in (0, 1):
            self.write("t", partition, "x")


def final(a: Consumer) -> bool:
    """Return whether the consumer has a final error, which every poll raises."""
    return bool(a.errors) and getattr(a.errors[-1], "code", 0) == ErrorCode.FENCED_INSTANCE_ID


def check_consumer_recovers(world: Hostile, late: bool, *, told_of: bool = True) -> None:
    """Check that a consumer survives a minute of wrong responses and then reads new records.

    If `told_of` is true, the consumer can detect the wrong responses. It must then report these responses, or
    read all records in spite of them.
    """
    world.put()
    a = world.consumer(group_id="g", auto_offset_reset="earliest", session_timeout_ms=20_000)
    world.bad = not late
    a.subscribe("t")
    if late:
        world.run(10_000)
        world.bad = True
    read, changes, raised = len(a.records), len(a.changes), len(a.errors)
    commits: list[object] = []
    for _ in range(6):
        requests = len(world.requests)
        world.put()
        world.run(10_000)
        counts = Counter(type(request).__name__ for _, request, _ in world.requests[requests:])
        assert max(counts.values(), default=0) <= MOST, counts
        commits.append(a.commit(timeout_ms=5_000))
    world.run(6_000)
    assert all(commit in a.done for commit in commits)
    reported = any(change.kind in TELLS for change in a.changes[changes:]) or len(a.errors) > raised
    assert not told_of or not world.hits or reported or len(a.records) - read >= 12
    world.bad = False
    world.put()
    world.run(70_000)
    ends = {partition: world.log(partition).end_offset for partition in world.partitions()}
    assert final(a) or {partition: a.position(partition) for partition in ends} == ends
    world.bad = True
    closing = a.close(timeout_ms=10_000)
    world.run(11_000)
    assert closing in a.done


class Refusing(Hostile):
    """A simulated cluster whose brokers do not append a batch when their response contains an error."""

    def __init__(self, place: str, code: int, **options: Any) -> None:
        super().__init__(place, code, **options)
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
        """Return how often each value occurs in the log of each partition."""
        counts: Counter[tuple[int, str]] = Counter()
        for partition in self.partitions():
            data = b"".join(self.log(partition).read(0, 2**30, at_least_one=True))
            counts.update((partition.partition, (row.value or b"").decode()) for row in rows(data))
        return counts

    def busiest(self, since: int) -> Counter[str]:
        return Counter(type(request).__name__ for _, request, _ in self.requests[since:])


class Application:
    """An application that writes numbered records to two partitions in turn."""

    def __init__(self, world: Refusing, **options: Any) -> None:
        self.world = world
        self.producer: Producer = world.producer(**AT_ONCE, **options)
        self.sent: list[tuple[Delivery, int, str]] = []
        self.count = 0

    def send(self, wait_ms: int = 0) -> None:
        """Send a record to each partition.

        If `send` finds no buffer space or no metadata, it is repeated for at most `wait_ms`.
        """
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
        return [(at, value) for delivery, at, value in self.sent[since:] if delivery.exception() is None]


def check_producer_recovers(world: Refusing, late: bool, times: int) -> Application:
    """Check that a producer recovers after its brokers have failed.

    Every pending delivery completes, and records that are sent after the recovery are stored.
    """
    app = Application(world)
    if late:
        app.send(2_000)
    world.bad = True
    for _ in range(times):
        requests = len(world.requests)
        app.send()
        world.run(10_000)
        counts = world.busiest(requests)
        assert max(counts.values(), default=0) <= MOST, counts
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
    """An application that writes records and offsets in transactions, and aborts transactions that fail."""

    def __init__(self, world: Refusing) -> None:
        super().__init__(world, transactional_id="x", max_block_ms=20_000)
        machine = self.producer.engine.transactions
        assert machine is not None
        self.machine: TransactionManager = machine
        self.committed: list[tuple[int, str]] = []

    def call(self, name: str, ms: int) -> bool:
        """Start the operation `name`, wait at most `ms` for its end, and return whether it has succeeded.

        If the operation has not ended after `ms`, the result is False. The operation continues, and a later
        call with the same name waits for it again.
        """
        try:
            call = self.machine.call(name)
        except KprotoError:
            return False
        self.producer.tick()
        if not self.world.run(ms, until=lambda: call.done):
            assert self.machine.open_reason()
            return False
        call.reported = True
        assert call.error is None or str(call.error)
        return call.error is None

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
        """Finish what was in progress when the brokers recovered: initialization, a commit or an abort."""
        for state, call in (
            (ProducerTransactionState.INITIALIZING, "begin"),
            (ProducerTransactionState.COMMITTING_TRANSACTION, "commit"),
            (ProducerTransactionState.IN_TRANSACTION, "abort"),
            (ProducerTransactionState.ABORTABLE_ERROR, "abort"),
            (ProducerTransactionState.ABORTING_TRANSACTION, "abort"),
        ):
            if self.machine.state is state:
                self.call(call, ms)


def check_transactions_recover(world: Refusing, late: bool, times: int) -> Clerk:
    """Check that each record of a committed transaction is in the log exactly once, even if brokers fail."""
    clerk = Clerk(world)
    if late:
        assert clerk.transaction(5_000)
    world.bad = True
    for _ in range(times):
        requests, began = len(world.requests), world.now
        clerk.transaction(10_000)
        counts, tens = world.busiest(requests), max(1.0, (world.now - began) / 10_000)
        assert max(counts.values(), default=0) <= MOST * tens, counts
    world.bad = False
    clerk.settle(40_000)
    world.run(30_000)
    assert clerk.done()
    if clerk.machine.state is ProducerTransactionState.FATAL_ERROR:
        assert str(clerk.machine.error)
    else:
        assert clerk.transaction(20_000)
    counts = world.values()
    assert all(counts[entry] == 1 for entry in clerk.committed)
    assert max(counts.values(), default=0) <= 1
    return clerk
