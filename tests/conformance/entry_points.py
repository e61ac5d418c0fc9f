"""Each door by which somebody comes to a cluster, who is not let in: how it is told, and how often.

In the same process a door is a call: (place, options) -> None, and raises. A command is a process of its own:
(place, a client.properties) -> its lines. Doors that go on by themselves are left open for a while after they
told.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from consumer import (
    OLDEST,
    AsyncCluster,
    AsyncConsumer,
    AsyncConsumerGroup,
    AsyncPartitionConsumers,
    AsyncProducer,
    AsyncQueueProducer,
    AsyncSyncProducer,
    Cluster,
    Consumer,
    ConsumerGroup,
    PartitionConsumers,
    Producer,
    ProducerMessage,
    QueueProducer,
    SyncProducer,
    TopicPartition,
)
from kproto.errors import KprotoError

Door = Callable[[str, dict[str, Any]], None]
T0 = TopicPartition("flights", 0)
WAIT = 30.0  # Seconds that each call would wait for a broker.
SOON = {"max_block_ms": 3_000}  # Of producers: who is not refused for good is waited for so long.


def message() -> ProducerMessage:
    return ProducerMessage(topic="flights", value=b"x")


class Nothing:
    """A handler that is never called."""

    def setup(self, session: Any) -> None:
        raise AssertionError

    consume_claim: Any = setup
    cleanup: Any = setup


# ---- threads


def cluster(call: Callable[[Cluster], object]) -> Door:
    def come(place: str, how: dict[str, Any]) -> None:
        with Cluster(place, timeout=WAIT, **how) as one:
            call(one)

    return come


def consumer(call: Callable[[Consumer], object], **more: Any) -> Door:
    def come(place: str, how: dict[str, Any]) -> None:
        with Consumer(place, group_id="told", **how) as one:
            if more.get("assigned"):
                one.assign([T0])
            else:
                one.subscribe(["flights"])
            with contextlib.suppress(KprotoError):
                call(one)
            call(one)  # whoever asks again hears the same, and the log is silent

    return come


def producer(place: str, how: dict[str, Any]) -> None:
    with Producer(place, **SOON, **how) as one:
        one.send("flights", b"x").result(WAIT)


def transaction(place: str, how: dict[str, Any]) -> None:
    with Producer(place, transactional_id="told", **SOON, **how) as one, one.transaction():
        one.send("flights", b"x")


def group(place: str, how: dict[str, Any]) -> None:
    with ConsumerGroup(place, group_id="told", **how) as one:
        one.consume(["flights"], Nothing())


def partitions(place: str, how: dict[str, Any]) -> None:
    with PartitionConsumers(place, **how) as one:
        one.consume_partition("flights", 0, OLDEST)


def sync_producer(place: str, how: dict[str, Any]) -> None:
    with SyncProducer(place, **SOON, **how) as one:
        one.send_message(message())


def queue_producer(place: str, how: dict[str, Any]) -> None:
    one = QueueProducer(place, **SOON, **how)
    one.input(message())
    one.async_close()
    [error] = one.errors()
    raise error.error


# ---- asyncio


def awaited(come: Callable[[str, dict[str, Any]], Coroutine[Any, Any, None]]) -> Door:
    return lambda place, how: asyncio.run(asyncio.wait_for(come(place, how), 2 * WAIT))


def async_cluster(call: Callable[[AsyncCluster], Coroutine[Any, Any, object]]) -> Door:
    async def come(place: str, how: dict[str, Any]) -> None:
        async with AsyncCluster(place, timeout=WAIT, **how) as one:
            await call(one)

    return awaited(come)


async def async_consumer(place: str, how: dict[str, Any]) -> None:
    async with AsyncConsumer(place, group_id="told", **how) as one:
        one.subscribe(["flights"])
        await one.poll(WAIT)


async def async_producer(place: str, how: dict[str, Any]) -> None:
    async with AsyncProducer(place, **SOON, **how) as one:
        await (await one.send("flights", b"x"))


async def async_group(place: str, how: dict[str, Any]) -> None:
    async with AsyncConsumerGroup(place, group_id="told", **how) as one:
        await one.consume(["flights"], Nothing())


async def async_partitions(place: str, how: dict[str, Any]) -> None:
    async with AsyncPartitionConsumers(place, **how) as one:
        await one.consume_partition("flights", 0, OLDEST)


async def async_sync_producer(place: str, how: dict[str, Any]) -> None:
    async with AsyncSyncProducer(place, **SOON, **how) as one:
        await one.send_message(message())


async def async_queue_producer(place: str, how: dict[str, Any]) -> None:
    one = AsyncQueueProducer(place, **SOON, **how)
    await one.input(message())
    one.async_close()
    [error] = [error async for error in one.errors()]
    raise error.error


DOORS: dict[str, Door] = {
    "Cluster.topics": cluster(lambda one: one.topics()),
    "Cluster.create_topics": cluster(lambda one: one.create_topics({"new": 1})),
    "Cluster.list_offsets": cluster(lambda one: one.list_offsets({T0: "latest"})),
    "Cluster.groups": cluster(lambda one: one.groups()),
    "Cluster.group": cluster(lambda one: one.group("told")),
    "Cluster.commit_offsets": cluster(lambda one: one.commit_offsets("told", {T0: 0})),
    "Cluster.fetch": cluster(lambda one: one.fetch({T0: 0})),
    "AsyncCluster.topics": async_cluster(lambda one: one.topics()),
    "AsyncCluster.delete_topics": async_cluster(lambda one: one.delete_topics(["new"])),
    "Consumer.poll": consumer(lambda one: one.poll(WAIT)),
    "Consumer.poll_columns": consumer(lambda one: one.poll_columns(WAIT), assigned=True),
    "Consumer, iterated": consumer(lambda one: next(iter(one))),
    "Consumer.committed": consumer(lambda one: one.committed([T0], timeout=WAIT)),
    "AsyncConsumer": awaited(async_consumer),
    "Producer.send": producer,
    "Producer.transaction": transaction,
    "AsyncProducer": awaited(async_producer),
    "ConsumerGroup": group,
    "AsyncConsumerGroup": awaited(async_group),
    "PartitionConsumers": partitions,
    "AsyncPartitionConsumers": awaited(async_partitions),
    "SyncProducer": sync_producer,
    "AsyncSyncProducer": awaited(async_sync_producer),
    "QueueProducer": queue_producer,
    "AsyncQueueProducer": awaited(async_queue_producer),
}


# ---- commands: (place, client.properties, folder) -> lines


def python(*words: str, **pipes: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **pipes}
    return subprocess.Popen([sys.executable, "-m", *words], text=True, **pipes)


def ended(process: subprocess.Popen[str]) -> list[str]:
    told, _ = process.communicate(timeout=60)
    return told.splitlines()


def member(place: str, file: str, folder: Path) -> list[str]:
    """Its lines alone: its log is another thing."""
    pipes: Any = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = python(
        "kproto", "member", "--as", "kproto", "--command-config", file, place, "me", "g", **pipes
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("subscribe flights\n")
    process.stdin.flush()
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if " error " in line:
            break
    process.stdin.write("sleep 1\npoll on\nsleep 1\n")  # polls go on in between
    process.stdin.flush()
    timer = threading.Timer(3, process.stdin.close)
    timer.start()
    lines += process.stdout
    process.wait(60)
    timer.cancel()
    return [line for line in lines if " error " in line]


def demo(place: str, file: str, folder: Path) -> list[str]:
    words = ("--no-spark", "--records", "10", "--seconds", "1", "--picture", str(folder / "p.html"))
    process = python("kproto", "demo", "--bootstrap", place, "--command-config", file, *words)
    lines = ended(process)
    assert process.returncode == 1
    return lines


def watch(place: str, file: str, folder: Path) -> list[str]:
    """With two clients behind it, if it gets so far."""
    process = python("kproto", "watch", place, "--listen", "127.0.0.1:0", "--command-config", file)
    assert process.stdout is not None
    first = process.stdout.readline()
    if not first.startswith("clients may use "):
        return [first, *ended(process)]
    with contextlib.suppress(KprotoError), Cluster(first.split()[3], timeout=WAIT) as one:
        for _ in range(2):
            with contextlib.suppress(KprotoError):
                one.topics()
    process.send_signal(signal.SIGINT)
    return [line for line in ended(process) if place.rpartition(":")[2] in line]


def fixture(place: str, file: str, folder: Path) -> list[str]:
    """pytest's `kafka`, with two tests; without its summary, in which CI has all words again."""
    (folder / "test_it.py").write_text("def test_one(kafka):\n    pass\n\ndef test_other(kafka):\n    pass\n")
    words = ("-q", "-rN", "-p", "no:cacheprovider", "--rootdir", str(folder), f"--kafka={place}", str(folder))
    lines = ended(python("pytest", *words))
    assert len(lines) < 15, lines
    at = next(number for number, line in enumerate(lines) if "at setup of test_other" in line)
    return lines[at:]


COMMANDS: dict[str, Callable[[str, str, Path], list[str]]] = {
    "kproto member": member,
    "kproto demo": demo,
    "kproto watch": watch,
    "pytest --kafka": fixture,
}


def concerns(command: str, case: Any) -> bool:
    """A fixture speaks neither TLS nor SASL; who watches speaks TLS, and leaves SASL to the clients."""
    protocol = case.changes.get("security_protocol", "")
    if command == "pytest --kafka":
        return bool(protocol == "PLAINTEXT")
    if command == "kproto watch":
        tls = protocol == "PLAINTEXT" and case.listener == "SSL"
        return tls or protocol == "SSL" or (case.listener in ("SSL", "MTLS", "EXPIRED", "ELSEWHERE"))
    return True
