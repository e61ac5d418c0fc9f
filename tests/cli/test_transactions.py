"""`kproto transactions` shows transactions and producers, and finds and aborts hanging transactions."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from consumer import Producer, TopicPartition
from consumer.engine.admin.transactions import ProducerState, TransactionListing
from kproto.broker.server import Server
from kproto.cli import main, transactions
from tests.cli.stage import Shell, StubAdmin


def test_an_open_transaction_is_listed_and_described_until_it_ends(shell: Shell, broker: Server) -> None:
    shell("topics create paid")
    with Producer(broker.bootstrap, transactional_id="payments") as producer:
        producer.begin()
        producer.send("paid", b"x")
        producer.flush()
        [listed] = shell.json("transactions list")
        [described] = shell.json("transactions describe payments")
        [state] = shell.json("transactions producers paid:0")
        # The coordinator knows the transaction, so the transaction is not hanging.
        assert shell.json("transactions find-hanging --older-than 1ms") == []
        planned = shell.json("transactions abort paid:0 --start-offset 0")
        assert shell.errors == "no transaction was aborted; add --execute to do it\n"
        assert shell.json("transactions producers paid:0") == [state]
        assert shell.json("transactions abort paid:0 --start-offset 0 --execute") == [state]
        [aborted] = shell.json("transactions producers paid:0")
        assert shell("consume paid --isolation read_committed") == []
        producer.abort()
    assert (listed["transactionalId"], listed["transactionState"]) == ("payments", "Ongoing")
    assert (described["topicPartitions"], described["producerId"]) == ("paid-0", listed["producerId"])
    assert (state["currentTransactionStartOffset"], state["lastSequence"]) == (0, 0)
    assert planned == [state]
    assert aborted["currentTransactionStartOffset"] is None


def test_tables_have_the_columns_of_kafkas_tool(shell: Shell) -> None:
    assert shell("transactions describe nothing", code=1)[0].split() == [
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    ]
    assert "TRANSACTIONAL_ID_NOT_FOUND" in shell.errors


def test_an_unknown_start_offset_or_partition_is_an_error(shell: Shell) -> None:
    shell("topics create unpaid")
    shell("transactions abort unpaid:0 --start-offset 7", code=1)
    assert "no open transaction in unpaid-0 begins at offset 7" in shell.errors
    shell("transactions producers unpaid", code=2)
    assert "TOPIC:P='unpaid' is not allowed; allowed: a topic and one partition" in shell.errors


def test_an_unknown_epoch_or_offset_of_a_producer_is_printed_as_by_kafkas_tool() -> None:
    unknown, known = ProducerState(4, 0, 8, 900, None, None), ProducerState(4, 0, 8, 900, 6, 50)
    assert transactions._producer_row(unknown, as_json=False) == (4, 0, -1, 8, 900, "None")
    assert transactions._producer_row(unknown, as_json=True) == (4, 0, None, 8, 900, None)
    for as_json in (False, True):
        assert transactions._producer_row(known, as_json=as_json) == (4, 0, 6, 8, 900, 50)


def test_a_transaction_hangs_if_it_is_open_for_too_long_and_unknown_to_its_coordinator() -> None:
    """A transaction hangs in a partition if its coordinator does not list it for this partition.

    It counts as hanging there even if the coordinator lists it for another partition.
    """
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    minute = 60_000

    def state(producer_id: int, minutes: int, start: int | None) -> ProducerState:
        return ProducerState(producer_id, 3, 7, minutes * minute, 5, start)

    producers = {
        b: [state(9, 29, 40), state(1, 4, 30), state(2, 30, 20)],
        a: [state(1, 4, None), state(9, 29, 0)],
    }
    suspects = transactions._open_since(producers, 30 * minute)
    assert [(partition, suspect.producer_id) for partition, suspect in suspects] == [(a, 9), (b, 1), (b, 9)]
    rows = transactions._hanging_rows(suspects, {9: frozenset({a}), 2: frozenset({b})}, 35 * minute)
    assert rows == [("b", 1, 1, 3, 5, 30, 4 * minute, 31), ("b", 1, 9, 3, 5, 40, 29 * minute, 6)]


@pytest.mark.parametrize(("epoch", "sent"), [(5, 5), (None, 0)])
def test_a_hanging_transaction_is_aborted_with_its_producer(
    epoch: int | None, sent: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    partition = TopicPartition("paid", 2)
    states = [ProducerState(4, 0, 8, 900, epoch, None), ProducerState(6, 3, 8, 900, epoch, 50)]
    admin = StubAdmin(
        monkeypatch, transactions, describe_producers={partition: states}, abort_transaction=None
    )
    words = ["transactions", "abort", "paid:2", "--start-offset", "50", "--bootstrap", "kafka:9092"]
    assert main(words) == 0
    assert "no transaction was aborted; add --execute" in capsys.readouterr().err
    assert admin.calls == [("describe_producers", [partition])]
    assert main([*words, "--execute", "--json"]) == 0
    printed = capsys.readouterr()
    assert (json.loads(printed.out)["producerId"], printed.err) == (6, "")
    (call,) = admin.calls[2:]
    ids = [("producer_id", 6), ("producer_epoch", 3), ("coordinator_epoch", sent)]
    assert call == ("abort_transaction", partition, *ids)


@pytest.mark.parametrize("offset", ["-1", "x", ""])
def test_an_invalid_start_offset_is_rejected(offset: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["transactions", "abort", "t:0", f"--start-offset={offset}"])
    assert f"'{offset}' is not an offset" in capsys.readouterr().err


def test_transactions_are_listed_by_coordinator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = {2: [TransactionListing("b", 7, "Ongoing")], 1: [TransactionListing("a", 8, "Empty")]}
    StubAdmin(monkeypatch, transactions, list_transactions=listed)
    assert main(["transactions", "list", "--bootstrap", "kafka:9092"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"],
        ["a", "1", "8", "Empty"],
        ["b", "2", "7", "Ongoing"],
    ]


def test_only_transactions_that_a_coordinator_has_begun_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    begun = SimpleNamespace(producer_id=7, start_time_ms=5, partitions=frozenset({a}))
    empty = SimpleNamespace(producer_id=8, start_time_ms=None, partitions=frozenset({b}))
    listed = {1: [TransactionListing("x", 7, "Ongoing")], 2: [TransactionListing("y", 8, "Empty")]}
    admin: Any = StubAdmin(
        monkeypatch, transactions, list_transactions=listed, describe_transactions={"x": begun, "y": empty}
    )
    assert transactions._known_partitions(admin, {7, 8}) == {7: frozenset({a})}
    assert admin.calls == [
        ("list_transactions", ("producer_ids", {7, 8})),
        ("describe_transactions", ["x", "y"]),
    ]
    admin.calls.clear()
    assert transactions._known_partitions(admin, set()) == {}
    assert admin.calls == []
    unknown: Any = StubAdmin(monkeypatch, transactions, list_transactions={1: []})
    assert transactions._known_partitions(unknown, {9}) == {}
    assert len(unknown.calls) == 1
