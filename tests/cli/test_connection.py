"""Commands that connect to a cluster share client options, error formats, and JSON output for changes."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from consumer import Admin, TopicPartition
from kproto.cli import main
from kproto.cli.connection import client_options, done_items, exit_code, succeeded
from kproto.errors import BrokerError, KprotoError, PartialFailure, RequestTimedOut
from tests.cli.stage import Shell


def test_with_json_each_change_is_an_object(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROTO_NEW_PASSWORD", "s3cr3t-word")
    assert shell.json("topics create j1 j2") == [
        {"topic": "j1", "done": "created"},
        {"topic": "j2", "done": "created"},
    ]
    with Admin(shell.bootstrap) as admin:
        admin.commit_offsets("json", {TopicPartition("j1", 0): 0, TopicPartition("j2", 0): 0})
    for words, expected in {
        "topics grow j1 --partitions 3": {"topic": "j1", "done": "grown"},
        "topics alter j1 --set retention.ms=5": {"topic": "j1", "done": "altered"},
        "configs alter topics j1 --set retention.ms=6": {"type": "topics", "name": "j1", "done": "altered"},
        "offsets delete-records j1:0=0 --execute": {"topic": "j1", "partition": 0, "lowWatermark": 0},
        "groups delete-offsets json --topic j1:0 --execute": {
            "group": "json",
            "topic": "j1",
            "partition": 0,
            "done": "deleted",
        },
        "groups delete json --execute": {"group": "json", "done": "deleted"},
        "users set carla": {"user": "carla", "done": "set"},
        "users delete carla --execute": {"user": "carla", "done": "deleted"},
        "topics delete j1 --execute": {"topic": "j1", "done": "deleted"},
    }.items():
        assert shell.json(words) == [expected], words


def test_the_options_of_a_client_include_those_of_its_file(tmp_path: Path) -> None:
    without = argparse.Namespace(command_config=None)
    assert client_options(without, linger_ms=5) == {"client_id": "kproto-cli", "linger_ms": 5}
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=PLAINTEXT\n")
    assert client_options(argparse.Namespace(command_config=file)) == {
        "client_id": "kproto-cli",
        "security_protocol": "PLAINTEXT",
    }


def test_the_errors_of_failed_items_are_printed_after_the_results(capsys: pytest.CaptureFixture[str]) -> None:
    def partly() -> dict[str, int]:
        raise PartialFailure("list", {"a": 1}, {"b": KprotoError("b is\nmissing"), "c": KprotoError("c too")})

    failures: list[KprotoError] = []
    assert succeeded(lambda: None, failures) == {}
    assert exit_code("topics list", failures) == 0
    assert succeeded(partly, failures) == {"a": 1}
    assert exit_code("topics list", failures) == 1
    assert capsys.readouterr().err == "kproto topics list: b is\\u000amissing\nkproto topics list: c too\n"


def test_the_cluster_may_be_named_as_in_kafkas_own_tools(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "describe", "--bootstrap-server", shell.bootstrap]) == 0
    assert capsys.readouterr().out.startswith("Cluster ID: ")


def test_after_a_request_without_an_answer_the_other_items_are_not_tried() -> None:
    tried: list[str] = []

    def alter(item: str) -> None:
        tried.append(item)
        error = BrokerError(44, "AlterConfigs", item) if item == "a" else RequestTimedOut("AlterConfigs", 1)
        raise PartialFailure("AlterConfigs", {}, {item: error})

    failures: list[KprotoError] = []
    assert list(done_items("abcd", alter, failures)) == []
    assert (tried, len(failures)) == (["a", "b"], 3)
    assert str(failures[-1]) == "no broker answers; not tried: 2 more"
