"""What somebody with admin rights does to a world's cluster, and what other producers write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from ...broker import machine
from ...broker.broker import GroupCoordinatorStep
from ...broker.log import Log
from ...broker.topics import Partition
from ...error_codes import ErrorCode
from ...errors import ConfigError, IllegalState
from ...group.classic import coordinator
from ...group.subscription import TopicPartition
from ...messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ...messages.delete_topics import DeleteTopicsRequest
from ...messages.headers import decode_response, encode_request
from ...messages.heartbeat import HeartbeatRequest
from ...messages.index import response_class
from ...messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ...messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ...messages.sync_group import SyncGroupRequest
from ...records import BatchBuilder, assign_offsets, encode_batch
from ...records.record import Record
from ...validation import checked
from ...wire.message import Message
from .journal import kept

# What tells a member that it is none any more.
FENCES: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)

if TYPE_CHECKING:
    from .world import World


class Operator:
    """The half of `World` that acts on the cluster. Every call is done at once, whatever the network does."""

    @property
    def _world(self) -> World:
        return cast("World", self)

    # ---- topics and records

    @kept
    def create(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Make a topic. Raises ConfigError when it can't be made."""
        world = self._world
        made = machine.CreateTopic(name, partitions, world.random_id(), configs or {})
        world.step(self._first_broker_up(), made)

    @kept
    def grow(self, name: str, partitions: int) -> None:
        """Let a topic have `partitions` in all. Raises ConfigError when it has more."""
        world = self._world
        before = {tp for tp in self.partitions() if tp.topic == name}
        world.step(self._first_broker_up(), machine.GrowTopic(name, partitions))
        new = [tp for tp in self.partitions() if tp.topic == name and tp not in before]
        world.observe("operator", "grown", new)

    @kept
    def write(self, topic: str, partition: int, *values: str, **batch: Any) -> None:
        """Write one batch, as some other client; `batch` goes to `BatchBuilder.build`. Raises ConfigError
        for a partition that there isn't, and for what the broker refuses.
        """
        self.log(TopicPartition(topic, partition))
        builder = BatchBuilder()
        for value in values:
            builder.append(self._world.now, None, value.encode())
        self.append(topic, partition, builder.build(**batch))

    @kept
    def append(self, topic: str, partition: int, data: bytes) -> None:
        """Write these bytes, as some other client. Raises ConfigError for what the broker refuses."""
        entry = PartitionProduceData(index=partition, records=data)
        topic_data = [TopicProduceData(name=topic, partition_data=[entry])]
        node = self._leader(TopicPartition(topic, partition))
        answer = self._request(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topic_data), 9, node)
        if isinstance(answer, ProduceResponse):
            [told] = answer.responses[0].partition_responses
            _raise_rejection(
                told.error_code, "data", f"{len(data)} bytes for {topic}-{partition}", told.error_message
            )

    @kept
    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does to the head of a log. Raises ConfigError for a partition that there isn't, and
        for what the broker refuses.
        """
        self.log(TopicPartition(topic, partition))
        entry = DeleteRecordsPartition(partition_index=partition, offset=offset)
        self._world.disturbed.add(TopicPartition(topic, partition))
        topics = [DeleteRecordsTopic(name=topic, partitions=[entry])]
        answer = self._request(
            DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2, self._first_broker_up()
        )
        if isinstance(answer, DeleteRecordsResponse):
            _raise_rejection(
                answer.topics[0].partitions[0].error_code, "offset", f"{offset} of {topic}-{partition}"
            )

    @kept
    def delete_topic(self, name: str) -> None:
        """Raises ConfigError when there is no such topic."""
        if self._world.cluster.topics.named(name) is None:
            raise ConfigError("topic", name, "a topic that there is")
        self._world.disturbed.update(partition for partition in self.partitions() if partition.topic == name)
        self._request(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5, self._first_broker_up())

    @kept
    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """An unclean election: the records from `offset` on are lost. Raises ConfigError when it isn't
        there.
        """
        node = self._leader(TopicPartition(topic, partition))
        self._world.disturbed.add(TopicPartition(topic, partition))
        self._world.step(node, machine.TruncateLog(topic, partition, offset))

    @kept
    def corrupt_batch(self, topic: str, partition: int, *, batch: int) -> None:
        """Break the last byte of a stored batch, as a bad disk would."""
        where = TopicPartition(topic, partition)
        log = self.log(where)
        there = len(log.all_batches())
        if not 0 <= batch < there:
            raise ConfigError("batch", batch, f"{where} has {there}, and 0 is the first")
        self._world.disturbed.add(where)
        log.corrupt(batch)

    @kept
    def write_marker(self, topic: str, partition: int) -> None:
        """Write what ends a transaction: an offset without a record."""
        world, where = self._world, TopicPartition(topic, partition)
        log = self.log(where)
        commit = Record(offset=0, timestamp=world.now, key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")
        made = encode_batch([commit], is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
        world.marker_offsets.add((where, log.end_offset))
        log.append(assign_offsets(made, log.end_offset, log.leader_epoch), 1, world.now)
        if world.brokers:
            world.step(self._leader(where), machine.LogChanged(topic, partition))

    @checked
    def send_as_operator(self, request: Message, version: int) -> None:
        """Send a request on a connection of its own, to its group's coordinator, or to the first broker that
        is up; no answer is looked at.
        """
        group = getattr(request, "group_id", None)
        here = None if group is None else self._world.cluster.group_coordinator_of(group)
        self._request(request, version, here if here in self._world.brokers else self._first_broker_up())

    # ---- leaders, coordinators, brokers

    @kept
    def elect(self, topic: str, partition: int, node: int | None = None) -> None:
        """A new leader epoch, perhaps at another broker."""
        world = self._world
        if node is not None and node not in world.brokers:
            raise ConfigError("node", node, f"a broker that is up: {', '.join(map(str, world.brokers))}")
        here = self._leader(TopicPartition(topic, partition))
        world.step(here, machine.ElectLeader(topic, partition, node))

    @kept
    def move_coordinator(self, group: str, node: int | None = None, *, loading_ms: int = 0) -> None:
        """Let another broker coordinate a group (None: the same one loads it anew), loaded in
        `loading_ms`.
        """
        world = self._world
        here = world.cluster.group_coordinator_of(group)
        if node is not None and node not in world.brokers:
            raise ConfigError("node", node, f"a broker that is up: {', '.join(map(str, world.brokers))}")
        world.had_fault = True
        before = here if here in world.brokers else self._first_broker_up()
        world.step(before, machine.MoveCoordinator(group, before if node is None else node, loading_ms))

    @kept
    def stop_broker(self, node: int = 1) -> None:
        """A broker dies: its connections break, its partitions and groups go to the next one that is up, or
        comes up.
        """
        world = self._world
        self._check_node(node)
        if world.brokers.pop(node, None) is None:
            raise IllegalState(f"broker {node} is down already")
        world.had_fault = True
        for wire in [wire for wire in world.network.wires.values() if wire.node == node]:
            world.disconnect_broker(wire)
            world.cluster.connections.pop(wire.conn, None)
            world.disconnect_client(wire, "connection reset by peer")
        world.planned_ticks[node] = None
        if world.brokers:
            self._move_leaders_and_groups_from(node)

    @kept
    def start_broker(self, node: int = 1, *, loading_ms: int = 0) -> None:
        """A broker comes back, with its logs and without its connections and fetch sessions."""
        world = self._world
        self._check_node(node)
        if node in world.brokers:
            raise IllegalState(f"broker {node} is up")
        world.brokers[node] = world.create_broker(world.nodes[node])
        for name in dict.fromkeys(self._nodes_up_with(node)):
            world.cluster.nodes[name] = world.nodes[name]
        for other in [
            node for node in world.cluster.nodes if node not in world.brokers
        ]:  # the last that went
            self._move_leaders_and_groups_from(other)
        for group in list(world.cluster.classic_coordinator.groups):
            if world.cluster.group_coordinator_of(group) == node:
                world.step(node, machine.MoveCoordinator(group, node, loading_ms))
        world.plan_tick(node)

    def _check_node(self, node: int) -> None:
        if node not in self._world.nodes:
            raise ConfigError(
                "node", node, f"a broker of this world: {', '.join(map(str, self._world.nodes))}"
            )

    def _nodes_up_with(self, node: int) -> list[int]:
        return [one for one in self._world.nodes if one in self._world.brokers or one == node]

    def _move_leaders_and_groups_from(self, node: int) -> None:
        world = self._world
        cluster = world.cluster
        led = [
            (topic.name, index)
            for topic in cluster.topics
            for index, partition in enumerate(topic.partitions)
            if cluster.leader(partition, index) == node
        ]
        kept_by = [
            group
            for group in cluster.classic_coordinator.groups
            if cluster.group_coordinator_of(group) == node
        ]
        heir = next(iter(world.brokers))
        cluster.move_coordinators(node, heir)
        del cluster.nodes[node]
        for name, index in led:
            world.step(heir, machine.ElectLeader(name, index, heir))
        for group in kept_by:
            world.step(heir, machine.MoveCoordinator(group, heir))

    @property
    def down(self) -> bool:
        """True while no broker is up. Setting it stops the brokers, or starts them."""
        return not self._world.brokers

    @down.setter
    def down(self, down: bool) -> None:
        for node in self._world.nodes:
            if down and node in self._world.brokers:
                self.stop_broker(node)
            elif not down and node not in self._world.brokers:
                self.start_broker(node)

    # ---- to look at

    @checked
    def log(self, partition: TopicPartition) -> Log:
        """A partition's log. Raises ConfigError when there is no such partition."""
        found = self.partition(partition)
        if found is None:
            raise ConfigError("partition", str(partition), "a partition that there is")
        return found.log

    def partition(self, partition: TopicPartition) -> Partition | None:
        """What the brokers keep of a partition; None when there is no such partition."""
        topic = self._world.cluster.topics.named(partition.topic)
        return topic.partition(partition.partition) if topic else None

    def partitions(self) -> list[TopicPartition]:
        """All partitions of all topics."""
        return [
            TopicPartition(topic.name, index)
            for topic in self._world.cluster.topics
            for index in range(len(topic.partitions))
        ]

    @checked
    def committed(self, group: str, partition: TopicPartition) -> int | None:
        """What a group has committed; None for nothing."""
        found = self._world.cluster.classic_coordinator.groups.get(group)
        kept = found.offsets.get(partition.topic, {}).get(partition.partition) if found else None
        return None if kept is None else kept.offset

    def on_coordinator_step(self, node: int, told: GroupCoordinatorStep) -> None:
        """A coordinator did something: note which offsets it stored, whom it put out, and how it settled."""
        world = self._world
        event = told.event
        for action in told.actions:
            if isinstance(action, coordinator.RebalanceCompleted):
                world.observe(action.group_id, "settled", detail=(action.generation, action.members))
            elif not isinstance(action, coordinator.SendResponse):
                world.add_entry(f"broker {node}", "says", action)
            elif isinstance(event, coordinator.RequestReceived) and action.token == event.token:
                self._observe_response(event, action)

    def _observe_response(
        self, event: coordinator.RequestReceived[Message], reply: coordinator.SendResponse
    ) -> None:
        world = self._world
        request, response = event.request, reply.response
        if isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
            stored = _stored_offsets(world, request, response)
            if stored:
                world.observe(request.group_id, "stored", tuple(stored), stored)
            codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
            said = (request.member_id, request.generation_id_or_member_epoch)
        elif isinstance(request, HeartbeatRequest | SyncGroupRequest):
            codes = {cast(Any, response).error_code}
            said = (request.member_id, request.generation_id)
        else:
            return
        wire = world.network.wires.get(cast(int, reply.token))
        for code in codes & FENCES:
            if wire is not None:
                world.network.send(wire, wire.down, world.observe_fencing, wire, code, said)

    def _leader(self, partition: TopicPartition) -> int:
        world = self._world
        found = self.partition(partition)
        leader = -1 if found is None else world.cluster.leader(found, partition.partition)
        return leader if leader in world.brokers else self._first_broker_up()

    def _first_broker_up(self) -> int:
        for node in self._world.brokers:
            return node
        raise IllegalState("all brokers are down")

    def _request(self, request: Message, version: int, node: int) -> Message | None:
        """Ask a broker; its answer, if it comes at once."""
        world = self._world
        conn = next(world.ids)
        world.operator_responses[conn] = None
        world.step(node, machine.ClientConnected(conn, "operator"))
        body = encode_request(request, version, 1, "operator")
        world.step(node, machine.FrameReceived(conn, body, world.random_id()))
        world.step(node, machine.ClientDisconnected(conn))
        told = world.operator_responses.pop(conn)
        if told is None or request.__api_key__ is None:
            return None
        return decode_response(told, response_class(request.__api_key__), version)[1]


def _raise_rejection(code: int, option: str, value: str, why: str | None = None) -> None:
    """Raises ConfigError for what a broker didn't take."""
    if code:
        said = ErrorCode(code).name + (f": {why}" if why else "")
        raise ConfigError(option, value, f"what the broker takes; it says {said}")


def _stored_offsets(
    world: World, request: OffsetCommitRequest, response: OffsetCommitResponse
) -> dict[TopicPartition, int]:
    fine = {
        (topic.name, topic.topic_id, partition.partition_index)
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    }
    taken: dict[TopicPartition, int] = {}
    for asked in request.topics:
        name = asked.name or world.cluster.topics.name(asked.topic_id) or ""
        for one in asked.partitions:
            if (asked.name, asked.topic_id, one.partition_index) in fine:
                taken[TopicPartition(name, one.partition_index)] = one.committed_offset
    return taken
