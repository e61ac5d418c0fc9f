"""No record is lost or reordered when Kafka is killed (kill -9) and the network fails.

`KPROTO_CHAOS=20` runs 20 seeds with 200,000 records each (tox -e soak). The default is one short run.
`KPROTO_SEED` determines the seeds. A failure prints the command that repeats the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from consumer import Admin, Consumer, Producer
from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import Record, encode_batch
from tests.conformance import chaos
from tests.conformance.killable_kafka import Killable
from tests.seeds import repeatable, seeds

RUNS = int(os.environ.get("KPROTO_CHAOS", "0"))


@pytest.mark.kafka
@pytest.mark.parametrize("number", range(RUNS or 1))
def test_no_record_is_lost_when_brokers_die_and_networks_break(number: int, tmp_path: Path) -> None:
    records, kills, seconds = (200_000, 4, 60.0) if RUNS else (20_000, 1, 12.0)
    (seed,) = seeds(1, number)
    with repeatable(seed, f"KPROTO_CHAOS={min(RUNS, 1)}"):
        ledgers = chaos.run(tmp_path, seed, records, kills, seconds)
        assert chaos.errors_in(ledgers, records) == []
        # The maximum time without records is the sum of the session timeout, two request timeouts and 5 s.
        # Clients detect dead connections by the request timeout.
        patience = (chaos.SESSION_MS + 2 * chaos.OPTIONS["request_timeout_ms"]) / 1000 + 5
        for group, ledger in ledgers.items():
            assert ledger.longest_silence < patience, group


@pytest.mark.kafka
def test_a_killed_kafka_remembers_only_the_last_batch_of_a_producer(tmp_path: Path) -> None:
    """After kill -9, Kafka remembers only the last batch of a producer.

    The restarted broker rejects a retry of an earlier batch, although the log contains this batch. If
    kproto's producer wrote the batch again with new sequence numbers, its records would be duplicated.

    When a later batch succeeds, the producer therefore completes earlier batches in flight
    (`ProduceResponses._end_earlier_in_log`).
    """
    kafka = Killable(tmp_path)
    kafka.start()
    try:
        with Admin(f"127.0.0.1:{kafka.port}") as cluster:
            cluster.create_topics({"t": 1})
            producer: Any = None
            while producer is None or producer.error_code:
                producer = cluster.request(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
        assert [send_batch(kafka, producer, at) for at in (0, 10)] == [(0, 0), (0, 10)]
        assert [send_batch(kafka, producer, at) for at in (0, 10)] == [(0, 0), (0, 10)]
        kafka.kill()
        kafka.start()
        refused = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert [send_batch(kafka, producer, at) for at in (0, 10, 20)] == [refused, (0, 10), (0, 20)]
    finally:
        kafka.kill()


def send_batch(kafka: Killable, producer: Any, sequence: int) -> tuple[int, int]:
    """Send ten records from this sequence number on; return the error code and the base offset."""
    records = [Record(offset=at, timestamp=time.time_ns() // 10**6, key=None, value=b"x") for at in range(10)]
    numbers = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    batch = encode_batch(records, base_sequence=sequence, **numbers)
    with Admin(f"127.0.0.1:{kafka.port}") as cluster:
        cluster.partitions("t")
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(topic_id=cluster.view.topic_id("t") or UUID(int=0), partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        answer: Any = cluster.request(request, node=("leader", "t", 0))
    partition_response = answer.responses[0].partition_responses[0]
    return partition_response.error_code, partition_response.base_offset


CHILD = """
import sys
from consumer import Consumer, RebalanceListener

class Told(RebalanceListener):
    def assigned(self, partitions): print("assigned", *sorted(p.partition for p in partitions), flush=True)
    def revoked(self, partitions): print("revoked", *sorted(p.partition for p in partitions), flush=True)
    def lost(self, partitions): print("lost", *sorted(p.partition for p in partitions), flush=True)

with Consumer(sys.argv[1], group_id="g", auto_offset_reset="earliest", session_timeout_ms=1500,
              max_poll_records=5, heartbeat_interval_ms=300,
              metadata_max_age_ms=500) as consumer:
    consumer.subscribe(["t"], listener=Told())
    while True:
        # One write for each poll: the process cannot be stopped between its records.
        lines = [f"record {r.partition} {r.offset}\\n" for r in consumer.poll(0.1)]
        print(*lines, sep="", end="", flush=True)
        import time; time.sleep(0.02)
"""


def test_a_process_stopped_beyond_its_session_delivers_no_lost_partitions() -> None:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "300"}
    with running(topics={"t": 2}, settings=settings) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(2_000):
                producer.send("t", b"%d" % number, partition=number % 2)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, server.bootstrap], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        lines: list[list[str]] = []
        reader = threading.Thread(target=lambda: lines.extend(line.split() for line in child.stdout or ()))
        reader.start()
        try:
            assert within(20, lambda: len(lines) > 60)
            assert lines[0] == ["assigned", "0", "1"]
            os.kill(child.pid, signal.SIGSTOP)
            options: dict[str, Any] = {"session_timeout_ms": 1500, "heartbeat_interval_ms": 300}
            with Consumer(
                server.bootstrap, group_id="g", auto_offset_reset="earliest", **options
            ) as survivor:
                survivor.subscribe(["t"])
                partitions: set[int] = set()
                taken_over = within(
                    20,
                    lambda: partitions.update(r.partition for r in survivor.poll(0.2)) or len(partitions) > 1,
                )
                assert taken_over
                before = len(lines)
                os.kill(child.pid, signal.SIGCONT)
                assert within(
                    20, lambda: survivor.poll(0.01) is None or ["assigned"] in [x[:1] for x in lines[before:]]
                )
            after = [line[0] for line in lines[before:]]
            assert after[0] == "lost"
            assert "record" not in after[: after.index("assigned")]
        finally:
            child.kill()
            child.wait()
            reader.join()
            child.stdout.close()


def within(seconds: float, condition: Callable[[], object]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False
