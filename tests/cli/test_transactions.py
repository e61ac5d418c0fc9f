"""`kproto transactions` shows transactions and producers, and finds hanging transactions.

The embedded broker does not support WriteTxnMarkers, so only a real Kafka aborts a hanging transaction.
"""

from __future__ import annotations

from consumer import Producer, TopicPartition
from consumer.engine.admin.transactions import ProducerState
from kproto.broker.server import Server
from kproto.cli import transactions
from tests.cli.stage import Shell


def test_an_open_transaction_is_listed_and_described_until_it_ends(shell: Shell, broker: Server) -> None:
    shell("topics create paid")
    with Producer(broker.bootstrap, transactional_id="payments") as producer:
        producer.begin()
        producer.send("paid", b"x")
        producer.flush()
        [listed] = shell.json("transactions list")
        [described] = shell.json("transactions describe payments")
        [state] = shell.json("transactions producers paid:0")
        # The coordinator knows the transaction, so it does not hang.
        assert shell.json("transactions find-hanging --older-than 1ms") == []
        planned = shell.json("transactions abort paid:0 --start-offset 0")
        assert shell.errors == "no transaction was aborted; add --execute to do it\n"
        assert shell.json("transactions producers paid:0") == [state]
        producer.abort()
        [aborted] = shell.json("transactions producers paid:0")
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
    """A coordinator may know a producer's transaction in another partition. This one hangs nevertheless."""
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
