"""confluent-kafka as a group member that is controlled through stdin.

    confluent.py BOOTSTRAP CLIENT_ID GROUP CONFIG_JSON

kproto/testing/driver.py describes the commands and the output. Errors have librdkafka's names.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

OPTIONS = {
    "instance": "group.instance.id",
    "session_ms": "session.timeout.ms",
    "heartbeat_ms": "heartbeat.interval.ms",
    "max_poll_ms": "max.poll.interval.ms",
    "auto_commit": "enable.auto.commit",
    "auto_commit_ms": "auto.commit.interval.ms",
    "reset": "auto.offset.reset",
    "metadata_ms": "topic.metadata.refresh.interval.ms",
    "rack": "client.rack",
    "isolation": "isolation.level",
}


def say(*words: object) -> None:
    print(f"{time.time():.6f}", *words, flush=True)


def written(partitions: list[Any]) -> str:
    return " ".join(sorted(f"{partition.topic}:{partition.partition}" for partition in partitions))


def failed(event: str, error: Any) -> None:
    cause = error.args[0] if isinstance(error, KafkaException) else error
    name = cause.name() if hasattr(cause, "name") else type(cause).__name__
    say(event, name, str(cause).replace("\n", " "))


def partition(text: str) -> Any:
    topic, number, *offset = text.split(":")
    return TopicPartition(topic, int(number), *map(int, offset))


class ConfluentMember:
    def __init__(self, bootstrap: str, client_id: str, group: str, conf: dict[str, Any]) -> None:
        self.conf = conf
        options = {OPTIONS[key]: value for key, value in conf.items() if key in OPTIONS and value is not None}
        if "assignors" in conf:
            options["partition.assignment.strategy"] = ",".join(conf["assignors"])
        fixed = {"log_level": 0, "fetch.wait.max.ms": 100, "topic.metadata.propagation.max.ms": 1000}
        names = {"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": group}
        self.consumer = Consumer({**names, **fixed, **options})
        self.commands: queue.Queue[str] = queue.Queue()
        self.polling = False

    def listen(self) -> None:
        for line in sys.stdin:
            self.commands.put(line.strip())
        self.commands.put("close")

    def run(self) -> None:
        threading.Thread(target=self.listen, daemon=True).start()
        say("ready")
        while True:
            line = None
            with contextlib.suppress(queue.Empty):
                line = self.commands.get_nowait() if self.polling else self.commands.get()
            try:
                if line:
                    self.obey(line)
                    say("done", line)
                else:
                    self.poll()
            except KafkaException as error:
                failed("error", error)
                time.sleep(0 if line else 0.3)

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            if message.error():
                failed("error", message.error())
            else:
                say("R", f"{message.topic()}:{message.partition()}", message.offset())

    def commit(self, asynchronous: bool) -> None:
        try:
            offsets = self.consumer.commit(asynchronous=asynchronous)
        except KafkaException as error:
            failed("commit", error)
            return
        bad = [offset.error for offset in offsets or [] if offset.error]
        if bad:
            failed("commit", bad[0])
        else:
            say("commit", "ok")

    def revoked(self, _: Any, partitions: list[Any]) -> None:
        say("revoked", written(partitions))
        if self.conf.get("commit_in_revoke"):
            self.commit(False)
        time.sleep(self.conf.get("revoke_ms", 0) / 1000)

    def obey(self, line: str) -> None:
        word, *arguments = line.split()
        if word in ("subscribe", "pattern"):
            self.consumer.subscribe(
                arguments,
                on_assign=lambda _, partitions: say("assigned", written(partitions)),
                on_revoke=self.revoked,
                on_lost=lambda _, partitions: say("lost", written(partitions)),
            )
            self.polling = not self.conf.get("manual_poll")
        elif word == "unsubscribe":
            self.consumer.unsubscribe()
            end = time.time() + 1.5
            while time.time() < end:  # poll() calls the revocation callback.
                self.consumer.poll(0.05)
            self.polling = False
            say("unsubscribed")
        elif word == "assign":
            self.consumer.assign([partition(argument) for argument in arguments])
        elif word == "seek":
            self.consumer.seek(partition(arguments[0]))
        elif word == "poll":
            self.polling = arguments[0] == "on"
        elif word == "sleep":
            time.sleep(int(arguments[0]) / 1000)
            say("slept")
        elif word in ("commit", "commit-async"):
            self.commit(word == "commit-async")
        elif word == "assignment":
            say(
                "assignment",
                " ".join(
                    f"{written([assigned])}@{assigned.offset}" for assigned in self.consumer.assignment()
                ),
            )
        elif word == "close":
            self.consumer.close()
            say("closed")
            sys.exit()
        else:
            say("error", "UnknownCommand", line)


if __name__ == "__main__":
    ConfluentMember(*sys.argv[1:4], json.loads(sys.argv[4])).run()
