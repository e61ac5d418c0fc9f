"""Kafka's command-line tools, and therefore its Java clients, work with the embedded broker."""

from __future__ import annotations

import pytest

from kproto.broker.server import Server
from tests.conformance.kafka_tools import tool

pytestmark = pytest.mark.java


def test_kafkas_tools_create_fill_read_and_delete_a_topic(embedded: Server, kafka_jars: str) -> None:
    server = ("--bootstrap-server", embedded.bootstrap)
    topic, group = ("--topic", "tools"), ("--group", "readers")

    def groups(*arguments: str) -> str:
        return tool(kafka_jars, "consumer.group.ConsumerGroupCommand", *server, *arguments)

    tool(kafka_jars, "TopicCommand", *server, "--create", *topic, "--partitions", "3")
    tool(kafka_jars, "TopicCommand", *server, "--alter", *topic, "--partitions", "4")
    assert "PartitionCount: 4" in tool(kafka_jars, "TopicCommand", *server, "--describe", *topic)

    tool(kafka_jars, "ConsoleProducer", *server, *topic, lines="".join(f"{n}\n" for n in range(1000)))
    read = tool(
        kafka_jars,
        "consumer.ConsoleConsumer",
        *server,
        *topic,
        *group,
        "--from-beginning",
        "--max-messages",
        "1000",
    )
    assert sorted(int(line) for line in read.splitlines() if line.isdigit()) == list(range(1000))

    described = [line.split() for line in groups("--describe", *group).splitlines() if "tools" in line]
    # The columns CURRENT-OFFSET and LAG.
    assert sum(int(line[3]) for line in described) == 1000
    assert sum(int(line[5]) for line in described) == 0
    groups(*group, *topic, "--reset-offsets", "--to-earliest", "--execute")
    described = [line.split() for line in groups("--describe", *group).splitlines() if "tools" in line]
    assert sum(int(line[5]) for line in described) == 1000

    ends = tool(kafka_jars, "GetOffsetShell", *server, *topic).split()
    assert sum(int(end.rsplit(":", 1)[1]) for end in ends) == 1000
    groups("--delete", *group)
    assert "readers" not in groups("--list")
    tool(kafka_jars, "TopicCommand", *server, "--delete", *topic)
    assert "tools" not in tool(kafka_jars, "TopicCommand", *server, "--list")
