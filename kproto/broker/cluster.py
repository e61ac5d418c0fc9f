"""What the brokers of one cluster share: who is up, who leads which partition, who coordinates which group.

    cluster = Cluster(settings, [Node(1, "broker-1", 9092), Node(2, "broker-2", 9092)])
    brokers = [Broker(settings, node, served(), cluster=cluster) for node in cluster.nodes.values()]

Rules:
  * All brokers see the same logs, offsets and groups at once: what moves is only who may answer for them.
    Replication, and what a new leader or coordinator lacks, are the operator's to play (`Truncate`).
  * A partition without a leader of its own choosing is led by the nodes in turn, by its index; one that is
    made while that node is down, by another. So are the partitions of `__consumer_offsets` and
    `__transaction_state`, and a group or a transactional id is coordinated by the leader of the one that its
    hash names, until it is moved.
  * A coordinator that hands a group over answers its waiting members NOT_COORDINATOR; the next one has
    loaded the group just now and gives everybody a whole session (GroupMetadataManager.onUnloaded, onLoaded).
  * Connection numbers are unique in the cluster, so that an answer finds its connection whoever gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from .. import transactions
from ..error_codes import ErrorCode
from ..group.classic.coordinator import ClassicCoordinator
from ..group.protocol import GroupCoordinator
from ..machine import SendResponse
from ..transactions.state import TransactionPartition, offsets_partition, state_partition
from .call import Node
from .dynamic_config import DynamicConfig
from .log_manager import Cleaning
from .settings import Settings
from .topics import Partition, Topic, Topics

if TYPE_CHECKING:
    from .broker import Broker, Connection

NO_LEADER: Final = -1


class Cluster:
    """Shared by the `Broker`s of a cluster. `nodes` are those that are up."""

    def __init__(self, settings: Settings, nodes: Iterable[Node]) -> None:
        self.nodes: Final = {node.id: node for node in nodes}
        self.topics: Final = Topics()
        # The only place that chooses the implementation of the group coordinator. The broker uses
        # `coordinator`; tests and the virtual-time world also look at the groups of `classic_coordinator`.
        self.classic_coordinator: Final = ClassicCoordinator(settings.group, self.topics)
        self.coordinator: Final[GroupCoordinator] = self.classic_coordinator
        self.transactions: Final = transactions.TransactionCoordinator(settings.transactions, self.topics)
        self.connections: Final[dict[int, Connection]] = {}
        self.leaders: Final[dict[Partition, int]] = {}
        # Who coordinates a group that was moved; and who leads those partitions of the coordinators' two
        # topics that another node led before.
        self.coordinators: Final[dict[str, int]] = {}
        self.offsets_leaders: Final[dict[int, int]] = {}
        self.state_leaders: Final[dict[int, int]] = {}
        self.brokers: Final[dict[int, Broker]] = {}
        self.loading: Final[dict[str, int]] = {}
        """Groups that their new coordinator has not read yet, and until when (ms)."""
        self.wall_clock_offset = 0
        """How far the time of day is ahead of the time of steps (ms); the shell says."""
        self.producers_expire_at = 0
        self.unsent = 0
        """Bytes of answers that are not on their way yet: nobody takes them, or not fast enough."""
        # Producers with a transaction open in a partition of `__consumer_offsets`, and their epochs there.
        self._pending_offsets: Final[dict[tuple[int, TransactionPartition], int]] = {}
        self.dynamic: Final = DynamicConfig(settings)
        self._settings: Final = settings
        self._places: Final = tuple(self.nodes)
        self.cleaning: Final = Cleaning(self.topics, self.dynamic, self._places[0])

    def expire_producers(self, now: int) -> None:
        """Let partitions forget the producers that have not written for a long time, when it is time to."""
        if now < self.producers_expire_at:
            return
        self.producers_expire_at = now + self._settings.producer_id_expiration_check_interval_ms
        settings = self.dynamic.settings(self._places[0])  # all brokers have the same logs
        since = now + self.wall_clock_offset - settings.producer_id_expiration_ms
        for topic in self.topics:
            for partition in topic.partitions:
                partition.producers.forget_unused(since, partition.transactions.writing)

    def leader(self, partition: Partition, index: int) -> int:
        """The id of the node that leads a partition; NO_LEADER while that node is down."""
        found = self.leaders.get(partition)
        if found is None and partition.replicas:
            found = partition.replicas[0]
        if found is None:
            found = self._places[index % len(self._places)]
        return found if found in self.nodes else NO_LEADER

    def assign_leaders(self, topic: Topic) -> None:
        """A topic was made, or has grown: where the node whose turn it is is down, another one leads."""
        for index, partition in enumerate(topic.partitions):
            if self.leader(partition, index) == NO_LEADER and partition not in self.leaders:
                able = [one for one in partition.replicas or self.nodes if one in self.nodes]
                self.leaders[partition] = next(iter(able or self.nodes), NO_LEADER)

    def replicas_of(self, partition: Partition, index: int) -> list[int]:
        """The nodes that have a partition, the preferred leader first. Who leads it has it, wherever it was
        created.
        """
        leader = self.leader(partition, index)
        if leader == NO_LEADER or leader in partition.replicas:
            return list(partition.replicas)
        return [leader, *partition.replicas[1:]]

    def endpoints(self, leaders: Iterable[int], listener: str) -> list[tuple[Node, str, int]]:
        """Those of these nodes that are up, each once, and where clients find them by a listener."""
        found = [self.nodes[one] for one in dict.fromkeys(leaders) if one in self.nodes]
        return [(node, *node.address(listener)) for node in found]

    def group_coordinator_of(self, group_id: str) -> int:
        """The id of the node that coordinates a group; NO_LEADER while that node is down."""
        found = self.coordinators.get(group_id)
        if found is None:
            _, partition = self.offsets_partition_of(group_id)
            return self._of_partition(self.offsets_leaders, partition)
        return found if found in self.nodes else NO_LEADER

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """The id of the node that coordinates a transactional id; NO_LEADER while that node is down."""
        partition = state_partition(transactional_id, self._settings.transactions)
        return self._of_partition(self.state_leaders, partition)

    def _of_partition(self, leaders: Mapping[int, int], partition: int) -> int:
        found = leaders.get(partition, self._places[partition % len(self._places)])
        return found if found in self.nodes else NO_LEADER

    def move_coordinators(self, node: int, heir: int) -> None:
        """Let another node coordinate all transactional ids of one, and all groups that are still to come; to
        be called before that is down. Groups that there are move one by one (`hand_over`).
        """
        settings = self._settings.transactions
        for leaders, count in (
            (self.offsets_leaders, settings.offsets_topic_num_partitions),
            (self.state_leaders, settings.transaction_state_log_num_partitions),
        ):
            for partition in range(count):
                if self._of_partition(leaders, partition) == node:
                    leaders[partition] = heir

    def offsets_partition_of(self, group_id: str) -> TransactionPartition:
        """The partition of `__consumer_offsets` that keeps a group's offsets."""
        return offsets_partition(group_id, self._settings.transactions)

    def has_pending_offsets(self, group_id: str, producer_id: int, epoch: int) -> bool:
        """Has the producer a transaction open in the partition that keeps this group's offsets?"""
        return self._pending_offsets.get((producer_id, self.offsets_partition_of(group_id))) == epoch

    def note_pending_offsets(self, group_id: str, producer_id: int, epoch: int) -> None:
        """Note that the producer has pending offsets in the partition of this group, if it has."""
        if self.coordinator.has_pending_offsets(group_id, producer_id):
            self._pending_offsets[producer_id, self.offsets_partition_of(group_id)] = epoch

    def clear_pending_offsets(self, producer_id: int, partition: TransactionPartition) -> None:
        """The marker of its transaction is in this partition."""
        self._pending_offsets.pop((producer_id, partition), None)

    def choose_replicas(self, index: int, factor: int) -> tuple[int, ...]:
        """Where the replicas of a topic's partition go; the first leads it."""
        return tuple(self._places[(index + more) % len(self._places)] for more in range(factor))

    @property
    def needs_routing(self) -> bool:
        """May a request be for another node, or a group not be read yet?"""
        return len(self._places) > 1 or bool(self.loading)

    def coordinator_error(self, group_id: str, node: int, now: int) -> ErrorCode:
        """Return why a node rejects requests to a group, or NONE.

        It is not the coordinator of the group, or it is still loading the group (R171).
        """
        if self.group_coordinator_of(group_id) != node:
            return ErrorCode.NOT_COORDINATOR
        if self.loading.get(group_id, now) > now:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE

    def move_group(self, group_id: str, node: int, now: int, loading_ms: int) -> list[SendResponse]:
        """Move a group to another coordinator, which has loaded it after `loading_ms`.

        Returns the responses to the requests that wait at the old coordinator.
        """
        self.coordinators[group_id] = node
        self.loading[group_id] = now + loading_ms
        return self.coordinator.hand_over(group_id, now + loading_ms)
