"""The state moves only along EDGES, and Java's hash selects the partition of a group's offsets."""

from __future__ import annotations

import pytest

from kproto.transactions import EDGES, TransactionMetadata, TransactionSettings, TransactionState
from kproto.transactions.state import S, TransactionContext, move, offsets_partition
from tests.rules import rule
from tests.transactions.stage import Stage


@pytest.mark.parametrize("before", TransactionState)
def test_a_transaction_moves_along_the_edges_only(before: TransactionState) -> None:
    for after in TransactionState:
        stage = Stage()
        txn = TransactionMetadata("x", state=before)
        if before is not S.DEAD:
            stage.coordinator.transactions["x"] = txn
        context = TransactionContext(stage.coordinator, 0)
        if after in EDGES[before]:
            move(context, txn, after)
            assert txn.state is after
            assert ("x" in stage.coordinator.transactions) == (after is not S.DEAD)
        else:
            with pytest.raises(AssertionError):
                move(context, txn, after)
            assert txn.state is before


@rule("R169")
@pytest.mark.parametrize(
    ("group", "java_hash"), {"hello": 99162322, "Hello World": 862545276, "polygenelubricants": 0}.items()
)
def test_the_partition_of_a_groups_offsets_follows_javas_hash(group: str, java_hash: int) -> None:
    """Kafka uses the absolute value of Java's hash, or 0 if the hash is the smallest int.

    The hash of "polygenelubricants" is the smallest int, whose absolute value exceeds int32. The hash of
    "Hello World" is another negative number.
    """
    assert offsets_partition(group, TransactionSettings())[1] == java_hash % 50


@rule("R169")
def test_the_number_of_offsets_partitions_is_a_setting() -> None:
    settings = TransactionSettings(offsets_topic_num_partitions=7)
    assert offsets_partition("hello", settings)[1] == 99162322 % 7
