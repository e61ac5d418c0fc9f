"""The engine of an admin client: it runs admin operations (plans), and performs no I/O itself.

actions = step(engine, Run(token, admin.read_metadata(...), 30_000), now)
actions = step(engine, Data(key, received), now)       # ... Done(token, view, None)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from kproto.deadlines import earliest
from kproto.errors import IllegalState
from kproto.machine import NEVER

from ...records import GroupChange
from .. import events as ev
from ..events import Action, Event
from ..metadata.cluster import ClusterView
from ..metrics import Metrics, SnapshotBuilder
from ..network.client import NetworkClient
from ..network.transport import (
    RECEIVE_MESSAGE_MAX_BYTES,
    Answer,
    Broken,
    Data,
    GotToken,
    NetworkEvent,
    Opened,
    Reached,
)
from ..telemetry.reporter import CLOSE_MS, ClientTelemetry
from ..timeouts import RETRY_BACKOFF_MAX_MS, RETRY_BACKOFF_MS, Backoff
from .runner import PlanRunner

if TYPE_CHECKING:
    from ...dialers import Dialer
    from ...security.options import Security


class AdminEngine:
    """The connections to one cluster, and the plans that use them. Only `step` changes this object."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        random: Random,
        *,
        client_id: str,
        request_timeout_ms: int,
        receive_message_max_bytes: int = RECEIVE_MESSAGE_MAX_BYTES,
        security: Security | None = None,
        dialer: Dialer | None = None,
        wall: Callable[[], int] | None = None,
        enable_metrics_push: bool = False,
    ) -> None:
        self.network = NetworkClient(
            bootstrap,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            max_response=receive_message_max_bytes,
            security=security,
            dialer=dialer,
        )
        self.now = 0
        self._client_id = client_id
        self.closed = False
        self.reports: list[Action] = []
        self._wall = wall or self.clock
        self.network.on_throttled = self._on_throttled
        backoff = Backoff(RETRY_BACKOFF_MS, RETRY_BACKOFF_MAX_MS, random)
        self.runner = PlanRunner(self.network, self.clock, backoff.after)
        # The tokens of `Close` events. Their `Done` actions follow the last telemetry push, but come no later
        # than `_close_ends_at` (ms).
        self._closes: list[object] = []
        self._close_ends_at = NEVER
        self.telemetry: ClientTelemetry | None = None
        if enable_metrics_push:
            self.telemetry = ClientTelemetry(
                self.network,
                clock=self.clock,
                wall=self._wall,
                random=random,
                snapshot=self.metrics,
                labels=dict[str, str],  # An admin client has no such attributes.
            )

    @property
    def view(self) -> ClusterView:
        """The client's view of the cluster."""
        return self.network.view

    def clock(self) -> int:
        return self.now

    def metrics(self, now: int) -> Metrics:
        """Return a snapshot of the metrics of the connections at the time `now` (ms)."""
        snapshot = SnapshotBuilder("admin-client", self._client_id, now)
        self.network.add_metrics_to(snapshot)
        return snapshot.build()

    def _on_throttled(self, why: str) -> None:
        self.reports.append(ev.Report(GroupChange(self._wall(), "throttled", reason=why)))

    def on_network_event(self, event: NetworkEvent) -> None:
        """Pass an event of a connection to the network client."""
        self.network.handle(event, self.now)

    def tick(self, event: ev.Tick) -> None:
        self.network.tick(self.now)

    def run(self, event: ev.Run) -> None:
        self.runner.start(event.token, event.plan, event.timeout_ms)

    def drop(self, event: ev.Drop) -> None:
        self.runner.drop(event.token)

    def close(self, event: ev.Close) -> None:
        """Fail every plan, and begin to push the metrics one last time.

        `complete_closes` closes the connections after the push. Later calls of `close` complete together with
        the first one.
        """
        self.runner.fail_all(IllegalState("this admin client was closed"))
        self._closes.append(event.token)
        if self.telemetry is not None and self._close_ends_at == NEVER:
            self.telemetry.begin_close()
            self._close_ends_at = self.now + CLOSE_MS

    def complete_closes(self) -> list[Action]:
        """Close the connections and complete the `close` calls, once the last telemetry push has ended.

        Returns no action until `close` was called and the push has ended or timed out.
        """
        if not self._closes:
            return []
        if self.telemetry is not None and not self.telemetry.has_ended and self.now < self._close_ends_at:
            return []
        self.closed = True
        tokens, self._closes = self._closes, []
        self.network.close(self.now)
        self.network.finished.clear()
        return [ev.Done(token, None, None) for token in tokens]

    def due(self) -> int | None:
        """Return the time (ms) at which to send the next Tick, or None if no Tick is needed."""
        return earliest(
            self.network.next_deadline(),
            self.runner.due(),
            None if self.telemetry is None else self.telemetry.due(),
            self._close_ends_at if self._closes else None,
        )


TABLE: dict[type[Any], Callable[[AdminEngine, Any], None]] = {
    Reached: AdminEngine.on_network_event,
    Opened: AdminEngine.on_network_event,
    Data: AdminEngine.on_network_event,
    Answer: AdminEngine.on_network_event,
    Broken: AdminEngine.on_network_event,
    GotToken: AdminEngine.on_network_event,
    ev.Tick: AdminEngine.tick,
    ev.Run: AdminEngine.run,
    ev.Drop: AdminEngine.drop,
    ev.Close: AdminEngine.close,
}


def step(engine: AdminEngine, event: Event, now: int) -> list[Action]:
    """Apply `event` at `now` and return the actions to perform, in order."""
    engine.now = now
    network = engine.network
    TABLE[type(event)](engine, event)
    engine.runner.pump()
    while True:  # A finished call can start further requests, which may finish immediately.
        finished_calls, network.finished = network.finished, []
        for call in finished_calls:
            call.purpose(call)
        if engine.telemetry is not None:
            engine.telemetry.pump()
        if not network.finished:
            break
    completed_closes = engine.complete_closes()
    actions: list[Action] = [*network.actions, *engine.reports, *engine.runner.take(), *completed_closes]
    network.actions.clear()
    engine.reports.clear()
    return actions
