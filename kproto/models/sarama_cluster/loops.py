"""The loops beside sarama-cluster's main loop (consumer.go: hbLoop, twLoop, cmLoop; partitions.go; v2.1.15).

Any of them that ends, ends the consume cycle, and all others with it.

* Heartbeats: the first one interval after the join. NOT_COORDINATOR and REBALANCE_IN_PROGRESS end the loop
  silently, any other error is reported first (M68).
* The topic watcher looks at the client's metadata every RefreshFrequency / 2, and ends when there is a *new
  topic* that the whitelist wants and the blacklist doesn't forbid. It never looks at partitions: growth is
  not seen until something else ends the cycle (M93, M204).
* The commit loop ends when a commit fails with all its retries.
* Each partition's messages go one by one to the application; marking stores the offset behind the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...wire.message import Message
from ..contract import ModelRecord
from ..sarama import errors
from ..sarama.consume_partition import ConsumePartition
from ..sarama.errors import Trouble
from ..sarama.offset_manager import Managed
from ..sarama.partition_consumer import PartitionConsumer, Taker
from ..sarama.routines import Routine, States, Table, Ticker, only
from .coordinator_requests import Ask, CommitOffsets

if TYPE_CHECKING:
    from .consumer import Consumer

_SILENT = {ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS}


class LoopState(States):
    waiting = "waiting"  # for the ticker
    working = "working"
    ended = "ended"


S = LoopState


class Loop(Routine):
    """One loop of a cycle; `Consumer.ended` hears of its end."""

    __slots__ = ("consumer", "stopping", "ticker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {S.waiting: {S.working, S.ended}, S.working: {S.waiting, S.ended}, S.ended: set()}

    def __init__(self, consumer: Consumer, period: int) -> None:
        super().__init__(S.waiting)
        self.consumer = consumer
        self.stopping = False
        self.ticker = Ticker(consumer.client.now, period)
        consumer.client.sleep(self, self.ticker.at)

    def stop(self) -> None:
        """It ends when what it does is done."""
        self.stopping = True
        if self.state is S.waiting:
            self.end()

    def again(self) -> None:
        """Wait for the next tick."""
        if self.stopping or self.consumer.dying:
            self.end()
            return
        if self.state is not S.waiting:
            self.move(S.waiting)
        self.consumer.client.sleep(self, self.ticker.at)

    def end(self) -> None:
        self.move(S.ended)
        self.consumer.ended(self)


class HeartbeatLoop(Loop):
    """hbLoop."""

    __slots__ = ()


def _beat(loop: HeartbeatLoop, what: object) -> None:
    consumer = loop.consumer
    loop.ticker.take(consumer.client.now)
    loop.move(S.working)
    request = HeartbeatRequest(
        group_id=consumer.client.settings.group_id,
        generation_id=consumer.generation,
        member_id=consumer.member_id,
    )
    Ask(consumer, loop, request).start()


def _beat_asked(loop: HeartbeatLoop, found: Message | Trouble) -> None:
    trouble = found if isinstance(found, Trouble) else None
    if isinstance(found, HeartbeatResponse) and found.error_code:
        trouble = errors.kafka(found.error_code)
    if trouble is None:
        loop.again()
        return
    if trouble.code not in _SILENT:
        loop.consumer.report("heartbeat", trouble)
    loop.end()


HeartbeatLoop.TABLE = {"elapsed": only(S, waiting=_beat), "asked": only(S, working=_beat_asked)}


class WatchLoop(Loop):
    """twLoop."""

    __slots__ = ()


def _watch(loop: WatchLoop, what: object) -> None:
    loop.ticker.take(loop.consumer.client.now)
    if loop.consumer.new_topics():
        loop.end()
    else:
        loop.again()


WatchLoop.TABLE = {"elapsed": only(S, waiting=_watch)}


class CommitLoop(Loop):
    """cmLoop."""

    __slots__ = ()


def _commit(loop: CommitLoop, what: object) -> None:
    consumer = loop.consumer
    loop.ticker.take(consumer.client.now)
    loop.move(S.working)
    CommitOffsets(consumer, loop, consumer.client.settings.offsets_retry_max).start()


def _committed(loop: CommitLoop, trouble: Trouble | None) -> None:
    if trouble is None:
        loop.again()
    else:
        loop.consumer.report("commit", trouble)
        loop.end()


CommitLoop.TABLE = {"elapsed": only(S, waiting=_commit), "committed": only(S, working=_committed)}


# -- partitions


class PartitionState(States):
    opening = "opening"
    consuming = "consuming"
    stopping = "stopping"  # nothing is given any more: until the partition consumer has closed
    closed = "closed"


P = PartitionState


class Partition(Taker):
    """createConsumer and multiplex: one claimed partition, its offset and its messages."""

    __slots__ = ("consumer", "initial", "managed", "partition")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        P.opening: {P.consuming, P.closed},
        P.consuming: {P.stopping, P.closed},
        P.stopping: {P.closed},
        P.closed: set(),
    }

    def __init__(self, consumer: Consumer, partition: TopicPartition, managed: Managed) -> None:
        super().__init__(P.opening)
        self.consumer, self.partition, self.managed = consumer, partition, managed
        self.child: PartitionConsumer | None = None
        self.initial = managed.offset if managed.offset >= 0 else consumer.client.settings.offsets_initial

    @property
    def is_closed(self) -> bool:
        return self.state is P.closed

    def start(self) -> None:
        ConsumePartition(self.consumer.client, self, self.partition, self.initial).start()

    def stop(self) -> None:
        """Close the partition consumer and drop what it still has."""
        if self.state is P.consuming:
            self.move(P.stopping)
            assert self.child is not None
            self.child.close()
            self.child.messages.clear()
            self.child.taken()

    def report(self, error: Trouble) -> None:
        """To the consumer's Errors channel."""
        self.consumer.client.report(errors.of_partition(error))

    def take(self, limit: int) -> list[ModelRecord]:
        """What the application polls: it is marked as it is taken."""
        child = self.child
        if child is None or self.state is not P.consuming:
            return []
        taken = [child.messages.popleft() for _ in range(min(limit, len(child.messages)))]
        if taken:
            self.managed.mark(taken[-1].offset + 1)
        child.taken()
        return taken


def _opened(one: Partition, found: PartitionConsumer | Trouble) -> None:
    initial = one.consumer.client.settings.offsets_initial
    if not isinstance(found, Trouble):
        one.child = found
        one.move(P.consuming)
        one.consumer.opened(one, None)
    elif found == errors.OUT_OF_RANGE and one.initial != initial:
        one.managed.offset, one.initial = -1, initial
        one.start()
    else:
        one.move(P.closed)
        one.consumer.opened(one, found)


def _stocked(one: Partition, what: object) -> None:
    one.consumer.application.stock(one)


def _drop(one: Partition, what: object) -> None:
    assert one.child is not None
    one.child.messages.clear()
    one.child.taken()


def _closed(one: Partition, what: object) -> None:
    """Its channels are closed: by `stop`, or because its offset is out of range."""
    ended = one.state is P.consuming
    one.move(P.closed)
    if ended:
        one.consumer.wind_up()
    one.consumer.look()


Partition.TABLE = {
    "opened": only(P, opening=_opened),
    "stocked": only(P, consuming=_stocked, stopping=_drop),
    "closed": only(P, consuming=_closed, stopping=_closed),
}
