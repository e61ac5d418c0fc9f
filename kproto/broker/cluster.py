"""What the brokers of one cluster share: who is up, who leads which partition, who coordinates which group.

    cluster = Cluster(settings, [Node(1, "broker-1", 9092), Node(2, "broker-2", 9092)])
    brokers = [Broker(settings, node, served(), cluster=cluster) for node in cluster.nodes.values()]

Rules:
  * All brokers see the same logs, offsets and groups at once: what moves is only who may answer for them.
    Replication, and what a new leader or coordinator lacks, are the operator's to play (`Truncate`).
  * A partition without a leader of its own choosing is led by the nodes in turn, by its index; a group is
    coordinated by the first node, until either is moved.
  * A coordinator that hands a group over answers its waiting members NOT_COORDINATOR; the next one has
    loaded the group just now and gives everybody a whole session (GroupMetadataManager.onUnloaded, onLoaded).
  * All transactions are coordinated by the first node.
  * Connection numbers are unique in the cluster, so that an answer finds its connection whoever gives it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ..error_codes import ErrorCode
from ..group import coordinator
from ..group.classic import Group, Received, Turn
from ..group.refusals import refusal
from ..messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ..txn import coordinator as transactions
from ..txn.transaction import STATE_PARTITIONS, state_partition
from ..wire.message import Message
from .call import Node
from .settings import Settings
from .topics import Partition, Topics

if TYPE_CHECKING:
    from .broker import Broker, Connection

NOBODY: Final = -1


class Cluster:
    """Shared by the `Broker`s of a cluster. `nodes` are those that are up."""

    def __init__(self, settings: Settings, nodes: Iterable[Node]) -> None:
        self.nodes: Final = {node.id: node for node in nodes}
        self.topics: Final = Topics(settings)
        self.coordinator: Final = coordinator.Coordinator(settings.group, self.topics)
        self.transactions: Final = transactions.Coordinator(settings.transactions, self.topics)
        self.connections: Final[dict[int, Connection]] = {}
        self.leaders: Final[dict[Partition, int]] = {}
        self.coordinators: Final[dict[str, int]] = {}
        self.state_leaders: Final[dict[int, int]] = {}
        self.brokers: Final[dict[int, Broker]] = {}
        self.loading: Final[dict[str, int]] = {}
        """Groups that their new coordinator has not read yet, and until when (ms)."""
        self.forgets_at = 0
        self._settings: Final = settings
        self._places: Final = tuple(self.nodes)

    def forget_producers(self, now: int) -> None:
        """Let partitions forget the producers that have not written for a long time, when it is time to."""
        if now < self.forgets_at:
            return
        self.forgets_at = now + self._settings.producer_id_expiration_check_interval_ms
        since = now - self._settings.producer_id_expiration_ms
        for topic in self.topics:
            for partition in topic.partitions:
                partition.producers.forget_unused(since, partition.transactions.writing)

    def leader(self, partition: Partition, index: int) -> int:
        """The id of the node that leads a partition; NOBODY while that node is down."""
        found = self.leaders.get(partition)
        if found is None and partition.replicas:
            found = partition.replicas[0]
        if found is None:
            found = self._places[index % len(self._places)]
        return found if found in self.nodes else NOBODY

    def places(self, leaders: Iterable[int], listener: str) -> list[tuple[Node, str, int]]:
        """Those of these nodes that are up, each once, and where clients find them by a listener."""
        found = [self.nodes[one] for one in dict.fromkeys(leaders) if one in self.nodes]
        return [(node, *node.at(listener)) for node in found]

    def coordinating(self, group_id: str) -> int:
        """The id of the node that coordinates a group; NOBODY while that node is down."""
        found = self.coordinators.get(group_id, self._places[0])
        return found if found in self.nodes else NOBODY

    def transacting(self, transactional_id: str) -> int:
        """The id of the node that coordinates a transactional id; NOBODY while that node is down."""
        return self._of_states(state_partition(transactional_id))

    def _of_states(self, partition: int) -> int:
        found = self.state_leaders.get(partition, self._places[partition % len(self._places)])
        return found if found in self.nodes else NOBODY

    def hand_over_transactions(self, node: int, heir: int) -> None:
        """Let another node coordinate all transactional ids of one; to be called before that is down."""
        for partition in range(STATE_PARTITIONS):
            if self._of_states(partition) == node:
                self.state_leaders[partition] = heir

    def replicas(self, index: int, factor: int) -> tuple[int, ...]:
        """Where the replicas of a topic's partition go; the first leads it."""
        return tuple(self._places[(index + more) % len(self._places)] for more in range(factor))

    def refusal(self, request: Message, version: int, node: int, now: int) -> Message | None:
        """What a node answers to a group request that is not for it (yet); None when it is."""
        for group_id in _groups(request):
            if self.coordinating(group_id) != node:
                return refused(request, ErrorCode.NOT_COORDINATOR, version)
            if self.loading.get(group_id, now) > now:
                return refused(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version)
        return None

    def hand_over(self, group_id: str, node: int, now: int, loading_ms: int) -> list[tuple[object, Message]]:
        """Let another node coordinate a group; the answers that those who wait get from the old one."""
        self.coordinators[group_id] = node
        self.loading[group_id] = now + loading_ms
        group = self.coordinator.groups.get(group_id)
        return [] if group is None else self._unload(group, now + loading_ms)

    def _unload(self, group: Group, ready: int) -> list[tuple[object, Message]]:
        answers: list[tuple[object, Message]] = []
        turn = Turn(self.coordinator, ready)
        for member in group.members.values():
            waiting: list[Received[Any] | None] = [group.unpark_join(member), member.sync]
            member.sync = None
            for call in waiting:
                if call is not None:
                    code = ErrorCode.NOT_COORDINATOR
                    answers.append((call.token, refusal(call.request, code, call.version)))
            turn.refresh_session(group, member)
        return answers


def refused(request: Message, code: ErrorCode, version: int) -> Message:
    """The answer to any request for a coordinator that only says no."""
    if not isinstance(request, OffsetFetchRequest):
        return refusal(request, code, version)
    if version >= 8:  # KIP-709: several groups
        groups = [
            OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
            for group in request.groups
        ]
        return OffsetFetchResponse(groups=groups)
    if version >= 2:
        return OffsetFetchResponse(topics=[], error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _groups(request: Message) -> list[str]:
    """The groups that only their coordinator may answer for; none for requests that list or describe."""
    if isinstance(request, OffsetFetchRequest) and request.groups:
        return [group.group_id for group in request.groups]
    group_id = getattr(request, "group_id", None)
    return [] if group_id is None else [group_id]
