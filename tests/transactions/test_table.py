"""The transaction coordinator's table has a cell for each event and state; `step` rejects unknown events."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode as E
from kproto.messages.metadata import MetadataRequest
from kproto.transactions import REQUESTS, TABLE, RequestReceived, Tick, TransactionEventKind, step
from tests.machines import check_table
from tests.transactions.stage import Identity, Stage


def test_the_table_is_complete_and_documented_and_takes_every_edge() -> None:
    check_table(TABLE, TransactionEventKind)


@pytest.mark.parametrize("event", [MetadataRequest(topics=[]), "Tick", Tick, None])
def test_other_events_and_requests_are_rejected(stage: Stage, event: Any) -> None:
    with pytest.raises(TypeError, match=r"event=.*: not an event .* expected one of RequestReceived"):
        step(stage.coordinator, event, 0)
    assert MetadataRequest not in REQUESTS
    with pytest.raises(TypeError, match="MetadataRequest"):
        step(stage.coordinator, RequestReceived(1, MetadataRequest(topics=[]), 1), 0)
    with pytest.raises(TypeError, match="now='0'"):
        step(stage.coordinator, Tick(), "0")  # type: ignore[arg-type]


def test_deadlines_fire_before_the_event(stage: Stage) -> None:
    stage.hold_markers = True
    producer = stage.take_id(timeout=5_000)
    stage.add(producer)
    stage.now += 5_001
    assert stage.end(producer).error_code == E.INVALID_TXN_STATE
    assert stage.end(producer, committed=False).error_code == E.CONCURRENT_TRANSACTIONS


def test_an_empty_or_unknown_transactional_id_is_an_error(stage: Stage) -> None:
    for version in (4, 5):
        assert stage.end(Identity(1, 0), transactional_id="", version=version).error_code == E.INVALID_REQUEST
        response = stage.end(Identity(1, 0), transactional_id="unknown", version=version)
        assert response.error_code == E.INVALID_PRODUCER_ID_MAPPING
