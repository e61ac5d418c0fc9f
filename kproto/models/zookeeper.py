"""Consumers of Kafka 0.8, which coordinate through ZooKeeper: each one chooses its own partitions.

A small model of kafka.utils.ZkUtils and kafka.consumer.ZookeeperConsumerConnector of 0.8.2
(ZKRebalancerListener.syncedRebalance, rebalance, reflectPartitionOwnershipDecision,
releasePartitionOwnership).

The model consists of a tree of nodes, the watches on it, and the algorithm that every consumer runs. It does
not follow `contract`, because it has no coordinator and no generations, and sends no Kafka requests.

* Each consumer has an ephemeral node under the group's `ids`. The owner of a partition has an ephemeral node
  under the group's `owners`. ZooKeeper deletes these nodes when the consumer's session ends.

* Every consumer watches `ids` and `topics`. A consumer is notified of a change `delay_ms` after the change.

* A notified consumer releases all partitions, and reads the consumers and the partitions. Its position among
  the sorted consumer ids decides which range of partitions it takes.

* The consumer tries to register as the owner of each of its partitions. If one of them still has an owner,
  the consumer releases all its partitions and retries after rebalance.backoff.ms.

* After rebalance.max.retries retries, the consumer waits for the next change of `ids` or `topics`.

* Consumers do not consult each other. Two consumers that read the tree at different times may decide
  differently. Only the owner nodes prevent double ownership.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..group.subscription import TopicPartition

# Default of rebalance.backoff.ms, which is zookeeper.sync.time.ms (ConsumerConfig).
BACKOFF_MS = 2_000
# Default of rebalance.max.retries (ConsumerConfig).
MAX_RETRIES = 4


# -- paths (kafka.utils.ZKGroupDirs, ZKGroupTopicDirs, ZkUtils.getTopicPath) --------------------------------


def ids_path(group: str) -> str:
    """Return the path whose children are the consumers of a group."""
    return f"/consumers/{group}/ids"


def topic_path(topic: str) -> str:
    """Return the path of a topic's partition count."""
    return f"/brokers/topics/{topic}"


def offset_path(group: str, topic: str, partition: int) -> str:
    """Return the path of a committed offset."""
    return f"/consumers/{group}/offsets/{topic}/{partition}"


def owner_path(group: str, topic: str, partition: int) -> str:
    """Return the path of a partition's owner."""
    return f"/consumers/{group}/owners/{topic}/{partition}"


# -- events and actions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerStarted:
    """A consumer started. `delay_ms` is the time until the consumer is notified of a change."""

    consumer: str
    delay_ms: int = 5


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A consumer's session ended: either the consumer closed, or zookeeper.session.timeout.ms expired."""

    consumer: str


@dataclass(frozen=True, slots=True)
class TopicGrown:
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    consumer: str
    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class ZooKeeperTick:
    pass


ZooKeeperEvent: TypeAlias = ConsumerStarted | SessionEnded | TopicGrown | OffsetCommitted | ZooKeeperTick


@dataclass(frozen=True, slots=True)
class PartitionsReleased:
    """A consumer released these partitions and deleted their owner nodes."""

    consumer: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsOwned:
    """A consumer registered as the owner of these partitions."""

    consumer: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OwnershipConflict:
    """A consumer tried to take a partition that `owner` still owns."""

    consumer: str
    partition: TopicPartition
    owner: str


@dataclass(frozen=True, slots=True)
class RebalanceFailed:
    """A consumer failed after rebalance.max.retries retries (ConsumerRebalanceFailedException)."""

    consumer: str


ZooKeeperAction: TypeAlias = PartitionsReleased | PartitionsOwned | OwnershipConflict | RebalanceFailed


# -- the state --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ZooKeeperConsumer:
    name: str
    delay_ms: int
    owned: tuple[TopicPartition, ...] = ()
    at: int | None = None  # The time (ms) of the consumer's next rebalance; None if none is scheduled.
    tries: int = 0  # The number of rebalances that failed since the last change of `ids` or `topics`.


@dataclass(slots=True)
class ZooKeeperState:
    """The ZooKeeper tree, and the consumers of one group."""

    group: str
    topics: dict[str, int]
    nodes: dict[str, str] = field(default_factory=dict[str, str])
    consumers: dict[str, ZooKeeperConsumer] = field(default_factory=dict[str, ZooKeeperConsumer])
    rebalances: int = 0


def start(group: str, topics: Mapping[str, int]) -> ZooKeeperState:
    """Return the state of a group without consumers. `topics` maps each topic to its partition count."""
    state = ZooKeeperState(group, dict(topics))
    for topic, count in topics.items():
        state.nodes[topic_path(topic)] = str(count)
    return state


def step(state: ZooKeeperState, event: ZooKeeperEvent, now: int) -> list[ZooKeeperAction]:
    """Apply `event` at `now` (milliseconds) and return the consumers' actions, in order."""
    out: list[ZooKeeperAction] = []
    match event:
        case ConsumerStarted(consumer=name, delay_ms=delay):
            state.consumers[name] = ZooKeeperConsumer(name, delay)
            state.nodes[f"{ids_path(state.group)}/{name}"] = ",".join(sorted(state.topics))
            _notify_watchers(state, now)
        case SessionEnded(consumer=name):
            _end_session(state, name)
            _notify_watchers(state, now)
        case TopicGrown(topic=topic, partitions=count):
            state.topics[topic] = count
            state.nodes[topic_path(topic)] = str(count)
            _notify_watchers(state, now)
        case OffsetCommitted(partition=tp, offset=offset):
            state.nodes[offset_path(state.group, *tp)] = str(offset)
        case ZooKeeperTick():
            for consumer in sorted(state.consumers.values(), key=lambda each: (each.at or 0, each.name)):
                if consumer.at is not None and consumer.at <= now:
                    _rebalance(state, consumer, now, out)
    return out


def next_deadline(state: ZooKeeperState) -> int | None:
    """Return the time in milliseconds of the next `ZooKeeperTick`, or None if no timer runs."""
    return min(
        (consumer.at for consumer in state.consumers.values() if consumer.at is not None), default=None
    )


def owner_of(state: ZooKeeperState, tp: TopicPartition) -> str | None:
    """Return the consumer that owns a partition, or None if no consumer owns it."""
    return state.nodes.get(owner_path(state.group, *tp))


# -- rebalancing


def _notify_watchers(state: ZooKeeperState, now: int) -> None:
    """Schedule a rebalance of every consumer, each after its own delay."""
    for consumer in state.consumers.values():
        consumer.at, consumer.tries = now + consumer.delay_ms, 0


def _end_session(state: ZooKeeperState, name: str) -> None:
    """Remove a consumer and its ephemeral nodes."""
    consumer = state.consumers.pop(name)
    del state.nodes[f"{ids_path(state.group)}/{name}"]
    for tp in consumer.owned:
        del state.nodes[owner_path(state.group, *tp)]


def _rebalance(
    state: ZooKeeperState, consumer: ZooKeeperConsumer, now: int, out: list[ZooKeeperAction]
) -> None:
    """Release, choose and register partitions; on a conflict, retry later (syncedRebalance).

    A conflict in the last try is reported as a failure.
    """
    state.rebalances += 1
    _release_partitions(state, consumer, out)
    acquired: list[TopicPartition] = []
    has_conflict = False
    for tp in _partitions_in_range(state, consumer.name):
        owner = state.nodes.setdefault(owner_path(state.group, *tp), consumer.name)
        if owner == consumer.name:
            acquired.append(tp)
        else:
            has_conflict = True
            out.append(OwnershipConflict(consumer.name, tp, owner))
    if has_conflict:
        for tp in acquired:
            del state.nodes[owner_path(state.group, *tp)]
        consumer.tries += 1
        consumer.at = now + BACKOFF_MS if consumer.tries < MAX_RETRIES else None
        if consumer.at is None:
            out.append(RebalanceFailed(consumer.name))
        return
    consumer.owned, consumer.at, consumer.tries = tuple(acquired), None, 0
    out.append(PartitionsOwned(consumer.name, consumer.owned))


def _release_partitions(
    state: ZooKeeperState, consumer: ZooKeeperConsumer, out: list[ZooKeeperAction]
) -> None:
    """If the consumer owns partitions, delete their owner nodes, and report their release."""
    if consumer.owned:
        for tp in consumer.owned:
            del state.nodes[owner_path(state.group, *tp)]
        out.append(PartitionsReleased(consumer.name, consumer.owned))
        consumer.owned = ()


def _partitions_in_range(state: ZooKeeperState, name: str) -> list[TopicPartition]:
    """Return the partitions in a consumer's range. The ids of all consumers are read from the tree."""
    prefix = f"{ids_path(state.group)}/"
    consumer_ids = sorted(path.removeprefix(prefix) for path in state.nodes if path.startswith(prefix))
    position = consumer_ids.index(name)
    assigned: list[TopicPartition] = []
    for topic, count in sorted(state.topics.items()):
        share, remainder = divmod(count, len(consumer_ids))
        # The first `remainder` consumers own one partition more than the others.
        first = position * share + min(position, remainder)
        end = first + share + (1 if position < remainder else 0)
        assigned += [TopicPartition(topic, partition) for partition in range(first, end)]
    return assigned
