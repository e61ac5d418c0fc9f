"""Limits and manual replica assignments of CreateTopics and CreatePartitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..broker import Broker

# The maximum number of partitions that a request may create (Kafka's MAX_PARTITIONS_PER_BATCH). In Kafka the
# same limit applies to the records that the controller writes for a request (MAX_RECORDS_PER_USER_OP).
MAX_PARTITIONS_PER_REQUEST: Final = 10_000


def assignment_fault(
    broker: Broker, assignment: Sequence[Sequence[int]], factor: int | None = None
) -> str | None:
    """Return why a manual replica assignment is invalid, or None if it is valid.

    `assignment` lists the node ids of each partition. Each list must contain `factor` node ids, or the same
    number of node ids as the first list if `factor` is None.
    """
    nodes = broker.cluster.nodes
    replica_count = len(assignment[0]) if factor is None else factor

    def is_valid(replicas: Sequence[int]) -> bool:
        are_unique = len(set(replicas)) == len(replicas)
        return len(replicas) == replica_count > 0 and are_unique and set(replicas) <= set(nodes)

    if not all(map(is_valid, assignment)):
        return (
            "Every partition needs the same number of replicas, each on a different node of "
            f"{', '.join(map(str, nodes))}."
        )
    return None
