"""All entry points at which the authentication or authorization of a client can fail.

An entry point in this process is a function that takes the bootstrap address and the options, and raises the
client's error.

A command runs in a separate process. Its entry point is a function that takes the address, a
client.properties file and a folder, and returns the printed lines.

Some entry points keep their client open for a while after the error, to show whether the client reports it
again.
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
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncConsumerGroup,
    AsyncPartitionConsumers,
    AsyncProducer,
    AsyncQueueProducer,
    AsyncSyncProducer,
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

EntryPoint = Callable[[str, dict[str, Any]], None]
T0 = TopicPartition("flights", 0)
# The timeout of each call, in seconds.
WAIT = 30.0
# Producers retry a retriable error for 3 s instead of 60 s, the default of max.block.ms.
SOON = {"max_block_ms": 3_000}


def message() -> ProducerMessage:
    return ProducerMessage(topic="flights", value=b"x")


class Nothing:
    """A handler whose callbacks are never called."""

    def setup(self, session: Any) -> None:
        raise AssertionError

    consume_claim: Any = setup
    cleanup: Any = setup


# ---- threads


def cluster(call: Callable[[Admin], object]) -> EntryPoint:
    def come(place: str, how: dict[str, Any]) -> None:
        with Admin(place, timeout=WAIT, **how) as client:
            call(client)

    return come


def consumer(call: Callable[[Consumer], object], **more: Any) -> EntryPoint:
    def come(place: str, how: dict[str, Any]) -> None:
        with Consumer(place, group_id="told", **how) as client:
            if more.get("assigned"):
                client.assign([T0])
            else:
                client.subscribe(["flights"])
            with contextlib.suppress(KprotoError):
                call(client)
            call(client)  # A repeated call raises the same error, and the error is not logged again.

    return come


def producer(place: str, how: dict[str, Any]) -> None:
    with Producer(place, **SOON, **how) as client:
        client.send("flights", b"x").result(WAIT)


def transaction(place: str, how: dict[str, Any]) -> None:
    with Producer(place, transactional_id="told", **SOON, **how) as client, client.transaction():
        client.send("flights", b"x")


def group(place: str, how: dict[str, Any]) -> None:
    with ConsumerGroup(place, group_id="told", **how) as client:
        client.consume(["flights"], Nothing())


def partitions(place: str, how: dict[str, Any]) -> None:
    with PartitionConsumers(place, **how) as client:
        client.consume_partition("flights", 0, OLDEST)


def sync_producer(place: str, how: dict[str, Any]) -> None:
    with SyncProducer(place, **SOON, **how) as client:
        client.send_message(message())


def queue_producer(place: str, how: dict[str, Any]) -> None:
    client = QueueProducer(place, **SOON, **how)
    client.input(message())
    client.async_close()
    [error] = client.errors()
    raise error.error


# ---- asyncio


def awaited(come: Callable[[str, dict[str, Any]], Coroutine[Any, Any, None]]) -> EntryPoint:
    return lambda place, how: asyncio.run(asyncio.wait_for(come(place, how), 2 * WAIT))


def async_cluster(call: Callable[[AsyncAdmin], Coroutine[Any, Any, object]]) -> EntryPoint:
    async def come(place: str, how: dict[str, Any]) -> None:
        async with AsyncAdmin(place, timeout=WAIT, **how) as client:
            await call(client)

    return awaited(come)


async def async_consumer(place: str, how: dict[str, Any]) -> None:
    async with AsyncConsumer(place, group_id="told", **how) as client:
        client.subscribe(["flights"])
        await client.poll(WAIT)


async def async_producer(place: str, how: dict[str, Any]) -> None:
    async with AsyncProducer(place, **SOON, **how) as client:
        await (await client.send("flights", b"x"))


async def async_group(place: str, how: dict[str, Any]) -> None:
    async with AsyncConsumerGroup(place, group_id="told", **how) as client:
        await client.consume(["flights"], Nothing())


async def async_partitions(place: str, how: dict[str, Any]) -> None:
    async with AsyncPartitionConsumers(place, **how) as client:
        await client.consume_partition("flights", 0, OLDEST)


async def async_sync_producer(place: str, how: dict[str, Any]) -> None:
    async with AsyncSyncProducer(place, **SOON, **how) as client:
        await client.send_message(message())


async def async_queue_producer(place: str, how: dict[str, Any]) -> None:
    client = AsyncQueueProducer(place, **SOON, **how)
    await client.input(message())
    client.async_close()
    [error] = [error async for error in client.errors()]
    raise error.error


ENTRY_POINTS: dict[str, EntryPoint] = {
    "Admin.topics": cluster(lambda client: client.topics()),
    "Admin.create_topics": cluster(lambda client: client.create_topics({"new": 1})),
    "Admin.list_offsets": cluster(lambda client: client.list_offsets({T0: "latest"})),
    "Admin.list_groups": cluster(lambda client: client.list_groups()),
    "Admin.group": cluster(lambda client: client.group("told")),
    "Admin.commit_offsets": cluster(lambda client: client.commit_offsets("told", {T0: 0})),
    "Admin.fetch": cluster(lambda client: client.fetch({T0: 0})),
    "AsyncAdmin.topics": async_cluster(lambda client: client.topics()),
    "AsyncAdmin.delete_topics": async_cluster(lambda client: client.delete_topics(["new"])),
    "Consumer.poll": consumer(lambda client: client.poll(WAIT)),
    "Consumer.poll_columns": consumer(lambda client: client.poll_columns(WAIT), assigned=True),
    "Consumer, iterated": consumer(lambda client: next(iter(client))),
    "Consumer.committed": consumer(lambda client: client.committed([T0], timeout=WAIT)),
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


# ---- commands: (bootstrap address, path of client.properties, folder) -> printed lines


def python(*words: str, **pipes: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **pipes}
    return subprocess.Popen([sys.executable, "-m", *words], text=True, **pipes)


def ended(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=60)
    return output.splitlines()


def member(place: str, file: str, folder: Path) -> list[str]:
    """Return the errors that `kproto member` prints on stdout. Its log on stderr is ignored."""
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
    process.stdin.write("sleep 1\npoll on\nsleep 1\n")  # Polls continue in between.
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
    """Run `kproto watch`. If it starts, send two requests through it."""
    process = python("kproto", "watch", place, "--listen", "127.0.0.1:0", "--command-config", file)
    assert process.stdout is not None
    first = process.stdout.readline()
    if not first.startswith("clients can use "):
        return [first, *ended(process)]
    with contextlib.suppress(KprotoError), Admin(first.split()[3], timeout=WAIT) as client:
        for _ in range(2):
            with contextlib.suppress(KprotoError):
                client.topics()
    process.send_signal(signal.SIGINT)
    return [line for line in ended(process) if place.rpartition(":")[2] in line]


def fixture(place: str, file: str, folder: Path) -> list[str]:
    """Run two tests with pytest's `kafka` fixture. The summary is disabled, because it would repeat all
    messages.
    """
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
    """Return whether a command supports the options of this `security_errors` case.

    The pytest plugin supports neither TLS nor SASL, and `kproto watch` does not support SASL.
    """
    protocol = case.changes.get("security_protocol", "")
    if command == "pytest --kafka":
        return bool(protocol == "PLAINTEXT")
    if command == "kproto watch":
        tls = protocol == "PLAINTEXT" and case.listener == "SSL"
        return tls or protocol == "SSL" or (case.listener in ("SSL", "MTLS", "EXPIRED", "ELSEWHERE"))
    return True
