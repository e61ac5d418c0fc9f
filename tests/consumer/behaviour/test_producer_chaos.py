"""An idempotent producer through random schedules of faults, in virtual time: what it claims holds in each.

The broker really keeps sequence numbers, so copies and overtaking are its word against ours. Some run by
default; KPROTO_SCHEDULES=5000 runs as many. Each mutant below breaks one rule of the engine, and has to be
found out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from consumer import Delivery
from consumer.engine.producer.batches import PartitionQueue, ProducerBatch
from consumer.engine.producer.produce_responses import ProduceResponses
from consumer.engine.producer.producer_ids import SequenceNumbers
from kproto.errors import ConfigError
from kproto.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kproto.records import rows
from tests.consumer.stage import QUICK_AGAIN, Producer, World, tp
from tests.seeds import found_out, repeatable, seeds

pytestmark = pytest.mark.thorough

SCHEDULES = int(os.environ.get("KPROTO_SCHEDULES", "60"))
REFUSALS = [3, 5, 6, 7, 13, 19, 20, 56, 87, 59, 45]
LACKING = (45, 59, 87)  # brokers say so only of what they have not
PERHAPS = (7, 20)  # brokers say so of what they have, too
SMALL = 400  # max.message.bytes of one topic: larger batches have to be divided


@dataclass
class Sent:
    """A record that was taken, and when its delivery ended."""

    delivery: Delivery
    partition: tuple[str, int]
    value: str
    at: int
    ended_at: list[int] = field(default_factory=list)


class Chaos:
    """One schedule, all of it from its seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.world = World(brokers=2, seed=seed, latency=(1, random.choice([1, 5])), trace=False)
        self.world.create("t", 2)
        self.world.create("u", 2, {"max.message.bytes": str(SMALL)})
        self.partitions = {"t": 2, "u": 2}
        patience = random.choice([100, 400])
        self.timeout = random.choice([patience + 10, 900, 20_000])
        self.producer: Producer = self.world.producer(
            linger_ms=random.choice([0, 0, 3]),
            batch_size=random.choice([1, 200, 2000]),
            max_in_flight_requests_per_connection=random.choice([1, 2, 5]),
            connections_per_broker=random.choice([1, 2, 3]),
            request_timeout_ms=patience,
            delivery_timeout_ms=self.timeout,
            **QUICK_AGAIN,
        )
        self.refusing = 0.0
        self.world.tamper = self.tamper
        self.sent: list[Sent] = []
        self.afterwards: list[Sent] = []

    def tamper(self, client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, ProduceRequest) or self.random.random() >= self.refusing:
            return None
        code = self.random.choice(REFUSALS)
        if code in LACKING and any(self.has(topic, entry) for topic, entry in self.entries(request)):
            return None
        if code in PERHAPS and self.random.random() < 0.5:
            for topic, entry in self.entries(request):
                with suppress(ConfigError):  # what comes out of order no broker stores
                    self.world.append(topic, entry.index, entry.records)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=entry.index, error_code=code, base_offset=-1)
                        for entry in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def entries(self, request: ProduceRequest) -> Iterator[tuple[str, Any]]:
        for topic in request.topic_data:
            name = topic.name or next(
                one.name for one in self.world.cluster.topics if one.id == topic.topic_id
            )
            for entry in topic.partition_data:
                yield name, entry

    def has(self, topic: str, entry: Any) -> bool:
        first = (rows(entry.records)[0].value or b"").decode()
        return first in self.log((topic, entry.index))

    def log(self, partition: tuple[str, int]) -> list[str]:
        data = b"".join(self.world.log(tp(*partition)).read(0, 2**30, at_least_one=True))
        return [(record.value or b"").decode() for record in rows(data)]

    def run(self) -> None:
        for _ in range(self.random.randrange(5, 40)):
            self.something()
            self.world.run(self.random.choice([0, 1, 3, 10, 40]))
        self.refusing = 0
        self.world.heal()
        for node in self.world.nodes.keys() - self.world.brokers.keys():
            self.world.start_broker(node)
        self.producer.flush()
        self.world.run(
            self.timeout + 100, until=lambda: all(request.delivery.done() for request in self.sent)
        )
        self.world.run(1_000)  # until the network has got over it
        for topic, count in self.partitions.items():
            for index in range(count):
                value = self.next()
                delivery = self.producer.deliver(topic, value, partition=index)
                self.afterwards.append(self.taken(delivery, (topic, index), value))
        self.world.run(
            self.timeout + 100, until=lambda: all(request.delivery.done() for request in self.sent)
        )

    def something(self) -> None:
        random, world = self.random, self.world
        what = random.randrange(20)
        if what < 11:
            self.send(random.randrange(1, 12))
        elif what == 11:
            self.refusing = random.choice([0, 0, 0.2, 0.7])
        elif what == 12:
            world.fault(random.choice(["cut", "half_close"]), self.producer)
        elif what == 13:
            world.fault(
                "stall", self.producer, random.choice([None, 1, 2]), lasts=random.choice([20, 200, 600])
            )
        elif what == 14:
            world.fault("drop", self.producer, chance=0.3, lasts=30)
        elif what == 15:
            world.fault("delay", self.producer, ms=50, chance=0.3, lasts=100)
        elif what == 16:
            topic = random.choice(sorted(self.partitions))
            up = random.choice(sorted(world.brokers))
            world.elect(topic, random.randrange(self.partitions[topic]), up)
        elif what == 17 and len(world.brokers) == 2:
            world.stop_broker(random.choice([1, 2]))
        elif what == 17 or what == 18:
            for node in world.nodes.keys() - world.brokers.keys():
                world.start_broker(node)
        else:
            self.partitions["t"] += 1
            world.grow("t", self.partitions["t"])

    def send(self, count: int) -> None:
        topic = self.random.choice(["t", "t", "u"])
        index = self.random.randrange(self.partitions[topic])
        for _ in range(count):
            value = self.next()
            delivery = self.producer.send(topic, value, partition=index)
            if delivery is None:
                return
            self.taken(delivery, (topic, index), value)

    def next(self) -> str:
        return f"{len(self.sent)}-{'x' * self.random.randrange(60)}"

    def taken(self, delivery: Delivery, partition: tuple[str, int], value: str) -> Sent:
        one = Sent(delivery, partition, value, self.world.now)
        delivery.add_done_callback(lambda _: one.ended_at.append(self.world.now))
        self.sent.append(one)
        return one


# ---- what is claimed


def every_delivery_ends_once_and_in_time(chaos: Chaos) -> None:
    for request in chaos.sent:
        assert len(request.ended_at) == 1, request
        assert request.ended_at[0] - request.at <= chaos.timeout, request


def what_was_acknowledged_is_where_it_was_said_to_be(chaos: Chaos) -> None:
    logs = {partition: chaos.log(partition) for partition in {request.partition for request in chaos.sent}}
    for one in chaos.sent:
        if one.delivery.exception() is None:
            offset = one.delivery.result().offset
            assert one.value in logs[one.partition]
            assert offset is None or logs[one.partition][offset] == one.value


def nothing_is_there_twice_or_out_of_order(chaos: Chaos) -> None:
    for partition in {request.partition for request in chaos.sent}:
        numbers = [int(value.split("-")[0]) for value in chaos.log(partition)]
        assert numbers == sorted(set(numbers)), partition


def nothing_is_left(chaos: Chaos) -> None:
    engine = chaos.producer.engine
    assert (engine.open_records, engine.buffered) == (0, 0)


def once_all_is_well_every_record_is_delivered(chaos: Chaos) -> None:
    if chaos.timeout < 900:
        return  # a connection that the broker forgot costs one request's patience, which is all there is
    assert [afterward.delivery.exception() for afterward in chaos.afterwards] == [None] * sum(
        chaos.partitions.values()
    )


CLAIMS = [
    once_all_is_well_every_record_is_delivered,
    every_delivery_ends_once_and_in_time,
    what_was_acknowledged_is_where_it_was_said_to_be,
    nothing_is_there_twice_or_out_of_order,
    nothing_is_left,
]


def check(seed: int) -> Chaos:
    chaos = Chaos(seed)
    chaos.run()
    for claim in CLAIMS:
        claim(chaos)
    return chaos


def test_the_claims_hold_in_every_schedule() -> None:
    delivered = failed = 0
    for seed in seeds(SCHEDULES):
        with repeatable(seed, "KPROTO_SCHEDULES=1"):
            chaos = check(seed)
        ends = [request.delivery.exception() is None for request in chaos.sent]
        delivered, failed = delivered + sum(ends), failed + len(ends) - sum(ends)
    assert SCHEDULES == 1 or delivered > 5 * SCHEDULES
    assert SCHEDULES < 60 or failed > 0  # else there was no chaos


# ---- mutants


def numbers_a_retry_anew(patch: pytest.MonkeyPatch) -> None:
    retry = ProduceResponses._retry

    def mutant(self: ProduceResponses, batch: ProducerBatch, *, innocent: bool = False) -> None:
        batch.sequence = -1
        retry(self, batch, innocent=innocent)

    patch.setattr(ProduceResponses, "_retry", mutant)


def puts_a_retry_behind_the_others(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionQueue, "reinsert", lambda self, batch: self.waiting.append(batch))


def forgets_its_epoch(patch: pytest.MonkeyPatch) -> None:
    number = SequenceNumbers.assign_sequence

    def mutant(self: SequenceNumbers, lane: PartitionQueue, batch: ProducerBatch) -> bool:
        lane.needs_new_epoch = False
        return number(self, lane, batch)

    patch.setattr(SequenceNumbers, "assign_sequence", mutant)


def expires_only_what_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionQueue, "open", lambda self: [batch for batch in self.waiting if not batch.done])


def takes_every_refusal_for_success(patch: pytest.MonkeyPatch) -> None:
    decide = ProduceResponses.on_response

    def mutant(self: ProduceResponses, batch: ProducerBatch, answer: Any) -> None:
        if answer is not None and answer.error_code == 7:
            answer.error_code = 0
        decide(self, batch, answer)

    patch.setattr(ProduceResponses, "on_response", mutant)


def forgets_parts(patch: pytest.MonkeyPatch) -> None:
    divide = ProduceResponses._split

    def mutant(self: ProduceResponses, batch: ProducerBatch, groups: Any) -> list[ProducerBatch]:
        parts = divide(self, batch, groups)
        batch.queue.waiting.remove(parts[-1])
        return parts

    patch.setattr(ProduceResponses, "_split", mutant)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    numbers_a_retry_anew,
    puts_a_retry_behind_the_others,
    forgets_its_epoch,
    expires_only_what_waits,
    takes_every_refusal_for_success,
    forgets_parts,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_found_out(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    found_out(check, range(400), ValueError, IndexError)
