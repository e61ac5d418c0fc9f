"""The state of a sarama-cluster Consumer, and of the loops of a cycle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from ...group.subscription import TopicPartition, by_topic
from ...machine import Edges
from ...messages.join_group import JoinGroupResponse
from ...patterns import compiled
from ..contract import Notify
from ..sarama.application import Application
from ..sarama.errors import GoError
from ..sarama.offset_manager import PartitionOffset
from ..sarama.routines import Routine, States, Table, Ticker
from .client import ClusterClient
from .partitions import ClusterPartition


class ClusterConsumerState(States):
    NEW = "new"
    # NewClient: the first metadata request is in flight.
    CONNECTING = "connecting"
    # No Consumer exists, or it is closed.
    IDLE = "idle"
    # NewConsumer looks the coordinator up.
    CREATING = "creating"
    REFRESHING = "refreshing"
    FINDING_COORDINATOR = "finding_coordinator"
    RELEASING = "releasing"
    # The leader refreshes the metadata of an unknown topic.
    REFRESHING_TOPICS = "refreshing_topics"
    JOINING = "joining"
    SYNCING = "syncing"
    # The Consumer fetches the committed offsets.
    FETCHING = "fetching"
    OPENING = "opening"
    CONSUMING = "consuming"
    # The Consumer releases the open partitions, because at least one partition failed to open.
    DROPPING = "dropping"
    LEAVING_AFTER_ERROR = "leaving_after_error"
    BACKING_OFF = "backing_off"
    # The Consumer waits until all loops of the cycle have ended.
    WINDING_UP = "winding_up"
    # The Consumer is being closed, and releases its partitions.
    CLOSING = "closing"
    LEAVING = "leaving"
    CLOSED = "closed"


S = ClusterConsumerState
EDGES: Final[Edges[Any]] = {
    S.NEW: {S.CONNECTING: "the bootstrap addresses are known"},
    S.CONNECTING: {
        S.IDLE: "metadata has arrived",
        S.CLOSED: "no broker answered",
    },
    S.IDLE: {S.CREATING: "NewConsumer is called", S.CLOSED: "the client is closed"},
    S.CREATING: {
        S.REFRESHING: "the coordinator is known",
        S.IDLE: "the coordinator is not found",
        S.CLOSING: "the coordinator is known, and the Consumer is being closed",
    },
    S.REFRESHING: {
        S.FINDING_COORDINATOR: "metadata has arrived",
        S.BACKING_OFF: "metadata cannot be fetched",
    },
    S.FINDING_COORDINATOR: {
        S.RELEASING: "the coordinator is known",
        S.BACKING_OFF: "the coordinator is not found",
    },
    S.RELEASING: {
        S.JOINING: "the partitions of the last cycle are released",
        S.BACKING_OFF: "the last commit failed",
    },
    S.JOINING: {
        S.BACKING_OFF: "JoinGroup failed",
        S.REFRESHING_TOPICS: "the leader does not know a topic",
        S.SYNCING: "JoinGroup is answered",
    },
    S.REFRESHING_TOPICS: {
        S.SYNCING: "metadata of the unknown topic has arrived",
        S.BACKING_OFF: "the topic is still unknown",
    },
    S.SYNCING: {
        S.BACKING_OFF: "the group is rebalancing",
        S.FETCHING: "SyncGroup is answered",
        S.LEAVING_AFTER_ERROR: "SyncGroup failed",
    },
    S.FETCHING: {
        S.OPENING: "the committed offsets have arrived",
        S.CONSUMING: "the member has no partitions",
        S.LEAVING_AFTER_ERROR: "OffsetFetch failed",
    },
    S.OPENING: {
        S.CONSUMING: "all partitions are open",
        S.DROPPING: "a partition cannot be opened",
    },
    S.CONSUMING: {S.WINDING_UP: "a loop or a partition has ended, or the Consumer is being closed"},
    S.DROPPING: {S.LEAVING_AFTER_ERROR: "the open partitions are released"},
    S.LEAVING_AFTER_ERROR: {S.BACKING_OFF: "LeaveGroup is answered"},
    S.BACKING_OFF: {S.WINDING_UP: "the backoff has passed, or the Consumer is being closed"},
    S.WINDING_UP: {
        S.REFRESHING: "all loops have ended",
        S.CLOSING: "all loops have ended, and the Consumer is being closed",
    },
    S.CLOSING: {S.LEAVING: "the partitions are released"},
    S.LEAVING: {S.IDLE: "LeaveGroup is answered"},
    S.CLOSED: {},
}


class CycleLoopState(States):
    WAITING = "waiting"  # The loop waits for the next tick.
    WORKING = "working"
    ENDED = "ended"


L = CycleLoopState


class CycleLoop(Routine):
    """One loop of a cycle. When it ends, it calls `ClusterConsumer.on_loop_ended`."""

    __slots__ = ("consumer", "stopping", "ticker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {L.WAITING: {L.WORKING, L.ENDED}, L.WORKING: {L.WAITING, L.ENDED}, L.ENDED: set()}

    def __init__(self, consumer: ClusterConsumer, period: int) -> None:
        super().__init__(L.WAITING)
        self.consumer = consumer
        self.stopping = False
        self.ticker = Ticker(consumer.client.now, period)
        consumer.client.sleep(self, self.ticker.at)

    def stop(self) -> None:
        """Stop the loop: immediately if it waits for a tick, else when its request is complete."""
        self.stopping = True
        if self.state is L.WAITING:
            self.end()

    def wait_for_tick(self) -> None:
        """Wait for the next tick, or end the loop if the loop or its consumer is stopping."""
        if self.stopping or self.consumer.dying:
            self.end()
            return
        if self.state is not L.WAITING:
            self.move(L.WAITING)
        self.consumer.client.sleep(self, self.ticker.at)

    def end(self) -> None:
        self.move(L.ENDED)
        self.consumer.on_loop_ended(self)


class ClusterConsumer(Routine):
    """The Consumer's goroutine, which runs the cycles and Close."""

    __slots__ = (
        "application",
        "client",
        "committing",
        "core_topics",
        "dying",
        "error",
        "extra_topics",
        "finished",
        "generation",
        "joined",
        "loops",
        "member_id",
        "notified",
        "partitions",
        "previous",
        "release",
        "requested_topics",
        "unopened_count",
        "waiting_commits",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = EDGES

    def __init__(self, client: ClusterClient, application: Application) -> None:
        super().__init__(S.NEW)
        self.client, self.application = client, application
        self.requested_topics: tuple[str, ...] | None = None
        # Whether the whole client is being closed.
        self.finished = False
        # Whether this Consumer is being closed.
        self.dying = False
        # The topics that were subscribed by name, and those that the last JoinGroup added for the whitelist.
        self.core_topics: tuple[str, ...] = ()
        self.extra_topics: tuple[str, ...] = ()
        self.member_id = ""
        self.generation = 0
        self.joined: JoinGroupResponse | None = None
        self.partitions: dict[TopicPartition, ClusterPartition] = {}
        self.unopened_count = 0
        self.loops: list[CycleLoop] = []
        # The partitions at the start of the cycle. A notification compares the claimed partitions with them.
        self.previous: frozenset[TopicPartition] = frozenset()
        # Whether this cycle has sent the notification "rebalance start".
        self.notified = False
        # The error with which this cycle will fail, once the partitions are released and the member has left.
        self.error: GoError | None = None
        self.committing = False
        self.waiting_commits: list[Routine] = []  # The commits that wait until the current one is complete.
        self.release: Routine | None = None  # The release in progress.

    def connect(self) -> None:
        """Create the client (NewClient), which first requests the metadata of all topics."""
        self.move(S.CONNECTING)
        self.client.metadata.request_refresh(self, ())

    def subscribe(self, topics: tuple[str, ...] | None) -> None:
        """Close the current Consumer. Then create one for `topics`, unless `topics` is None."""
        self.requested_topics = topics
        if self.state is S.IDLE:
            self.client.resume(self, "topics_requested")
        elif self.state not in (S.NEW, S.CONNECTING, S.CLOSED):
            self.die()

    def close(self) -> None:
        """Close the current Consumer, and then the client."""
        self.finished, self.requested_topics = True, None
        if self.state is S.IDLE:
            self.client.resume(self, "topics_requested")
        else:
            self.die()

    def die(self) -> None:
        """Close the Consumer. Each of its routines ends when it next runs."""
        self.dying = True
        self.wake_waiters()
        if self.state is S.CONSUMING:
            self.wind_up()

    def wake_waiters(self) -> None:
        """Wake the Consumer and, if a release is in progress, the release.

        The Consumer and the release then check whether they still have to wait.
        """
        self.client.wake(self, "check")
        if self.release is not None:
            self.client.wake(self.release, "check")

    def partition_offsets(self) -> dict[TopicPartition, PartitionOffset]:
        """Map each consumed partition to the offset to commit for it."""
        return {claim: partition.partition_offset for claim, partition in self.partitions.items()}

    def has_new_topics(self) -> bool:
        """Return whether a topic matches the whitelist but is not consumed."""
        return any(topic not in self.extra_topics for topic in self.potential_topics())

    def potential_topics(self) -> list[str]:
        """Return the whitelisted topics that were not subscribed by name (selectExtraTopics)."""
        whitelist, blacklist = self.client.whitelist, self.client.blacklist
        if whitelist is None:
            return []
        return [
            topic
            for topic in sorted(self.client.metadata.topics)
            if topic not in self.core_topics
            and not (blacklist is not None and compiled(blacklist).search(topic))
            and compiled(whitelist).search(topic)
        ]

    def report(self, context: str, error: GoError) -> None:
        """Report an error, unless the Consumer is closing (handleError)."""
        if not self.dying:
            self.client.report(error._replace(text=f"{context}: {error.text}"))

    def notify(self, kind: str, claimed: Iterable[TopicPartition] = ()) -> None:
        """Report a notification, if notifications are enabled (handleNotification).

        The text has the format of Go's %+v. Claimed lists every topic of the new claims, and Released every
        topic of the previous claims, even topics without a claimed or released partition.

        While the Consumer closes, the original decides at random whether to send the notification. The model
        never sends it.
        """
        if not self.client.sends_notifications or self.dying:
            return
        claims = frozenset(claimed)
        if kind == "rebalance OK":
            new_text = _go_map(claims - self.previous, claims)
            released_text = _go_map(self.previous - claims, self.previous)
            current_text = _go_map(claims, claims)
        else:
            new_text = released_text = "map[]"
            current_text = _go_map(self.previous, self.previous)
        text = f"&{{Type:{kind} Claimed:{new_text} Released:{released_text} Current:{current_text}}}"
        self.client.out.append(Notify("notification", kind, text))

    # -- loops

    def on_loop_ended(self, loop: CycleLoop) -> None:
        """Record that a loop has ended. If the Consumer is consuming, end the cycle."""
        self.loops.remove(loop)
        if self.state is S.CONSUMING:
            self.wind_up()
        self.wake_waiters()

    def wind_up(self) -> None:
        """End the cycle by stopping all loops, if the Consumer is consuming."""
        if self.state is S.CONSUMING:
            self.move(S.WINDING_UP)
            for loop in list(self.loops):
                loop.stop()
            self.wake_waiters()

    def on_partition_opened(self, partition: ClusterPartition, error: GoError | None) -> None:
        """Decrement `unopened_count`, and wake the Consumer if all partitions are open or have failed.

        `partition` is open if `error` is None; otherwise it has failed to open with `error`.
        """
        self.unopened_count -= 1
        if error is not None:
            self.error = error
        if not self.unopened_count:
            self.client.wake(self, "partition_opened")


def _go_map(partitions: Iterable[TopicPartition], superset: Iterable[TopicPartition]) -> str:
    """Format partitions by topic as Go formats a map, with every topic of `superset`, even an empty one."""
    by_name: dict[str, list[int]] = {topic: [] for topic, _ in by_topic(superset)}
    by_name |= dict(by_topic(partitions))
    entries = (f"{topic}:[{' '.join(map(str, by_name[topic]))}]" for topic in sorted(by_name))
    return f"map[{' '.join(entries)}]"
