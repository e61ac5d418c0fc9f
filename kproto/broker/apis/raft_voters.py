"""The checks of AddRaftVoter and RemoveRaftVoter requests, which change the voters of the quorum.

Every valid request fails, as in a Kafka cluster with a single node. A new voter cannot be reached, and the
only voter cannot be removed.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ...error_codes import ErrorCode
from ..broker import Broker
from ..topics import NO_ID

# An error code and Kafka's error message.
Fault = tuple[ErrorCode, str]


def voter_fault(broker: Broker, request: Any, verb: str) -> Fault | None:
    """Return the error if the request's cluster id is wrong or its voter is invalid; otherwise None.

    `verb` is "Add" or "Remove". The checks are the same as in Kafka's KafkaRaftClient.
    """
    if request.cluster_id is not None and request.cluster_id != broker.cluster_id:
        message = f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{broker.cluster_id}"'
        return ErrorCode.INCONSISTENT_CLUSTER_ID, message
    if request.voter_id < 0 or request.voter_directory_id == NO_ID:
        return ErrorCode.INVALID_REQUEST, f"{verb} voter request didn't include a valid voter"
    return None


def voters_text(broker: Broker) -> str:
    """Return the set of voters as text, in Kafka's format."""
    return f"[{voter_key(controller(broker), NO_ID)}]"


def controller(broker: Broker) -> int:
    """Return the node id of the controller, which DescribeQuorum reports as the only voter."""
    return min(broker.cluster.nodes)


def voter_key(node: int, directory: UUID) -> str:
    """Return a voter's id and directory as text, in the format of Kafka's ReplicaKey."""
    return f"ReplicaKey(id={node}, directoryId={directory})"
