"""What several handlers look up in the same way, with Kafka's error codes."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ..log import Log
from ..topics import Partition, Topics

# Kafka's answers without an authorizer: every operation that the resource knows, as bits of AclOperation.
CLUSTER_OPERATIONS = (
    8096  # CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
TOPIC_OPERATIONS = 3576  # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
NOT_ASKED = -0x80000000


def missing_topic(*, by_id: bool) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def find_partition(topics: Topics, name: str, index: int) -> Partition | None:
    topic = topics.named(name)
    return topic.partition(index) if topic else None


def epoch_error(log: Log, current_leader_epoch: int) -> ErrorCode:
    """Does the client know the current leader epoch? -1: it doesn't say (KIP-320)."""
    if current_leader_epoch == -1 or current_leader_epoch == log.leader_epoch:
        return ErrorCode.NONE
    if current_leader_epoch < log.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
