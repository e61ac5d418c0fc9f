"""Connections take turns: many requests of one connection do not delay the requests of another."""

from __future__ import annotations

import threading
import time
from typing import Any

from kproto.broker.server import running
from kproto.broker.socket_connection import REQUESTS_PER_TURN
from kproto.messages.headers import encode_request
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.metadata import MetadataRequest
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.wire.frame import frame
from tests.broker.stage import PATIENCE, Socket, batch_of, connected, fetch_request, fetch_topic


def heartbeat_bytes(group: str) -> bytes:
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    return frame(encode_request(request, 4, 1, "me"))


def test_another_client_waits_for_at_most_one_turn_of_a_connection() -> None:
    groups: list[str] = []
    held, free, done = threading.Event(), threading.Event(), threading.Event()

    def observer(event: Any, actions: tuple[Any, ...], now: int) -> None:
        group = getattr(getattr(event, "request", None), "group_id", "")
        groups.append(group)
        if group == "hold":
            held.set()
            free.wait(PATIENCE)
        if group == "other":
            done.set()

    with running() as server:
        server.observe(observer)
        with (
            connected(server.bootstrap) as holder,
            connected(server.bootstrap) as flood,
            connected(server.bootstrap) as second_client,
        ):
            for client in (holder, flood, second_client):
                client.ask(MetadataRequest(topics=[]), 12)
            holder.socket.sendall(heartbeat_bytes("hold"))
            assert held.wait(PATIENCE)
            flood.socket.sendall(heartbeat_bytes("flood") * 1500)
            second_client.socket.sendall(heartbeat_bytes("other"))
            free.set()
            assert done.wait(PATIENCE)
            before = groups[: groups.index("other")].count("flood")
            assert before <= 2 * REQUESTS_PER_TURN


def end_of(client: Socket) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    offset: int = client.ask(request, 5).topics[0].partitions[0].offset
    return offset


def produce_bytes() -> bytes:
    part = PartitionProduceData(index=0, records=batch_of(b"x"))
    data = TopicProduceData(name="t", partition_data=[part])
    return frame(encode_request(ProduceRequest(acks=0, timeout_ms=1, topic_data=[data]), 9, 1, "me"))


def test_requests_that_arrived_before_the_close_are_served() -> None:
    with running(topics={"t": 1}) as server, connected(server.bootstrap) as second_client:
        with connected(server.bootstrap) as client:
            client.socket.sendall(produce_bytes() * 10 * REQUESTS_PER_TURN)
        end = time.monotonic() + PATIENCE
        while end_of(second_client) < 10 * REQUESTS_PER_TURN:
            assert time.monotonic() < end, end_of(second_client)


def test_requests_after_a_delayed_one_are_served() -> None:
    """Requests that follow a delayed request on its connection are served after its response.

    The test sends two Fetch requests, the first of which is delayed. After each Fetch it sends more Produce
    requests than the broker serves in one turn (`REQUESTS_PER_TURN`).
    """
    fetch = frame(encode_request(fetch_request(fetch_topic(), wait=100), 12, 1, "me"))
    with running(topics={"t": 1}) as server, connected(server.bootstrap) as client:
        pieces = [
            fetch,
            produce_bytes() * 3 * REQUESTS_PER_TURN,
            fetch,
            produce_bytes() * 3 * REQUESTS_PER_TURN,
        ]
        client.socket.sendall(b"".join(pieces))
        for _ in range(2):
            client.receive(int.from_bytes(client.receive(4), "big"))
        assert end_of(client) == 6 * REQUESTS_PER_TURN


def test_a_muted_connection_continues_with_its_queued_requests() -> None:
    """A throttled connection is muted: its requests are queued. After the throttle time the broker serves the
    queued requests.
    """
    with running(topics={"t": 1}) as server, connected(server.bootstrap) as client:
        server.throttle("Metadata", 0.1)
        metadata = frame(encode_request(MetadataRequest(topics=[]), 12, 1, "me"))
        client.socket.sendall(metadata + produce_bytes() * 3 * REQUESTS_PER_TURN)
        client.receive(int.from_bytes(client.receive(4), "big"))
        server.throttle("Metadata", 0)
        assert end_of(client) == 3 * REQUESTS_PER_TURN
