"""What this client knows of the cluster: brokers, topics, leaders.

Rules that hold here:

* The newest leader epoch wins: an answer with an older epoch for a partition doesn't replace what is known
  (M198), unless the topic id changed: then it is another topic with an old name. Where no broker that there
  is is known to lead, and BELIEVED answers in a row tell the older epoch, the newer one was none, or is lost
  (a cluster that was restored): without that nobody would ever read the partition again.
* A topic that the broker says doesn't exist is kept as an error, not as absent: "not asked yet" and "not
  there" are two things.
* A topic whose partitions are not those from 0 on is read as far as it is told, and asked for again soon.
* An id that one answer tells of two topics isn't believed: each keeps the one that it had, or has none and is
  asked for by its name. Else one would be read as the other, and go on at a position in its log.
* Nothing is ever guessed: an unknown leader is None.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from uuid import UUID

import msgspec

from kproto.group.subscription import TopicPartition
from kproto.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_TOPIC_ID = UUID(int=0)
NO_LEADER = -1

# Below this version leader epochs of Metadata can go back in time (KAFKA-9261): they are not used.
RELIABLE_EPOCHS = 9

# They come once in a second; a broker that starts again is behind for less than that.
BELIEVED = 10


class BrokerAddress(msgspec.Struct, frozen=True):
    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionView(msgspec.Struct):
    leader: int | None
    leader_epoch: int | None
    error_code: int = 0
    replicas: tuple[int, ...] = ()
    older: int = 0  # answers with an older epoch since no broker is known to lead

    def outlived(self, brokers: Container[int | None]) -> bool:
        """Another answer, of these brokers, tells an older epoch: whether this one is to be given up."""
        self.older = 0 if self.leader in brokers else self.older + 1
        return self.older >= BELIEVED


class TopicView(msgspec.Struct):
    name: str
    id: UUID | None
    internal: bool
    error_code: int = 0
    partitions: dict[int, PartitionView] = msgspec.field(default_factory=dict[int, PartitionView])


class ClusterView:
    """The client's picture of the cluster; `update` is the only way in."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller: int | None = None
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicView] = {}
        self.names: dict[UUID, str] = {}
        self.updated_at: int | None = None
        self.version = 0

    def __repr__(self) -> str:
        """One line: "<ClusterView 'abc': brokers 1, 2; controller 1; topics flights (3), t (1)>"."""
        topics = [f"{name} ({len(topic.partitions)})" for name, topic in sorted(self.topics.items())]
        shown = ", ".join(topics[:10]) + (f" and {len(topics) - 10} more" if len(topics) > 10 else "")
        brokers = ", ".join(map(str, sorted(self.brokers))) or "none"
        about = f"brokers {brokers}; controller {self.controller}; topics {shown or 'none'}"
        return f"<ClusterView {self.cluster_id!r}: {about}>"

    def update(self, response: MetadataResponse, now: int, *, version: int, everything: bool) -> bool:
        """Takes an answer in; True when it told something new. `everything`: it lists all topics, so what is
        missing doesn't exist any more."""
        brokers, news = self.brokers, False
        self.brokers = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller = response.controller_id if response.controller_id >= 0 else None
        seen: set[str] = set()
        shared = shared_ids(response)
        for topic in response.topics:
            name = topic.name
            if name is None:
                continue
            seen.add(name)
            topic_id = None if topic.topic_id == NO_TOPIC_ID else topic.topic_id
            old = self.topics.get(name)
            if topic_id in shared:
                topic_id = old.id if old is not None else None
            same = old is not None and old.id == topic_id
            view = TopicView(name, topic_id, topic.is_internal, topic.error_code)
            for entry in topic.partitions:
                if entry.partition_index in view.partitions:
                    continue  # mentioned twice: it would be news each time
                epoch = entry.leader_epoch if entry.leader_epoch >= 0 and version >= RELIABLE_EPOCHS else None
                fresh = PartitionView(
                    entry.leader_id if entry.leader_id >= 0 else None,
                    epoch,
                    entry.error_code,
                    tuple(entry.replica_nodes),
                )
                known = old.partitions.get(entry.partition_index) if old is not None and same else None
                if (
                    known
                    and known.leader_epoch is not None
                    and epoch is not None
                    and epoch < known.leader_epoch
                    and not known.outlived(self.brokers)
                ):
                    fresh = known
                else:
                    news = news or known is None or _moved(known, fresh)
                view.partitions[entry.partition_index] = fresh
            if old is not None and same and old.id is not None and topic.error_code and not topic.partitions:
                # A broker that restarts may deny topics for a moment; what was known stays, with the error.
                view.partitions = old.partitions
            if old is not None and old.id is not None and not same:
                self.names.pop(old.id, None)
            news = news or not same or (old is not None and old.error_code != view.error_code)
            self.topics[name] = view
            if topic_id is not None:
                self.names[topic_id] = name
        if everything:
            for name in [name for name in self.topics if name not in seen]:
                gone, news = self.topics.pop(name), True
                if gone.id is not None:
                    self.names.pop(gone.id, None)
        self.updated_at = now
        self.version += 1
        return news or brokers != self.brokers

    def leader(self, partition: TopicPartition) -> int | None:
        """The node id of the partition's leader, None when it is not known or there is none."""
        view = self.partition(partition)
        if view is None or view.leader is None or view.leader not in self.brokers:
            return None
        return view.leader

    def partition(self, partition: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def led(self, partition: TopicPartition, leader: int, epoch: int) -> None:
        """A broker told the new leader in its answer (KIP-951)."""
        view = self.partition(partition)
        if view is not None and (view.leader_epoch is None or epoch > view.leader_epoch):
            view.leader = leader
            view.leader_epoch = epoch

    def placed(self, node: int, host: str, port: int, rack: str | None = None) -> None:
        """A broker told where another one is, in an answer about something else (FindCoordinator, KIP-951):
        a broker that came back elsewhere is found there before metadata is read again."""
        known = self.brokers.get(node)
        if node < 0 or not host or port <= 0:
            return
        if known is None or (known.host, known.port) != (host, port):
            self.brokers[node] = BrokerAddress(node, host, port, rack or (known.rack if known else None))

    def forget_leader(self, partition: TopicPartition) -> None:
        """Another broker leads now; until metadata is read again the leader is unknown."""
        view = self.partition(partition)
        if view is not None:
            view.leader = None

    def topic_id(self, name: str) -> UUID | None:
        topic = self.topics.get(name)
        return topic.id if topic is not None else None

    def topic_name(self, topic_id: UUID) -> str | None:
        return self.names.get(topic_id)

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Topic -> number of partitions, of those that are known to exist."""
        return {
            name: len(view.partitions)
            for name in topics
            if (view := self.topics.get(name)) and view.partitions
        }


def oddity(topic: MetadataResponseTopic) -> str:
    """What is wrong with a topic's partitions, which are numbered from 0; "" where nothing is. Brokers that
    just begin, or that are out of their minds, tell of some of them only."""
    indexes = sorted(entry.partition_index for entry in topic.partitions)
    if indexes and indexes == list(range(len(indexes))):
        return ""
    for expected, index in enumerate(indexes):
        if index != expected:
            twice = index in indexes[:expected]
            return f"partition {index} is there twice" if twice else f"partition {expected} is not there"
    return "it has no partitions"


def shared_ids(response: MetadataResponse) -> set[UUID]:
    """The ids that an answer tells of more than one topic."""
    named = [(topic.topic_id, topic.name) for topic in response.topics if topic.topic_id != NO_TOPIC_ID]
    first = dict(reversed(named))
    return {topic_id for topic_id, name in named if first[topic_id] != name}


def _moved(old: PartitionView, new: PartitionView) -> bool:
    return (old.leader, old.leader_epoch) != (new.leader, new.leader_epoch)
