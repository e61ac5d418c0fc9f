"""What no client can be faster than: plain sockets that do nothing but carry the bytes.

Their requests are encoded before the clock starts, and of the answers to fetches only the places where
batches end are looked at, as the next fetch has to say where it goes on. What is left is the broker's work,
the kernel's, and one copy between them.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

_SIZE = struct.Struct(">i")
IN_FLIGHT = 5


def _connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _fill(sock: socket.socket, room: memoryview) -> None:
    while room:
        size = sock.recv_into(room)
        if not size:
            raise SystemExit("the broker closed the connection")
        room = room[size:]


class _Answers:
    """Receives answers, each into the same memory."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._memory = bytearray(1 << 22)

    def next(self) -> bytearray:
        """The next answer; what stands behind its end is an older one's."""
        head = memoryview(bytearray(_SIZE.size))
        _fill(self._sock, head)
        size: int = _SIZE.unpack(head)[0]
        if size > len(self._memory):
            self._memory = bytearray(size)
        _fill(self._sock, memoryview(self._memory)[:size])
        return self._memory


# ---- producing


def written(
    bootstrap: str,
    topic: str,
    partitions: int,
    values: list[bytes],
    *,
    batch: int,
    together: int = 2,
    connections: int = 1,
) -> tuple[float, float]:
    """Wall and CPU seconds for these values, in idempotent batches of `batch` bytes, `together` in a request;
    the partitions are spread over the connections."""
    lanes = _encoded(bootstrap, partitions, values, batch)
    per_connection = [
        _requests(topic, dict(list(lanes.items())[first::connections]), together)
        for first in range(connections)
    ]
    with ExitStack() as stack, ThreadPoolExecutor() as threads:
        socks = [stack.enter_context(_connect(bootstrap)) for _ in range(connections)]
        for sock, requests in zip(socks, per_connection, strict=True):
            _exchange(sock, requests[:1])
        wall, cpu = time.perf_counter(), time.process_time()
        list(threads.map(_exchange, socks, [requests[1:] for requests in per_connection]))
        return time.perf_counter() - wall, time.process_time() - cpu


def _exchange(sock: socket.socket, requests: Sequence[bytes]) -> None:
    from kproto.messages.headers import decode_response
    from kproto.messages.produce import ProduceResponse

    answers = _Answers(sock)
    for number, request in enumerate(requests):
        if number >= IN_FLIGHT:
            answers.next()
        sock.sendall(request)
    for _ in requests[-IN_FLIGHT:]:
        last = answers.next()
    _, answer = decode_response(last, ProduceResponse, PRODUCE)
    for entry in answer.responses[0].partition_responses:
        if entry.error_code:  # then those behind it are refused, too
            raise SystemExit(f"the broker answers error {entry.error_code}")


PRODUCE = 12  # the last version that names topics


def _encoded(bootstrap: str, partitions: int, values: list[bytes], most: int) -> dict[int, list[bytes]]:
    """The batches of each partition, the first one of a single record."""
    import numpy as np
    import pyarrow as pa

    from consumer import Cluster
    from kproto.messages.init_producer_id import InitProducerIdRequest
    from kproto.records.column_encoder import encode_columns

    with Cluster(bootstrap) as cluster:
        who = cluster.request(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    now = int(time.time() * 1000)

    def encoded(mine: list[bytes], sequence: int) -> list[bytes]:
        return encode_columns(
            np.full(len(mine), now),
            None,
            pa.array(mine, pa.binary()),
            max_bytes=most,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=sequence,
        )

    return {
        index: encoded([b"first"], 0) + encoded(values[index::partitions], 1) for index in range(partitions)
    }


def _requests(topic: str, lanes: dict[int, list[bytes]], together: int) -> list[bytes]:
    """The first batches in one request, then the others in turn."""
    from kproto.messages.headers import encode_request
    from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from kproto.wire.frame import frame

    groups: list[dict[int, bytes]] = [{index: lane[0] for index, lane in lanes.items()}, {}]
    for turn in range(1, max(map(len, lanes.values()))):
        for index, lane in lanes.items():
            if turn < len(lane):
                if len(groups[-1]) == together or index in groups[-1]:
                    groups.append({})
                groups[-1][index] = lane[turn]
    found: list[bytes] = []
    for number, group in enumerate(groups):
        parts = [PartitionProduceData(index=index, records=data) for index, data in group.items()]
        topics = [TopicProduceData(name=topic, partition_data=parts)]
        message = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=topics)
        found.append(frame(encode_request(message, PRODUCE, number, "ceiling")))
    return found


# ---- reading


FETCH = 12  # the last version that names topics


def received(bootstrap: str, topic: str, partitions: int, count: int, each: int = 1 << 20) -> None:
    """Fetches so many records, all partitions at once, and throws them away."""
    from kproto.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
    from kproto.messages.headers import decode_response_views, encode_request
    from kproto.wire.frame import frame

    places = dict.fromkeys(range(partitions), 0)
    with _connect(bootstrap) as sock:
        answers, number = _Answers(sock), 0
        while sum(places.values()) < count:
            wanted = [
                FetchPartition(partition=index, fetch_offset=at, partition_max_bytes=each)
                for index, at in places.items()
            ]
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=50 << 20,
                isolation_level=0,
                topics=[FetchTopic(topic=topic, partitions=wanted)],
                forgotten_topics_data=[],
            )
            request.session_epoch = -1
            sock.sendall(frame(encode_request(request, FETCH, number, "ceiling")))
            number += 1
            _, answer = decode_response_views(answers.next(), FetchResponse, FETCH)
            for entry in answer.responses[0].partitions:
                places[entry.partition_index] = max(places[entry.partition_index], _end(entry.records or b""))


_BASE = struct.Struct(">qi").unpack_from
_DELTA = struct.Struct(">i").unpack_from
_HEADER = 61


def _end(data: bytes | memoryview) -> int:
    """The offset behind the last whole batch."""
    at = end = 0
    while len(data) - at >= _HEADER:
        base, size = _BASE(data, at)
        if at + 12 + size > len(data):
            break
        end = base + _DELTA(data, at + 23)[0] + 1
        at += 12 + size
    return end
