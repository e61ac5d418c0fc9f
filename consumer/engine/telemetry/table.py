"""When a client requests its subscription and pushes its metrics (Java's ClientTelemetryReporter).

    actions = step(machine, NodeReady(), now)      # RequestSubscription, Push, or nothing

Rules:

* The client first requests a subscription. If the subscription requests metrics, the client pushes them at
  the push interval. Otherwise, the client requests the subscription again after this interval.

* The first push follows after 0.5 to 1.5 push intervals, so that clients that started together do not push
  simultaneously.

* After an error response to a push, the error code determines whether the subscription is requested again
  immediately or after the push interval (`REACTIONS`). After every error code that is not in `REACTIONS`, the
  pushes end.

* A request that gets no response is repeated after five minutes, as in Kafka's Java client 4.4.

* `CloseBegan` leads to a terminating push if the client's subscription requests metrics.

* A push interval that is 0 or less, or not known yet, counts as five minutes, as in Java. An interval below
  100 ms, which Kafka's brokers do not allow, counts as 100 ms, so that a wrong response does not keep the
  client busy.

* After an error response to a subscription request, the client repeats the request after the push interval if
  `REACTIONS` contains the error code. If it does not, the client sends no more requests. Java repeats the
  request immediately after UNKNOWN_SUBSCRIPTION_ID and UNSUPPORTED_COMPRESSION_TYPE.

* The state TERMINATED also means that pushes are disabled, because a broker does not support them or has
  rejected them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from kproto.error_codes import ErrorCode
from kproto.machine import IMPOSSIBLE, NEVER, Cell, Table, move

DEFAULT_INTERVAL_MS: Final = 300_000
MIN_INTERVAL_MS: Final = 100
ALL_METRICS: Final = "*"
NO_INSTANCE: Final = UUID(int=0)


class TelemetryState(Enum):
    """The states of Java's ClientTelemetryState."""

    SUBSCRIPTION_NEEDED = "subscription needed"
    SUBSCRIPTION_IN_PROGRESS = "subscription in progress"
    PUSH_NEEDED = "push needed"
    PUSH_IN_PROGRESS = "push in progress"
    TERMINATING_PUSH_NEEDED = "terminating push needed"
    TERMINATING_PUSH_IN_PROGRESS = "terminating push in progress"
    TERMINATED = "terminated"


S = TelemetryState

EDGES: Final[Mapping[TelemetryState, frozenset[TelemetryState]]] = {
    S.SUBSCRIPTION_NEEDED: frozenset({S.SUBSCRIPTION_IN_PROGRESS, S.TERMINATED}),
    S.SUBSCRIPTION_IN_PROGRESS: frozenset(
        {S.PUSH_NEEDED, S.SUBSCRIPTION_NEEDED, S.TERMINATING_PUSH_NEEDED, S.TERMINATED}
    ),
    S.PUSH_NEEDED: frozenset({S.PUSH_IN_PROGRESS, S.TERMINATING_PUSH_NEEDED, S.TERMINATED}),
    S.PUSH_IN_PROGRESS: frozenset(
        {S.PUSH_NEEDED, S.SUBSCRIPTION_NEEDED, S.TERMINATING_PUSH_NEEDED, S.TERMINATED}
    ),
    S.TERMINATING_PUSH_NEEDED: frozenset({S.TERMINATING_PUSH_IN_PROGRESS, S.TERMINATED}),
    S.TERMINATING_PUSH_IN_PROGRESS: frozenset({S.TERMINATED}),
    S.TERMINATED: frozenset(),
}


class Subscription(msgspec.Struct, frozen=True):
    """The metrics that a broker requests, and how to push them (Java's ClientTelemetrySubscription)."""

    client_instance_id: UUID
    subscription_id: int
    push_interval_ms: int
    # The codecs that the broker accepts, in its order of preference.
    accepted_codecs: tuple[int, ...]
    max_bytes: int
    is_delta: bool
    # Prefixes of the names of the metrics that the broker wants.
    metrics: frozenset[str]

    def selects(self, name: str) -> bool:
        """Return whether the subscription includes the metric with this KIP-714 name.

        The cost of a call does not depend on the number of prefixes, so that a broker cannot slow down the
        client.
        """
        return self.metrics == frozenset({ALL_METRICS}) or any(
            name[:size] in self.metrics for size in range(len(name) + 1)
        )


# ---- events


class NodeReady(msgspec.Struct, frozen=True):
    """A connection is ready, and the next telemetry request is due."""


class Subscribed(msgspec.Struct, frozen=True):
    """The broker has responded with a subscription. `jitter` multiplies the first push interval."""

    subscription: Subscription
    jitter: float


class Rejected(msgspec.Struct, frozen=True):
    """The broker has responded with an error."""

    code: int


class Pushed(msgspec.Struct, frozen=True):
    """The broker has accepted a push."""


class Failed(msgspec.Struct, frozen=True):
    """The request has no response: the connection broke, or the request timed out."""


class Disabled(msgspec.Struct, frozen=True):
    """No more metrics can be pushed.

    Either the broker does not support client telemetry, or it has sent no client instance id, or the client
    could not encode its metrics.
    """


class CloseBegan(msgspec.Struct, frozen=True):
    """The application closes the client."""


class Closed(msgspec.Struct, frozen=True):
    """The client is closed, or the timeout of its `close()` has expired."""


TelemetryEvent: TypeAlias = (
    NodeReady | Subscribed | Rejected | Pushed | Failed | Disabled | CloseBegan | Closed
)


class TelemetryKind(Enum):
    """The kinds of events. `TABLE` has one row for each of them."""

    NODE_READY = "a broker is ready for the request that is due"
    SUBSCRIBED = "a subscription arrived"
    REJECTED = "a response with an error arrived"
    PUSHED = "a push was accepted"
    FAILED = "a request failed without a response"
    DISABLED = "the broker does not support telemetry, or the metrics cannot be encoded"
    CLOSE_BEGAN = "the application closes the client"
    CLOSED = "the client is closed"


KINDS: Final[Mapping[type[TelemetryEvent], TelemetryKind]] = {
    NodeReady: TelemetryKind.NODE_READY,
    Subscribed: TelemetryKind.SUBSCRIBED,
    Rejected: TelemetryKind.REJECTED,
    Pushed: TelemetryKind.PUSHED,
    Failed: TelemetryKind.FAILED,
    Disabled: TelemetryKind.DISABLED,
    CloseBegan: TelemetryKind.CLOSE_BEGAN,
    Closed: TelemetryKind.CLOSED,
}


# ---- actions


class RequestSubscription(msgspec.Struct, frozen=True):
    """Send GetTelemetrySubscriptions with this instance id, or with the zero UUID to request a new id."""

    client_instance_id: UUID


class Push(msgspec.Struct, frozen=True):
    """Send PushTelemetry with the metrics of this subscription."""

    subscription: Subscription
    is_terminating: bool


TelemetryAction: TypeAlias = RequestSubscription | Push


class TelemetryMachine:
    """The state of a client's pushes. Only `step` changes it."""

    def __init__(self) -> None:
        self.state = TelemetryState.SUBSCRIPTION_NEEDED
        self.subscription: Subscription | None = None
        # Time (ms) of the next request. NEVER while a request is in flight, and after the last request.
        self.next_request_at = 0


class _Step(msgspec.Struct):
    now: int
    actions: list[TelemetryAction]


# ---- reactions to errors


class Reaction(Enum):
    """What a client does after an error response."""

    RETRY_NOW = "request the subscription again immediately"
    RETRY_LATER = "request the subscription again after the interval"
    STOP = "push no more metrics"


# Error code -> reaction. After every other error the client stops, as in Java's ClientTelemetryUtils.
REACTIONS: Final[Mapping[int, Reaction]] = {
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: Reaction.RETRY_NOW,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: Reaction.RETRY_NOW,
    ErrorCode.TELEMETRY_TOO_LARGE: Reaction.RETRY_LATER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reaction.RETRY_LATER,
}


# ---- handlers


def _request_subscription(step: _Step, machine: TelemetryMachine, event: NodeReady) -> None:
    """Request the subscription."""
    subscription = machine.subscription
    instance_id = NO_INSTANCE if subscription is None else subscription.client_instance_id
    step.actions.append(RequestSubscription(instance_id))
    machine.next_request_at = NEVER
    move(machine, S.SUBSCRIPTION_IN_PROGRESS, EDGES)


def _push(step: _Step, machine: TelemetryMachine, event: NodeReady) -> None:
    """Push the metrics."""
    assert machine.subscription is not None
    step.actions.append(Push(machine.subscription, is_terminating=False))
    machine.next_request_at = NEVER
    move(machine, S.PUSH_IN_PROGRESS, EDGES)


def _push_last(step: _Step, machine: TelemetryMachine, event: NodeReady) -> None:
    """Push the metrics for the last time."""
    assert machine.subscription is not None
    step.actions.append(Push(machine.subscription, is_terminating=True))
    machine.next_request_at = NEVER
    move(machine, S.TERMINATING_PUSH_IN_PROGRESS, EDGES)


def _on_subscribed(step: _Step, machine: TelemetryMachine, event: Subscribed) -> None:
    """Keep the subscription. Schedule the first push, or the next request if no metrics are requested."""
    machine.subscription = subscription = event.subscription
    interval_ms = _interval_ms(subscription)
    if subscription.metrics:
        machine.next_request_at = step.now + round(event.jitter * interval_ms)
        move(machine, S.PUSH_NEEDED, EDGES)
    else:
        machine.next_request_at = step.now + interval_ms
        move(machine, S.SUBSCRIPTION_NEEDED, EDGES)


def _on_pushed(step: _Step, machine: TelemetryMachine, event: Pushed) -> None:
    """Schedule the next push."""
    machine.next_request_at = step.now + _interval_ms(machine.subscription)
    move(machine, S.PUSH_NEEDED, EDGES)


def _on_subscription_rejected(step: _Step, machine: TelemetryMachine, event: Rejected) -> None:
    """Request the subscription again after the push interval, or stop, as `REACTIONS` says."""
    if REACTIONS.get(event.code, Reaction.STOP) is Reaction.STOP:
        _terminate(step, machine, event)
    else:
        _schedule_subscription_request(machine, step.now + _interval_ms(machine.subscription))


def _on_push_rejected(step: _Step, machine: TelemetryMachine, event: Rejected) -> None:
    """Request the subscription again, now or after the push interval, or stop (`REACTIONS`)."""
    reaction = REACTIONS.get(event.code, Reaction.STOP)
    if reaction is Reaction.STOP:
        _terminate(step, machine, event)
    else:
        wait_ms = 0 if reaction is Reaction.RETRY_NOW else _interval_ms(machine.subscription)
        _schedule_subscription_request(machine, step.now + wait_ms)


def _retry_later(step: _Step, machine: TelemetryMachine, event: Failed) -> None:
    """Request the subscription again after five minutes."""
    _schedule_subscription_request(machine, step.now + DEFAULT_INTERVAL_MS)


def _begin_close(step: _Step, machine: TelemetryMachine, event: CloseBegan) -> None:
    """Push for the last time, if the client's subscription requests metrics."""
    if machine.subscription is None or not machine.subscription.metrics:
        _terminate(step, machine, event)
    else:
        machine.next_request_at = step.now
        move(machine, S.TERMINATING_PUSH_NEEDED, EDGES)


def _terminate(step: _Step, machine: TelemetryMachine, event: object) -> None:
    """Send no more requests."""
    machine.next_request_at = NEVER
    move(machine, S.TERMINATED, EDGES)


def _ignore(step: _Step, machine: TelemetryMachine, event: object) -> None:
    """Do nothing."""


def _schedule_subscription_request(machine: TelemetryMachine, at: int) -> None:
    """Request the subscription at the time `at` (ms)."""
    machine.next_request_at = at
    move(machine, S.SUBSCRIPTION_NEEDED, EDGES)


def _interval_ms(subscription: Subscription | None) -> int:
    """Return a subscription's push interval; the default if the subscription or its interval is missing."""
    if subscription is None or subscription.push_interval_ms <= 0:
        return DEFAULT_INTERVAL_MS
    return max(subscription.push_interval_ms, MIN_INTERVAL_MS)


_IGNORED: Final = Cell(_ignore)
_STOP: Final = Cell(_terminate, to=(S.TERMINATED,))
_CLOSE: Final = Cell(_begin_close, to=(S.TERMINATING_PUSH_NEEDED, S.TERMINATED))
_RETRY_LATER: Final = Cell(_retry_later, to=(S.SUBSCRIPTION_NEEDED,))

# A row lists the reactions to one kind of event, in the order of TelemetryState. The response to a request
# that was sent before close began is ignored, as in Java.
TABLE: Final[Table[TelemetryKind, TelemetryState]] = Table(
    TelemetryState,
    EDGES,
    {
        TelemetryKind.NODE_READY: (
            Cell(_request_subscription, to=(S.SUBSCRIPTION_IN_PROGRESS,)),
            IMPOSSIBLE,
            Cell(_push, to=(S.PUSH_IN_PROGRESS,)),
            IMPOSSIBLE,
            Cell(_push_last, to=(S.TERMINATING_PUSH_IN_PROGRESS,)),
            IMPOSSIBLE,
            IMPOSSIBLE,
        ),
        TelemetryKind.SUBSCRIBED: (
            IMPOSSIBLE,
            Cell(_on_subscribed, to=(S.PUSH_NEEDED, S.SUBSCRIPTION_NEEDED)),
            IMPOSSIBLE,
            IMPOSSIBLE,
            _IGNORED,
            _IGNORED,
            _IGNORED,
        ),
        TelemetryKind.REJECTED: (
            IMPOSSIBLE,
            Cell(_on_subscription_rejected, to=(S.SUBSCRIPTION_NEEDED, S.TERMINATED)),
            IMPOSSIBLE,
            Cell(_on_push_rejected, to=(S.SUBSCRIPTION_NEEDED, S.TERMINATED)),
            _IGNORED,
            _STOP,
            _IGNORED,
        ),
        TelemetryKind.PUSHED: (
            IMPOSSIBLE,
            IMPOSSIBLE,
            IMPOSSIBLE,
            Cell(_on_pushed, to=(S.PUSH_NEEDED,)),
            _IGNORED,
            _STOP,
            _IGNORED,
        ),
        TelemetryKind.FAILED: (IMPOSSIBLE, _RETRY_LATER, IMPOSSIBLE, _RETRY_LATER, _IGNORED, _STOP, _IGNORED),
        TelemetryKind.DISABLED: (_STOP, _STOP, _STOP, _STOP, _STOP, _STOP, _IGNORED),
        TelemetryKind.CLOSE_BEGAN: (_STOP, _CLOSE, _CLOSE, _CLOSE, _IGNORED, _IGNORED, _IGNORED),
        TelemetryKind.CLOSED: (_STOP, _STOP, _STOP, _STOP, _STOP, _STOP, _IGNORED),
    },
)


def step(machine: TelemetryMachine, event: TelemetryEvent, now: int) -> list[TelemetryAction]:
    """Apply `event` at `now` (ms). Return a list with the request to send, if there is one."""
    context = _Step(now, [])
    act: Callable[[Any, Any, Any], None] = TABLE[KINDS[type(event)], machine.state].act
    act(context, machine, event)
    return context.actions
