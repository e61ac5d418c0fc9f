"""bsm/sarama-cluster 2.1.15 as a state machine, on Shopify/sarama 1.17.0 with Version = V0_11_0_0.

Release 2.1.15 is the last one: sarama-cluster has not been maintained since 2019. Only the group code is
sarama-cluster's own. Everything else is sarama's, with the request versions and settings of sarama 1.17.0
(`kproto.models.sarama`: client, metadata, coordinator_lookup, broker, partition_consumer, broker_consumer).

* `consumer`: the main loop and its consume cycle. `consumer_state`: the state of the loop.

* `consumer_close`: the end of a failed cycle, and Close.

* `loops`: the heartbeat loop, the topic watcher and the commit loop.

* `partitions`: the claimed partitions (partitions.go).

* `coordinator_requests`: requests to the coordinator, with lookup and retries.

* `balancer`: subscription and assignment (balancer.go).

* `client`: sarama's client with sarama-cluster's options.

After a rebalance, messages may be delivered before the notification "assigned": partitions and notifications
have separate goroutines (consumer.go, nextTick).

Known difference: sarama-cluster's background refresher requests an empty list of topics. From Metadata v1 on,
the response then has no topics, so the original has no cached topics until it requests a topic again. The
model requests all topics instead.

Each request has the lowest version that Kafka 4 supports. Subscribe creates a Consumer. Unsubscribe, Close or
another Subscribe closes the Consumer, which then leaves the group.

The callbacks "assigned" and "revoked" are called after the notifications. The model does not wait for
them to return.

A subscribed pattern becomes the option Group.Topics.Whitelist. `extra` may also contain "Whitelist",
"Blacklist" and "PartitionStrategy", the leader's strategy. The option `assignors` is ignored.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ...group.subscription import TopicPartition
from ..contract import (
    CloseCalled,
    CommitCalled,
    FinishCommit,
    ModelAction,
    ModelConfig,
    ModelEvent,
    PollCalled,
    RequestFailed,
    ResponseReceived,
    Started,
    SubscribeCalled,
    UnsubscribeCalled,
)
from ..handlers import Actions, EventHandlers
from ..sarama.application import Application
from ..sarama.errors import GoError
from ..sarama.routines import Routine, States, Table, row
from .client import VERSIONS, ClusterClient
from .consumer import ClusterConsumer
from .consumer_state import ClusterConsumerState
from .coordinator_requests import CommitOffsets

__all__ = ["VERSIONS", "SaramaClusterHandlers", "SaramaClusterState", "next_deadline", "start", "step"]

# Whether members notice new partitions of a topic. In sarama-cluster not even the leader does (`loops`).
SEES_GROWTH = False
# Whether a fenced member stops delivering messages at once. sarama-cluster delivers them until the main loop
# releases the partitions.
SILENT_WHEN_FENCED = False


CLOSED = ClusterConsumerState.CLOSED


class SaramaClusterState(ClusterClient):
    """The state of one sarama-cluster process. Only `step` changes the state. All attributes may be read."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.application = Application(self)
        self.consumer = ClusterConsumer(self, self.application)

    @property
    def member_id(self) -> str:
        """Return the member id, or an empty string before the member has one."""
        return self.consumer.member_id

    @property
    def generation(self) -> int:
        """Return the generation that the member joined last."""
        return self.consumer.generation

    @property
    def works_on(self) -> frozenset[TopicPartition]:
        """Return the consumed partitions. After a failed cycle they may differ from those in the last
        notification.
        """
        return frozenset(self.consumer.partitions)


def start(config: ModelConfig) -> SaramaClusterState:
    """Create a client. Its first event is `Started`. Raises ConfigError for an invalid option."""
    return SaramaClusterState(config)


def step(state: SaramaClusterState, event: ModelEvent, now: int) -> list[ModelAction]:
    """Apply `event` at `now` (milliseconds) and return the actions to perform, in order."""
    out: list[ModelAction] = []
    state.now, state.out = now, out
    state.expire()
    HANDLERS.dispatch(state, event, now, out)
    state.run()
    return out


def next_deadline(state: SaramaClusterState) -> int | None:
    """Return the time in milliseconds of the next `DeadlineReached`, or None if no timer runs."""
    return None if state.consumer.state is CLOSED else state.next_deadline()


class ClusterCommitCallState(States):
    COMMITTING = "committing"
    DONE = "done"


class ClusterCommitCall(Routine):
    """One call of CommitOffsets. It is not retried, and returns its error."""

    __slots__ = ("state_of_client", "token")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        ClusterCommitCallState.COMMITTING: {ClusterCommitCallState.DONE},
        ClusterCommitCallState.DONE: set(),
    }

    def __init__(self, state: SaramaClusterState, event: CommitCalled) -> None:
        super().__init__(ClusterCommitCallState.COMMITTING)
        self.state_of_client, self.token = state, event.token
        offsets = state.consumer.partition_offsets()
        for partition, offset in (event.offsets or {}).items():
            if partition in offsets:
                offsets[partition].mark(offset)
        CommitOffsets(state.consumer, self, 0).start()


def _on_committed(call: ClusterCommitCall, error: GoError | None) -> None:
    call.move(ClusterCommitCallState.DONE)
    result = None if error is None else (error.name, error.text)
    call.state_of_client.out.append(FinishCommit(call.token, result))


ClusterCommitCall.TABLE = {"committed": row(ClusterCommitCallState, COMMITTING=_on_committed)}


class SaramaClusterHandlers(EventHandlers[SaramaClusterState]):
    """Handle the application's calls and the brokers' responses. Due timers run before each event."""

    UNSUPPORTED = ("UnknownCommand", "sarama-cluster has no {}")

    def on_started(self, state: SaramaClusterState, event: Started, now: int, out: Actions) -> None:
        state.bootstrap(event)
        state.consumer.connect()

    def on_response(self, state: SaramaClusterState, event: ResponseReceived, now: int, out: Actions) -> None:
        state.on_response(event)

    def on_request_failed(
        self, state: SaramaClusterState, event: RequestFailed, now: int, out: Actions
    ) -> None:
        state.on_request_failed(event)

    def on_subscribe(self, state: SaramaClusterState, event: SubscribeCalled, now: int, out: Actions) -> None:
        if event.pattern is not None:
            state.whitelist = event.pattern
        state.consumer.subscribe(event.topics)

    def on_unsubscribe(
        self, state: SaramaClusterState, event: UnsubscribeCalled, now: int, out: Actions
    ) -> None:
        state.consumer.subscribe(None)

    def on_poll(self, state: SaramaClusterState, event: PollCalled, now: int, out: Actions) -> None:
        state.application.poll(event)

    def on_commit(self, state: SaramaClusterState, event: CommitCalled, now: int, out: Actions) -> None:
        ClusterCommitCall(state, event)

    def on_close(self, state: SaramaClusterState, event: CloseCalled, now: int, out: Actions) -> None:
        state.consumer.close()


HANDLERS: Final = SaramaClusterHandlers()
