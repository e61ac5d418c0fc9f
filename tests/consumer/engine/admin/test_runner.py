"""The runner sends the requests that plans (admin calls) yield: backoff, deadlines and close, without a
network.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from consumer.engine import events as ev
from consumer.engine.admin.cluster import read_metadata
from consumer.engine.admin.engine import AdminEngine, step
from consumer.engine.admin.plan import Ask, Rest, pause_after_error
from consumer.engine.error_actions import CONTROLLER, OFFSET_COMMIT
from consumer.engine.network.transport import Opened
from kproto.errors import BrokerError, CommitFailed, IllegalState, RequestTimedOut, UnknownTopic
from kproto.messages.metadata import MetadataRequest


def new_engine() -> AdminEngine:
    return AdminEngine([("broker", 9092)], Random(1), client_id="c", request_timeout_ms=1000)


def results_of(actions: list[ev.Action]) -> list[tuple[object, Any, Any]]:
    return [(action.token, action.value, action.error) for action in actions if isinstance(action, ev.Done)]


def pausing_plan(turns: int) -> Any:
    for turn in range(turns):
        yield Rest(f"turn {turn}")
    return "rested"


def test_the_backoff_of_a_plan_grows_with_jitter() -> None:
    client, now = new_engine(), 0
    actions = step(client, ev.Run("x", pausing_plan(8), 60_000), now)
    pauses: list[int] = []
    while not results_of(actions):
        due = client.due()
        assert due is not None
        pauses.append(due - now)
        now = due
        actions = step(client, ev.Tick(), now)
    assert results_of(actions) == [("x", "rested", None)]
    for pause, expected in zip(pauses, [100, 200, 400, 800, 1000, 1000, 1000, 1000], strict=True):
        assert expected * 0.8 - 1 <= pause <= min(expected * 1.2, 1000)
    assert pauses[:4] != [100, 200, 400, 800]


def test_a_plan_that_never_ends_fails_with_the_reason_of_its_pause() -> None:
    client = new_engine()
    step(client, ev.Run("x", pausing_plan(1000), 500), 0)
    for now in (100, 300, 499):
        assert results_of(step(client, ev.Tick(), now)) == []
    [(token, _, error)] = results_of(step(client, ev.Tick(), 500))
    assert token == "x"
    assert isinstance(error, RequestTimedOut)
    assert "turn" in str(error)
    assert client.due() is None


def test_a_failed_plan_does_not_affect_the_others() -> None:
    def failing_plan() -> Any:
        yield Rest("a moment")
        raise LookupError("a bug in the plan")

    client = new_engine()
    step(client, ev.Run("good", pausing_plan(3), 10_000), 0)
    step(client, ev.Run("bad", failing_plan(), 10_000), 0)
    results: dict[object, Any] = {}
    for now in range(0, 2_000, 10):
        results |= {token: error or value for token, value, error in results_of(step(client, ev.Tick(), now))}
    assert results["good"] == "rested"
    assert isinstance(results["bad"], LookupError)


def test_a_dropped_plan_is_closed() -> None:
    closed: list[bool] = []

    def plan() -> Any:
        try:
            yield Rest("for ever")
        finally:
            closed.append(True)

    client = new_engine()
    step(client, ev.Run("x", plan(), 10_000), 0)
    assert results_of(step(client, ev.Drop("x"), 1)) == []
    assert closed == [True]
    assert client.due() is None


def test_close_ends_every_plan() -> None:
    client = new_engine()
    step(client, ev.Run("a", pausing_plan(9), 10_000), 0)
    step(client, ev.Run("b", read_metadata(client.view, None, client.clock), 10_000), 0)
    done = results_of(step(client, ev.Close("end", False, 0), 1))
    assert [token for token, _, _ in done] == ["a", "b", "end"]
    assert [type(error) for _, _, error in done] == [IllegalState, IllegalState, type(None)]


def test_a_plan_without_requests_continues_at_once() -> None:
    def plan() -> Any:
        answers = yield []
        return answers

    assert results_of(step(new_engine(), ev.Run("x", plan(), 10_000), 0)) == [("x", [], None)]


def test_a_request_without_a_response_ends_with_the_deadline_of_the_plan() -> None:
    def plan() -> Any:
        [call] = yield [Ask(MetadataRequest(topics=[], allow_auto_topic_creation=True))]
        return call.error

    client = new_engine()
    step(client, ev.Run("x", plan(), 300), 0)
    step(client, Opened(1), 5)
    [(_, value, error)] = results_of(step(client, ev.Tick(), 300))
    assert isinstance(value or error, RequestTimedOut)


@pytest.mark.parametrize(
    ("row", "code", "kind"),
    [
        (OFFSET_COMMIT, 25, CommitFailed),
        (OFFSET_COMMIT, 22, CommitFailed),
        (OFFSET_COMMIT, 3, UnknownTopic),
        (CONTROLLER, 36, BrokerError),
        (CONTROLLER, 12345, BrokerError),
    ],
)
def test_a_permanent_error_is_raised(row: Any, code: int, kind: type[BrokerError]) -> None:
    with pytest.raises(kind):
        pause_after_error(row, code, "OffsetCommit", "detail")


@pytest.mark.parametrize(
    ("row", "code"), [(OFFSET_COMMIT, 14), (OFFSET_COMMIT, 16), (CONTROLLER, 41), ({}, 6)]
)
def test_a_retriable_error_pauses_the_plan(row: Any, code: int) -> None:
    assert "was answered with" in pause_after_error(row, code, "Request", "detail").why
