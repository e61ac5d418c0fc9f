"""EndTxn or a timeout ends a transaction, and an unused transactional id expires."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode as E
from kproto.messages.end_txn import EndTxnRequest
from kproto.transactions import (
    MarkersWritten,
    RequestReceived,
    SendResponse,
    TransactionSettings,
    WriteMarkers,
    next_deadline,
    step,
)
from kproto.transactions.state import LAST_EPOCH
from tests.rules import rule
from tests.transactions.stage import Identity, Stage


@rule("X1", "X2", "X3")
@pytest.mark.parametrize("committed", [True, False])
def test_an_end_is_answered_with_the_decision_and_complete_with_the_markers(
    stage: Stage, committed: bool
) -> None:
    stage.hold_markers = True
    before = stage.take_id()
    stage.add(before, ("t", 1))
    after = stage.end_successfully(before, committed=committed)
    assert after == Identity(before.producer_id, 1)
    (markers,) = stage.markers
    assert (markers.producer_epoch, markers.committed, markers.partitions) == (1, committed, (("t", 1),))
    assert stage.describe().transaction_state == ("PrepareCommit" if committed else "PrepareAbort")
    assert stage.end(before, committed=committed).error_code == E.CONCURRENT_TRANSACTIONS
    assert stage.end(before, committed=not committed).error_code == E.INVALID_TXN_STATE
    assert stage.end(after, committed=committed).error_code == E.PRODUCER_FENCED
    assert stage.end(Identity(77, 0)).error_code == E.INVALID_PRODUCER_ID_MAPPING


@rule("X2", "X3")
def test_while_markers_are_written_the_coordinator_waits_for_no_time(stage: Stage) -> None:
    stage.hold_markers = True
    producer = stage.take_id(timeout=5_000)
    assert next_deadline(stage.coordinator) is not None
    stage.add(producer)
    assert next_deadline(stage.coordinator) == stage.now + 5_001
    stage.end(producer)
    assert next_deadline(stage.coordinator) is None
    stage.step(MarkersWritten("x"))
    expiration_ms = TransactionSettings().transactional_id_expiration_ms
    assert next_deadline(stage.coordinator) == stage.now + expiration_ms


@rule("X1", "X2", "X4")
def test_an_end_is_retried_with_the_old_epoch(stage: Stage) -> None:
    before = stage.take_id()
    stage.add(before)
    after = stage.end_successfully(before)
    assert stage.end_successfully(before) == after
    assert stage.end(before, committed=False).error_code == E.INVALID_TXN_STATE
    assert stage.end(after).error_code == E.INVALID_TXN_STATE
    assert stage.end(Identity(before.producer_id, 5)).error_code == E.PRODUCER_FENCED


@rule("X2")
def test_an_end_is_answered_before_its_markers_are_requested(stage: Stage) -> None:
    before = stage.take_id()
    stage.add(before)
    call = RequestReceived(
        "token",
        EndTxnRequest(
            transactional_id="x",
            producer_id=before.producer_id,
            producer_epoch=before.epoch,
            committed=True,
        ),
        version=5,
    )
    actions = step(stage.coordinator, call, stage.now)
    assert [type(action) for action in actions] == [SendResponse, WriteMarkers]


@rule("X1", "X4")
def test_an_abort_without_a_transaction_starts_a_new_epoch(stage: Stage) -> None:
    before = stage.take_id()
    assert stage.end(before).error_code == E.INVALID_TXN_STATE
    after = stage.end_successfully(before, committed=False)
    assert after == Identity(before.producer_id, 1)
    assert stage.end_successfully(after, committed=False).epoch == 2
    assert stage.end(before, committed=False).error_code == E.PRODUCER_FENCED


@rule("X1", "X2", "X3", "X4")
@pytest.mark.parametrize("committed", [True, False])
def test_up_to_v4_the_epoch_stays(stage: Stage, committed: bool) -> None:
    producer = stage.take_id()
    assert stage.end(producer, committed=committed, version=4).error_code == E.INVALID_TXN_STATE
    stage.add(producer)
    stage.hold_markers = True
    newer = Identity(producer.producer_id, 1)
    assert stage.end(newer, version=1).error_code == E.INVALID_PRODUCER_EPOCH
    assert stage.end(producer, committed=committed, version=4).error_code == 0
    assert stage.end(producer, committed=committed, version=4).error_code == E.CONCURRENT_TRANSACTIONS
    assert stage.end(producer, committed=not committed, version=4).error_code == E.INVALID_TXN_STATE
    assert stage.end(newer, committed=committed, version=4).error_code == E.PRODUCER_FENCED
    stage.hold_markers = False
    stage.step(MarkersWritten("x"))
    assert stage.end(producer, committed=committed, version=4).error_code == 0
    assert stage.end(producer, committed=not committed, version=4).error_code == E.INVALID_TXN_STATE
    assert stage.end(newer, committed=committed, version=4).error_code == E.PRODUCER_FENCED
    assert stage.transaction().epoch == 0
    assert stage.markers[0].producer_epoch == 0


@rule("X6")
def test_the_next_transaction_has_only_its_own_partitions(stage: Stage) -> None:
    producer = stage.take_id()
    stage.add(producer, ("t", 0))
    following = stage.end_successfully(producer)
    stage.add(following, ("t", 1))
    stage.end_successfully(following)
    assert [markers.partitions for markers in stage.markers] == [(("t", 0),), (("t", 1),)]


@rule("X4")
def test_a_transaction_in_the_last_epoch_ends_with_a_new_producer_id(stage: Stage) -> None:
    before = Identity(stage.take_id().producer_id, LAST_EPOCH)
    stage.transaction().epoch = LAST_EPOCH
    stage.add(before)
    after = stage.end_successfully(before)
    assert (after.epoch, after.producer_id != before.producer_id) == (0, True)
    assert stage.markers[-1].producer_epoch == LAST_EPOCH + 1
    retried = stage.end_successfully(before)
    assert retried == after
    assert stage.end(Identity(before.producer_id, 3)).error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert stage.end(Identity(77, LAST_EPOCH)).error_code == E.INVALID_PRODUCER_ID_MAPPING
    assert stage.add(after) == [E.NONE]
    assert stage.end_successfully(after) == Identity(after.producer_id, 1)
    assert stage.end(before).error_code == E.INVALID_PRODUCER_ID_MAPPING


@rule("X2", "X4")
def test_a_transaction_is_aborted_in_a_new_epoch_after_its_timeout(stage: Stage) -> None:
    producer = stage.take_id(timeout=5_000)
    stage.add(producer)
    stage.wait(3_000)
    stage.add(producer, ("t", 1))
    stage.wait(2_000)
    assert stage.markers == []
    stage.wait(1)
    (markers,) = stage.markers
    assert (markers.producer_epoch, markers.committed) == (1, False)
    assert "5000 ms" in markers.reason
    assert stage.add(producer) == [E.PRODUCER_FENCED]
    assert stage.end(producer).error_code == E.INVALID_TXN_STATE
    assert stage.end(producer, committed=False).producer_epoch == 1  # A retry gets the same response.
    assert stage.end(producer, version=4).error_code == E.PRODUCER_FENCED


def test_an_unused_transactional_id_expires(stage: Stage) -> None:
    expiration_ms = TransactionSettings().transactional_id_expiration_ms
    producer = stage.take_id()
    stage.wait(expiration_ms - 1)
    stage.add(producer)
    stage.end_successfully(producer)
    stage.wait(expiration_ms - 1)
    assert stage.describe().error_code == 0
    stage.wait(1)
    assert stage.describe().error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert stage.coordinator.transactions == {}
    assert stage.take_id().producer_id != producer.producer_id
