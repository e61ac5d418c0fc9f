"""The columns of printed tables stay aligned, whatever text the cells contain."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from consumer import TopicPartition
from kproto.cli import cluster, groups, main, transactions
from kproto.cli.tables import print_table
from tests.cli.stage import StubAdmin

P0 = TopicPartition("t", 0)


def test_columns_have_a_least_width_and_grow_with_their_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("NAME", 6), ("N", 1)], [("a", 1), ("longer-name", None)])
    assert capsys.readouterr().out == "NAME        N\na           1\nlonger-name -\n"
    print_table([("NAME", 6), ("N", 3)], [])
    assert capsys.readouterr().out == "NAME   N\n"


def test_unprintable_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([("NAME", 1)], [("a\x1b[31m\nb\u202e",)])
    assert capsys.readouterr().out == "NAME\na\\u001b[31m\\u000ab\\u202e\n"


def test_the_columns_of_an_empty_table_have_the_widths_of_kafkas_tools(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (groups, cluster, transactions):
        StubAdmin(
            monkeypatch,
            module,
            list_groups={},
            describe_log_dirs={},
            list_transactions={},
            describe_transactions={},
            describe_producers={P0: []},
            partitions=[P0],
        )
    connection = ["--bootstrap", "kafka:9092"]
    for words in (
        "groups list",
        "cluster log-dirs --brokers 1",
        "transactions list",
        "transactions describe x",
        "transactions producers t:0",
        "transactions find-hanging t",
    ):
        assert main([*words.split(), *connection]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "GROUP                     TYPE       PROTOCOL   STATE",
        "BROKER  LOG-DIR         TOPIC           PARTITION  SIZE         OFFSET-LAG FUTURE",
        "TransactionalId Coordinator ProducerId TransactionState",
        "CoordinatorId TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
        "CurrentTransactionStartTimeMs TransactionDurationMs TopicPartitions",
        "ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp "
        "CurrentTransactionStartOffset",
        "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)",
    ]


def test_the_columns_of_a_group_have_the_widths_of_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    group: Any = SimpleNamespace(name="g", members=[], committed={}, state="Empty", assignor="range")
    view = SimpleNamespace(brokers={1: SimpleNamespace(host="h", port=9092)})
    admin: Any = SimpleNamespace(coordinator=lambda name: 1, view=view)
    groups._print_offsets(admin, group, as_json=False)
    groups._print_members(group, as_json=False)
    groups._print_state(admin, group, as_json=False)
    options = argparse.Namespace(group="g", export=False, json=False)
    groups._print_new_offsets(options, {P0: 5})
    assert capsys.readouterr().out.splitlines() == [
        "",
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             "
        "CONSUMER-ID     HOST            CLIENT-ID",
        "",
        "GROUP           CONSUMER-ID     GROUP-INSTANCE-ID HOST            CLIENT-ID       "
        "#PARTITIONS     ASSIGNMENT",
        "",
        "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS",
        "g               h:9092  (1)               range                Empty                0",
        "",
        "GROUP           TOPIC           PARTITION  NEW-OFFSET",
        "g               t               0          5",
    ]
