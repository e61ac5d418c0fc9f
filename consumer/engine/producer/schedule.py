"""Schedules the queues of partitions: each queue waits for a connection, a leader, a response or a time.

Rules:

* The first batch of a queue determines when the queue is visited next: after a response, after new metadata,
  or at a scheduled time. The cost of an event depends only on the queues that it affects.

* A queue whose first batch must wait for a response is not scheduled. The response schedules it again.

* A broker handles the requests of a connection one after the other. If a connection has the maximum number of
  requests in flight and further batches are ready, the queues use `connections_per_broker` connections until
  no request is in flight and no batch is ready.

* A queue changes its connection only if none of its batches is in flight. With acks=0, the client cannot
  know this, because brokers send no responses. So it always uses a single connection per broker.

* A broker remembers a producer's last five batches of a partition. While a batch may have to be resent, the
  client sends at most four batches after it. With more, the broker could forget the batch and reject its
  retry. The client would then renumber the batch and write it twice.

* Some brokers limit the number of connections. If an additional connection to a broker fails, the client uses
  a single connection to that broker for a minute.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from ...producer_options import ProducerOptions
from ..core import ClientCore
from ..metadata.updater import MetadataUpdater
from ..network.client import LAST_SHARED_LANE, MAIN
from ..timeouts import EXTRA_CONNECTION_BACKOFF_MS
from .batches import BrokerConnection, PartitionQueue, ProducerBatch

# Number of a producer's batches per partition that a broker remembers
# (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
BATCHES_THAT_BROKERS_REMEMBER = 5


class SendSchedule:
    """The schedule of one producer: which queues may send now, and when to visit the others."""

    def __init__(self, core: ClientCore[ProducerOptions], metadata: MetadataUpdater) -> None:
        # Connection -> the queues whose next batch may be sent on the connection.
        self.queues: dict[BrokerConnection, dict[PartitionQueue, None]] = {}
        # For each broker that has several connections: queue -> number of the connection that the queue uses.
        self._connection_numbers: dict[int, dict[PartitionQueue, int]] = {}
        # Broker whose additional connection has failed -> time (ms) until which it has a single connection.
        self._single_connection_until: dict[int, int] = {}
        self._core = core
        self._metadata = metadata
        # Topic -> its queues that wait for a leader.
        self._leaderless: dict[str, dict[PartitionQueue, None]] = {}
        # A heap of visits: (time (ms), number of the visit, queue). If a queue has to be visited earlier than
        # planned, its planned visit stays in the heap, and only reschedules the queue once more.
        self._visits: list[tuple[int, int, PartitionQueue]] = []
        self._visit_numbers = count()

    def reschedule(self, queue: PartitionQueue) -> None:
        """Schedule a queue according to its first batch: send now, visit later, or wait for a leader."""
        if queue.halted and not queue.in_flight:
            queue.resume()
        if not queue.waiting:
            return
        head, options = queue.waiting[0], self._core.options
        if queue.timeout_at is None:
            self.visit_later(queue, head.deadline, is_timeout=True)
        if not self.may_send(queue, head):
            return  # The response to a batch in flight reschedules the queue.
        send_at = head.retry_at
        if head.lingers and not head.sealed:
            send_at = max(send_at, head.created + options.linger_ms)
        if send_at > self._core.now:
            self.visit_later(queue, send_at)
            return
        leader = self._core.view.leader(queue.partition)
        if leader is None:
            self._wait_for_leader(queue, head)
            return
        connection = self._connection_of(leader, queue)
        if queue.in_flight and queue.connection.node == leader and queue.connection != connection:
            # The queue changes its connection only after all its batches in flight have been answered.
            return
        self.queues.setdefault(connection, {})[queue] = None

    def _wait_for_leader(self, queue: PartitionQueue, head: ProducerBatch) -> None:
        """Look up the partition's leader, and record in the first batch, `head`, why the batch waits."""
        topic_name, index = queue.partition.topic, queue.partition.partition
        topic = self._core.view.topics.get(topic_name)
        if topic is not None and topic.partitions and index not in topic.partitions:
            head.why = f"the topic has {len(topic.partitions)} partitions now, without this one"
        head.why = head.why or "the partition has no leader"
        self._leaderless.setdefault(topic_name, {})[queue] = None
        self._metadata.look_up(topic_name)

    def _connection_of(self, node: int, queue: PartitionQueue) -> BrokerConnection:
        """Return the queue's connection to this broker. Assign one if the queue has none."""
        numbers = self._connection_numbers.get(node)
        if numbers is None:
            return BrokerConnection(node, MAIN)
        number = numbers.setdefault(queue, len(numbers) % self._core.options.connections_per_broker)
        return self.connections(node)[number]

    def use_all_connections(self, node: int) -> bool:
        """Distribute the queues of a broker over several connections.

        Return False if the queues are already distributed, or if only one connection is allowed.
        """
        options = self._core.options
        if node in self._connection_numbers or options.connections_per_broker == 1 or not options.acks:
            return False
        if self._single_connection_until.get(node, 0) > self._core.now:
            return False
        self._connection_numbers[node] = {}
        for queue in self.queues.pop(BrokerConnection(node, MAIN), {}):
            self.reschedule(queue)
        return True

    def use_one_connection(self, node: int) -> None:
        """Use a single connection to this broker again, unless a batch for it is ready to be sent.

        Call this method only when no Produce request to the broker is in flight.
        """
        if not any(connection in self.queues for connection in self.connections(node)):
            self._connection_numbers.pop(node, None)

    def on_connection_failed(self, connection: BrokerConnection) -> None:
        """If an additional connection failed, use only the main connection for some time.

        The time is EXTRA_CONNECTION_BACKOFF_MS.
        """
        if connection.lane == MAIN:
            return
        self._single_connection_until[connection.node] = self._core.now + EXTRA_CONNECTION_BACKOFF_MS
        connections = self.connections(connection.node)
        self._connection_numbers.pop(connection.node, None)
        for queue in [queue for connection in connections for queue in self.queues.pop(connection, ())]:
            self.reschedule(queue)

    def connections(self, node: int) -> list[BrokerConnection]:
        """Return the connections to this broker that may be used now."""
        count = self._core.options.connections_per_broker if node in self._connection_numbers else 1
        return [
            BrokerConnection(node, LAST_SHARED_LANE + number if number else MAIN) for number in range(count)
        ]

    def may_send(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Return whether the queue may send `head`, its first waiting batch, while others are in flight."""
        if queue.halted:
            return False
        options, in_flight = self._core.options, queue.in_flight
        if options.enable_idempotence and in_flight:
            needs_sequence = head.sequence < 0
            begins_epoch = not queue.epoch_accepted or (queue.needs_new_epoch and needs_sequence)
            numbered_since = queue.numbered - in_flight[0].number
            if begins_epoch or (needs_sequence and numbered_since >= BATCHES_THAT_BROKERS_REMEMBER):
                return False
        return len(in_flight) < options.max_in_flight_requests_per_connection

    def visit_later(self, queue: PartitionQueue, at: int, *, is_timeout: bool = False) -> None:
        """Schedule the queue: `due_queues` yields it at the time `at` (ms).

        `is_timeout` means that a batch of the queue reaches its delivery timeout at the time `at`.
        """
        if is_timeout:
            queue.timeout_at = at
        elif queue.visit_at is not None and queue.visit_at <= at:
            return
        else:
            queue.visit_at = at
        heapq.heappush(self._visits, (at, next(self._visit_numbers), queue))

    def due_queues(self) -> Iterator[tuple[PartitionQueue, bool]]:
        """Yield each queue to visit now, and whether its batches may have timed out."""
        now = self._core.now
        while self._visits and self._visits[0][0] <= now:
            _, _, queue = heapq.heappop(self._visits)
            if queue.visit_at is not None and queue.visit_at <= now:
                queue.visit_at = None
            has_timeout = queue.timeout_at is not None and queue.timeout_at <= now
            if has_timeout:
                queue.timeout_at = None
            yield queue, has_timeout

    def due(self) -> int | None:
        """Return the time (ms) of the next visit, or None if no visit is scheduled."""
        return self._visits[0][0] if self._visits else None

    def leaderless_queues(self, topic: str) -> list[PartitionQueue]:
        """Return the queues of the topic that wait for a leader."""
        return list(self._leaderless.get(topic, ()))

    def ready_queues(self) -> list[PartitionQueue]:
        """Return the queues whose next batch is ready to be sent."""
        return [queue for queues in self.queues.values() for queue in queues if queue.waiting]

    def on_metadata(self, topic: str) -> None:
        """Reschedule the topic's queues that wait for a leader."""
        for queue in self._leaderless.pop(topic, {}):
            self.reschedule(queue)

    def on_leaders_changed(self, connection: BrokerConnection) -> None:
        """Reschedule the connection's queues whose partitions now have another leader."""
        for queue in list(self.queues.get(connection, ())):
            if self._core.view.leader(queue.partition) != connection.node:
                del self.queues[connection][queue]
                self.reschedule(queue)
