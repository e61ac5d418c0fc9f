"""`kproto cluster` shows brokers and log directories, and elects leaders."""

from __future__ import annotations

import pytest

from consumer import Producer, TopicPartition
from consumer.engine.admin.replicas import LogDirDescription, ReplicaInfo
from kproto.broker.server import Server, running
from kproto.cli import cluster as cluster_module
from kproto.cli import main
from kproto.errors import BrokerError
from tests.cli.stage import Shell, StubAdmin


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
    titles, line = shell("cluster log-dirs sized")
    assert titles.split() == ["BROKER", "LOG-DIR", "TOPIC", "PARTITION", "SIZE", "OFFSET-LAG", "FUTURE"]
    assert line.split() == ["1", row["logDir"], "sized", "0", str(row["size"]), "0"]


def test_log_directories_of_an_unknown_broker_are_an_error(shell: Shell) -> None:
    shell("topics create placed")
    assert shell.json("cluster log-dirs placed --brokers 1,9", code=1)[0]["broker"] == 1
    assert "broker 9" in shell.errors


def test_log_directories_of_a_missing_topic_are_an_error(shell: Shell) -> None:
    shell("topics create held")
    assert [row["topic"] for row in shell.json("cluster log-dirs held missing", code=1)] == ["held"]
    assert "topic 'missing'" in shell.errors


def test_a_missing_topic_or_partition_does_not_hide_other_elections(shell: Shell) -> None:
    shell("topics create voted")
    for execute in ("", " --execute"):
        [line] = shell(f"cluster elect voted:0,9 missing{execute}", code=1)
        assert "voted-0" in line
        assert "topic 'missing'" in shell.errors
        assert "voted-9" in shell.errors
        assert shell(f"cluster elect missing{execute}", code=1) == []


def test_leaders_are_elected_only_with_execute(shell: Shell) -> None:
    shell("topics create led --partitions 2")
    assert shell("cluster elect led:1") == ["preferred election for led-1; its leader is broker 1"]
    assert shell.errors == "no leader was elected; add --execute to do it\n"
    assert shell("cluster elect led --execute") == [
        "Valid replica already elected for partitions led-0, led-1"
    ]
    assert "led-1" in shell("cluster elect --execute")[0]
    assert shell.json("cluster elect led:0 --execute") == [{"topic": "led", "partition": 0, "elected": False}]


def test_a_request_that_the_broker_does_not_have_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    with running({"t": 3}, highest={"ElectLeaders": -1}) as server:
        shell = Shell(server.bootstrap, capsys)
        assert shell("cluster elect t --execute", code=1) == []
    unsupported = f"the broker at {server.bootstrap} does not support this request"
    assert shell.errors == f"kproto cluster elect: ElectLeaders: {unsupported}\n"


@pytest.mark.parametrize("number", ["-1", "2147483648", "x"])
def test_an_invalid_node_id_is_rejected_also_without_execute(shell: Shell, number: str) -> None:
    assert shell(f"cluster unregister {number}", code=2) == []
    assert shell(f"cluster log-dirs --brokers {number}", code=2) == []


def test_a_broker_is_unregistered_only_with_execute(shell: Shell) -> None:
    assert shell("cluster unregister 7") == ["unregister broker 7"]
    assert shell.errors == "no broker was unregistered; add --execute to do it\n"
    shell("cluster unregister 7 --execute", code=1)
    # The command sent the request. The broker rejected it, because broker 7 is unknown.
    assert "UnregisterBroker" in shell.errors


def test_an_unregistered_broker_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = StubAdmin(monkeypatch, cluster_module, unregister_broker=None)
    words = ["cluster", "unregister", "7", "--bootstrap", "kafka:9092", "--execute"]
    assert main(words) == 0
    assert capsys.readouterr().out == "Broker 7 is no longer registered.\n"
    assert main([*words, "--json"]) == 0
    assert capsys.readouterr().out == '{"broker": 7, "done": "unregistered"}\n'
    assert admin.calls == [("unregister_broker", 7)] * 2


def test_a_log_directory_that_failed_is_an_error_but_the_others_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = LogDirDescription({}, error=BrokerError(56, "/bad"))
    good = LogDirDescription({TopicPartition("t", 0): ReplicaInfo(100, 5, True)})
    StubAdmin(monkeypatch, cluster_module, describe_log_dirs={1: {"/bad": failed, "/good": good}})
    words = ["cluster", "log-dirs", "--brokers", "1", "--bootstrap", "kafka:9092"]
    assert main(words) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["1", "/good", "t", "0", "100", "5", "yes"]
    assert "KAFKA_STORAGE_ERROR" in printed.err
