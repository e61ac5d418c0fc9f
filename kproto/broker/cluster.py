"""The state that the brokers of a cluster share: logs, coordinators and leaders.

    cluster = BrokerCluster(settings, [Node(1, "broker-1", 9092), Node(2, "broker-2", 9092)])
    brokers = [Broker(settings, node, served_versions(), cluster=cluster) for node in cluster.nodes.values()]

Rules:

* All brokers share the same logs, offsets and groups. Only partition leadership and coordinator roles move
  between nodes.

* Replication is not simulated. The operator, which is the test or program that runs the brokers, removes the
  records that a new leader has not replicated (`TruncateLog`).

* Leaders are assigned round-robin by partition index, unless the operator or an admin request assigns them.
  If the default leader of a new partition is down, another node becomes the leader.

* A group id is hashed to a partition of `__consumer_offsets`. The leader of this partition coordinates the
  group, until the group is moved.

* A transactional id is hashed to a partition of `__transaction_state`. The leader of this partition
  coordinates the transactional id.

* When a group is moved, the delayed requests of its members are answered with NOT_COORDINATOR. The new
  coordinator restarts all session timeouts (GroupMetadataManager.onUnloaded, onLoaded).

* Connection numbers are unique in the cluster, so that a broker can respond on a connection of another
  broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias

from .. import transactions
from ..error_codes import ErrorCode
from ..group.coordinators import GroupCoordinators
from ..machine import SendResponse
from ..transactions.state import TransactionPartition, offsets_partition, state_partition
from .call import Node
from .client_metrics import ClientMetricsResources
from .connection import Connection
from .delegation_tokens import DelegationTokens
from .dynamic_config import DynamicConfig
from .fetch_sessions import FetchSessions
from .log_manager import LogManager
from .purgatory import Purgatory
from .settings import Settings
from .topics import Partition, Topic, Topics

NO_LEADER: Final = -1

# The types of a quota's entity ("user", "client-id" or "ip"), each with its name. The name of the default
# entity is None.
QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]


class ClusterBroker(Protocol):
    """The attributes of a broker that the other brokers of its cluster use."""

    settings: Settings

    @property
    def node(self) -> Node:
        """The node of the broker."""
        ...

    @property
    def purgatory(self) -> Purgatory:
        """The delayed requests of the broker."""
        ...

    @property
    def fetch_sessions(self) -> FetchSessions:
        """The fetch sessions of the broker."""
        ...


class BrokerCluster:
    """The state that the brokers of a cluster share. `nodes` contains the nodes that are running."""

    def __init__(self, settings: Settings, nodes: Iterable[Node]) -> None:
        self.nodes: Final = {node.id: node for node in nodes}
        self.topics: Final = Topics()
        self.coordinator: Final = GroupCoordinators(settings.group, self.topics)
        self.transactions: Final = transactions.TransactionCoordinator(settings.transactions, self.topics)
        self.connections: Final[dict[int, Connection]] = {}
        # Explicitly assigned leaders. Any other partition is led by its first replica or, without a replica
        # list, by a node chosen round-robin.
        self.leaders: Final[dict[Partition, int]] = {}
        # Group id -> coordinator, for groups that were moved.
        self.coordinators: Final[dict[str, int]] = {}
        # Explicitly assigned leaders of the partitions of `__consumer_offsets` and `__transaction_state`.
        self.offsets_leaders: Final[dict[int, int]] = {}
        self.state_leaders: Final[dict[int, int]] = {}
        self.brokers: Final[dict[int, ClusterBroker]] = {}
        # Group id -> the time (ms) at which its new coordinator finishes loading it.
        self.loading: Final[dict[str, int]] = {}
        # The wall-clock time minus the argument `now` of `machine.step`, in ms. The shell (`broker.shell`)
        # updates this difference.
        self.wall_clock_offset = 0
        # The number of bytes of responses that no socket has accepted yet.
        self.unsent = 0
        # The time in ms of the next check for expired producers.
        self._next_producer_check_at = 0
        # (Producer id, partition of `__consumer_offsets`) -> the epoch of the ongoing transaction.
        self._pending_offsets: Final[dict[tuple[int, TransactionPartition], int]] = {}
        self.dynamic: Final = DynamicConfig(settings)
        self.delegation_tokens: Final = DelegationTokens(settings)
        self.client_metrics: Final = ClientMetricsResources()
        # Entity -> its quotas by name. They are stored and described, but not enforced.
        self.client_quotas: Final[dict[QuotaEntity, dict[str, float]]] = {}
        # The level of the feature transaction.version; None if UpdateFeatures has not changed it.
        self.transaction_version: int | None = None
        # The number of times that UpdateFeatures has changed the level of transaction.version.
        self.features_epoch = 0
        self._settings: Final = settings
        self._node_ids: Final = tuple(self.nodes)
        self._unregistered: Final = set[int]()
        self.log_manager: Final = LogManager(self.topics, self.dynamic, self._node_ids[0])

    def unregister(self, node: int) -> bool:
        """Remove the registration of a stopped node; return whether the node was registered.

        A running node stays registered, as if it registered itself again immediately.
        """
        if node in self.nodes:
            self._unregistered.discard(node)
            return True
        if node not in self._node_ids or node in self._unregistered:
            return False
        self._unregistered.add(node)
        return True

    def finalize_transaction_version(self, level: int) -> None:
        """Set the level of the feature transaction.version, which ApiVersions advertises."""
        self.transaction_version = level
        self.features_epoch += 1

    def expire_producers(self, now: int) -> None:
        """Remove expired idempotent producers, if the next check is due."""
        if now < self._next_producer_check_at:
            return
        self._next_producer_check_at = now + self._settings.producer_id_expiration_check_interval_ms
        # The first broker's settings determine when producers expire, because all brokers share the logs.
        settings = self.dynamic.settings(self._node_ids[0])
        expired_before = now + self.wall_clock_offset - settings.producer_id_expiration_ms
        for topic in self.topics:
            for partition in topic.partitions:
                partition.producers.expire(expired_before, partition.transactions.ongoing_producers)

    def _node_if_up(self, node: int) -> int:
        """Return `node`, or NO_LEADER if this node is down."""
        return node if node in self.nodes else NO_LEADER

    def leader(self, partition: Partition, index: int) -> int:
        """Return the id of the node that leads a partition, or NO_LEADER if that node is down."""
        leader = self.leaders.get(partition)
        if leader is None and partition.replicas:
            leader = partition.replicas[0]
        if leader is None:
            leader = self._node_ids[index % len(self._node_ids)]
        return leader if leader in self.nodes else NO_LEADER

    def assign_leaders(self, topic: Topic) -> None:
        """Assign a live leader to each partition of `topic` that has none.

        A partition has no leader if its default leader is down and no other leader was assigned.
        """
        for index, partition in enumerate(topic.partitions):
            if self.leader(partition, index) == NO_LEADER and partition not in self.leaders:
                live_replicas = [node for node in partition.replicas if node in self.nodes]
                self.leaders[partition] = next(iter(live_replicas or self.nodes), NO_LEADER)

    def replicas_of(self, partition: Partition, index: int) -> list[int]:
        """Return the nodes with a replica of a partition, the preferred leader first.

        If the current leader is not one of the partition's replicas, the leader replaces the first replica in
        the result.
        """
        leader = self.leader(partition, index)
        if leader == NO_LEADER or leader in partition.replicas:
            return list(partition.replicas)
        return [leader, *partition.replicas[1:]]

    def choose_replicas(self, index: int, factor: int) -> tuple[int, ...]:
        """Return the nodes for the replicas of a new partition; the first one leads it."""
        node_count = len(self._node_ids)
        return tuple(self._node_ids[(index + replica) % node_count] for replica in range(factor))

    def endpoints(self, node_ids: Iterable[int], listener: str) -> list[tuple[Node, str, int]]:
        """Return the running nodes of `node_ids`, each once, with their addresses for a listener."""
        nodes = [self.nodes[node_id] for node_id in dict.fromkeys(node_ids) if node_id in self.nodes]
        return [(node, *node.address(listener)) for node in nodes]

    def group_coordinator_of(self, group_id: str) -> int:
        """Return the id of the node that coordinates a group, or NO_LEADER if that node is down."""
        coordinator = self.coordinators.get(group_id)
        if coordinator is None:
            _, partition = self.offsets_partition_of(group_id)
            return self._internal_leader(self.offsets_leaders, partition)
        return self._node_if_up(coordinator)

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """Return the node id of a transactional id's coordinator, or NO_LEADER if that node is down."""
        partition = state_partition(transactional_id, self._settings.transactions)
        return self._internal_leader(self.state_leaders, partition)

    def _internal_leader(self, assigned_leaders: Mapping[int, int], partition: int) -> int:
        """Return the leader of an internal topic's partition, or NO_LEADER if the leader is down.

        `assigned_leaders` are the explicitly assigned leaders of the topic's partitions.
        """
        default_leader = self._node_ids[partition % len(self._node_ids)]
        return self._node_if_up(assigned_leaders.get(partition, default_leader))

    def move_coordinators(self, node: int, successor: int) -> None:
        """Move the coordination of transactional ids, and of groups that do not exist yet, away from a node.

        Existing groups are not moved: call `move_group` for each of them.
        """
        settings = self._settings.transactions
        for leaders, partition_count in (
            (self.offsets_leaders, settings.offsets_topic_num_partitions),
            (self.state_leaders, settings.transaction_state_log_num_partitions),
        ):
            for partition in range(partition_count):
                if self._internal_leader(leaders, partition) == node:
                    leaders[partition] = successor

    def offsets_partition_of(self, group_id: str) -> TransactionPartition:
        """Return the partition of `__consumer_offsets` that stores a group's offsets."""
        return offsets_partition(group_id, self._settings.transactions)

    def has_offsets_partition(self, index: int) -> bool:
        """Return whether `__consumer_offsets` has the partition `index`."""
        return 0 <= index < self._settings.transactions.offsets_topic_num_partitions

    def has_pending_offsets(self, group_id: str, producer_id: int, epoch: int) -> bool:
        """Return whether a group's offsets partition has an open transaction of the producer."""
        return self._pending_offsets.get((producer_id, self.offsets_partition_of(group_id))) == epoch

    def note_pending_offsets(self, group_id: str, producer_id: int, epoch: int) -> None:
        """Record that the group's offsets partition has an open transaction of the producer.

        The call has no effect if the transaction contains no offsets of the group.
        """
        if self.coordinator.has_pending_offsets(group_id, producer_id):
            self._pending_offsets[producer_id, self.offsets_partition_of(group_id)] = epoch

    def clear_pending_offsets(self, producer_id: int, partition: TransactionPartition) -> bool:
        """Record that the producer's transaction ended in a partition of `__consumer_offsets`.

        Returns whether the partition had an open transaction of the producer until now.
        """
        return self._pending_offsets.pop((producer_id, partition), None) is not None

    @property
    def needs_routing(self) -> bool:
        """Whether a node must check that it serves the group of a request before it handles the request.

        The check is needed if the cluster has several nodes, or if a node is loading a group.
        """
        return len(self._node_ids) > 1 or bool(self.loading)

    def coordinator_error(self, group_id: str, node: int, now: int) -> ErrorCode:
        """Return the error with which a node rejects requests to a group; NONE if the node serves them.

        The error is NOT_COORDINATOR if another node coordinates the group, or COORDINATOR_LOAD_IN_PROGRESS
        while this node loads the group (R171).
        """
        if self.group_coordinator_of(group_id) != node:
            return ErrorCode.NOT_COORDINATOR
        loaded_at = self.loading.get(group_id, now)
        if loaded_at > now:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def move_group(self, group_id: str, node: int, now: int, loading_ms: int) -> list[SendResponse]:
        """Move a group to another coordinator, which finishes loading it after `loading_ms`.

        Returns the responses to the requests that are delayed at the old coordinator.
        """
        self.coordinators[group_id] = node
        self.loading[group_id] = now + loading_ms
        return self.coordinator.hand_over(group_id, ready_at=now + loading_ms)
