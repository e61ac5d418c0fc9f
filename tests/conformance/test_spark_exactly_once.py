"""A sink task with transactionalIdPrefix writes each row exactly once, to a real Kafka and without a JVM.

`KPROTO_SPARK_KILLS` is the number of kills. `KPROTO_SEED`, which is printed, determines their times.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import StructType

from consumer import Admin, Producer
from consumer.spark.options import parse
from consumer.spark.writer import KprotoStreamWriter, KprotoWriter
from kproto.errors import KprotoError
from tests import seeds
from tests.conformance.sink_task import run
from tests.conformance.transaction_records import Place, bootstrap_of

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KILLS = int(os.environ.get("KPROTO_SPARK_KILLS", "10"))
ROWS = 20
SCHEMA = StructType().add("value", "string")


@pytest.fixture(params=["kafka", "embedded"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    before = TaskContext._taskContext
    with bootstrap_of(request.param, request) as bootstrap, Admin(bootstrap) as cluster:
        yield Place(bootstrap, cluster, Producer)
    TaskContext._taskContext = before


def sink(kind: Any, place: Place) -> Any:
    options = {"topic": place.name, "transactionalIdPrefix": place.name, "kafka.max.block.ms": "300000"}
    return kind(SCHEMA, parse({"kafka.bootstrap.servers": place.bootstrap, **options}), False)


def test_a_repeated_task_writes_nothing_and_the_next_batch_is_written(place: Place) -> None:
    writer = sink(KprotoStreamWriter, place)
    for batch in (0, 0, 1, 1, 0, 3, 2):
        run(writer, 0, batch, [f"a{batch}", f"b{batch}"])
    run(writer, 1, 0, ["other"])
    run(writer, 2, 0, [])
    assert place.seen() == ["a0", "a1", "a3", "b0", "b1", "b3", "other"]


def test_a_failed_task_leaves_nothing_and_its_retry_writes_all_rows(place: Place) -> None:
    writer = sink(KprotoStreamWriter, place)

    def failing() -> Iterator[str]:
        yield from "abc"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(writer, 0, 0, failing())
    run(writer, 0, 0, "abc")
    assert place.seen() == [*"abc"]


def send(process: Any, number: int) -> None:
    """Send a signal to a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def test_one_of_two_copies_of_a_task_writes(place: Place) -> None:
    writer = sink(KprotoStreamWriter, place)

    def slow() -> Iterator[str]:
        yield "a"
        # A speculative copy of a task writes both rows and finishes while the first copy waits for its second
        # row.
        run(writer, 0, 0, "ab")
        yield "b"

    with pytest.raises(KprotoError):
        run(writer, 0, 0, slow())
    assert place.seen() == [*"ab"]


def test_a_task_writes_once_in_its_job_and_again_in_another_job(place: Place) -> None:
    writer = sink(KprotoWriter, place)
    for _ in range(2):
        run(writer, 0, 0, ["first"])
    run(sink(KprotoWriter, place), 0, 0, ["second"])
    assert place.seen() == ["first", "second"]


def test_every_row_is_seen_once_when_tasks_are_killed_or_stopped(place: Place) -> None:
    seed = seeds.FIRST
    print(f"KPROTO_SEED={seed}")
    random, writer = Random(seed), sink(KprotoStreamWriter, place)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["consumer.spark.writer", "tests.conformance.sink_task"])
    stopped: list[Any] = []
    killed, batch, took = 0, 0, 5.0

    def start() -> Any:
        rows = [f"{batch:04}-{number:02}" for number in range(ROWS)]
        process = processes.Process(target=run, args=(writer, 0, batch, rows, 0.01))
        process.start()
        return process

    while killed < KILLS:
        began, process = time.monotonic(), start()
        process.join(random.uniform(0, 1.5 * took) if random.random() < 0.7 else None)
        if process.is_alive() and random.random() < 0.3:
            # The stopped task becomes a zombie: it is resumed after other processes have done its work.
            send(process, signal.SIGSTOP)
            stopped.append(process)
        elif process.is_alive():
            process.kill()
            process.join()
            killed += 1
        elif random.random() < 0.3:
            # The task has ended. It runs again all the same, because Spark may not have received its result.
            killed += 1
        else:
            assert process.exitcode == 0
            took = time.monotonic() - began
            batch += 1
        if stopped and random.random() < 0.3:
            zombie = stopped.pop()
            send(zombie, signal.SIGCONT)
            zombie.join()
    for zombie in stopped:
        send(zombie, signal.SIGCONT)
        zombie.join()
    last = start()
    last.join()
    assert last.exitcode == 0
    assert place.seen() == [f"{b:04}-{n:02}" for b in range(batch + 1) for n in range(ROWS)]
