"""The broker copies a large request only into the log, and fetched records only into the response. Sending
the response makes no further copy.
"""

from __future__ import annotations

import socket
import ssl
import struct
import tracemalloc
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kproto.broker.machine import FrameReceived
from kproto.broker.server import running
from kproto.messages.fetch import FetchResponse
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from kproto.testing.certificates import certificates
from tests.broker.stage import Socket, Stage, batch_of, connected, fetch_request, fetch_topic

SIZE = 8 << 20
CONFIGS = {"message.max.bytes": str(2 * SIZE)}
BATCH = batch_of(b"x" * SIZE)
PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=1000,
    topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=BATCH)])],
)
FETCH = fetch_request(fetch_topic(), wait=0)


@contextmanager
def peak_of_memory() -> Generator[list[int]]:
    """Yield a list. After the block, the list contains the peak of the memory that the block allocated, in
    bytes.
    """
    peaks: list[int] = []
    tracemalloc.start()
    try:
        yield peaks
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def test_a_produce_request_is_copied_only_into_the_log_and_a_fetch_only_into_its_response() -> None:
    stage = Stage({"t": 1}, message_max_bytes=2 * SIZE)
    client = stage.client()
    frame = encode_request(PRODUCE, 9, 1, "me")
    with peak_of_memory() as peaks:
        stage.step(FrameReceived(client.conn, frame, stage.random_id()))
        stage.wait(0)
    _, produced = decode_response(client.answers.pop(), ProduceResponse, 9)
    assert not produced.responses[0].partition_responses[0].error_code
    with peak_of_memory() as fetch_peaks:
        client.send(FETCH, 12)
    assert len(client.answers[0]) > SIZE
    assert [peak / SIZE for peak in peaks + fetch_peaks] == pytest.approx([1, 1], abs=0.2)


def begin_to_read(client: Socket) -> int:
    """Send a Fetch request, read only the size prefix of the response, and return the size."""
    client.send(FETCH, 12)
    (size,) = struct.unpack(">i", client.receive(4))
    assert size > SIZE
    return int(size)


def read_response(client: Socket, size: int) -> FetchResponse:
    data = bytearray()
    while len(data) < size:
        data += client.socket.recv(size - len(data)) or pytest.fail("the response is not complete")
    return decode_response(data, FetchResponse, 12)[1]


def test_a_response_is_passed_to_the_socket_in_pieces() -> None:
    with running({"t": 1}, CONFIGS) as server, connected(server.bootstrap) as client:
        client.ask(PRODUCE, 9)
        with peak_of_memory() as peaks:
            size = begin_to_read(client)
        assert peaks[0] / SIZE == pytest.approx(1, abs=0.3)
        assert len(read_response(client, size).responses[0].partitions[0].records or b"") == len(BATCH)
        assert len(client.ask(FETCH, 12).responses) == 1


def test_a_client_that_closes_its_side_still_receives_the_whole_response() -> None:
    with running({"t": 1}, CONFIGS) as server, connected(server.bootstrap) as client:
        client.ask(PRODUCE, 9)
        size = begin_to_read(client)
        client.socket.shutdown(socket.SHUT_WR)
        with connected(server.bootstrap) as other:
            # When the broker responds to `other`, it has noticed that `client` shut down its sending side.
            assert other.listed_versions()
        assert read_response(client, size).responses
        assert client.closed_by_broker()


@pytest.mark.thorough
def test_a_large_response_is_sent_over_tls(tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    tls = certificates(tmp_path).context()
    with (
        running({"t": 1}, CONFIGS, listen=["SSL://127.0.0.1:0"], tls=tls) as server,
        connected(server.bootstrap) as client,
    ):
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        client.socket = trusting.wrap_socket(client.socket)
        client.ask(PRODUCE, 9)
        assert read_response(client, begin_to_read(client)).responses
        assert len(client.ask(FETCH, 12).responses) == 1
