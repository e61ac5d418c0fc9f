"""A Kafka killed with -9 and a network in trouble: nothing is lost, and nothing comes in another order.

KPROTO_CHAOS=20 runs so many seeds with 200,000 records each (tox -e soak); else one short one. They are drawn
by KPROTO_SEED, and one that fails says how it is had again.
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

from consumer import Cluster, Consumer, Producer
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
def test_nothing_is_lost_when_brokers_die_and_networks_break(number: int, tmp_path: Path) -> None:
    records, kills, seconds = (200_000, 4, 60.0) if RUNS else (20_000, 1, 12.0)
    (seed,) = seeds(1, number)
    with repeatable(seed, f"KPROTO_CHAOS={min(RUNS, 1)}"):
        books = chaos.run(tmp_path, seed, records, kills, seconds)
        assert chaos.judged(books, records) == []
        # A dead connection is found after a request timeout, and whoever was lost with it after a session.
        patience = (chaos.SESSION_MS + 2 * chaos.OPTIONS["request_timeout_ms"]) / 1000 + 5
        for group, book in books.items():
            assert book.longest_silence < patience, group


@pytest.mark.kafka
def test_a_kafka_that_was_killed_knows_the_last_batch_of_a_producer_only(tmp_path: Path) -> None:
    """So where two were under way, and both are in the log, only the second one tells that the first one is
    there (`ProduceResponses._complete_earlier`). It was written again, under new numbers, in a run of the
    story above."""
    kafka = Killable(tmp_path)
    kafka.start()
    try:
        with Cluster(f"127.0.0.1:{kafka.port}") as cluster:
            cluster.create_topics({"t": 1})
            made: Any = None
            while made is None or made.error_code:
                made = cluster.request(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                )
        assert [sent_again(kafka, made, at) for at in (0, 10)] == [(0, 0), (0, 10)]
        assert [sent_again(kafka, made, at) for at in (0, 10)] == [(0, 0), (0, 10)]
        kafka.kill()
        kafka.start()
        refused = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert [sent_again(kafka, made, at) for at in (0, 10, 20)] == [refused, (0, 10), (0, 20)]
    finally:
        kafka.kill()


def sent_again(kafka: Killable, made: Any, sequence: int) -> tuple[int, int]:
    """What is answered to ten records with these numbers: the error code, and their first offset."""
    records = [Record(offset=at, timestamp=time.time_ns() // 10**6, key=None, value=b"x") for at in range(10)]
    numbers = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    batch = encode_batch(records, base_sequence=sequence, **numbers)
    with Cluster(f"127.0.0.1:{kafka.port}") as cluster:
        cluster.partitions("t")
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(topic_id=cluster.view.topic_id("t") or UUID(int=0), partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
        answer: Any = cluster.request(request, node=("leader", "t", 0))
    told = answer.responses[0].partition_responses[0]
    return told.error_code, told.base_offset


CHILD = """
import sys
from consumer import Consumer, RebalanceListener

class Told(RebalanceListener):
    def assigned(self, partitions): print("assigned", *sorted(p.partition for p in partitions), flush=True)
    def revoked(self, partitions): print("revoked", *sorted(p.partition for p in partitions), flush=True)
    def lost(self, partitions): print("lost", *sorted(p.partition for p in partitions), flush=True)

with Consumer(sys.argv[1], group_id="g", auto_offset_reset="earliest", session_timeout_ms=1500,
              heartbeat_interval_ms=300, max_poll_records=5, metadata_max_age_ms=500) as consumer:
    consumer.subscribe(["t"], listener=Told())
    while True:
        for record in consumer.poll(0.1):
            print("record", record.partition, record.offset, flush=True)
        import time; time.sleep(0.02)
"""


def test_a_process_that_was_stopped_beyond_its_session_delivers_nothing_of_what_it_lost() -> None:
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
            with Consumer(server.bootstrap, group_id="g", auto_offset_reset="earliest", **options) as other:
                other.subscribe(["t"])
                seen: set[int] = set()
                taken_over = within(
                    20, lambda: seen.update(r.partition for r in other.poll(0.2)) or len(seen) > 1
                )
                assert taken_over
                before = len(lines)
                os.kill(child.pid, signal.SIGCONT)
                assert within(
                    20, lambda: other.poll(0.01) is None or ["assigned"] in [x[:1] for x in lines[before:]]
                )
            after = [line[0] for line in lines[before:]]
            assert after[0] == "lost"
            assert "record" not in after[: after.index("assigned")]
        finally:
            child.kill()
            child.wait()
            reader.join()
            child.stdout.close()


def within(seconds: float, what: Callable[[], object]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.01)
    return False
