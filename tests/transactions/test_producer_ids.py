"""InitProducerId returns a new producer id or the next epoch, and aborts an ongoing transaction.

tests/conformance/test_transactions_like_kafka.py compares the responses with Kafka's.
"""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode as E
from kproto.transactions.state import LAST_EPOCH, S
from tests.rules import rule
from tests.transactions.stage import Identity, Stage


@rule("X4")
def test_an_id_begins_with_epoch_0_and_each_producer_gets_the_next_one(stage: Stage) -> None:
    first = stage.take_id()
    assert first.epoch == 0
    assert [stage.take_id() for _ in range(2)] == [
        Identity(first.producer_id, 1),
        Identity(first.producer_id, 2),
    ]
    assert stage.take_id(transactional_id="y") == Identity(first.producer_id + 1, 0)
    assert stage.take_id(transactional_id=None) == Identity(first.producer_id + 2, 0)


@pytest.mark.parametrize(("timeout", "code"), [(0, 50), (-1, 50), (900_001, 50), (900_000, 0)])
def test_the_transaction_timeout_has_bounds(stage: Stage, timeout: int, code: int) -> None:
    assert stage.init(timeout=timeout).error_code == code


@pytest.mark.parametrize("identity", [Identity(-1, 5), Identity(5, -1)])
def test_half_of_an_identity_is_invalid(stage: Stage, identity: Identity) -> None:
    assert stage.init(identity).error_code == E.INVALID_REQUEST
    assert stage.init(transactional_id="").error_code == E.INVALID_REQUEST


def test_a_producer_continues_with_its_identity_and_a_retry_gets_the_same_response(stage: Stage) -> None:
    first = stage.take_id()
    second = stage.take_id(identity=first)
    assert second == Identity(first.producer_id, 1)
    assert stage.take_id(identity=first) == second
    assert stage.take_id(identity=second) == Identity(first.producer_id, 2)
    assert stage.init(first).error_code == E.PRODUCER_FENCED
    assert stage.init(first, version=3).error_code == E.INVALID_PRODUCER_EPOCH


@rule("X4")
def test_a_producer_continues_with_the_epoch_that_its_last_transaction_had(stage: Stage) -> None:
    before = stage.take_id()
    stage.add(before)
    after = stage.end_successfully(before)
    assert stage.take_id(identity=before) == after


@rule("X1")
def test_a_producer_whose_id_was_taken_cannot_continue(stage: Stage) -> None:
    first = stage.take_id()
    stage.take_id()
    assert stage.init(first).error_code == E.PRODUCER_FENCED
    assert stage.init(Identity(first.producer_id + 9, 1)).error_code == E.PRODUCER_FENCED


@rule("X2", "X4")
def test_a_new_producer_aborts_an_open_transaction_and_retries(stage: Stage) -> None:
    first = stage.take_id()
    stage.add(first)
    assert stage.init().error_code == E.CONCURRENT_TRANSACTIONS
    (markers,) = stage.markers
    assert (markers.producer_epoch, markers.committed, markers.partitions) == (1, False, (("t", 0),))
    assert stage.take_id() == Identity(first.producer_id, 2)
    assert stage.add(first) == [E.PRODUCER_FENCED]


@rule("X1")
def test_a_producer_with_an_unknown_identity_does_not_abort_an_open_transaction(stage: Stage) -> None:
    first = stage.take_id()
    stage.add(first)
    assert stage.init(Identity(first.producer_id + 9, 0)).error_code == E.PRODUCER_FENCED
    assert stage.transaction().state is S.ONGOING


@rule("X1", "X3")
def test_an_id_cannot_be_taken_while_markers_are_written(stage: Stage) -> None:
    stage.hold_markers = True
    first = stage.take_id()
    stage.add(first)
    stage.end_successfully(first)
    assert stage.init().error_code == E.CONCURRENT_TRANSACTIONS
    assert stage.init(Identity(77, 0)).error_code == E.PRODUCER_FENCED
    assert stage.add(Identity(first.producer_id, 1)) == [E.CONCURRENT_TRANSACTIONS]


@rule("X4")
def test_a_new_producer_id_follows_the_last_epoch(stage: Stage) -> None:
    first = stage.take_id()
    stage.transaction().epoch = LAST_EPOCH
    second = stage.take_id()
    assert (second.epoch, second.producer_id != first.producer_id) == (0, True)
    stage.transaction().epoch = LAST_EPOCH
    third = stage.take_id(identity=Identity(second.producer_id, LAST_EPOCH))
    retried = stage.take_id(identity=Identity(second.producer_id, LAST_EPOCH))
    assert retried == third


@rule("X1", "X4")
def test_only_the_last_epoch_of_the_replaced_producer_id_may_continue(stage: Stage) -> None:
    first = stage.take_id()
    stage.transaction().epoch = LAST_EPOCH
    second = stage.take_id()
    assert second.producer_id != first.producer_id
    stage.add(second)
    for fenced in (Identity(first.producer_id, 0), Identity(second.producer_id + 9, LAST_EPOCH)):
        assert stage.init(fenced).error_code == E.PRODUCER_FENCED
        assert stage.transaction().state is S.ONGOING
    replaced = Identity(first.producer_id, LAST_EPOCH)
    assert stage.init(replaced).error_code == E.CONCURRENT_TRANSACTIONS
    assert stage.transaction().state is S.COMPLETE_ABORT
