"""The errors of batches, from the responses to Produce."""

from __future__ import annotations

from typing import Any

from kproto.error_codes import ErrorCode
from kproto.messages.metadata import MetadataRequest
from kproto.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.consumer.stage import Client, World


def test_the_error_of_a_batch_contains_the_brokers_message() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0)

    def reject(client: Client, request: Any, version: int) -> ProduceResponse | None:
        if not isinstance(request, ProduceRequest):
            return None
        entry = PartitionProduceResponse(
            index=0, error_code=ErrorCode.POLICY_VIOLATION, base_offset=-1, error_message="no empty values"
        )
        [topic] = request.topic_data
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[entry])
        return ProduceResponse(responses=[answer])

    world.tamper = reject
    batch = producer.must_send("t", "x")
    assert world.run(until=lambda: batch.error is not None)
    assert "no empty values" in str(batch.error)


def test_a_new_leader_that_a_produce_response_names_is_used_without_metadata() -> None:
    """The old leader names the new leader (KIP-951)."""
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 1)
    producer = world.producer(linger_ms=0)
    first = producer.must_send("t", "x")
    assert world.run(until=lambda: first.done)
    requests = len(world.requests_of(producer, MetadataRequest))
    world.elect("t", 0, 2)
    second = producer.must_send("t", "y")
    assert world.run(until=lambda: second.done)
    assert second.error is None
    assert len(world.requests_of(producer, MetadataRequest)) == requests
