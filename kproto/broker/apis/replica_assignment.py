"""What CreateTopics and CreatePartitions share: limits and manual replica assignments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..broker import Broker

# Kafka's MAX_PARTITIONS_PER_BATCH: partitions of one request, and records that its controller writes for it.
MAX_PARTITIONS_PER_REQUEST: Final = 10_000


def assignment_fault(
    broker: Broker, assignment: Sequence[Sequence[int]], factor: int | None = None
) -> str | None:
    """Return why these lists of node ids cannot be the replicas of partitions, or None.

    All lists must have `factor` nodes, by default as many as the first list.
    """
    nodes = broker.cluster.nodes
    size = len(assignment[0]) if factor is None else factor
    if any(
        not replicas
        or len(set(replicas)) < len(replicas)
        or len(replicas) != size
        or set(replicas) - set(nodes)
        for replicas in assignment
    ):
        return (
            "Every partition needs the same number of replicas, each on a different node of "
            f"{', '.join(map(str, nodes))}."
        )
    return None
