"""Retention and compaction of random logs: a real Kafka and the embedded broker keep the same records.

No log is cleaned while it is written. After each round of writes, a config change enables cleaning until both
brokers keep the same records.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import Record, batches, encode_batch
from tests.broker.stage import Socket, fetch_request, fetch_topic
from tests.conformance import judges
from tests.conformance.client_scenarios import SEED

pytestmark = pytest.mark.kafka

OFTEN: Final = {
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
}
LOGS: Final = 40 if os.environ.get("KPROTO_ALL_PLAYS") else 4
ROUNDS: Final = 3
PATIENCE: Final = 15.0
TRY_AGAIN: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
HOUR: Final = 3_600_000


class Side:
    """One broker, with a topic of one partition and a transactional producer."""

    def __init__(self, bootstrap: str, topic: str, configs: dict[str, str]) -> None:
        self.socket, self.topic = Socket(bootstrap), topic
        new_topic = CreatableTopic(
            name=topic,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        assert self.socket.ask(CreateTopicsRequest(topics=[new_topic]), 7).topics[0].error_code == 0
        # On the first FindCoordinator for a transactional id, Kafka creates its internal transaction topic.
        lookup = FindCoordinatorRequest(key_type=1, coordinator_keys=[topic])
        self.again(lambda: self.socket.ask(lookup, 4), lambda answer: answer.coordinators[0].error_code)
        init = InitProducerIdRequest(transactional_id=topic, transaction_timeout_ms=60_000)
        response = self.again(lambda: self.socket.ask(init, 5), lambda answer: answer.error_code)
        self.producer, self.sequence = (response.producer_id, response.producer_epoch), 0
        self.plain = 0

    def again(self, ask: Any, code: Any) -> Any:
        end = time.monotonic() + PATIENCE
        while code(answer := ask()) in TRY_AGAIN:
            assert time.monotonic() < end, answer
            time.sleep(0.02)
        assert code(answer) == 0, answer
        return answer

    def write(self, records: list[Record], kind: str, compression: str) -> None:
        header: dict[str, Any] = {}
        if kind == "transaction":
            header = {"is_transactional": True, "base_sequence": self.sequence}
            header |= dict(zip(("producer_id", "producer_epoch"), self.producer, strict=True))
            self.sequence += len(records)
        elif kind == "idempotent":
            header = {"producer_id": 77, "producer_epoch": 0, "base_sequence": self.plain}
            self.plain += len(records)
        data = encode_batch(records, compression=compression, **header)
        part = PartitionProduceData(index=0, records=data)
        request = ProduceRequest(
            transactional_id=self.topic if kind == "transaction" else None,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[part])],
        )
        self.again(
            lambda: self.socket.ask(request, 12),
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )

    def end(self, *, committed: bool) -> None:
        before = self.listed(-1)
        producer_id, epoch = self.producer
        request = EndTxnRequest(
            transactional_id=self.topic,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )
        response = self.again(lambda: self.socket.ask(request, 5), lambda answer: answer.error_code)
        self.producer, self.sequence = (response.producer_id, response.producer_epoch), 0
        end = time.monotonic() + PATIENCE
        while self.listed(-1) == before:
            assert time.monotonic() < end, "no marker comes"
            time.sleep(0.01)

    def alter(self, **configs: str) -> None:
        changes = [
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=2, resource_name=self.topic, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert self.socket.ask(request, 1).responses[0].error_code == 0

    def listed(self, timestamp: int) -> tuple[int, int]:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self.topic, partitions=[partition])]
        )
        answer = self.socket.ask(request, 7).topics[0].partitions[0]
        return answer.offset, answer.timestamp

    def state(self, *times: int) -> dict[str, Any]:
        """Return what a reader of the log can observe.

        The result contains the log's start and end, its batches and aborted transactions, and the offset for
        each timestamp in `times`.
        """
        start = self.listed(-2)[0]
        batch_lines: list[Any] = []
        aborted: list[int] = []
        at = start
        while True:
            request = fetch_request(fetch_topic(at, topic=self.topic), wait=0, isolation=1)
            data = self.socket.ask(request, 12).responses[0].partitions[0]
            assert data.error_code == 0
            got = list(batches(data.records or b""))
            aborted += [transaction.first_offset for transaction in data.aborted_transactions or ()]
            batch_lines += [describe_batch(batch) for batch in got]
            if not got:
                break
            at = got[-1].last_offset + 1
        return {
            "start": start,
            # The end offset is compared without its timestamp, because the brokers write transaction
            # markers at different times.
            "end": self.listed(-1)[0],
            "batches": batch_lines,
            "aborted": sorted({*aborted}),
            **{f"at {when}": self.listed(when)[0] for when in (-3, *times)},
        }


def describe_batch(batch: Any) -> str:
    """Return a batch as one line of text, without random values and without the times of markers."""
    records = batch.records()
    kind = "marker" if batch.is_control else "transaction" if batch.is_transactional else "plain"
    inside = [f"{record.offset}" for record in records]
    if not batch.is_control:
        inside = [f"{record.offset}@{record.timestamp}:{record.key}={record.value}" for record in records]
        inside.append(f"max {batch.max_timestamp}")
    head = f"{batch.base_offset}-{batch.last_offset} {kind} {batch.compression}"
    of = f"sequence {batch.base_sequence} epoch {batch.producer_epoch}"
    horizon = "" if batch.delete_horizon_ms is None else " horizon"
    return f"{head} {of}{horizon}: {' '.join(inside)}"


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[str, str]]:
    with judges.real_kafka(OFTEN) as kafka, running(settings=OFTEN) as ours:
        yield kafka.bootstrap, ours.bootstrap


def describe_difference(ours: dict[str, Any], kafka: dict[str, Any]) -> str:
    lines = [f"{key}: ours {ours[key]}, kafka {kafka[key]}" for key in ours if key != "batches"]
    for who, first, second in (("ours", ours, kafka), ("kafka", kafka, ours)):
        lines += [f"only {who}: {batch}" for batch in first["batches"] if batch not in second["batches"]]
    return "\n".join([*lines, *kafka["batches"]])


@contextlib.contextmanager
def sides(two: tuple[str, str], number: int, configs: dict[str, str]) -> Iterator[list[Side]]:
    brokers = [Side(where, f"cleaned-{time.time_ns()}-{number}", configs) for where in two]
    yield brokers
    for side in brokers:
        side.socket.socket.close()


def assert_alike(brokers: list[Side], *times: int) -> None:
    """Check that both brokers reach the same state and keep it."""
    kafka, ours = brokers
    time.sleep(0.3)  # By now the embedded broker has cleaned the log.
    end = time.monotonic() + PATIENCE
    while (our_state := ours.state(*times)) != (
        kafka_state := kafka.state(*times)
    ) and time.monotonic() < end:
        time.sleep(0.05)
    assert our_state == kafka_state, describe_difference(our_state, kafka_state)
    time.sleep(0.3)
    our_state, kafka_state = ours.state(*times), kafka.state(*times)
    assert our_state == kafka_state, describe_difference(our_state, kafka_state)


@pytest.mark.parametrize("number", range(LOGS))
def test_compaction_leaves_the_same_records(two: tuple[str, str], number: int) -> None:
    dice = Random(f"{SEED}/compaction/{number}")
    # A dirty ratio of 1.0 disables cleaning while the log is written. A segment rolls if a batch's timestamp
    # is more than `segment.ms` later than the timestamp of the segment's first batch.
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": str(dice.choice([10, 100, 1_000])),
        "min.cleanable.dirty.ratio": "1.0",
        "delete.retention.ms": str(dice.choice([0, 0, HOUR])),
        "message.timestamp.after.max.ms": str(100 * HOUR),
    }
    # The timestamps are in the future. Transaction markers, which have the broker's time, then do not roll a
    # segment.
    now = int(time.time() * 1000) + HOUR
    with sides(two, number, configs) as brokers:
        for _ in range(ROUNDS):
            for _ in range(dice.randint(1, 12)):
                now += dice.choice([1, 5, 20, 200])
                kind = dice.choice(["plain", "idempotent", "transaction", "transaction"])
                compression = dice.choice(["none", "gzip"])
                commits = dice.random() < 0.6
                for _ in range(dice.choice([1, 1, 2])):
                    records = [
                        Record(
                            n, now + n, dice.choice([b"a", b"b", b"c", b"d"]), dice.choice([b"x", b"y", None])
                        )
                        for n in range(dice.randint(1, 4))
                    ]
                    for side in brokers:
                        side.write(records, kind, compression)
                if kind == "transaction":
                    for side in brokers:
                        side.end(committed=commits)
            for side in brokers:
                side.alter(min_cleanable_dirty_ratio="0.0")
            assert_alike(brokers)
            for side in brokers:
                side.alter(min_cleanable_dirty_ratio="1.0")
            time.sleep(0.3)


@pytest.mark.parametrize("number", range(LOGS))
def test_retention_leaves_the_same_records(two: tuple[str, str], number: int) -> None:
    dice = Random(f"{SEED}/retention/{number}")
    configs = {"segment.ms": str(dice.choice([10_000, 100_000])), "segment.bytes": str(1 << 20)}
    configs["retention.ms"] = "-1"
    now = int(time.time() * 1000)
    with sides(two, number, configs) as brokers:
        age = 2_000_000
        for _ in range(ROUNDS):
            for _ in range(dice.randint(0, 8)):
                age -= dice.choice([-5_000, 100, 5_000, 20_000, 120_000])
                value = b"x" * dice.choice([10, 10, 400_000])
                for side in brokers:
                    side.write([Record(0, now - max(age, 0), b"k", value)], "plain", "none")
            if dice.random() < 0.5:
                limits = {"retention_ms": str(dice.choice([60_000, 1_000_000, 1_900_000]))}
            else:
                limits = {"retention_bytes": str(dice.choice([0, 100, 500_000, 1_500_000]))}
            for side in brokers:
                side.alter(**limits)
            assert_alike(brokers, now - 1_500_000)
            for side in brokers:
                side.alter(retention_ms="-1", retention_bytes="-1")
            time.sleep(0.3)
