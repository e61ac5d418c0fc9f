"""JSON lines show a generation's cause, and why a request has no response."""

from __future__ import annotations

import tracemalloc

import pytest

from kproto.inspect.exchange_json import generation_json, to_json, write_json_line
from kproto.inspect.exchanges import LARGE_FRAME, Conversation
from kproto.inspect.timeline import GroupEvent
from kproto.messages.headers import encode_request
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.json_form import one_line
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def test_a_generation_is_an_object_with_its_cause() -> None:
    event = GroupEvent(at=1_500, kind="generation", member="", generation=3, reason="a joined")
    assert generation_json("g", event) == {"at": 1_500, "group": "g", "generation": 3, "cause": "a joined"}


def test_an_exchange_without_a_response_has_the_trouble() -> None:
    frame = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "me")
    conversation = Conversation("127.0.0.1:5", 1)
    exchange, _ = conversation.add_request(frame, 0)
    assert "trouble" not in to_json(exchange)
    conversation.close()
    assert to_json(exchange)["trouble"] == "the connection ended before the response"
    assert "response" not in to_json(exchange)


@pytest.mark.parametrize("size", [1_000, 4 * LARGE_FRAME])
def test_an_exchange_is_written_as_a_line_of_json_without_a_copy_of_large_records(size: int) -> None:
    part_of_topic = PartitionProduceData(index=0, records=bytes(size))
    topic = TopicProduceData(name="t", partition_data=[part_of_topic])
    frame = encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9, 1, "me")
    written: list[int] = []
    tracemalloc.start()
    try:
        exchange, _ = Conversation("127.0.0.1:5", 1).add_request(frame, 0)
        write_json_line(exchange, lambda piece: written.append(len(piece)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(written) == len(one_line(to_json(exchange)))
    assert peak < LARGE_FRAME + size // 2
