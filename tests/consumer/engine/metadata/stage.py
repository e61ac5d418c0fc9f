"""Helpers that build metadata responses with one topic."""

from __future__ import annotations

from uuid import UUID

from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = UUID(int=1)


def metadata_response(
    *, leader: int = 1, epoch: int = 5, topic_id: UUID = TOPIC_ID, code: int = 0
) -> MetadataResponse:
    """Return a response with two brokers and the topic `t`, which has one partition."""
    partitions = [
        MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[],
            isr_nodes=[],
            offline_replicas=[],
        )
    ]
    topic = MetadataResponseTopic(
        error_code=code, name="t", topic_id=topic_id, is_internal=False, partitions=[] if code else partitions
    )
    brokers = [MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092) for node in (1, 2)]
    return MetadataResponse(throttle_time_ms=0, brokers=brokers, controller_id=2, topics=[topic])
