"""kafka-python or aiokafka as a group member that is controlled through stdin.

    python_clients.py kafka-python|aiokafka BOOTSTRAP CLIENT_ID GROUP CONFIG_JSON

kproto/testing/driver.py describes the commands and the output. This program supports subscribe, commit and
close.

The program keeps the default metadata age. With a shorter one, kafka-python's leader would rebalance at each
metadata change while a group forms.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any


def say(*words: object) -> None:
    print(f"{time.time():.6f}", *words, flush=True)


def written(partitions: Iterable[Any]) -> str:
    return " ".join(sorted(f"{partition.topic}:{partition.partition}" for partition in partitions))


def options(bootstrap: str, client_id: str, group: str, conf: dict[str, Any]) -> dict[str, Any]:
    """Return the options that have the same names in kafka-python and aiokafka."""
    return {
        "bootstrap_servers": bootstrap,
        "client_id": client_id,
        "group_id": group,
        "session_timeout_ms": conf["session_ms"],
        "heartbeat_interval_ms": conf["heartbeat_ms"],
        "max_poll_interval_ms": conf["max_poll_ms"],
        "enable_auto_commit": conf["auto_commit"],
        "auto_commit_interval_ms": conf["auto_commit_ms"],
        "auto_offset_reset": conf["reset"],
        "fetch_max_wait_ms": 100,
    }


def commands() -> queue.Queue[str]:
    lines: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line.strip())
        lines.put("close")

    threading.Thread(target=listen, daemon=True).start()
    say("ready")
    return lines


def print_records(records: dict[Any, list[Any]]) -> None:
    for partition_records in records.values():
        for record in partition_records:
            say("R", f"{record.topic}:{record.partition}", record.offset)


def kafka_python(bootstrap: str, client_id: str, group: str, conf: dict[str, Any]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", written(revoked))

        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", written(assigned))

    consumer = KafkaConsumer(
        **options(bootstrap, client_id, group, conf), partition_assignment_strategy=[RangePartitionAssignor]
    )
    todo = commands()
    line = todo.get()
    while line != "close":
        word, *topics = line.split() or [""]
        if word == "subscribe":
            consumer.subscribe(topics, listener=Listener())
        elif word == "commit":
            consumer.commit()
            say("commit", "ok")
        if word:
            say("done", line)
        print_records(consumer.poll(timeout_ms=50))
        line = "" if todo.empty() else todo.get()
    consumer.close()
    say("closed")


async def aiokafka(bootstrap: str, client_id: str, group: str, conf: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            say("revoked", written(revoked))

        async def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", written(assigned))

    consumer = AIOKafkaConsumer(
        **options(bootstrap, client_id, group, conf), partition_assignment_strategy=[RangePartitionAssignor]
    )
    todo = commands()
    line = await asyncio.to_thread(todo.get)
    started = False
    while line != "close":
        word, *topics = line.split() or [""]
        if word == "subscribe":
            consumer.subscribe(topics, listener=Listener())
            await consumer.start()
            started = True
        elif word == "commit":
            await consumer.commit()
            say("commit", "ok")
        if word:
            say("done", line)
        print_records(await consumer.getmany(timeout_ms=50))
        line = "" if todo.empty() else todo.get()
    if started:
        await consumer.stop()
    say("closed")


if __name__ == "__main__":
    client, *words, conf = sys.argv[1:]
    if client == "aiokafka":
        asyncio.run(aiokafka(*words, json.loads(conf)))
    else:
        kafka_python(*words, json.loads(conf))
