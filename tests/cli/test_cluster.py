"""`kproto cluster` shows brokers and log directories, and elects leaders."""

from __future__ import annotations

from consumer import Producer
from kproto.broker.server import Server
from tests.cli.stage import Shell


def test_the_brokers_are_printed(shell: Shell, broker: Server) -> None:
    [cluster] = shell.json("cluster describe")
    host, _, port = broker.bootstrap.rpartition(":")
    assert cluster["brokers"] == [{"id": 1, "host": host, "port": int(port), "rack": None}]
    assert cluster["controller"] == 1
    lines = shell("cluster describe")
    assert lines[0] == f"Cluster ID: {cluster['clusterId']}"
    assert lines[2].split() == ["1", host, port, "-", "yes"]


def test_log_directories_show_the_sizes_of_replicas(shell: Shell, broker: Server) -> None:
    shell("topics create sized unsized")
    with Producer(broker.bootstrap) as producer:
        producer.send("sized", b"x" * 1_000)
    [row] = shell.json("cluster log-dirs sized")
    assert (row["broker"], row["topic"], row["partition"]) == (1, "sized", 0)
    assert row["size"] > 1_000
    assert {row["topic"] for row in shell.json("cluster log-dirs")} >= {"sized", "unsized"}


def test_leaders_are_elected_only_with_execute(shell: Shell) -> None:
    shell("topics create led --partitions 2")
    assert shell("cluster elect led:1") == ["preferred election for led-1; its leader is broker 1"]
    assert shell.errors == "no leader was elected; add --execute to do it\n"
    assert shell("cluster elect led --execute") == [
        "led-0: no election was needed",
        "led-1: no election was needed",
    ]


def test_a_reassignment_prints_its_plan(shell: Shell) -> None:
    shell("topics create moved")
    assert shell("cluster reassign moved:0=1,2") == ["moved-0 on 1: move to 1,2"]
    assert shell("cluster reassign moved:0=cancel") == ["moved-0 on 1: cancel the move"]
    assert shell.json("cluster reassignments") == []
    shell("cluster reassign moved:0=x", code=2)
    assert (
        "TOPIC:P=NODES='moved:0=x' is not allowed; allowed: a partition and its brokers, as in flights:0=1,2"
        in shell.errors
    )
