"""bsm/sarama-cluster 2.1.15 as a machine, on Shopify/sarama 1.17.0 with Version = V0_11_0_0.

The last released sarama-cluster, unmaintained since 2019. Everything below the group is sarama's
(`kproto.models.sarama`: client, metadata, coordinator_lookup, broker, partition_consumer, broker_consumer),
with the request versions and settings of that time.

* `consumer`: the main loop and its consume cycle; `consumer_state`: the states of the loop.
* `consumer_close`: what happens when a cycle fails, and Close.
* `loops`: the heartbeat loop, the topic watcher, the commit loop, the partitions.
* `coordinator_requests`: requests to the coordinator, with their lookup and retries.
* `balancer`: subscription and assignment (balancer.go).

Known to differ: the original's background refresher asks for an empty list of topics, which from Metadata v1
on means none, so that it forgets all topics until it next needs one; this one asks for all of them.

Versions are the lowest that a broker of today reads; those of the group are written into sarama-cluster. A
Consumer is made by Subscribe and closed by Unsubscribe, by another Subscribe, and by Close: it leaves the
group each time. A pattern is a whitelist ("Whitelist" and "Blacklist" in `extra`, too). "assigned" and
"revoked" are told where a notification says the same, and nobody waits for them. "PartitionStrategy" is the
leader's; what a configuration says of assignors is not looked at, as in the original (S1-11).
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

SEES_GROWTH = False  # Its leader doesn't look for new partitions: `loops`.
# What is fetched goes on to the application until the main loop releases the partitions, and after a
# rebalance before "assigned": partitions and notifications are goroutines of their own (consumer.go,
# nextTick).
SILENT_WHEN_FENCED = False


CLOSED = ClusterConsumerState.CLOSED


class SaramaClusterState(ClusterClient):
    """Everything that one sarama-cluster process knows. Only `step` changes it; read what you like."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.application = Application(self)
        self.consumer = ClusterConsumer(self, self.application)

    @property
    def member_id(self) -> str:
        """The member id; empty while there is none."""
        return self.consumer.member_id

    @property
    def generation(self) -> int:
        """The last generation that was joined."""
        return self.consumer.generation

    @property
    def works_on(self) -> frozenset[TopicPartition]:
        """What it consumes: where a cycle failed, not what its last notification said."""
        return frozenset(self.consumer.partitions)


def start(config: ModelConfig) -> SaramaClusterState:
    """A client that has done nothing yet: its first event is `Started`. Raises ConfigError."""
    return SaramaClusterState(config)


def step(state: SaramaClusterState, event: ModelEvent, now: int) -> list[ModelAction]:
    """Let `event` happen at `now` (milliseconds) and return what to do, in order."""
    out: list[ModelAction] = []
    state.now, state.out = now, out
    state.expire()
    HANDLERS.dispatch(state, event, now, out)
    state.run()
    return out


def next_deadline(state: SaramaClusterState) -> int | None:
    """When to send the next `Tick`, in the same milliseconds as `now`; None: not before something happens."""
    return None if state.consumer.state is CLOSED else state.next_deadline()


class ClusterCommitCallState(States):
    COMMITTING = "committing"
    DONE = "done"


class ClusterCommitCall(Routine):
    """The application's CommitOffsets: once, and its error is returned."""

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
    """The application's calls, and what arrives from the brokers. Timers are expired before each event."""

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
