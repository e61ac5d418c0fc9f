"""Measure clients on plain sockets, which no Kafka client can outrun.

The socket clients discard the records that they receive. They read only the offsets at which batches end,
because the next fetch needs them. Produce requests are encoded before the clock starts. The measured time is
that of the broker, the kernel, and one copy of the bytes.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from kproto.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kproto.messages.headers import decode_response_views, encode_request
from kproto.wire.frame import frame

from .report import Seconds

IN_FLIGHT = 5  # Kafka's default of `max.in.flight.requests.per.connection`.
BATCH_HEADER_BYTES = 61  # The header of a record batch, format 2.
# The last versions of Produce and Fetch that name topics.
PRODUCE_VERSION = FETCH_VERSION = 12
RECEIVE_BYTES = 256 * 1024

_LENGTH = struct.Struct(">i")
_read_offset_and_length = struct.Struct(">qi").unpack_from
_read_last_offset_delta = struct.Struct(">i").unpack_from


def _connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def _fill(sock: socket.socket, buffer: memoryview) -> None:
    while buffer:
        size = sock.recv_into(buffer)
        if not size:
            raise SystemExit("the broker closed the connection before the end of a response")
        buffer = buffer[size:]


class _ResponseReader:
    """A reader of responses that reuses one buffer for all of them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # The latest response. Bytes after its end belong to earlier responses, and the decoders ignore them.
        self.memory = bytearray(1 << 22)

    def read(self) -> int:
        """Receive the next response into `memory`, and return its size in bytes."""
        prefix = memoryview(bytearray(_LENGTH.size))
        _fill(self._sock, prefix)
        size: int = _LENGTH.unpack(prefix)[0]
        if size > len(self.memory):
            self.memory = bytearray(size)
        _fill(self._sock, memoryview(self.memory)[:size])
        return size


# ---- producing


def write_batches(
    bootstrap: str,
    topic: str,
    partitions: int,
    values: list[bytes],
    *,
    batch_bytes: int,
    batches_per_request: int = 2,
    connections: int = 1,
) -> Seconds:
    """Write `values` as idempotent batches; return the wall and CPU time after the first request.

    The partitions are distributed over `connections` connections.
    """
    batches = _encode_batches(bootstrap, partitions, values, batch_bytes)
    per_connection = [
        _encode_requests(topic, dict(list(batches.items())[first::connections]), batches_per_request)
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

    responses = _ResponseReader(sock)
    for number, request in enumerate(requests):
        if number >= IN_FLIGHT:
            responses.read()
        sock.sendall(request)
    for _ in requests[-IN_FLIGHT:]:
        responses.read()
    _, response = decode_response(responses.memory, ProduceResponse, PRODUCE_VERSION)
    for partition in response.responses[0].partition_responses:
        # If an idempotent batch fails, all later batches of the partition fail as well.
        if partition.error_code:
            raise SystemExit(f"the broker rejected a Produce request with error code {partition.error_code}")


def _encode_batches(
    bootstrap: str, partitions: int, values: list[bytes], batch_bytes: int
) -> dict[int, list[bytes]]:
    """Encode the batches of each partition; the first batch has a single record."""
    import numpy as np
    import pyarrow as pa

    from consumer import Admin
    from kproto.messages.init_producer_id import InitProducerIdRequest
    from kproto.records.column_encoder import encode_columns

    with Admin(bootstrap) as cluster:
        identity = cluster.request(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        )
    now = int(time.time() * 1000)

    def encode(partition_values: list[bytes], base_sequence: int) -> list[bytes]:
        return encode_columns(
            np.full(len(partition_values), now),
            None,
            pa.array(partition_values, pa.binary()),
            max_bytes=batch_bytes,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
        )

    return {
        index: encode([b"first"], 0) + encode(values[index::partitions], 1) for index in range(partitions)
    }


def _encode_requests(topic: str, batches: dict[int, list[bytes]], batches_per_request: int) -> list[bytes]:
    """Encode the batches as Produce requests. The first request has the first batch of every partition.

    The other batches follow in turn. Each of these requests has at most `batches_per_request` batches, and at
    most one batch of a partition.
    """
    from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    groups: list[dict[int, bytes]] = [{index: queue[0] for index, queue in batches.items()}, {}]
    for turn in range(1, max(map(len, batches.values()))):
        for index, queue in batches.items():
            if turn < len(queue):
                if len(groups[-1]) == batches_per_request or index in groups[-1]:
                    groups.append({})
                groups[-1][index] = queue[turn]
    requests: list[bytes] = []
    for number, group in enumerate(groups):
        partition_data = [PartitionProduceData(index=index, records=batch) for index, batch in group.items()]
        topic_data = [TopicProduceData(name=topic, partition_data=partition_data)]
        message = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=topic_data)
        requests.append(frame(encode_request(message, PRODUCE_VERSION, number, "ceiling")))
    return requests


# ---- fetching


def discard_records(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """Fetch `count` records of all partitions, one request at a time, and discard them."""
    list(_fetch(bootstrap, topic, partitions, count))


def _fetch(bootstrap: str, topic: str, partitions: int, count: int) -> list[tuple[bytes, int]]:
    """Fetch `count` records; return the requests and the size of each response with its length prefix."""
    offsets = dict.fromkeys(range(partitions), 0)
    exchanges: list[tuple[bytes, int]] = []
    with _connect(bootstrap) as sock:
        responses = _ResponseReader(sock)
        while sum(offsets.values()) < count:
            request = _encode_fetch(topic, offsets, len(exchanges))
            sock.sendall(request)
            exchanges.append((request, _LENGTH.size + responses.read()))
            _, response = decode_response_views(responses.memory, FetchResponse, FETCH_VERSION)
            for partition in response.responses[0].partitions:
                index = partition.partition_index
                offsets[index] = max(offsets[index], _end_offset(partition.records or b""))
    return exchanges


def _encode_fetch(topic: str, offsets: dict[int, int], correlation_id: int) -> bytes:
    """Encode a Fetch request with the limits of kproto's consumer, but without a fetch session."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )
    return frame(encode_request(request, FETCH_VERSION, correlation_id, "ceiling"))


def _end_offset(data: bytes | memoryview) -> int:
    """Return the offset after the last complete batch, or 0 without a complete batch."""
    position = end_offset = 0
    while len(data) - position >= BATCH_HEADER_BYTES:
        base_offset, length = _read_offset_and_length(data, position)
        if position + 12 + length > len(data):
            break
        end_offset = base_offset + _read_last_offset_delta(data, position + 23)[0] + 1
        position += 12 + length
    return end_offset


# ---- fetching with and without TLS


def discard_responses(
    transport: str,
    plain_address: str,
    address: str,
    protocol: str,
    ca_file: str,
    topic: str,
    partitions: int,
    count: int,
) -> Seconds:
    """Fetch `count` records and discard them; return the wall and CPU time after the first response.

    An unmeasured run through `plain_address` determines the requests. The measured run sends each request
    before it has read the response to the previous one, so that the broker is never idle.

    `transport` is "socket" for an `SSLSocket` (or a plain socket), or "memory" for `ssl` between two
    `MemoryBIO`s, as kproto's clients use it.
    """
    exchanges = _fetch(plain_address, topic, partitions, count)
    with _connect(address) as sock:
        if protocol == "PLAINTEXT":
            return _time_exchanges(exchanges, sock.sendall, sock.recv_into)
        host, context = address.rpartition(":")[0], ssl.create_default_context(cafile=ca_file)
        if transport == "socket":
            with context.wrap_socket(sock, server_hostname=host) as tls_socket:
                return _time_exchanges(exchanges, tls_socket.sendall, tls_socket.recv_into)
        return _time_exchanges(exchanges, *_open_tls_in_memory(sock, context, host))


def _open_tls_in_memory(
    sock: socket.socket, context: ssl.SSLContext, host: str
) -> tuple[Callable[[bytes], object], Callable[[memoryview], int]]:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    read: Any = tls.read

    def send(data: bytes) -> None:
        tls.write(data)
        sock.sendall(outgoing.read())

    def receive(target: memoryview) -> int:
        size = 0
        while True:
            try:
                while size < len(target):
                    size += read(len(target) - size, target[size:])
                return size
            except ssl.SSLWantReadError:
                if size:
                    return size
            incoming.write(buffer[: sock.recv_into(buffer)])

    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            sock.sendall(outgoing.read())
            incoming.write(buffer[: sock.recv_into(buffer)])
    sock.sendall(outgoing.read())
    return send, receive


def _time_exchanges(
    exchanges: list[tuple[bytes, int]],
    send: Callable[[bytes], object],
    receive: Callable[[memoryview], int],
) -> Seconds:
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    wall = cpu = 0.0
    send(exchanges[0][0])
    for number, (_, size) in enumerate(exchanges):
        if number + 1 < len(exchanges):
            send(exchanges[number + 1][0])
        remaining = size
        while remaining:
            remaining -= receive(buffer[: min(remaining, RECEIVE_BYTES)])
        if number == 0:
            wall, cpu = time.perf_counter(), time.process_time()
    return time.perf_counter() - wall, time.process_time() - cpu
