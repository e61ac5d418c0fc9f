"""The client's view of the cluster: brokers, topics, partitions and their leaders.

Rules:

* A response with an older leader epoch for a partition is ignored for this partition (M198).

* If the id of a topic changes, the topic was re-created. Its leader epochs start again from 0, so a smaller
  epoch is accepted.

* However, if the known leader is not in the cluster, an older epoch is accepted after `MAX_OLDER_RESPONSES`
  such responses in a row. The cluster was then probably restored from a backup.

* A topic that does not exist is kept with its error code, to distinguish it from a topic that has not been
  requested yet.

* If the partition numbers of a topic have gaps, the listed partitions are used. The topic is requested again
  after a backoff.

* If a response gives the same id to two topics, the id is ignored. Each topic keeps its previous id. A
  topic without a previous id is addressed by name.

* The leader of a partition is None while it is unknown.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from uuid import UUID

import msgspec

from kproto.errors import brief_list
from kproto.group.subscription import TopicPartition
from kproto.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_TOPIC_ID = UUID(int=0)
NO_LEADER = -1
# The upper 64 bits of each local topic id (see `local_id`). They contain no valid UUID version, so no random
# UUID begins with them.
_LOCAL_ID_PREFIX = 2**64 - 1

# First version of Metadata with reliable leader epochs. In earlier versions, epochs can decrease (KAFKA-9261)
# and are ignored.
RELIABLE_EPOCHS = 9

# An older leader epoch is accepted after this number of consecutive responses with older epochs. One response
# arrives per second, and the metadata of a restarted broker is outdated for less than 10 s.
MAX_OLDER_RESPONSES = 10


class BrokerAddress(msgspec.Struct, frozen=True):
    """The id and address of a broker."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(msgspec.Struct):
    """The leader and replicas of a partition."""

    leader: int | None
    leader_epoch: int | None
    error_code: int = 0
    replicas: tuple[int, ...] = ()
    # Number of consecutive responses with an epoch older than `leader_epoch`. It is 0 if the leader is in the
    # cluster.
    older_responses: int = 0

    def count_older_response(self, brokers: Container[int | None]) -> bool:
        """Count a response with an older epoch. Return whether that epoch is now accepted.

        If the leader is one of `brokers`, set the count to 0 instead, and return False.
        """
        self.older_responses = 0 if self.leader in brokers else self.older_responses + 1
        return self.older_responses >= MAX_OLDER_RESPONSES


class TopicView(msgspec.Struct):
    """A topic, and its partitions by their numbers."""

    name: str
    id: UUID | None
    internal: bool
    error_code: int = 0
    partitions: dict[int, PartitionView] = msgspec.field(default_factory=dict[int, PartitionView])


class ClusterView:
    """The client's view of the cluster. `update` applies a Metadata response."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller: int | None = None
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicView] = {}
        # Topic id -> name.
        self.topic_names: dict[UUID, str] = {}
        # The time (ms) of the last applied response, and the number of applied responses.
        self.updated_at: int | None = None
        self.version = 0

    def __repr__(self) -> str:
        """Return one line: "<ClusterView 'abc': brokers 1, 2; controller 1; topics flights (3), t (1)>"."""
        topics = [f"{name} ({len(topic.partitions)})" for name, topic in sorted(self.topics.items())]
        brokers = ", ".join(map(str, sorted(self.brokers))) or "none"
        state = f"brokers {brokers}; controller {self.controller}; topics {brief_list(topics) or 'none'}"
        return f"<ClusterView {self.cluster_id!r}: {state}>"

    def update(self, response: MetadataResponse, now: int, *, version: int, everything: bool) -> bool:
        """Apply a response in this version; return whether it changes the view.

        If `everything` is true, all topics were requested, so a topic that is not listed was deleted.
        """
        known_brokers = self.brokers
        self.brokers = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller = response.controller_id if response.controller_id >= 0 else None
        changed = self.brokers != known_brokers
        listed: set[str] = set()
        shared = shared_ids(response)
        for topic in response.topics:
            if topic.name is None:
                continue
            listed.add(topic.name)
            topic_changed = self._update_topic(topic.name, topic, version, shared)
            changed = changed or topic_changed
        if everything:
            for name in [name for name in self.topics if name not in listed]:
                deleted, changed = self.topics.pop(name), True
                if deleted.id is not None:
                    self.topic_names.pop(deleted.id, None)
        self.updated_at = now
        self.version += 1
        return changed

    def _update_topic(self, name: str, topic: MetadataResponseTopic, version: int, shared: set[UUID]) -> bool:
        """Replace the stored view of a topic with the response's; return whether the view has changed.
        `version` is the version of the response. `shared` contains each id that several topics have.
        """
        known = self.topics.get(name)
        topic_id = None if topic.topic_id == NO_TOPIC_ID else topic.topic_id
        if topic_id in shared:
            topic_id = known.id if known is not None else None
        same_id = known is not None and known.id == topic_id
        changed = not same_id or (known is not None and known.error_code != topic.error_code)
        view = TopicView(name, topic_id, topic.is_internal, topic.error_code)
        for entry in topic.partitions:
            index = entry.partition_index
            if index in view.partitions:
                # The response lists the partition twice. The second entry is ignored: otherwise each
                # response would look like a change.
                continue
            partition = PartitionView(
                entry.leader_id if entry.leader_id >= 0 else None,
                entry.leader_epoch if entry.leader_epoch >= 0 and version >= RELIABLE_EPOCHS else None,
                entry.error_code,
                tuple(entry.replica_nodes),
            )
            known_partition = known.partitions.get(index) if known is not None and same_id else None
            if known_partition is None:
                changed = True
            elif _has_older_epoch(partition, known_partition) and not known_partition.count_older_response(
                self.brokers
            ):
                partition = known_partition
            else:
                changed = changed or _leader_changed(known_partition, partition)
            view.partitions[index] = partition
        if known is not None and known.id is not None:
            if not same_id:
                self.topic_names.pop(known.id, None)
            elif topic.error_code and not topic.partitions:
                # A restarting broker may return errors for existing topics, so the known partitions are kept.
                view.partitions = known.partitions
        self.topics[name] = view
        if topic_id is not None:
            self.topic_names[topic_id] = name
        return changed

    def leader(self, partition: TopicPartition) -> int | None:
        """Return the leader's node id; None if the partition has no known leader."""
        view = self.partition(partition)
        if view is None or view.leader is None or view.leader not in self.brokers:
            return None
        return view.leader

    def partition(self, partition: TopicPartition) -> PartitionView | None:
        """Return the leader and replicas of a partition; None if the partition is unknown."""
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def set_leader(self, partition: TopicPartition, leader: int, epoch: int) -> None:
        """Set the leader that a response names (KIP-951), unless `epoch` or a newer leader epoch is known."""
        view = self.partition(partition)
        if view is not None and (view.leader_epoch is None or epoch > view.leader_epoch):
            view.leader = leader
            view.leader_epoch = epoch

    def set_address(self, node: int, host: str, port: int, rack: str | None = None) -> None:
        """Set a broker's address from a response other than Metadata (FindCoordinator, KIP-951).

        So the client reaches a broker at its new address, even before the next Metadata response.

        If the node id, the host or the port is invalid, the call has no effect.
        """
        broker = self.brokers.get(node)
        if node < 0 or not host or port <= 0:
            return
        if broker is None or (broker.host, broker.port) != (host, port):
            self.brokers[node] = BrokerAddress(node, host, port, rack or (broker.rack if broker else None))

    def forget_leader(self, partition: TopicPartition) -> None:
        """Forget the leader until the next Metadata response, because the leader may have moved."""
        view = self.partition(partition)
        if view is not None:
            view.leader = None

    def forget_epoch(self, partition: TopicPartition) -> None:
        """Forget the leader and its epoch, and accept any epoch in the next Metadata response.

        Called after the leader has answered several times with UNKNOWN_LEADER_EPOCH.
        """
        view = self.partition(partition)
        if view is not None:
            view.leader = view.leader_epoch = None

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic; None if the topic is unknown."""
        topic = self.topics.get(name)
        return topic.id if topic is not None else None

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id; None if the id is unknown."""
        return self.topic_names.get(topic_id)

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Map each existing topic to its number of partitions."""
        return {
            name: len(view.partitions)
            for name in topics
            if (view := self.topics.get(name)) and view.partitions
        }


def local_id(number: int) -> UUID:
    """Return an id for a topic of a cluster without topic ids. Local ids are never sent to a broker."""
    return UUID(int=_LOCAL_ID_PREFIX << 64 | number)


def is_local(topic_id: UUID | None) -> bool:
    """Return whether `local_id` has created this topic id, instead of a broker."""
    return topic_id is not None and topic_id.int >> 64 == _LOCAL_ID_PREFIX


def broker_ids(ids: Mapping[str, UUID]) -> dict[str, UUID]:
    """Return the ids that brokers have assigned to topics, by topic name; omit the client's local ids."""
    return {name: topic_id for name, topic_id in ids.items() if not is_local(topic_id)}


def inconsistency(topic: MetadataResponseTopic) -> str:
    """Return why a topic's partition numbers are invalid; "" if they run from 0 without gaps.

    A broker that has just started may list only some of the partitions.
    """
    indexes = sorted(entry.partition_index for entry in topic.partitions)
    if indexes and indexes == list(range(len(indexes))):
        return ""
    for expected, index in enumerate(indexes):
        if index != expected:
            is_repeated = index in indexes[:expected]
            return f"partition {index} is listed twice" if is_repeated else f"partition {expected} is missing"
    return "it has no partitions"


def shared_ids(response: MetadataResponse) -> set[UUID]:
    """Return the topic ids that a response gives to more than one topic."""
    ids_and_names = [
        (topic.topic_id, topic.name) for topic in response.topics if topic.topic_id != NO_TOPIC_ID
    ]
    first_names = dict(reversed(ids_and_names))
    return {topic_id for topic_id, name in ids_and_names if first_names[topic_id] != name}


def _has_older_epoch(partition: PartitionView, known: PartitionView) -> bool:
    """Return whether `partition` has an older leader epoch than `known`; False if either has no epoch."""
    if partition.leader_epoch is None or known.leader_epoch is None:
        return False
    return partition.leader_epoch < known.leader_epoch


def _leader_changed(old: PartitionView, new: PartitionView) -> bool:
    """Return whether the leader or its epoch differs between two views of a partition."""
    return (old.leader, old.leader_epoch) != (new.leader, new.leader_epoch)
