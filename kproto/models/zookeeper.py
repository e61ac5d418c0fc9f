"""The ZooKeeper days: consumers of Kafka 0.8, each of which decides by itself what it reads.

kafka.consumer.ZookeeperConsumerConnector (0.8.2: ZKRebalancerListener.syncedRebalance, rebalance,
reflectPartitionOwnershipDecision, releasePartitionOwnership) and kafka.utils.ZkUtils, small: a tree of
nodes, watches on it, and one rule that everybody follows alone. There is no coordinator, no generation and
no request of Kafka's protocol in it, so it isn't a client of `contract`.

Rules that hold here:

* A consumer is an ephemeral node under ids, a partition's owner an ephemeral node under owners: both go when
  the session does.
* Everybody watches ids and the topics. A change reaches each at a time of its own (`delays`).
* Told, a consumer lets go of everything, reads who is there and which partitions there are, and takes its
  range of the sorted partitions by its place among the sorted ids.
* Where an owner's node is still there, it lets go again and tries again after rebalance.backoff.ms, at most
  rebalance.max.retries times; then it gives up until the next change.
* Nobody asks the others: two consumers that saw different things decide differently, and only the owners'
  nodes keep them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..group.subscription import TopicPartition

BACKOFF_MS = 2_000  # ConsumerConfig: rebalance.backoff.ms is zookeeper.sync.time.ms
MAX_RETRIES = 4  # ConsumerConfig: rebalance.max.retries


# -- paths (kafka.utils.ZKGroupDirs, ZKGroupTopicDirs, ZkUtils.getTopicPath) --------------------------------


def ids_path(group: str) -> str:
    """Who is in a group: a child for each consumer."""
    return f"/consumers/{group}/ids"


def topic_path(topic: str) -> str:
    """Which partitions a topic has."""
    return f"/brokers/topics/{topic}"


def offset_path(group: str, topic: str, partition: int) -> str:
    """What a group has committed for a partition."""
    return f"/consumers/{group}/offsets/{topic}/{partition}"


def owner_path(group: str, topic: str, partition: int) -> str:
    """Who reads a partition."""
    return f"/consumers/{group}/owners/{topic}/{partition}"


# -- events and actions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConsumerStarted:
    """A consumer starts. `delay_ms` is how long a watch takes to reach it."""

    consumer: str
    delay_ms: int = 5


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A consumer's session ends: it closed, or it died and zookeeper.session.timeout.ms is over."""

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
    """It let go of these and deleted their owners' nodes."""

    consumer: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class PartitionsOwned:
    """It decided, and could write itself down as the owner."""

    consumer: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OwnershipConflict:
    """It wanted a partition that `owner` still has."""

    consumer: str
    partition: TopicPartition
    owner: str


@dataclass(frozen=True, slots=True)
class RebalanceFailed:
    """ConsumerRebalanceFailedException: rebalance.max.retries are over."""

    consumer: str


ZooKeeperAction: TypeAlias = PartitionsReleased | PartitionsOwned | OwnershipConflict | RebalanceFailed


# -- the state --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ZooKeeperConsumer:
    name: str
    delay_ms: int
    owned: tuple[TopicPartition, ...] = ()
    at: int | None = None  # when it rebalances next
    tries: int = 0


@dataclass(slots=True)
class ZooKeeperState:
    """The tree, and the consumers of one group that hang on it."""

    group: str
    topics: dict[str, int]
    nodes: dict[str, str] = field(default_factory=dict[str, str])
    consumers: dict[str, ZooKeeperConsumer] = field(default_factory=dict[str, ZooKeeperConsumer])
    rebalances: int = 0


def start(group: str, topics: Mapping[str, int]) -> ZooKeeperState:
    state = ZooKeeperState(group, dict(topics))
    for topic, count in topics.items():
        state.nodes[topic_path(topic)] = str(count)
    return state


def step(state: ZooKeeperState, event: ZooKeeperEvent, now: int) -> list[ZooKeeperAction]:
    """Let `event` happen at `now` (milliseconds) and return what the consumers did, in order."""
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
            for consumer in sorted(state.consumers.values(), key=lambda one: (one.at or 0, one.name)):
                if consumer.at is not None and consumer.at <= now:
                    _rebalance(state, consumer, now, out)
    return out


def next_deadline(state: ZooKeeperState) -> int | None:
    """When to send the next `Tick`, in the same milliseconds as `now`."""
    return min((one.at for one in state.consumers.values() if one.at is not None), default=None)


def owner_of(state: ZooKeeperState, tp: TopicPartition) -> str | None:
    """Who is written down as the owner of a partition."""
    return state.nodes.get(owner_path(state.group, *tp))


# -- inside -----------------------------------------------------------------------------------------------


def _notify_watchers(state: ZooKeeperState, now: int) -> None:
    """A watched node changed: everybody hears of it, each after its delay, and begins anew."""
    for consumer in state.consumers.values():
        consumer.at, consumer.tries = now + consumer.delay_ms, 0


def _end_session(state: ZooKeeperState, name: str) -> None:
    consumer = state.consumers.pop(name)
    del state.nodes[f"{ids_path(state.group)}/{name}"]
    for tp in consumer.owned:
        del state.nodes[owner_path(state.group, *tp)]


def _rebalance(
    state: ZooKeeperState, consumer: ZooKeeperConsumer, now: int, out: list[ZooKeeperAction]
) -> None:
    """syncedRebalance: let go, decide alone, write it down; again where somebody is in the way."""
    state.rebalances += 1
    _release(state, consumer, out)
    wanted = _decide(state, consumer.name)
    taken: list[TopicPartition] = []
    for tp in wanted:
        path = owner_path(state.group, *tp)
        if path in state.nodes:
            out.append(OwnershipConflict(consumer.name, tp, state.nodes[path]))
            for one in taken:
                del state.nodes[owner_path(state.group, *one)]
            consumer.tries += 1
            consumer.at = now + BACKOFF_MS if consumer.tries < MAX_RETRIES else None
            if consumer.at is None:
                out.append(RebalanceFailed(consumer.name))
            return
        state.nodes[path] = consumer.name
        taken.append(tp)
    consumer.owned, consumer.at, consumer.tries = tuple(taken), None, 0
    out.append(PartitionsOwned(consumer.name, consumer.owned))


def _release(state: ZooKeeperState, consumer: ZooKeeperConsumer, out: list[ZooKeeperAction]) -> None:
    if consumer.owned:
        for tp in consumer.owned:
            del state.nodes[owner_path(state.group, *tp)]
        out.append(PartitionsReleased(consumer.name, consumer.owned))
        consumer.owned = ()


def _decide(state: ZooKeeperState, name: str) -> list[TopicPartition]:
    """RangeAssignor's ancestor, run by everybody for itself over what the tree says now."""
    prefix = f"{ids_path(state.group)}/"
    everybody = sorted(path.removeprefix(prefix) for path in state.nodes if path.startswith(prefix))
    place = everybody.index(name)
    mine: list[TopicPartition] = []
    for topic, count in sorted(state.topics.items()):
        each, more = divmod(count, len(everybody))
        first = place * each + min(place, more)
        mine += [TopicPartition(topic, one) for one in range(first, first + each + (place < more))]
    return mine
