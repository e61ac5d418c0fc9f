"""DescribeTransactions and ListTransactions return the state of transactions."""

from __future__ import annotations

from typing import Any

from kproto.error_codes import ErrorCode as E
from kproto.messages.describe_transactions import TransactionState
from kproto.transactions.description import describe_error
from tests.transactions.stage import MINUTE, Stage


def test_a_transaction_is_described(stage: Stage) -> None:
    assert stage.describe("") == describe_error("", E.INVALID_REQUEST)
    assert stage.describe("y") == describe_error("y", E.TRANSACTIONAL_ID_NOT_FOUND)
    producer = stage.take_id(timeout=MINUTE)
    state = stage.describe()
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Empty", MINUTE)
    assert (state.producer_id, state.producer_epoch) == producer
    assert state.transaction_start_time_ms == -1


def test_transactions_are_listed_by_state_producer_age_and_pattern(stage: Stage) -> None:
    x, y = stage.take_id(transactional_id="x"), stage.take_id(transactional_id="y")
    stage.add(x)
    stage.wait(5_000)

    def ids(*states: str, **filters: Any) -> list[str]:
        response = stage.list_transactions(*states, **filters)
        return [state.transactional_id for state in response.transaction_states]

    assert ids() == ["x", "y"]
    assert ids("Ongoing") == ["x"]
    assert ids("Empty", "Ongoing", "none") == ["x", "y"]
    assert ids("none") == []
    assert ids(producer_id_filters=[y.producer_id]) == ["y"]
    assert ids("Ongoing", duration_filter=4_999) == ["x"]
    assert ids("Ongoing", duration_filter=5_000) == []
    assert ids(transactional_id_pattern="[y-z]") == ["y"]
    assert ids(transactional_id_pattern="") == ["x", "y"]
    unknown = stage.list_transactions("none", "Dead", "PrepareEpochFence").unknown_state_filters
    assert unknown == ["none"]
    invalid = stage.list_transactions(transactional_id_pattern="(")
    assert invalid.error_code == E.INVALID_REGULAR_EXPRESSION


def test_an_error_entry_of_a_description_has_kafkas_default_values() -> None:
    assert describe_error("x", E.NOT_COORDINATOR) == TransactionState(
        error_code=E.NOT_COORDINATOR,
        transactional_id="x",
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
