"""kill -9 of executors, drivers and their Python processes on a cluster: every row arrives exactly once.

`KPROTO_SPARK_KILLS=50` sets the number of kills (tox -e soak). The default is two. `KPROTO_SEED`, which is
printed, determines which processes are killed, and when.

The test can fail: with a planner that returned to startingOffsets after each restart, four kills produced
2009 extra rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Literal

import pytest

pytest.importorskip("pyspark")

import pyarrow.parquet as pq

from consumer import Consumer, OffsetAt
from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch
from kproto.records.record import Record
from tests import seeds
from tests.conformance import spark_cluster
from tests.conformance.judges import RealKafka
from tests.conformance.spark_cluster import Cluster, below, driver, eventually, kill
from tests.consumer.spark.stage import HOUR, Filled

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
KILLS = int(os.environ.get("KPROTO_SPARK_KILLS", "2"))
PARTITIONS = 3

KINDS = {
    "driver": "spark_crash_job.py",
    "executor": "CoarseGrainedExecutorBackend",
    "python": "pyspark.daemon",
    "planner": "python_streaming_source_runner",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster.running(tmp_path_factory.mktemp("spark")) as running:
        yield running


class CrashRun:
    """One run of the test: a growing topic, and a driver that is restarted whenever it ends."""

    def __init__(self, cluster: Cluster, kafka: Filled, folder: Path, random: Random) -> None:
        self.cluster, self.kafka, self.folder, self.random = cluster, kafka, folder, random
        self.topic = f"crashes-{time.time_ns()}"
        self.ends = [0] * PARTITIONS
        kafka.topic(self.topic, *self.ends)
        kafka.topic(f"{self.topic}-copy", *self.ends)
        kafka.topic(f"{self.topic}-once", *self.ends)
        self.process: subprocess.Popen[bytes] | None = None

    def write(self) -> None:
        """Write records whose values are their own offsets."""
        for number in range(PARTITIONS):
            for _ in range(self.random.randint(1, 4)):
                first, count = self.ends[number], self.random.randint(1, 200)
                records = [Record(i, HOUR, None, b"%d" % (first + i)) for i in range(count)]
                self.kafka.cluster.produce(TopicPartition(self.topic, number), encode_batch(records))
                self.ends[number] += count

    def drive(self) -> None:
        if self.process is None or self.process.poll() is not None:
            arguments = (self.kafka.bootstrap, self.topic, str(self.folder))
            self.process = driver(self.cluster, HERE / "spark_crash_job.py", *arguments)

    def progress(self) -> int:
        """Restart the driver if it has ended, and return the number of completed batches of all streams."""
        self.drive()
        # Batches are counted by their batch ids, because Spark keeps only a stream's last hundred commits.
        numbers = (self._last(folder) for folder in self.folder.glob("checkpoints/*/commits"))
        return sum(number + 1 for number in numbers)

    @staticmethod
    def _last(folder: Path) -> int:
        return max((int(path.name) for path in folder.glob("[0-9]*") if path.name.isdigit()), default=-1)

    def kill(self, kind: str) -> None:
        assert self.process is not None
        inside = {self.process.pid: KINDS["driver"], **below(self.process.pid)}
        if kind != "driver":
            inside |= below(*(process.pid for process in self.cluster.processes))
            inside = {pid: command for pid, command in inside.items() if KINDS[kind] in command}
            assert inside, f"there is no {kind} to kill"
            kill([self.random.choice(sorted(inside))])
        else:
            kill(list(inside))
            self.process.wait()

    def close(self) -> None:
        """Stop the driver, even if the test failed."""
        if self.process is not None and self.process.poll() is None:
            self.kill("driver")

    def end(self) -> None:
        (self.folder / "stop").touch()
        eventually(lambda: self.progress() > 0 and (self.folder / "done").exists(), "the job ends", 900)
        assert self.process is not None
        self.process.wait(60)


def test_every_row_is_there_once_whatever_process_is_killed(
    cluster: Cluster, real_kafka: RealKafka, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = seeds.FIRST
    print(f"KPROTO_SEED={seed}")
    random = Random(seed)
    kafka = Filled(real_kafka.bootstrap)
    with kafka.cluster:
        story = CrashRun(cluster, kafka, tmp_path, random)
        request.addfinalizer(story.close)
        kinds: list[str] = []
        for number in range(KILLS):
            story.write()
            before, began = story.progress(), time.monotonic()
            eventually(lambda before=before: story.progress() > before + 2, "batches after a kill", 600)
            waited = time.monotonic() - began
            time.sleep(random.uniform(0, 1))
            kinds = kinds or random.sample(sorted(KINDS), len(KINDS))
            kind = kinds.pop()
            story.kill(kind)
            print(
                f"kill {number + 1}: {kind}, {waited:.0f} s after the one before, batch {before}", flush=True
            )
        story.write()
        story.end()

        every = {(number, n) for number, end in enumerate(story.ends) for n in range(end)}
        table = pq.read_table(committed(tmp_path / "rows")).to_pylist()
        assert sorted((row["partition"], row["offset"]) for row in table) == sorted(every)
        assert all(row["value"] == str(row["offset"]) for row in table)
        counts = {int(number): n for number, n in json.loads((tmp_path / "counts").read_text()).items()}
        assert counts == dict(enumerate(story.ends))
        # The sink without transactions writes each row at least once.
        assert set(copied(kafka, f"{story.topic}-copy")) == every
        # With transactions, a read_committed consumer reads each row exactly once.
        assert sorted(copied(kafka, f"{story.topic}-once", "read_committed")) == sorted(every)
        assert set((tmp_path / "batches").read_text().splitlines()) == {"right"}


def committed(folder: Path) -> list[str]:
    """Return the valid files of a folder: the files that its log `_spark_metadata` lists."""
    names: dict[str, None] = {}
    log = folder / "_spark_metadata"
    compacted = sorted(log.glob("*.compact"), key=lambda path: int(path.stem))[-1:]
    first = int(compacted[0].stem) + 1 if compacted else 0
    later = sorted(
        (path for path in log.glob("[0-9]*") if path.name.isdigit()), key=lambda path: int(path.name)
    )
    for path in [*compacted, *(path for path in later if int(path.name) >= first)]:
        for line in path.read_text().splitlines()[1:]:
            names[json.loads(line)["path"].removeprefix("file://")] = None
    return list(names)


def copied(
    kafka: Filled, topic: str, isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
) -> list[tuple[int, int]]:
    """Wait until every transaction has ended, and return (partition, value) of each record of a topic."""
    records_read: list[tuple[int, int]] = []
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    def ends_for(level: str) -> dict[TopicPartition, OffsetAt]:
        return kafka.cluster.list_offsets(dict.fromkeys(partitions, "latest"), isolation=level)

    # A producer gets the response to its commit before the transaction's markers are in the logs.
    def settled() -> bool:
        return ends_for("read_committed") == ends_for("read_uncommitted")

    eventually(settled, "no open transaction", 60)
    ends = ends_for("read_uncommitted")
    with Consumer(kafka.bootstrap, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        consumer.assign(partitions)
        while any(consumer.position(partition) < (end.offset or 0) for partition, end in ends.items()):
            records = consumer.poll(60)
            assert records or all(consumer.position(p) >= (end.offset or 0) for p, end in ends.items())
            records_read += [(record.partition, int(record.value or b"-1")) for record in records]
    return records_read


def test_executors_without_kproto_are_reported_in_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "sitecustomize.py").write_text(
        'import sys\nsys.modules["kproto"] = sys.modules["consumer"] = None\n'
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from consumer.spark import register\n"
        "from tests.conformance.spark_cluster import session\n"
        "try:\n"
        "    register(session(sys.argv[1]))\n"
        "except ImportError as error:\n"
        "    open(sys.argv[2], 'w').write(str(error))\n"
    )
    message_file = tmp_path / "told"
    process = driver(cluster, program, str(message_file), EXECUTORS_PYTHONPATH=str(bare))
    assert process.wait(600) == 0
    assert "which lacks kproto, consumer: install kproto[spark] there" in message_file.read_text()
