"""sarama 1.61.1 (github.com/IBM/sarama) as a state machine.

The model has ConsumerGroup, Consumer, OffsetManager and Client. Each of sarama's goroutines is a small state
machine (`routines`). Channels are queues with sarama's sizes. Each mutex protects the same data as in sarama.
These modules mirror sarama's files:

* consumer_group.go, consumer_group_cooperative.go: `consumer_group` implements Consume and the application's
  loop around it. `consumer_group_join` is joinSync with its retries. `consumer_group_cooperative` implements
  the rebalance of cooperative strategies. `consumer_group_close` ends a session, and implements Close.

* consumer_group_session.go: `consumer_group_session` is the session with its heartbeats and the leader's
  partition checker. `consumer_group_claim` is the goroutine around ConsumeClaim.

* consumer.go: `consumer` handles `AssignCalled` (`kproto.models.contract`), which consumes partitions without
  a group. ConsumePartition is in `consume_partition`, `partition_consumer`, `broker_consumer` (one fetch loop
  per broker) and `fetch_response`.

* offset_manager.go: `offset_manager`, `offset_manager_close`, and `initial_offset`, the offset at which a
  claim starts.

* client.go, metadata.go, broker.go: `client`, `metadata`, `coordinator_lookup`, `broker`.

* config.go: `config`. `versions` lists the request versions for each Config.Version ("Version" in `extra`).

* balance_strategy.go: `balance_strategy` and `sticky_balance_strategy`.

Known differences: Go uses a random order when it iterates over a map, and when several cases of a select are
ready. The model uses a fixed order. The partitions of its OffsetFetch requests are sorted.

sarama has no Seek, no patterns and no enforceRebalance: the model reports these calls as errors.
"""

from __future__ import annotations

from typing import Final

from ..contract import (
    AssignCalled,
    CallbackReturned,
    CloseCalled,
    CommitCalled,
    FinishCommit,
    ModelAction,
    ModelConfig,
    ModelEvent,
    PauseCalled,
    PollCalled,
    RequestFailed,
    ResponseReceived,
    ResumeCalled,
    Started,
    SubscribeCalled,
    UnsubscribeCalled,
)
from ..handlers import Actions, EventHandlers
from .application import Application, CommitCall
from .client import SaramaClient
from .config import settings
from .consumer import assign
from .consumer_group import SaramaGroup, SaramaGroupState
from .versions import VERSIONS, versions_of

__all__ = ["VERSIONS", "SaramaHandlers", "SaramaState", "next_deadline", "start", "step"]


CLOSED = SaramaGroupState.CLOSED


class SaramaState(SaramaClient):
    """The state of one sarama process. Only `step` changes the state. All attributes may be read."""

    def __init__(self, config: ModelConfig) -> None:
        sarama_settings = settings(config)
        versions = versions_of(
            sarama_settings.version, sarama_settings.release, sarama_settings.offsets_retention
        )
        super().__init__(sarama_settings, versions)
        self.application = Application(self)
        self.group = SaramaGroup(self, self.application)

    @property
    def member_id(self) -> str:
        """Return the member id, or an empty string before the member has one."""
        return self.group.member_id

    @property
    def generation(self) -> int:
        """Return the generation of the current session, or -1 without a session."""
        return -1 if self.group.session is None else self.group.session.generation


def start(config: ModelConfig) -> SaramaState:
    """Create a client. Its first event is `Started`. Raises ConfigError for an invalid option."""
    return SaramaState(config)


def step(state: SaramaState, event: ModelEvent, now: int) -> list[ModelAction]:
    """Apply `event` at `now` (milliseconds) and return the actions to perform, in order."""
    out: list[ModelAction] = []
    state.now, state.out = now, out
    state.expire()
    HANDLERS.dispatch(state, event, now, out)
    state.run()
    return out


def next_deadline(state: SaramaState) -> int | None:
    """Return the time in milliseconds of the next `DeadlineReached`, or None if no timer runs."""
    return None if state.group.state is CLOSED else state.next_deadline()


class SaramaHandlers(EventHandlers[SaramaState]):
    """Handle the application's calls and the brokers' responses. Due timers run before each event."""

    UNSUPPORTED = ("UnknownCommand", "sarama has no {}")

    def on_started(self, state: SaramaState, event: Started, now: int, out: Actions) -> None:
        state.bootstrap(event)
        state.group.connect()

    def on_response(self, state: SaramaState, event: ResponseReceived, now: int, out: Actions) -> None:
        state.on_response(event)

    def on_request_failed(self, state: SaramaState, event: RequestFailed, now: int, out: Actions) -> None:
        state.on_request_failed(event)

    def on_subscribe(self, state: SaramaState, event: SubscribeCalled, now: int, out: Actions) -> None:
        if event.pattern is not None:
            self.report_unsupported("Subscribe", out)
        else:
            state.group.subscribe(event.topics)

    def on_unsubscribe(self, state: SaramaState, event: UnsubscribeCalled, now: int, out: Actions) -> None:
        state.group.subscribe(None)

    def on_poll(self, state: SaramaState, event: PollCalled, now: int, out: Actions) -> None:
        state.application.poll(event)

    def on_assign(self, state: SaramaState, event: AssignCalled, now: int, out: Actions) -> None:
        assign(state, state.application, event)

    def on_callback_returned(
        self, state: SaramaState, event: CallbackReturned, now: int, out: Actions
    ) -> None:
        state.application.on_callback_returned()

    def on_commit(self, state: SaramaState, event: CommitCalled, now: int, out: Actions) -> None:
        session = state.group.last_session
        if session is None:
            out.append(FinishCommit(event.token))
        else:
            CommitCall(state, session.offsets, event)

    def on_pause(self, state: SaramaState, event: PauseCalled, now: int, out: Actions) -> None:
        for partition in event.partitions:
            if partition in state.children:
                state.paused.add(partition)
                state.children[partition].paused = True

    def on_resume(self, state: SaramaState, event: ResumeCalled, now: int, out: Actions) -> None:
        for partition in event.partitions:
            state.paused.discard(partition)
            if partition in state.children:
                state.children[partition].paused = False

    def on_close(self, state: SaramaState, event: CloseCalled, now: int, out: Actions) -> None:
        state.group.close()


HANDLERS: Final = SaramaHandlers()
