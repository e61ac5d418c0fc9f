"""Partition lookups that several handlers share, and Kafka's error codes for them."""

from __future__ import annotations

from typing import NamedTuple

from ...error_codes import ErrorCode
from ..broker import Broker
from ..log import Log
from ..topics import Partition, Topics


def missing_topic(*, by_id: bool) -> ErrorCode:
    """Return the error for a missing topic: UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION."""
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def find_partition(topics: Topics, name: str, index: int) -> Partition | None:
    """Return a partition, or None if the topic or the partition does not exist."""
    topic = topics.named(name)
    return topic.partition(index) if topic else None


def leader_epoch_error(log: Log, current_leader_epoch: int) -> ErrorCode:
    """Compare the leader epoch that a client sends with the partition's epoch (KIP-320).

    Return FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer one, else NONE. An
    epoch of -1 skips the comparison.
    """
    if current_leader_epoch == -1 or current_leader_epoch == log.leader_epoch:
        return ErrorCode.NONE
    if current_leader_epoch < log.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


class PartitionReplicas(NamedTuple):
    """The leader and the replicas of a partition, as Metadata reports them."""

    error: ErrorCode
    leader: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


def partition_replicas(broker: Broker, partition: Partition, index: int) -> PartitionReplicas:
    """Describe the replicas of a partition; every replica on a live node is in sync."""
    leader = broker.cluster.leader(partition, index)
    replicas = broker.cluster.replicas_of(partition, index)
    in_sync = [node for node in replicas if node in broker.cluster.nodes]
    return PartitionReplicas(
        error=ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        leader=leader,
        replicas=replicas,
        in_sync=in_sync,
        offline=[node for node in replicas if node not in in_sync],
    )
