"""Decides when each partition's next batch is sent: its queue waits for a connection, a leader, or a time.

Rules:

* A queue waits where its first batch belongs. It is visited again after a response, after metadata, or at its
  time. The cost of an event does not depend on the other queues.
* A queue whose first batch must wait for a response waits nowhere.
* A broker handles the requests of a connection one after the other. If a connection is fully used and more is
  ready, the queues are distributed over `connections_per_broker` connections until everything is answered. A
  queue changes its connection only if none of its batches is in flight. With acks=0 that is unknown, so there
  is one connection.
* A broker remembers a producer's last five batches of a partition. A batch that is resent may be in the log,
  and so may later ones. No more later ones are sent than the broker remembers, as duplicates would be stored
  otherwise.
* Some brokers limit their connections: where an additional one breaks, a single one is used for a minute.
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

# Batches per partition that a broker remembers (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
REMEMBERED = 5


class SendSchedule:
    """The queues of one producer."""

    def __init__(self, core: ClientCore[ProducerOptions], metadata: MetadataUpdater) -> None:
        # Connection -> the queues that may send on it.
        self.queues: dict[BrokerConnection, dict[PartitionQueue, None]] = {}
        # Brokers with several connections -> the connection number of each queue.
        self._wide: dict[int, dict[PartitionQueue, int]] = {}
        # Brokers with a single connection after a failure -> until when.
        self._alone: dict[int, int] = {}
        self._core = core
        self._metadata = metadata
        self._astray: dict[str, dict[PartitionQueue, None]] = {}
        self._times: list[tuple[int, int, PartitionQueue]] = []
        self._ticket = count()

    def place(self, lane: PartitionQueue) -> None:
        """Let a queue wait where its first batch belongs."""
        if lane.halted and not lane.under_way:
            lane.go_on()
        if not lane.waiting:
            return
        head, options = lane.waiting[0], self._core.options
        if lane.late_at is None:
            self.look_at(lane, head.deadline, late=True)
        if not self.free(lane, head):
            return  # until a response arrives
        send_at = head.retry_at
        if not head.sealed:
            send_at = max(send_at, head.created + options.linger_ms)
        if send_at > self._core.now:
            self.look_at(lane, send_at)
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
                return  # until the response arrives; then it may use the other connection
            self.queues.setdefault(way, {})[lane] = None

    def _way(self, node: int, lane: PartitionQueue) -> BrokerConnection:
        """Return the connection of a queue to this broker."""
        numbers = self._wide.get(node)
        if numbers is None:
            return BrokerConnection(node, MAIN)
        number = numbers.setdefault(lane, len(numbers) % self._core.options.connections_per_broker)
        return self.ways(node)[number]

    def widen(self, node: int) -> bool:
        """Distribute the queues of a broker over several connections; return False if that is not allowed."""
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
        """Go back to a single connection if nothing is to be sent: nothing is in flight to this broker."""
        if not any(way in self.queues for way in self.ways(node)):
            self._wide.pop(node, None)

    def broke(self, way: BrokerConnection) -> None:
        """Go back to a single connection: a request on an additional one failed."""
        if way.lane == MAIN:
            return
        self._alone[way.node] = self._core.now + EXTRA_CONNECTION_BACKOFF_MS
        connections = self.ways(way.node)
        self._wide.pop(way.node, None)
        for lane in [lane for connection in connections for lane in self.queues.pop(connection, ())]:
            self.place(lane)

    def ways(self, node: int) -> list[BrokerConnection]:
        """Return the connections to this broker that may be used now."""
        count = self._core.options.connections_per_broker if node in self._wide else 1
        return [BrokerConnection(node, MORE + number if number else MAIN) for number in range(count)]

    def free(self, lane: PartitionQueue, head: ProducerBatch) -> bool:
        """Return whether this batch may be sent while others of the queue are in flight."""
        if lane.halted:
            return False
        options, under_way = self._core.options, lane.under_way
        if options.enable_idempotence and under_way:
            first = not lane.known or (lane.renew and head.sequence < 0)
            if first or (head.sequence < 0 and lane.numbered - under_way[0].number >= REMEMBERED):
                return False
        return len(under_way) < options.max_in_flight_requests_per_connection

    def look_at(self, lane: PartitionQueue, at: int, *, late: bool = False) -> None:
        """Visit the queue at that time; `late`: for the delivery timeout of its batches."""
        if late:
            lane.late_at = at
        elif lane.soon_at is not None and lane.soon_at <= at:
            return
        else:
            lane.soon_at = at
        heapq.heappush(self._times, (at, next(self._ticket), lane))

    def ripe(self) -> Iterator[tuple[PartitionQueue, bool]]:
        """Yield the queues whose time has come; True for those whose batches may have timed out."""
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
        """Return the time of the next visit."""
        return self._times[0][0] if self._times else None

    def astray(self, topic: str) -> list[PartitionQueue]:
        """Return the topic's queues that wait for a leader."""
        return list(self._astray.get(topic, ()))

    def queued(self) -> list[PartitionQueue]:
        """Return the queues that are ready to be sent."""
        return [lane for queue in self.queues.values() for lane in queue]

    def sought(self, topic: str) -> None:
        """Visit the topic's queues again that waited for a leader."""
        for lane in self._astray.pop(topic, {}):
            self.place(lane)

    def moved(self, way: BrokerConnection) -> None:
        """Visit the queues of a connection again whose leader has moved."""
        for lane in list(self.queues.get(way, ())):
            if self._core.view.leader(lane.partition) != way.node:
                del self.queues[way][lane]
                self.place(lane)
