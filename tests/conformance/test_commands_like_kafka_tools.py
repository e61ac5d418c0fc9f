"""The commands of kproto print what Kafka's own tools print, on a real Kafka and on the embedded broker."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, Consumer, Producer, TopicPartition
from kproto.cli import main
from tests.conformance.kafka_tools import tool

pytestmark = pytest.mark.java

GROUPS = "consumer.group.ConsumerGroupCommand"
PRINTED = ("print.timestamp", "print.partition", "print.offset", "print.headers", "print.key")
CONSOLE = [word for name in PRINTED for word in ("--formatter-property", f"{name}=true")]


@pytest.fixture(params=["kafka", "embedded"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A cluster with the topic `tools`, 20 records, the member `lively`, and the group `idle` without one."""
    cluster: Any = request.getfixturevalue("real_kafka" if request.param == "kafka" else "embedded")
    with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        admin.create_topics({"tools": 2}, configs={"retention.ms": "86400000"})
        for number in range(20):
            producer.send("tools", b"v%d" % number, key=b"k%d" % number, headers=[("h", b"%d" % number)])
        producer.flush()
        admin.commit_offsets("idle", {TopicPartition("tools", 0): 3})
        with Consumer(cluster.bootstrap, group_id="lively", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["tools"])
            while not consumer.assignment():
                consumer.poll(0.1)
            yield cluster.bootstrap
        admin.delete_topics(["tools"])
        admin.delete_groups(["idle", "lively"])


def ours(bootstrap: str, words: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Run a command of kproto, and return the words of its lines."""
    assert main([*words.split(), "--bootstrap", bootstrap]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]


def theirs(jars: str, bootstrap: str, name: str, *words: str) -> list[list[str]]:
    """Run a tool of Kafka, and return the words of its lines."""
    printed = tool(jars, name, "--bootstrap-server", bootstrap, *words)
    return [line.split() for line in printed.splitlines() if line.strip()]


def test_commands_print_what_kafkas_tools_print(
    bootstrap: str, kafka_jars: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare the words of all lines: titles, names, offsets, lags, members and leaders."""

    def kafka(name: str, words: str) -> list[list[str]]:
        return theirs(kafka_jars, bootstrap, name, *words.split())

    def kproto(words: str) -> list[list[str]]:
        return ours(bootstrap, words, capsys)

    assert kproto("topics list --internal") == kafka("TopicCommand", "--list")
    assert kproto("topics describe tools") == kafka("TopicCommand", "--describe --topic tools")
    for group in ("idle", "lively"):
        assert kproto(f"groups describe {group}") == kafka(GROUPS, f"--describe --group {group}")
        state = kafka(GROUPS, f"--describe --group {group} --state")
        assert kproto(f"groups describe {group} --state") == state
    # Kafka's table of members has the id of static members only if there is one, and the assignment only with
    # --verbose.
    members = kproto("groups describe lively --members")
    shown = [[*row[:2], *row[3:6]] for row in members]
    assert shown == kafka(GROUPS, "--describe --group lively --members")
    for words in ("--to-earliest", "--to-offset 7", "--shift-by 2", "--shift-by -1"):
        reset = kafka(GROUPS, f"--reset-offsets --group idle --topic tools:0 --dry-run {words}")
        assert kproto(f"groups reset idle --topic tools:0 {words}") == reset, words
    for time, number in (("latest", -1), ("earliest", -2)):
        offsets = kafka("GetOffsetShell", f"--topic tools --time {number}")
        assert kproto(f"offsets list tools --time {time}") == offsets
    read = kafka(
        "consumer.ConsoleConsumer", " ".join(["--topic tools --from-beginning --max-messages 20", *CONSOLE])
    )
    printed = kproto("consume tools --print timestamp,partition,offset,headers,key,value")
    assert len(printed) == 20
    assert sorted(printed) == sorted(read)


def test_what_kprotos_producer_sends_kafkas_consumer_reads(
    bootstrap: str, kafka_jars: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"key:one\nkey:two\n")))
    assert ours(bootstrap, "produce tools --key-separator : --header a=b", capsys) == []
    words = ["--topic", "tools", "--from-beginning", "--max-messages", "22", *CONSOLE]
    lines = theirs(kafka_jars, bootstrap, "consumer.ConsoleConsumer", *words)
    assert [line[3:] for line in lines if line[-1] in ("one", "two")] == [
        ["a:b", "key", "one"],
        ["a:b", "key", "two"],
    ]
