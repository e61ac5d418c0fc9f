"""A capture file decodes to the frames that were written to it.

tests/conformance/test_tshark.py reads such capture files with tshark.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

from kproto.cli.watch import capture_file
from kproto.errors import ConfigError
from kproto.inspect.capture import frames
from kproto.inspect.exchanges import Conversation
from kproto.inspect.pcap import PcapWriter, _checksum
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest

pytest.importorskip("dpkt")
CLIENT, BROKER = ("10.0.0.7", 50312), ("10.0.0.1", 9092)
AT = 1_700_000_000_123_456_789


def heartbeat_request(number: int, group: str = "g") -> bytes:
    return encode_request(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 4, number, "me")


def heartbeat_response(number: int) -> bytes:
    return encode_response(HeartbeatResponse(error_code=27), 4, number)


def titles(path: Path) -> list[str]:
    assert [frame.note for frame in frames(path) if frame.note] == []
    return [frame.title for frame in frames(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "c.pcap"


@pytest.mark.parametrize(
    ("client", "broker"),
    [
        (CLIENT, BROKER),
        (("::1", 50312), ("fe80::1%eth0", 9092)),
        (("127.0.0.1", 50312), ("::1", 9092)),
    ],
)
def test_requests_and_responses_are_decoded_from_the_file(
    path: Path, client: tuple[str, int], broker: tuple[str, int]
) -> None:
    with path.open("wb") as file:
        capture = PcapWriter(file)
        for number in range(3):
            capture.write_frame(client, broker, True, heartbeat_request(number), AT)
            capture.write_frame(client, broker, False, heartbeat_response(number), AT)
        capture.close_connection(client, broker, AT)
    assert titles(path) == [f"Heartbeat{half} v4 #{n}" for n in range(3) for half in ("Request", "Response")]
    assert next(frames(path)).at == pytest.approx(AT / 1e9, abs=1e-5)


@pytest.mark.parametrize("size", [32_763, 32_764, 32_765, 200_000])
def test_a_long_frame_spans_several_segments(path: Path, size: int) -> None:
    long = HeartbeatResponse(error_code=0)
    long.__unknown_tags__ = {9: bytes(size)}
    frame = encode_response(long, 4, 0)
    with path.open("wb") as file:
        capture = PcapWriter(file)
        capture.write_frame(CLIENT, BROKER, True, heartbeat_request(0), AT)
        capture.write_frame(CLIENT, BROKER, False, frame, AT)
        capture.write_frame(CLIENT, BROKER, True, heartbeat_request(1), AT)
    assert titles(path) == ["HeartbeatRequest v4 #0", "HeartbeatResponse v4 #0", "HeartbeatRequest v4 #1"]


def test_a_connection_begins_and_ends_with_the_segments_of_tcp() -> None:
    file = io.BytesIO()
    capture = PcapWriter(file)
    capture.write_frame(CLIENT, BROKER, True, heartbeat_request(0), AT)
    capture.close_connection(CLIENT, BROKER, AT)
    capture.close_connection(CLIENT, BROKER, AT)
    data, at = file.getvalue(), 24
    segments: list[tuple[bool, int, int]] = []
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        (source,), flags = struct.unpack_from(">H", data, at + 36), data[at + 36 + 13]
        segments.append((source == CLIENT[1], flags, size - 40))
        at += 16 + size
    fin, syn, push, ack = 1, 2, 8, 16
    length = 4 + len(heartbeat_request(0))
    assert [segment for segment in segments if segment[1] & ~push] == [
        (True, syn, 0),
        (False, syn | ack, 0),
        (True, ack, 0),
        (True, segments[3][1], length),
        (True, fin | ack, 0),
        (False, fin | ack, 0),
        (True, ack, 0),
    ]


def test_a_reused_port_is_a_new_connection(path: Path) -> None:
    with path.open("wb") as file:
        capture = PcapWriter(file)
        for _ in range(2):
            capture.write_frame(CLIENT, BROKER, True, heartbeat_request(7), AT)
            capture.close_connection(CLIENT, BROKER, AT)
    assert titles(path) == ["HeartbeatRequest v4 #7"] * 2


def test_both_checksums_are_correct() -> None:
    file = io.BytesIO()
    PcapWriter(file).write_frame(CLIENT, BROKER, True, heartbeat_request(0), AT)
    data, at, packets = file.getvalue(), 24, 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 8)[0]
        ip, tcp = data[at + 16 : at + 36], data[at + 36 : at + 16 + size]
        pseudo_header = ip[12:20] + struct.pack(">HH", 6, len(tcp))
        for covered in (ip, pseudo_header + tcp):
            padded = covered + b"\0" * (len(covered) % 2)
            assert sum(struct.unpack(f">{len(padded) // 2}H", padded)) % 0xFFFF == 0
        at += 16 + size
        packets += 1
    assert packets == 4


def test_a_segment_has_an_ip_header_without_options_or_fragments() -> None:
    file = io.BytesIO()
    PcapWriter(file).write_frame(CLIENT, BROKER, True, heartbeat_request(0), AT)
    header = file.getvalue()[40:60]
    assert (header[:2], header[4:10]) == (b"\x45\0", b"\0\0\x40\0\x40\6")
    assert header[12:] == bytes([10, 0, 0, 7, 10, 0, 0, 1])


def test_a_sum_of_all_ones_is_a_checksum_of_zero() -> None:
    assert _checksum(b"\xff\xff") == b"\0\0"
    assert _checksum(b"\xff\xff\0\1") == b"\xff\xfe"


def test_the_ip_header_contains_the_length_of_its_packet() -> None:
    for client, broker, at, own in ((CLIENT, BROKER, 2, 0), (("::1", 50312), ("::1", 9092), 4, 40)):
        file = io.BytesIO()
        PcapWriter(file).write_frame(client, broker, True, heartbeat_request(0), AT)
        data, start = file.getvalue(), 24
        while start < len(data):
            captured, original = struct.unpack_from("<II", data, start + 8)
            assert captured == original
            assert struct.unpack_from(">H", data, start + 16 + at) == (captured - own,)
            start += 16 + captured
        assert start == len(data)


def hide_credentials(version: int, frame: bytes) -> tuple[bytes, bytes]:
    """Remove the credentials from a request that follows a SaslHandshake, and from the request's response."""
    conversation = Conversation("p:1", 1)
    handshake = encode_request(SaslHandshakeRequest(mechanism="PLAIN"), version, 1, "me")
    exchange, _ = conversation.add_request(handshake, 0)
    assert conversation.without_credentials(handshake, exchange, asking=True) == handshake
    exchange, _ = conversation.add_request(frame, 0)
    response = frame[4:8] + b"secret"
    return conversation.without_credentials(frame, exchange, asking=True), conversation.without_credentials(
        response, conversation.add_response(response, 0), asking=False
    )


def test_credentials_are_not_written() -> None:
    login = encode_request(SaslAuthenticateRequest(auth_bytes=b"\0me\0secret"), 2, 2, "me")
    written = hide_credentials(1, login)
    assert b"secret" not in b"".join(written)
    assert b"[hidden]" in written[0]


def test_bare_and_truncated_tokens_are_not_written() -> None:
    login = encode_request(SaslAuthenticateRequest(auth_bytes=b"\0me\0secret"), 2, 2, "me")
    for version, frame in ((0, b"\0alice\0secret"), (1, login[:-1])):
        assert b"secret" not in b"".join(hide_credentials(version, frame))


def test_an_unwritable_file_is_reported_before_the_capture(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--pcap"), capture_file(tmp_path / "no" / "c.pcap"):
        pass


def test_a_full_disk_is_reported_before_the_capture() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("/dev/full does not exist")
    with pytest.raises(ConfigError, match="No space left"), capture_file(full):
        pass


def test_a_disk_that_fills_up_ends_only_the_capture(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with capture_file(path) as write_frame:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
        try:
            for number in range(20):
                write_frame(CLIENT, BROKER, True, heartbeat_request(number))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        write_frame(CLIENT, BROKER, True, None)
    assert capsys.readouterr().err == f"kproto watch: stopped writing {path}: File too large\n"
    assert next(frames(path)).title == "HeartbeatRequest v4 #0"
