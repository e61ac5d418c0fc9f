"""Where a producer's lanes stand: in their leader's queue, among those that have no leader, or at a time.

Rules that hold here:

* A lane stands where its first waiting batch belongs, and is looked at again when something happened to it:
  an answer, metadata, a time that came. An event costs what it is about.
* What may not go out before an answer comes stands nowhere.
* A broker takes one request of a connection after the other. Where all that may be open are, and more waits,
  the lanes are dealt out to connections_per_broker connections, until all of it is answered. A lane changes
  its connection when nothing of it is under way. With acks=0 nobody knows when that is: there is one.
* A broker knows a producer's last five batches. What is sent again may be in the log, and so may what came
  after it: no more of that goes out than lets the broker know it still, or it would be stored twice.
* Some brokers allow so many connections and no more: where a further one breaks, one has to do for a minute.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from ...options import ProducerOptions
from ..core import ClientCore
from ..metadata.updater import MetadataUpdater
from ..network.client import MAIN, MORE
from ..timing import EXTRA_CONNECTION_BACKOFF_MS
from .batches import BrokerConnection, PartitionQueue, ProducerBatch

# Batches of a producer that a broker knows, of each partition (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
REMEMBERED = 5


class SendSchedule:
    """The lanes of one producer."""

    def __init__(self, core: ClientCore[ProducerOptions], metadata: MetadataUpdater) -> None:
        # Connection -> lanes that may go out on it.
        self.queues: dict[BrokerConnection, dict[PartitionQueue, None]] = {}
        # Brokers with more than one connection now -> which of them each lane has.
        self._wide: dict[int, dict[PartitionQueue, int]] = {}
        # Brokers that one connection has to do for -> until when.
        self._alone: dict[int, int] = {}
        self._core = core
        self._metadata = metadata
        self._astray: dict[str, dict[PartitionQueue, None]] = {}
        self._times: list[tuple[int, int, PartitionQueue]] = []
        self._ticket = count()

    def place(self, lane: PartitionQueue) -> None:
        """Puts a lane where it belongs."""
        if lane.halted and not lane.under_way:
            lane.go_on()
        if not lane.waiting:
            return
        head, options = lane.waiting[0], self._core.options
        if lane.late_at is None:
            self.look_at(lane, head.deadline, late=True)
        if not self.free(lane, head):
            return  # until an answer comes
        at = head.retry_at
        if not head.sealed:
            at = max(at, head.created + options.linger_ms)
        if at > self._core.now:
            self.look_at(lane, at)
            return
        leader = self._core.view.leader(lane.partition)
        if leader is None:
            topic = self._core.view.topics.get(lane.partition.topic)
            if topic is not None and topic.partitions and lane.partition.partition not in topic.partitions:
                head.why = f"the topic has {len(topic.partitions)} partitions now, and not this one"
            head.why = head.why or "the partition has no leader"
            self._astray.setdefault(lane.partition.topic, {})[lane] = None
            self._metadata.look_up(lane.partition.topic)
        else:
            way = self._way(leader, lane)
            if lane.under_way and lane.way.node == leader and lane.way != way:
                return  # until it is answered, and may go on over there
            self.queues.setdefault(way, {})[lane] = None

    def _way(self, node: int, lane: PartitionQueue) -> BrokerConnection:
        dealt = self._wide.get(node)
        if dealt is None:
            return BrokerConnection(node, MAIN)
        number = dealt.setdefault(lane, len(dealt) % self._core.options.connections_per_broker)
        return self.ways(node)[number]

    def widen(self, node: int) -> bool:
        """One connection is not enough: deals out the lanes of this broker anew, to all that there may be."""
        options = self._core.options
        if node in self._wide or options.connections_per_broker == 1 or not options.acks:
            return False
        if self._alone.get(node, 0) > self._core.now:
            return False
        self._wide[node] = {}
        for lane in self.queues.pop(BrokerConnection(node, MAIN), {}):
            self.place(lane)
        return True

    def narrow(self, node: int) -> None:
        """Nothing is under way to this broker. If nothing is to be sent, either, one connection will do."""
        if not any(way in self.queues for way in self.ways(node)):
            self._wide.pop(node, None)

    def broke(self, way: BrokerConnection) -> None:
        """A request on this connection was not answered."""
        if way.lane == MAIN:
            return
        self._alone[way.node] = self._core.now + EXTRA_CONNECTION_BACKOFF_MS
        ways = self.ways(way.node)
        self._wide.pop(way.node, None)
        for lane in [lane for one in ways for lane in self.queues.pop(one, ())]:
            self.place(lane)

    def ways(self, node: int) -> list[BrokerConnection]:
        """The connections to this broker that there may be now."""
        most = self._core.options.connections_per_broker if node in self._wide else 1
        return [BrokerConnection(node, MORE + number if number else MAIN) for number in range(most)]

    def free(self, lane: PartitionQueue, head: ProducerBatch) -> bool:
        """May this batch go out, as far as those that are under way are concerned?"""
        if lane.halted:
            return False
        options, under_way = self._core.options, lane.under_way
        if options.enable_idempotence and under_way:
            first = not lane.known or (lane.renew and head.sequence < 0)
            if first or (head.sequence < 0 and lane.numbered - under_way[0].number >= REMEMBERED):
                return False
        return len(under_way) < options.max_in_flight_requests_per_connection

    def look_at(self, lane: PartitionQueue, at: int, *, late: bool = False) -> None:
        """This lane is looked at then; `late`: because batches will be too late."""
        if late:
            lane.late_at = at
        elif lane.soon_at is not None and lane.soon_at <= at:
            return
        else:
            lane.soon_at = at
        heapq.heappush(self._times, (at, next(self._ticket), lane))

    def ripe(self) -> Iterator[tuple[PartitionQueue, bool]]:
        """The lanes whose time has come; True for those that may have batches which are too late."""
        now = self._core.now
        while self._times and self._times[0][0] <= now:
            _, _, lane = heapq.heappop(self._times)
            if lane.soon_at is not None and lane.soon_at <= now:
                lane.soon_at = None
            late = lane.late_at is not None and lane.late_at <= now
            if late:
                lane.late_at = None
            yield lane, late

    def due(self) -> int | None:
        return self._times[0][0] if self._times else None

    def astray(self, topic: str) -> list[PartitionQueue]:
        """The topic's lanes that wait for a leader."""
        return list(self._astray.get(topic, ()))

    def queued(self) -> list[PartitionQueue]:
        return [lane for queue in self.queues.values() for lane in queue]

    def sought(self, topic: str) -> None:
        """The topic was looked at: perhaps its partitions have leaders now."""
        for lane in self._astray.pop(topic, {}):
            self.place(lane)

    def moved(self, way: BrokerConnection) -> None:
        """Other brokers may lead what stands in this queue."""
        for lane in list(self.queues.get(way, ())):
            if self._core.view.leader(lane.partition) != way.node:
                del self.queues[way][lane]
                self.place(lane)
