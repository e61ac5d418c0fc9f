"""The state machine of a client's telemetry reacts to responses and waits for the intervals of KIP-714."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.engine.telemetry.table import (
    KINDS,
    NO_INSTANCE,
    TABLE,
    CloseBegan,
    Closed,
    Disabled,
    Failed,
    NodeReady,
    Push,
    Pushed,
    Rejected,
    RequestSubscription,
    Subscribed,
    Subscription,
    TelemetryEvent,
    TelemetryKind,
    TelemetryMachine,
    TelemetryState,
    step,
)
from kproto.error_codes import ErrorCode
from kproto.machine import NEVER
from tests.machines import check_cells, check_table

S = TelemetryState
ID = UUID(int=7)
SUBSCRIPTION = Subscription(ID, 5, 1000, (4, 1), 100, True, frozenset({"*"}))


@pytest.fixture(autouse=True, scope="module")
def each_step_keeps_to_its_cell() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        check_cells(patch, TABLE)
        yield


def machine_in(state: TelemetryState, subscription: Subscription = SUBSCRIPTION) -> TelemetryMachine:
    """Return a state machine that events at time 0 have brought into this state."""
    paths: dict[TelemetryState, tuple[TelemetryEvent, ...]] = {
        S.SUBSCRIPTION_NEEDED: (),
        S.SUBSCRIPTION_IN_PROGRESS: (NodeReady(),),
        S.PUSH_NEEDED: (NodeReady(), Subscribed(subscription, 1.0)),
        S.PUSH_IN_PROGRESS: (NodeReady(), Subscribed(subscription, 1.0), NodeReady()),
        S.TERMINATING_PUSH_NEEDED: (NodeReady(), Subscribed(subscription, 1.0), CloseBegan()),
        S.TERMINATING_PUSH_IN_PROGRESS: (
            NodeReady(),
            Subscribed(subscription, 1.0),
            CloseBegan(),
            NodeReady(),
        ),
        S.TERMINATED: (Closed(),),
    }
    machine = TelemetryMachine()
    for event in paths[state]:
        step(machine, event, 0)
    assert machine.state is state
    return machine


def test_the_table_is_complete_and_documented() -> None:
    check_table(TABLE, TelemetryKind)


def test_the_first_request_has_no_instance_id() -> None:
    machine = TelemetryMachine()
    assert machine.next_request_at == 0
    assert step(machine, NodeReady(), 0) == [RequestSubscription(NO_INSTANCE)]
    assert machine.next_request_at == NEVER


@pytest.mark.parametrize(("jitter", "at"), [(0.5, 600), (1.5, 1600)])
def test_the_first_push_waits_for_half_an_interval_or_more(jitter: float, at: int) -> None:
    machine = machine_in(S.SUBSCRIPTION_IN_PROGRESS)
    step(machine, Subscribed(SUBSCRIPTION, jitter), 100)
    assert (machine.state, machine.next_request_at) == (S.PUSH_NEEDED, at)


def test_later_pushes_wait_for_a_whole_interval() -> None:
    machine = machine_in(S.PUSH_NEEDED)
    assert step(machine, NodeReady(), 500) == [Push(SUBSCRIPTION, is_terminating=False)]
    step(machine, Pushed(), 700)
    assert (machine.state, machine.next_request_at) == (S.PUSH_NEEDED, 1700)


def test_a_subscription_without_metrics_is_requested_again() -> None:
    machine = machine_in(S.SUBSCRIPTION_IN_PROGRESS)
    nothing = Subscription(ID, 5, 1000, (), 100, True, frozenset())
    step(machine, Subscribed(nothing, 0.5), 0)
    assert (machine.state, machine.next_request_at) == (S.SUBSCRIPTION_NEEDED, 1000)
    assert step(machine, NodeReady(), 1000) == [RequestSubscription(ID)]


@pytest.mark.parametrize(
    ("interval", "wait"), [(0, 300_000), (-1, 300_000), (1, 100), (2**31 - 1, 2**31 - 1)]
)
def test_absurd_intervals_do_not_keep_the_client_busy(interval: int, wait: int) -> None:
    absurd = Subscription(ID, 5, interval, (), 100, True, frozenset({"*"}))
    machine = machine_in(S.PUSH_NEEDED, absurd)
    assert machine.next_request_at == wait
    step(machine, NodeReady(), wait)
    step(machine, Pushed(), wait)
    assert machine.next_request_at == 2 * wait


@pytest.mark.parametrize(
    ("state", "code", "at"),
    [
        (S.PUSH_IN_PROGRESS, ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 50),
        (S.PUSH_IN_PROGRESS, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 50),
        (S.PUSH_IN_PROGRESS, ErrorCode.TELEMETRY_TOO_LARGE, 1050),
        (S.PUSH_IN_PROGRESS, ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1050),
        (S.SUBSCRIPTION_IN_PROGRESS, ErrorCode.UNKNOWN_SUBSCRIPTION_ID, 300_050),
        (S.SUBSCRIPTION_IN_PROGRESS, ErrorCode.THROTTLING_QUOTA_EXCEEDED, 300_050),
    ],
)
def test_the_subscription_is_requested_again_after_an_error(
    state: TelemetryState, code: ErrorCode, at: int
) -> None:
    machine = machine_in(state)
    step(machine, Rejected(code), 50)
    assert (machine.state, machine.next_request_at) == (S.SUBSCRIPTION_NEEDED, at)


@pytest.mark.parametrize("state", [S.SUBSCRIPTION_IN_PROGRESS, S.PUSH_IN_PROGRESS])
@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION, -1, 9999],
)
def test_other_errors_end_the_pushes(state: TelemetryState, code: int) -> None:
    machine = machine_in(state)
    step(machine, Rejected(code), 50)
    assert (machine.state, machine.next_request_at) == (S.TERMINATED, NEVER)


@pytest.mark.parametrize("state", [S.SUBSCRIPTION_IN_PROGRESS, S.PUSH_IN_PROGRESS])
def test_a_request_without_a_response_is_repeated_after_five_minutes(state: TelemetryState) -> None:
    machine = machine_in(state)
    step(machine, Failed(), 50)
    assert (machine.state, machine.next_request_at) == (S.SUBSCRIPTION_NEEDED, 300_050)


@pytest.mark.parametrize("state", [S.PUSH_NEEDED, S.PUSH_IN_PROGRESS])
def test_close_pushes_once_more(state: TelemetryState) -> None:
    machine = machine_in(state)
    step(machine, CloseBegan(), 50)
    assert (machine.state, machine.next_request_at) == (S.TERMINATING_PUSH_NEEDED, 50)
    assert step(machine, NodeReady(), 50) == [Push(SUBSCRIPTION, is_terminating=True)]


@pytest.mark.parametrize("state", [S.SUBSCRIPTION_NEEDED, S.SUBSCRIPTION_IN_PROGRESS])
def test_close_without_a_subscription_pushes_nothing(state: TelemetryState) -> None:
    machine = machine_in(state)
    assert step(machine, CloseBegan(), 50) == []
    assert machine.state is S.TERMINATED


@pytest.mark.parametrize("event", [Pushed(), Rejected(ErrorCode.THROTTLING_QUOTA_EXCEEDED), Failed()])
def test_every_answer_to_the_last_push_ends_the_pushes(event: TelemetryEvent) -> None:
    machine = machine_in(S.TERMINATING_PUSH_IN_PROGRESS)
    step(machine, event, 50)
    assert (machine.state, machine.next_request_at) == (S.TERMINATED, NEVER)


@pytest.mark.parametrize(
    ("metrics", "selected"),
    [(("*",), True), (("org.a", "org.b"), True), (("org.b",), False), ((), False), (("",), True)],
)
def test_a_subscription_selects_by_prefix(metrics: tuple[str, ...], selected: bool) -> None:
    subscription = Subscription(ID, 5, 1000, (), 100, True, frozenset(metrics))
    assert subscription.selects("org.apache.kafka") is selected


@given(
    st.lists(
        st.sampled_from(
            [
                NodeReady(),
                Subscribed(SUBSCRIPTION, 1.0),
                Subscribed(Subscription(ID, 5, -1, (), 0, False, frozenset()), 0.5),
                Pushed(),
                Failed(),
                Disabled(),
                CloseBegan(),
                Closed(),
                *(Rejected(code) for code in (42, 89, 117, 118, 76)),
            ]
        ),
        max_size=12,
    )
)
def test_a_closed_client_sends_nothing_whatever_happened(events: list[TelemetryEvent]) -> None:
    machine = TelemetryMachine()
    for now, event in enumerate(events):
        if TABLE[KINDS[type(event)], machine.state].act.__name__ == "impossible":
            continue
        due = machine.next_request_at
        actions = step(machine, event, now)
        assert len(actions) <= 1
        # Only NodeReady, the event that a broker is ready, causes a request.
        assert isinstance(event, NodeReady) or not actions
        assert due != NEVER or not actions
    step(machine, Closed(), 99)
    assert (machine.state, machine.next_request_at) == (S.TERMINATED, NEVER)
