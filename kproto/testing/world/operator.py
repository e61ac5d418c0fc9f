"""Administrative actions on the cluster of a world, and writes by producers that are not its clients."""

from __future__ import annotations

from typing import Any, Final

from ...broker import machine
from ...broker.log import Log
from ...error_codes import ErrorCode
from ...errors import ConfigError, IllegalState
from ...group.subscription import TopicPartition
from ...messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ...messages.delete_topics import DeleteTopicsRequest
from ...messages.headers import decode_response, encode_request
from ...messages.index import response_class
from ...messages.leave_group import LeaveGroupRequest, MemberIdentity
from ...messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ...records import BatchBuilder, assign_offsets, encode_batch
from ...records.record import Record
from ...validation import BYTES, PARTITION, TEXT, WHOLE_NUMBER, ZERO_OR_MORE, Rule, checked, has_attributes
from ...wire.message import Message
from .exchange import NetworkExchange
from .journal import journaled

# Rules of arguments.
_REQUEST: Final = Rule(has_attributes("__api_key__", "encode"), "a request, such as FetchRequest(...)")


class Operator(NetworkExchange):
    """The part of `World` that acts on the cluster. Network faults do not delay its calls."""

    # ---- topics and records

    @checked(name=TEXT, partitions=WHOLE_NUMBER)
    @journaled
    def create(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Create a topic. Raises ConfigError if the broker rejects it."""
        event = machine.CreateTopic(name, partitions, self.random_id(), configs or {})
        self.step(self._first_broker_up(), event)

    @checked(name=TEXT, partitions=WHOLE_NUMBER)
    @journaled
    def grow(self, name: str, partitions: int) -> None:
        """Increase the number of partitions of a topic to `partitions`.

        Raises ConfigError if the topic does not exist, if it has more than `partitions` partitions, or if
        `partitions` is above 100,000.
        """
        old_partitions = {tp for tp in self.partitions() if tp.topic == name}
        self.step(self._first_broker_up(), machine.GrowTopic(name, partitions))
        new_partitions = [tp for tp in self.partitions() if tp.topic == name and tp not in old_partitions]
        self.observe("operator", "grown", new_partitions)

    @checked(topic=TEXT, partition=WHOLE_NUMBER, values=TEXT)
    @journaled
    def write(self, topic: str, partition: int, *values: str, **batch: Any) -> None:
        """Write one batch of records with these values, as another producer would.

        `batch` contains arguments of `BatchBuilder.build`. Raises ConfigError if the partition does not exist
        or the broker rejects the batch.
        """
        self.log(TopicPartition(topic, partition))
        builder = BatchBuilder()
        for value in values:
            builder.append(self.now, None, value.encode())
        self.append(topic, partition, builder.build(**batch))

    @checked(topic=TEXT, partition=WHOLE_NUMBER, data=BYTES)
    @journaled
    def append(self, topic: str, partition: int, data: bytes) -> None:
        """Write encoded batches, as another producer would. Raises ConfigError if the broker rejects them."""
        entry = PartitionProduceData(index=partition, records=data)
        topic_data = [TopicProduceData(name=topic, partition_data=[entry])]
        node = self._leader_or_first_up(TopicPartition(topic, partition))
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topic_data)
        response = self._send_request(request, 9, node)
        if isinstance(response, ProduceResponse):
            [result] = response.responses[0].partition_responses
            _raise_rejection(
                result.error_code, "data", f"{len(data)} bytes for {topic}-{partition}", result.error_message
            )

    @checked(topic=TEXT, partition=WHOLE_NUMBER, offset=WHOLE_NUMBER)
    @journaled
    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records before `offset`, as retention does.

        Raises ConfigError if the partition does not exist or the broker rejects the offset.
        """
        self.log(TopicPartition(topic, partition))
        entry = DeleteRecordsPartition(partition_index=partition, offset=offset)
        self.disturbed.add(TopicPartition(topic, partition))
        topics = [DeleteRecordsTopic(name=topic, partitions=[entry])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=1000)
        response = self._send_request(request, 2, self._first_broker_up())
        if isinstance(response, DeleteRecordsResponse):
            _raise_rejection(
                response.topics[0].partitions[0].error_code, "offset", f"{offset} of {topic}-{partition}"
            )

    @checked(name=TEXT)
    @journaled
    def delete_topic(self, name: str) -> None:
        """Delete a topic. Raises ConfigError if it does not exist."""
        if self.cluster.topics.named(name) is None:
            raise ConfigError("topic", name, "an existing topic")
        self.disturbed.update(partition for partition in self.partitions() if partition.topic == name)
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
        self._send_request(request, 5, self._first_broker_up())

    @checked(topic=TEXT, partition=WHOLE_NUMBER, offset=WHOLE_NUMBER)
    @journaled
    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Remove the records from `offset` on, as an unclean leader election does.

        Raises ConfigError if the log does not contain the offset.
        """
        node = self._leader_or_first_up(TopicPartition(topic, partition))
        self.disturbed.add(TopicPartition(topic, partition))
        self.step(node, machine.TruncateLog(topic, partition, offset))

    @checked(topic=TEXT, partition=WHOLE_NUMBER, batch=WHOLE_NUMBER)
    @journaled
    def corrupt_batch(self, topic: str, partition: int, *, batch: int) -> None:
        """Corrupt the last byte of a stored batch, as a faulty disk does.

        `batch` is the index of the batch, from 0.
        """
        partition_id = TopicPartition(topic, partition)
        log = self.log(partition_id)
        batch_count = len(log.all_batches())
        if not 0 <= batch < batch_count:
            raise ConfigError("batch", batch, f"{partition_id} has {batch_count} batches, numbered from 0")
        self.disturbed.add(partition_id)
        log.corrupt(batch)

    @checked(topic=TEXT, partition=WHOLE_NUMBER)
    @journaled
    def write_marker(self, topic: str, partition: int) -> None:
        """Write a transaction's commit marker. It takes an offset, but consumers do not return it."""
        partition_id = TopicPartition(topic, partition)
        log = self.log(partition_id)
        commit = Record(offset=0, timestamp=self.now, key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")
        marker = encode_batch(
            [commit], is_control=True, is_transactional=True, producer_id=1, producer_epoch=0
        )
        self.marker_offsets.add((partition_id, log.end_offset))
        log.append(assign_offsets(marker, log.end_offset, log.leader_epoch), 1, self.now)
        if self.brokers:
            self.step(self._leader_or_first_up(partition_id), machine.LogChanged(topic, partition))

    @checked(request=_REQUEST, version=WHOLE_NUMBER)
    def send_as_operator(self, request: Message, version: int) -> None:
        """Send a request on a separate connection; the response is ignored.

        The receiver is the coordinator of the request's group. A request without a group goes to the first
        broker that is up.
        """
        group = getattr(request, "group_id", None)
        coordinator_node = None if group is None else self.cluster.group_coordinator_of(group)
        node = coordinator_node if coordinator_node in self.brokers else self._first_broker_up()
        self._send_request(request, version, node)

    @checked(group=TEXT, member_id=TEXT)
    @journaled
    def remove_member(self, group: str, member_id: str) -> None:
        """Remove a member from a group, as `removeMembersFromConsumerGroup` of Java's `Admin` does.

        The member is rejected at its next request, and loses its partitions.
        """
        self.had_fault = True
        self.send_as_operator(
            LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)]), 5
        )

    # ---- leaders, coordinators, brokers

    @checked(topic=TEXT, partition=WHOLE_NUMBER, node=WHOLE_NUMBER)
    @journaled
    def elect(self, topic: str, partition: int, node: int | None = None) -> None:
        """Elect broker `node` (None: the current leader) as a partition's leader, in a new leader epoch."""
        if node is not None and node not in self.brokers:
            raise ConfigError("node", node, f"a broker that is up: {', '.join(map(str, self.brokers))}")
        leader = self._leader_or_first_up(TopicPartition(topic, partition))
        self.step(leader, machine.ElectLeader(topic, partition, node))

    @checked(group=TEXT, node=WHOLE_NUMBER, loading_ms=ZERO_OR_MORE)
    @journaled
    def move_coordinator(self, group: str, node: int | None = None, *, loading_ms: int = 0) -> None:
        """Move the coordinator of a group to broker `node` (None: the same broker loads the group again).

        The new coordinator answers COORDINATOR_LOAD_IN_PROGRESS for `loading_ms`, except to heartbeats.
        """
        current = self.cluster.group_coordinator_of(group)
        if node is not None and node not in self.brokers:
            raise ConfigError("node", node, f"a broker that is up: {', '.join(map(str, self.brokers))}")
        self.had_fault = True
        self.observe("operator", "moved", detail=f"the coordinator of {group} moves")
        former = current if current in self.brokers else self._first_broker_up()
        self.step(former, machine.MoveCoordinator(group, former if node is None else node, loading_ms))

    @checked(node=WHOLE_NUMBER)
    @journaled
    def stop_broker(self, node: int = 1) -> None:
        """Stop a broker.

        The connections of the broker break, and its partitions and groups move to another broker that is up.

        If no other broker is up, the partitions and groups stay on the stopped broker. They move to the next
        broker that starts.
        """
        self._check_node(node)
        if self.brokers.pop(node, None) is None:
            raise IllegalState(f"broker {node} is already stopped")
        self.had_fault = True
        self.observe("operator", "moved", detail=f"broker {node} stops")
        for wire in [wire for wire in self.network.wires.values() if wire.node == node]:
            self.disconnect_broker(wire)
            self.cluster.connections.pop(wire.conn, None)
            self.disconnect_client(wire, "connection reset by peer")
        self.planned_ticks[node] = None
        if self.brokers:
            self._move_leaders_and_groups_from(node)

    @checked(node=WHOLE_NUMBER, loading_ms=ZERO_OR_MORE)
    @journaled
    def start_broker(self, node: int = 1, *, loading_ms: int = 0) -> None:
        """Start a stopped broker. Its logs are kept; its connections and fetch sessions are not."""
        self._check_node(node)
        if node in self.brokers:
            raise IllegalState(f"broker {node} is already running")
        self.brokers[node] = self.create_broker(self.nodes[node])
        for node_id in dict.fromkeys(self._nodes_up_with(node)):
            self.cluster.nodes[node_id] = self.nodes[node_id]
        # If all brokers were down, the one that stopped last still leads its partitions and coordinates its
        # groups. This broker takes them over.
        for former in [broker for broker in self.cluster.nodes if broker not in self.brokers]:
            self._move_leaders_and_groups_from(former)
        for group in list(self.cluster.coordinator.group_ids()):
            if self.cluster.group_coordinator_of(group) == node:
                self.step(node, machine.MoveCoordinator(group, node, loading_ms))
        self.plan_tick(node)

    def _check_node(self, node: int) -> None:
        """Raise ConfigError if the world has no broker `node`, up or down."""
        if node not in self.nodes:
            raise ConfigError("node", node, f"a broker of this world: {', '.join(map(str, self.nodes))}")

    def _nodes_up_with(self, node: int) -> list[int]:
        """Return the nodes that are up, in the order of their ids, and `node` even if it is down."""
        return [other_node for other_node in self.nodes if other_node in self.brokers or other_node == node]

    def _move_leaders_and_groups_from(self, node: int) -> None:
        """Move the partitions and groups of a stopped broker to the broker that has been up longest.

        The stopped broker is then no longer a node of the cluster.
        """
        cluster = self.cluster
        led_partitions = [
            (topic.name, index)
            for topic in cluster.topics
            for index, partition in enumerate(topic.partitions)
            if cluster.leader(partition, index) == node
        ]
        moved_groups = [
            group for group in cluster.coordinator.group_ids() if cluster.group_coordinator_of(group) == node
        ]
        successor = next(iter(self.brokers))
        cluster.move_coordinators(node, successor)
        del cluster.nodes[node]
        for topic, index in led_partitions:
            self.step(successor, machine.ElectLeader(topic, index, successor))
        for group in moved_groups:
            self.step(successor, machine.MoveCoordinator(group, successor))

    @property
    def down(self) -> bool:
        """Whether no broker is up. Assign True to stop all brokers, False to start the stopped ones."""
        return not self.brokers

    @down.setter
    def down(self, down: bool) -> None:
        for node in self.nodes:
            if down and node in self.brokers:
                self.stop_broker(node)
            elif not down and node not in self.brokers:
                self.start_broker(node)

    # ---- queries

    @checked(partition=PARTITION)
    def log(self, partition: TopicPartition) -> Log:
        """Return the log of a partition. Raises ConfigError if the partition does not exist."""
        state = self.partition(partition)
        if state is None:
            raise ConfigError("partition", str(partition), "an existing partition")
        return state.log

    @checked(group=TEXT, partition=PARTITION)
    def committed(self, group: str, partition: TopicPartition) -> int | None:
        """Return the offset that the group has committed, or None without a commit."""
        return self.cluster.coordinator.committed_offset(group, partition)

    def _leader_or_first_up(self, partition: TopicPartition) -> int:
        """Return the leader of a partition, or the first broker that is up if the leader is down."""
        state = self.partition(partition)
        leader = -1 if state is None else self.cluster.leader(state, partition.partition)
        return leader if leader in self.brokers else self._first_broker_up()

    def _first_broker_up(self) -> int:
        """Return the broker that has been up longest. Raises IllegalState if all brokers are down."""
        for node in self.brokers:
            return node
        raise IllegalState("all brokers are down: call start_broker() first")

    def _send_request(self, request: Message, version: int, node: int) -> Message | None:
        """Send a request to a broker on a connection of its own, which is then closed.

        Return the response, or None if the broker delays or omits it.
        """
        conn = next(self.ids)
        self.operator_responses[conn] = None
        self.step(node, machine.ClientConnected(conn, "operator"))
        body = encode_request(request, version, 1, "operator")
        self.step(node, machine.FrameReceived(conn, body, self.random_id()))
        while self.operator_responses[conn] is None and self.brokers[node].large_requests:
            # A broker serves a large request in several steps: run them until the response is complete.
            self.step(node, machine.Tick())
        self.step(node, machine.ClientDisconnected(conn))
        response = self.operator_responses.pop(conn)
        if response is None or request.__api_key__ is None:
            return None
        return decode_response(response, response_class(request.__api_key__), version)[1]


def _raise_rejection(code: int, option: str, value: str, message: str | None = None) -> None:
    """Raise ConfigError if a broker rejected a request with `code`."""
    if code:
        error = ErrorCode(code).name + (f": {message}" if message else "")
        raise ConfigError(option, value, f"a value that the broker accepts; it answered {error}")
