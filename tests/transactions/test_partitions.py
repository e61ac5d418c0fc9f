"""AddPartitionsToTxn and AddOffsetsToTxn start a transaction or extend it, and reject other producers."""

from __future__ import annotations

from kproto.error_codes import ErrorCode as E
from kproto.transactions.state import S
from tests.rules import rule
from tests.transactions.stage import Identity, Stage


def test_the_first_partition_starts_a_transaction(stage: Stage) -> None:
    producer = stage.take_id()
    assert stage.add(producer, ("t", 0)) == [E.NONE]
    assert stage.add(producer, ("t", 0), ("t", 1)) == [E.NONE, E.NONE]
    state = stage.describe()
    assert (state.transaction_state, state.topics[0].partitions) == ("Ongoing", [0, 1])
    assert state.transaction_start_time_ms == stage.now


def test_the_offsets_of_a_group_are_a_partition(stage: Stage) -> None:
    producer = stage.take_id()
    assert stage.add_offsets(producer, "g") is E.NONE
    assert stage.transaction().partitions == {("__consumer_offsets", ord("g") % 50): None}


def test_a_partition_that_does_not_exist_rejects_all(stage: Stage) -> None:
    producer = stage.take_id()
    codes = stage.add(producer, ("t", 0), ("t", 2), ("u", 0))
    assert codes == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert stage.transaction().state is S.EMPTY


@rule("X1")
def test_only_the_owner_of_the_id_adds_partitions(stage: Stage) -> None:
    producer = stage.take_id()
    newer = Identity(producer.producer_id, 1)
    assert stage.add(newer) == [E.PRODUCER_FENCED]
    assert stage.add(newer, version=1) == [E.INVALID_PRODUCER_EPOCH]
    assert stage.add(Identity(producer.producer_id + 1, 0)) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert stage.add(producer, transactional_id="unknown") == [E.INVALID_PRODUCER_ID_MAPPING]
    assert stage.add(producer, transactional_id="") == [E.INVALID_REQUEST]
    assert stage.add_offsets(newer, version=1) is E.INVALID_PRODUCER_EPOCH
    assert stage.add_offsets(producer, transactional_id="") is E.INVALID_REQUEST


@rule("X6")
def test_a_broker_verifies_that_a_partition_takes_part(stage: Stage) -> None:
    producer = stage.take_id()
    assert stage.add(producer, version=4, verify=True) == [E.TRANSACTION_ABORTABLE]
    stage.add(producer, ("t", 0))
    codes = stage.add(producer, ("t", 0), ("t", 1), version=4, verify=True)
    assert codes == [E.NONE, E.TRANSACTION_ABORTABLE]
    newer = Identity(producer.producer_id, 1)
    assert stage.add(newer, version=5, verify=True) == [E.PRODUCER_FENCED]
    unknown = stage.add(producer, transactional_id="unknown", version=5, verify=True)
    assert unknown == [E.INVALID_PRODUCER_ID_MAPPING]
    assert stage.add(producer, ("t", 1), version=5) == [E.NONE]
