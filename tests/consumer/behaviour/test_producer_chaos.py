"""In random schedules of faults, the acknowledged records of an idempotent producer are stored once.

The schedules run in virtual time. The broker checks sequence numbers, so duplicates and reordering are
detected. KPROTO_SCHEDULES=5000 runs 5,000 schedules.

Each mutant below breaks one rule of the engine. At least one schedule must detect each mutant.
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
from tests.seeds import expect_failure, repeatable, seeds

pytestmark = pytest.mark.thorough

SCHEDULES = int(os.environ.get("KPROTO_SCHEDULES", "60"))
ERROR_CODES = [3, 5, 6, 7, 13, 19, 20, 56, 87, 59, 45]
# Error codes that mean that the broker has not stored the batch.
NOT_STORED = (45, 59, 87)
# Error codes that a broker may also return for a batch that it has stored.
MAYBE_STORED = (7, 20)
# The max.message.bytes of one topic. Larger batches have to be split.
MAX_MESSAGE_BYTES = 400


@dataclass
class Sent:
    """A record that `send` has accepted.

    Its delivery must end exactly once. `ended_at` lists the times (ms) at which the delivery ended.
    """

    delivery: Delivery
    partition: tuple[str, int]
    value: str
    at: int
    ended_at: list[int] = field(default_factory=list)


class Chaos:
    """A schedule of actions and faults, derived from its seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.world = World(brokers=2, seed=seed, latency=(1, random.choice([1, 5])), trace=False)
        self.world.create("t", 2)
        self.world.create("u", 2, {"max.message.bytes": str(MAX_MESSAGE_BYTES)})
        self.partitions = {"t": 2, "u": 2}
        request_timeout = random.choice([100, 400])
        self.timeout = random.choice([request_timeout + 10, 900, 20_000])
        self.producer: Producer = self.world.producer(
            linger_ms=random.choice([0, 0, 3]),
            batch_size=random.choice([1, 200, 2000]),
            max_in_flight_requests_per_connection=random.choice([1, 2, 5]),
            connections_per_broker=random.choice([1, 2, 3]),
            request_timeout_ms=request_timeout,
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
        code = self.random.choice(ERROR_CODES)
        if code in NOT_STORED and any(self.is_stored(topic, entry) for topic, entry in self.entries(request)):
            return None
        if code in MAYBE_STORED and self.random.random() < 0.5:
            for topic, entry in self.entries(request):
                # `append` raises ConfigError for a batch out of sequence, which a real broker would not store
                # either.
                with suppress(ConfigError):
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
                known_topic.name
                for known_topic in self.world.cluster.topics
                if known_topic.id == topic.topic_id
            )
            for entry in topic.partition_data:
                yield name, entry

    def is_stored(self, topic: str, entry: Any) -> bool:
        first = (rows(entry.records)[0].value or b"").decode()
        return first in self.values_of((topic, entry.index))

    def values_of(self, partition: tuple[str, int]) -> list[str]:
        data = b"".join(self.world.log(tp(*partition)).read(0, 2**30, at_least_one=True))
        return [(record.value or b"").decode() for record in rows(data)]

    def run(self) -> None:
        for _ in range(self.random.randrange(5, 40)):
            self.random_event()
            self.world.run(self.random.choice([0, 1, 3, 10, 40]))
        self.refusing = 0
        self.world.heal()
        for node in self.world.nodes.keys() - self.world.brokers.keys():
            self.world.start_broker(node)
        self.producer.flush()
        self.world.run(
            self.timeout + 100, until=lambda: all(request.delivery.done() for request in self.sent)
        )
        self.world.run(1_000)  # Wait for the network to recover.
        for topic, count in self.partitions.items():
            for index in range(count):
                value = self.next_value()
                delivery = self.producer.deliver(topic, value, partition=index)
                self.afterwards.append(self.track(delivery, (topic, index), value))
        self.world.run(
            self.timeout + 100, until=lambda: all(request.delivery.done() for request in self.sent)
        )

    def random_event(self) -> None:
        random, world = self.random, self.world
        draw = random.randrange(20)
        if draw < 11:
            self.send(random.randrange(1, 12))
        elif draw == 11:
            self.refusing = random.choice([0, 0, 0.2, 0.7])
        elif draw == 12:
            world.fault(random.choice(["cut", "half_close"]), self.producer)
        elif draw == 13:
            world.fault(
                "stall", self.producer, random.choice([None, 1, 2]), lasts=random.choice([20, 200, 600])
            )
        elif draw == 14:
            world.fault("drop", self.producer, chance=0.3, lasts=30)
        elif draw == 15:
            world.fault("delay", self.producer, ms=50, chance=0.3, lasts=100)
        elif draw == 16:
            topic = random.choice(sorted(self.partitions))
            leader = random.choice(sorted(world.brokers))
            world.elect(topic, random.randrange(self.partitions[topic]), leader)
        elif draw == 17 and len(world.brokers) == 2:
            world.stop_broker(random.choice([1, 2]))
        elif draw == 17 or draw == 18:
            for node in world.nodes.keys() - world.brokers.keys():
                world.start_broker(node)
        else:
            self.partitions["t"] += 1
            world.grow("t", self.partitions["t"])

    def send(self, count: int) -> None:
        topic = self.random.choice(["t", "t", "u"])
        index = self.random.randrange(self.partitions[topic])
        for _ in range(count):
            value = self.next_value()
            delivery = self.producer.send(topic, value, partition=index)
            if delivery is None:
                return
            self.track(delivery, (topic, index), value)

    def next_value(self) -> str:
        return f"{len(self.sent)}-{'x' * self.random.randrange(60)}"

    def track(self, delivery: Delivery, partition: tuple[str, int], value: str) -> Sent:
        sent = Sent(delivery, partition, value, self.world.now)
        delivery.add_done_callback(lambda _: sent.ended_at.append(self.world.now))
        self.sent.append(sent)
        return sent


# ---- what must hold after each schedule


def every_delivery_ends_once_within_the_timeout(chaos: Chaos) -> None:
    for request in chaos.sent:
        assert len(request.ended_at) == 1, request
        assert request.ended_at[0] - request.at <= chaos.timeout, request


def acknowledged_records_are_at_their_offsets(chaos: Chaos) -> None:
    logs = {
        partition: chaos.values_of(partition) for partition in {request.partition for request in chaos.sent}
    }
    for sent in chaos.sent:
        if sent.delivery.exception() is None:
            offset = sent.delivery.result().offset
            assert sent.value in logs[sent.partition]
            assert offset is None or logs[sent.partition][offset] == sent.value


def no_record_is_duplicated_or_reordered(chaos: Chaos) -> None:
    for partition in {request.partition for request in chaos.sent}:
        numbers = [int(value.split("-")[0]) for value in chaos.values_of(partition)]
        assert numbers == sorted(set(numbers)), partition


def no_memory_is_leaked(chaos: Chaos) -> None:
    engine = chaos.producer.engine
    assert (engine.open_records, engine.buffered) == (0, 0)


def after_recovery_every_record_is_delivered(chaos: Chaos) -> None:
    if chaos.timeout < 900:
        # The claim does not hold for a delivery timeout below 900 ms. The first send on a dropped connection
        # costs one request timeout, which uses up the delivery timeout.
        return
    assert [afterward.delivery.exception() for afterward in chaos.afterwards] == [None] * sum(
        chaos.partitions.values()
    )


CLAIMS = [
    after_recovery_every_record_is_delivered,
    every_delivery_ends_once_within_the_timeout,
    acknowledged_records_are_at_their_offsets,
    no_record_is_duplicated_or_reordered,
    no_memory_is_leaked,
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
    # In 60 schedules, at least one delivery must fail: otherwise the faults had no effect.
    assert SCHEDULES < 60 or failed > 0


# ---- mutants: one broken rule each, which a schedule must detect


def a_retry_gets_a_new_sequence_number(patch: pytest.MonkeyPatch) -> None:
    retry = ProduceResponses._retry

    def mutant(self: ProduceResponses, batch: ProducerBatch, *, is_own_failure: bool = True) -> None:
        batch.sequence = -1
        retry(self, batch, is_own_failure=is_own_failure)

    patch.setattr(ProduceResponses, "_retry", mutant)


def a_retry_is_queued_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionQueue, "reinsert", lambda self, batch: self.waiting.append(batch))


def a_lost_batch_keeps_the_epoch(patch: pytest.MonkeyPatch) -> None:
    assign = SequenceNumbers.assign_sequence

    def mutant(self: SequenceNumbers, lane: PartitionQueue, batch: ProducerBatch) -> bool:
        lane.needs_new_epoch = False
        return assign(self, lane, batch)

    patch.setattr(SequenceNumbers, "assign_sequence", mutant)


def in_flight_batches_never_expire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        PartitionQueue, "open_batches", lambda self: [batch for batch in self.waiting if not batch.done]
    )


def an_error_counts_as_success(patch: pytest.MonkeyPatch) -> None:
    original = ProduceResponses.on_response

    def mutant(self: ProduceResponses, batch: ProducerBatch, response: Any) -> None:
        if response is not None and response.error_code == 7:
            response.error_code = 0
        original(self, batch, response)

    patch.setattr(ProduceResponses, "on_response", mutant)


def a_split_batch_loses_a_part(patch: pytest.MonkeyPatch) -> None:
    split = ProduceResponses._split

    def mutant(self: ProduceResponses, batch: ProducerBatch, groups: Any) -> list[ProducerBatch]:
        parts = split(self, batch, groups)
        batch.queue.waiting.remove(parts[-1])
        return parts

    patch.setattr(ProduceResponses, "_split", mutant)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    a_retry_gets_a_new_sequence_number,
    a_retry_is_queued_last,
    a_lost_batch_keeps_the_epoch,
    in_flight_batches_never_expire,
    an_error_counts_as_success,
    a_split_batch_loses_a_part,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_is_detected(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    expect_failure(check, range(400), ValueError, IndexError)
