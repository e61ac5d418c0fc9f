"""`kproto transactions` shows transactions and producers, and finds hanging transactions.

The embedded broker does not support WriteTxnMarkers, so only a real Kafka aborts a hanging transaction.
"""

from __future__ import annotations

from consumer import Producer
from kproto.broker.server import Server
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
