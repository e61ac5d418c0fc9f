"""What the goroutines of a sarama-cluster Consumer share: its state, and the loops of a cycle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from ...group.subscription import TopicPartition
from ...machine import Edges
from ...messages.join_group import JoinGroupResponse
from ...patterns import compiled
from ..contract import Notify
from ..sarama.application import Application
from ..sarama.errors import Trouble
from ..sarama.offset_manager import Managed
from ..sarama.routines import Routine, States, Table, Ticker
from .client import ClusterClient
from .partitions import Partition


class ConsumerState(States):
    new = "new"
    connecting = "connecting"  # NewClient: the first metadata
    idle = "idle"  # no Consumer was made, or it is closed
    creating = "creating"  # NewConsumer: looks the coordinator up
    refreshing = "refreshing"
    finding = "finding"
    releasing = "releasing"
    learning = "learning"  # the leader: metadata of a topic of which nothing is known
    joining = "joining"
    syncing = "syncing"
    fetching = "fetching"  # offsets
    opening = "opening"
    consuming = "consuming"
    dropping = "dropping"  # releases what was opened before one failed
    quitting = "quitting"  # leaves the group after an error
    backing_off = "backing_off"
    winding_up = "winding_up"  # until all loops have ended
    closing = "closing"  # the last release
    leaving = "leaving"
    closed = "closed"


S = ConsumerState
_CYCLE_ENDS = {S.backing_off, S.winding_up}

EDGES: Final[Edges[Any]] = {
    S.new: {S.connecting, S.closed},
    S.connecting: {S.idle, S.closed},
    S.idle: {S.creating, S.closed},
    S.creating: {S.refreshing, S.idle, S.closing},
    S.refreshing: {S.finding, *_CYCLE_ENDS},
    S.finding: {S.releasing, *_CYCLE_ENDS},
    S.releasing: {S.joining, *_CYCLE_ENDS},
    S.joining: {S.learning, S.syncing, *_CYCLE_ENDS},
    S.learning: {S.syncing, *_CYCLE_ENDS},
    S.syncing: {S.fetching, S.quitting, *_CYCLE_ENDS},
    S.fetching: {S.opening, S.consuming, S.quitting, *_CYCLE_ENDS},
    S.opening: {S.consuming, S.dropping, *_CYCLE_ENDS},
    S.consuming: {S.winding_up},
    S.dropping: {S.quitting},
    S.quitting: {*_CYCLE_ENDS},
    S.backing_off: {S.winding_up},
    S.winding_up: {S.refreshing, S.closing},
    S.closing: {S.leaving},
    S.leaving: {S.idle, S.closed},
    S.closed: set(),
}


class LoopState(States):
    waiting = "waiting"  # for the ticker
    working = "working"
    ended = "ended"


L = LoopState


class Loop(Routine):
    """One loop of a cycle; `Consumer.ended` hears of its end."""

    __slots__ = ("consumer", "stopping", "ticker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {L.waiting: {L.working, L.ended}, L.working: {L.waiting, L.ended}, L.ended: set()}

    def __init__(self, consumer: Consumer, period: int) -> None:
        super().__init__(L.waiting)
        self.consumer = consumer
        self.stopping = False
        self.ticker = Ticker(consumer.client.now, period)
        consumer.client.sleep(self, self.ticker.at)

    def stop(self) -> None:
        """It ends when what it does is done."""
        self.stopping = True
        if self.state is L.waiting:
            self.end()

    def again(self) -> None:
        """Wait for the next tick."""
        if self.stopping or self.consumer.dying:
            self.end()
            return
        if self.state is not L.waiting:
            self.move(L.waiting)
        self.consumer.client.sleep(self, self.ticker.at)

    def end(self) -> None:
        self.move(L.ended)
        self.consumer.ended(self)


class Consumer(Routine):
    """The goroutine that runs the cycles, and Close."""

    __slots__ = (
        "application",
        "before",
        "client",
        "commits",
        "committing",
        "core",
        "dying",
        "extra",
        "finished",
        "generation",
        "joined",
        "loops",
        "member_id",
        "notified",
        "partitions",
        "release",
        "trouble",
        "unopened",
        "wanted",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = EDGES

    def __init__(self, client: ClusterClient, application: Application) -> None:
        super().__init__(S.new)
        self.client, self.application = client, application
        self.wanted: tuple[str, ...] | None = None
        self.finished = False  # the whole client is being closed
        self.dying = False  # this Consumer is
        self.core: tuple[str, ...] = ()
        self.extra: tuple[str, ...] = ()
        self.member_id = ""
        self.generation = 0
        self.joined: JoinGroupResponse | None = None
        self.partitions: dict[TopicPartition, Partition] = {}
        self.unopened = 0
        self.loops: list[Loop] = []
        self.before: frozenset[TopicPartition] = frozenset()  # what was current when the cycle began
        self.notified = False  # the start of this cycle was told
        self.trouble: Trouble | None = None
        self.committing = False
        self.commits: list[Routine] = []
        self.release: Routine | None = None

    def connect(self) -> None:
        """NewClient: the first metadata."""
        self.move(S.connecting)
        self.client.metadata.want(self, ())

    def subscribe(self, topics: tuple[str, ...] | None) -> None:
        """Close the present Consumer and (unless None) make one for these topics."""
        self.wanted = topics
        if self.state is S.idle:
            self.client.resume(self, "wanted")
        elif self.state not in (S.new, S.connecting, S.closed):
            self.die()

    def close(self) -> None:
        self.finished, self.wanted = True, None
        if self.state is S.idle:
            self.client.resume(self, "wanted")
        else:
            self.die()

    def die(self) -> None:
        """Close of the Consumer: whoever waits looks."""
        self.dying = True
        self.look()
        if self.state is S.consuming:
            self.wind_up()

    def look(self) -> None:
        """Something was closed."""
        self.client.wake(self, "look")
        if self.release is not None:
            self.client.wake(self.release, "look")

    def managed(self) -> dict[TopicPartition, Managed]:
        """The offsets of what is consumed."""
        return {partition: one.managed for partition, one in self.partitions.items()}

    def new_topics(self) -> bool:
        """Whether there is a topic that should be consumed and isn't."""
        return any(topic not in self.extra for topic in self.potential_topics())

    def potential_topics(self) -> list[str]:
        """selectExtraTopics: what the whitelist wants beside the topics that were named."""
        white, black = self.client.whitelist, self.client.blacklist
        if white is None:
            return []
        return [
            topic
            for topic in sorted(self.client.metadata.topics)
            if topic not in self.core
            and not (black is not None and compiled(black).search(topic))
            and compiled(white).search(topic)
        ]

    def report(self, context: str, trouble: Trouble) -> None:
        """handleError: what happens while it closes is dropped."""
        if not self.dying:
            self.client.report(trouble._replace(text=f"{context}: {trouble.text}"))

    def notify(self, kind: str, claimed: Iterable[TopicPartition] = ()) -> None:
        """handleNotification, if they are wanted; the original draws by lot whether its end comes first."""
        if not self.client.notifies or self.dying:
            return
        now = frozenset(claimed)
        parts = [("current", self.before)]
        if kind == "rebalance OK":
            parts = [("claimed", now - self.before), ("released", self.before - now), ("current", now)]
        text = "; ".join(f"{name}: {' '.join(map(str, sorted(found)))}" for name, found in parts)
        self.client.out.append(Notify("notification", kind, text))

    # -- loops

    def ended(self, loop: Loop) -> None:
        """A loop is over, and the cycle with it."""
        self.loops.remove(loop)
        if self.state is S.consuming:
            self.wind_up()
        self.look()

    def wind_up(self) -> None:
        """The end of a cycle: stop all loops."""
        if self.state is S.consuming:
            self.move(S.winding_up)
            for loop in list(self.loops):
                loop.stop()
            self.look()

    def opened(self, one: Partition, trouble: Trouble | None) -> None:
        """A partition is open, or can't be."""
        self.unopened -= 1
        if trouble is not None:
            self.trouble = trouble
        if not self.unopened:
            self.client.wake(self, "opened")
