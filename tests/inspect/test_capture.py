"""Frames are decoded from captures with split, duplicate, reordered and lost segments."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kproto.errors import ConfigError
from kproto.inspect.capture import CapturedFrame, _Connection, _starts_request, frames
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.wire.frame import MAX_FRAME_SIZE, Frames, frame
from tests.inspect.stage import (
    FIRST_SEQUENCE,
    HEARTBEATS,
    LINKS,
    Segment,
    encode_heartbeats,
    segments_of,
    write_capture,
)

pytest.importorskip("dpkt")


def segment_per_frame() -> list[Segment]:
    """Return segments of one frame each: all requests, then all responses."""
    segments: list[Segment] = []
    for to_broker, data in zip((True, False), encode_heartbeats(), strict=True):
        sequence = FIRST_SEQUENCE + 1
        for body in Frames().feed(data):
            segments.append((to_broker, sequence % (1 << 32), frame(body)))
            sequence += 4 + len(body)
    return segments


def frames_of(folder: Path, requests: bytes, responses: bytes, size: int = 50) -> list[CapturedFrame]:
    """Return the decoded frames of a capture that contains both streams in segments of `size` bytes."""
    segments = [*segments_of(True, requests, size), *segments_of(False, responses, size)]
    return list(frames(write_capture(folder / "c", segments)))


def count_messages(captured: list[CapturedFrame], kind: str) -> int:
    """Count the captured requests or responses. `kind` is Request or Response."""
    return sum(f"Heartbeat{kind}" in frame.title for frame in captured)


@pytest.mark.parametrize("v6", [False, True])
@pytest.mark.parametrize("link", LINKS)
def test_every_link_type_is_decoded(tmp_path: Path, link: str, v6: bool) -> None:
    requests, responses = encode_heartbeats()
    path = write_capture(
        tmp_path / "c",
        [*segments_of(True, requests, 50), *segments_of(False, responses, 50)],
        link=link,
        v6=v6,
    )
    captured = list(frames(path))
    assert has_every_frame(captured)
    assert captured[0].connection == (
        "[::1]:5000 -> [::1]:9092" if v6 else "127.0.0.1:5000 -> 127.0.0.1:9092"
    )


@pytest.mark.parametrize("number", [12, 14, 101, 228, 229])
def test_every_link_type_without_a_header_is_decoded(tmp_path: Path, number: int) -> None:
    path = write_capture(tmp_path / "c", segment_per_frame(), link="raw")
    data = path.read_bytes()
    path.write_bytes(data[:20] + struct.pack("<I", number) + data[24:])
    assert has_every_frame(list(frames(path)))


def test_a_lost_segment_loses_only_its_frames(tmp_path: Path) -> None:
    segments = segment_per_frame()
    captured = list(
        frames(
            write_capture(
                tmp_path / "c", segments[:3] + segments[4 : HEARTBEATS + 5] + segments[HEARTBEATS + 6 :]
            )
        )
    )
    assert (count_messages(captured, "Request"), count_messages(captured, "Response")) == (
        HEARTBEATS - 1,
        HEARTBEATS - 2,
    )
    assert [frame.note for frame in captured if frame.note] == [
        f"{len(segments[3][2])} bytes are missing, or belong to frames that started earlier",
        f"{len(segments[HEARTBEATS + 5][2])} bytes are missing, or belong to frames that started earlier",
        "the requests of 1 responses are not in the capture",
    ]


def test_a_capture_may_start_inside_a_frame(tmp_path: Path) -> None:
    segments = segment_per_frame()
    for at in (0, HEARTBEATS):
        to_broker, sequence, data = segments[at]
        segments[at] = to_broker, sequence + 7, data[7:]
    captured = list(frames(write_capture(tmp_path / "c", segments, syn=False)))
    assert (count_messages(captured, "Request"), count_messages(captured, "Response")) == (
        HEARTBEATS - 1,
        HEARTBEATS - 1,
    )


def test_a_reused_port_does_not_affect_the_previous_connection(tmp_path: Path) -> None:
    segments = segment_per_frame()
    once = write_capture(
        tmp_path / "once", segments[:3] + segments[4 : HEARTBEATS + 5] + segments[HEARTBEATS + 6 :]
    )
    twice = tmp_path / "twice"
    twice.write_bytes(once.read_bytes() + once.read_bytes()[24:])
    titles = [frame.title for frame in frames(once)]
    assert [frame.title for frame in frames(twice)] == 2 * titles


def test_a_truncated_last_frame_is_reported(tmp_path: Path) -> None:
    requests, responses = encode_heartbeats()
    captured = frames_of(tmp_path, requests[:-3], responses)
    assert "the last frame is truncated: 3 bytes are missing" in [frame.note for frame in captured]


def test_tls_is_reported(tmp_path: Path) -> None:
    hello = b"\x16\x03\x01\x02\x00" + bytes(500)
    (captured,) = frames(write_capture(tmp_path / "c", segments_of(True, hello, 5000)))
    assert captured.note == "505 bytes are encrypted (TLS)"


def block(kind: int, body: bytes) -> bytes:
    """Build a block of a pcapng file."""
    body += bytes(-len(body) % 4)
    return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


PCAPNG_HEADER = 28 + 20  # The size of the two blocks that `convert_to_pcapng` writes before the first packet.


def convert_to_pcapng(pcap: bytes, number: int = 0) -> bytes:
    """Convert a pcap file to a pcapng file with the same packets, all on the interface `number`."""
    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(
        1, struct.pack("<HHI", 1, 0, 0)
    )
    at = 24
    while at < len(pcap):
        size = struct.unpack_from("<I", pcap, at + 8)[0]
        raw = pcap[at + 16 : at + 16 + size]
        out += block(6, struct.pack("<IIIII", number, 0, 0, size, size) + raw)
        at += 16 + size
    return out


@pytest.mark.parametrize("lost", [60, 3])
@pytest.mark.parametrize("convert", [bytes, convert_to_pcapng])
def test_a_truncated_file_is_reported(tmp_path: Path, convert: Callable[[bytes], bytes], lost: int) -> None:
    requests, responses = encode_heartbeats()
    path = write_capture(
        tmp_path / "c", [*segments_of(True, requests, 50), *segments_of(False, responses, 50)]
    )
    complete_file = convert(path.read_bytes())
    path.write_bytes(complete_file)
    assert "the file ends" not in " ".join(frame.note for frame in frames(path))
    path.write_bytes(complete_file[:-lost])
    captured = list(frames(path))
    assert count_messages(captured, "Request") == HEARTBEATS
    assert captured[-1].note == "the file ends in the middle of a packet"


def test_a_capture_of_an_unsupported_link_type_is_rejected_with_the_supported_ones(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "c", segment_per_frame())
    data = path.read_bytes()
    path.write_bytes(data[:20] + struct.pack("<I", 220) + data[24:])
    with pytest.raises(ConfigError, match=r"220 \(42 packets\) .*Supported: 0, 1, 12, 14, 101, "):
        list(frames(path))


def test_packets_that_are_not_tcp_are_skipped(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "c", segment_per_frame())
    complete = path.read_bytes()
    size = struct.unpack_from("<I", complete, 24 + 8)[0]
    packet_header, first = complete[24:40], complete[40 : 40 + size]
    udp = first[:14] + first[14:23] + b"\x11" + first[24:]
    arp = first[:12] + b"\x08\x06" + bytes(28)
    short = first[:20]
    other_frames = [udp, arp, short]
    path.write_bytes(
        complete + b"".join(packet_header[:8] + struct.pack("<II", len(p), len(p)) + p for p in other_frames)
    )
    assert has_every_frame(list(frames(path)))


def test_segments_after_lost_bytes_are_decoded_when_the_port_is_reused(tmp_path: Path) -> None:
    segments = segment_per_frame()
    lost = write_capture(tmp_path / "c", segments[:2] + segments[3:5]).read_bytes()
    path = tmp_path / "twice"
    path.write_bytes(lost + lost[24:])
    expected = [f"HeartbeatRequest v4 #{number}" for number in (0, 1, 3, 4)]
    assert [frame.title for frame in frames(path) if "Request" in frame.title] == 2 * expected


def test_lost_bytes_are_skipped_when_too_many_bytes_wait_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = segment_per_frame()
    path = write_capture(tmp_path / "c", [*segments[:2], *segments[3:6], *segments[HEARTBEATS:][:1]])
    waiting = sum(len(data) + 100 for _, _, data in segments[3:6])
    for limit, places in ((waiting - 1, (2, 3, 4)), (waiting, (3, 4, 5))):
        monkeypatch.setattr("kproto.inspect.capture._MAX_BUFFERED", limit)
        titles = [frame.title for frame in frames(path) if frame.dissection is not None]
        assert tuple(titles.index(f"HeartbeatRequest v4 #{number}") for number in (3, 4, 5)) == places


def test_a_segment_between_two_losses_without_the_start_of_a_frame_is_skipped(tmp_path: Path) -> None:
    segments = segment_per_frame()
    to_broker, sequence, data = segments[2]
    inside = to_broker, (sequence + 7) % (1 << 32), data[7:9]
    captured = list(frames(write_capture(tmp_path / "c", [segments[0], inside, *segments[4:6]])))
    titles = [frame.title for frame in captured if not frame.note]
    assert titles == [f"HeartbeatRequest v4 #{number}" for number in (0, 4, 5)]


def test_a_frame_with_an_unknown_api_key_is_a_request_without_a_name(tmp_path: Path) -> None:
    unknown = frame(struct.pack(">hhih", 4321, 0, 9, -1))
    first, *_ = encode_heartbeats()
    captured = frames_of(tmp_path, first[: 4 + first[3]] + unknown, b"")
    assert [(frame.title, frame.note) for frame in captured] == [
        ("HeartbeatRequest v4 #0", ""),
        ("request", ""),
    ]
    assert captured[-1].dissection is not None
    assert captured[-1].dissection.error is not None


def test_the_response_to_an_unknown_version_is_reported_with_the_version(tmp_path: Path) -> None:
    request = encode_heartbeats()[0]
    request = request[: 4 + request[3]]
    request = request[:6] + (99).to_bytes(2, "big") + request[8:]
    captured = frames_of(tmp_path, request, frame(encode_response(HeartbeatResponse(error_code=0), 4, 0)))
    assert [(frame.title, frame.note) for frame in captured] == [
        ("HeartbeatRequest v99 #0", ""),
        ("HeartbeatResponse v99 #0", "Heartbeat version 99 is unknown"),
    ]


def test_an_absent_port_is_rejected_with_the_ports_in_use(tmp_path: Path) -> None:
    path = write_capture(tmp_path / "c", segment_per_frame())
    with pytest.raises(ConfigError, match=r"The file's busiest TCP ports: 5000 \(42 segments\), 9092"):
        list(frames(path, 9093))


@pytest.mark.parametrize("version", [4, 9])
def test_an_unsupported_api_versions_response_is_decoded_as_v0(tmp_path: Path, version: int) -> None:
    request = encode_request(
        ApiVersionsRequest(client_software_name="k", client_software_version="1"), 4, 7, ""
    )
    request = frame(request[:2] + version.to_bytes(2, "big") + request[4:])
    response = frame(encode_response(ApiVersionsResponse(error_code=35, api_keys=[]), 0, 7))
    captured = frames_of(tmp_path, request, response)
    assert [frame.title for frame in captured] == [
        f"ApiVersionsRequest v{version} #7",
        "ApiVersionsResponse v0 #7",
    ]


def has_every_frame(captured: list[CapturedFrame]) -> bool:
    titles = [frame.title for frame in captured]
    expected = {f"Heartbeat{kind} v4 #{n}" for kind in ("Request", "Response") for n in range(HEARTBEATS)}
    return set(titles) == expected and len(titles) == len(expected)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_every_frame_is_decoded_for_any_segment_size(tmp_path: Path, size: int) -> None:
    requests, responses = encode_heartbeats()
    captured = frames_of(tmp_path, requests, responses, size=size)
    assert has_every_frame(captured)
    assert all(frame.dissection and frame.dissection.error is None for frame in captured)


def test_duplicate_and_reordered_segments_are_put_in_order(tmp_path: Path) -> None:
    requests, responses = encode_heartbeats()
    draw = random.Random(7)
    request_segments = segments_of(True, requests, 11)
    request_segments += draw.sample(request_segments, 10)
    draw.shuffle(request_segments)
    response_segments = segments_of(False, responses, 5)
    draw.shuffle(response_segments)
    assert has_every_frame(
        list(frames(write_capture(tmp_path / "c", [*request_segments, *response_segments])))
    )


def test_a_connection_may_be_captured_on_several_interfaces(tmp_path: Path) -> None:
    """The two directions of a connection are captured on different interfaces, as on a router.

    A third interface, with the link type of USB, carries no Kafka traffic.
    """
    requests, responses = encode_heartbeats()
    path = tmp_path / "c"
    to_broker = write_capture(path, segments_of(True, requests, 50)).read_bytes()
    to_client = segments_of(False, responses, 50)
    to_client_file = write_capture(path, to_client, syn=False, link="loopback of BSD").read_bytes()
    usb = block(1, struct.pack("<HHI", 220, 0, 0)) + block(6, struct.pack("<IIIII", 2, 0, 0, 8, 8) + bytes(8))
    content = convert_to_pcapng(to_broker)
    content += block(1, struct.pack("<HHI", 0, 0, 0)) + usb
    path.write_bytes(content + convert_to_pcapng(to_client_file, number=1)[PCAPNG_HEADER:])
    captured = list(frames(path))
    assert count_messages(captured, "Request") == count_messages(captured, "Response") == HEARTBEATS
    (unread,) = [frame for frame in captured if frame.note]
    assert (unread.connection, unread.title, unread.note) == (
        str(path),
        "not read",
        "the link type 220 (1 packets) is not supported",
    )
    assert unread.at == captured[-2].at


def test_responses_without_requests_are_counted(tmp_path: Path) -> None:
    requests, responses = encode_heartbeats()
    first = frame(encode_response(HeartbeatResponse(error_code=0), 4, 99))
    captured = frames_of(tmp_path, requests, first + responses)
    assert [frame.note for frame in captured if frame.note] == [
        "the requests of 1 responses are not in the capture"
    ]


def test_a_file_that_is_not_a_capture_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"not a capture at all, sorry")
    with pytest.raises(ConfigError, match="neither pcap nor pcapng"):
        list(frames(path))


HEARTBEAT_FRAME = encode_heartbeats()[0][: 4 + int.from_bytes(encode_heartbeats()[0][:4], "big")]


@pytest.mark.parametrize(
    ("data", "starts"),
    [
        (HEARTBEAT_FRAME, True),
        (HEARTBEAT_FRAME[:12], True),
        (HEARTBEAT_FRAME[:11], False),
        (struct.pack(">ihhi", 8, 12, 4, 1), True),
        (struct.pack(">ihhi", 7, 12, 4, 1), False),
        (struct.pack(">ihhi", MAX_FRAME_SIZE, 12, 4, 1), True),
        (struct.pack(">ihhi", MAX_FRAME_SIZE + 1, 12, 4, 1), False),
        (struct.pack(">ihhi", 8, 12, 5, 1), False),
        (struct.pack(">ihhi", 8, 4321, 0, 1), False),
        (b"", False),
    ],
)
def test_a_request_starts_with_a_size_and_a_known_api_and_version(data: bytes, starts: bool) -> None:
    assert _starts_request(data) is starts


@pytest.mark.parametrize(
    ("data", "starts"),
    [
        (struct.pack(">ii", 4, 9), True),
        (struct.pack(">iii", 4, 9, 4), False),
        (struct.pack(">iiiih", 4, 9, 6, 9, 0), True),
        (struct.pack(">ii", 900, 7), True),
        (struct.pack(">iiii", 4, 9, 900, 7), True),
        (struct.pack(">ii", 900, 9), False),
        (struct.pack(">ii", 3, 7), False),
        (struct.pack(">ii", MAX_FRAME_SIZE, 7), True),
        (struct.pack(">ii", MAX_FRAME_SIZE + 1, 7), False),
        (struct.pack(">i", 4), False),
    ],
)
def test_a_response_starts_with_whole_frames_or_an_open_correlation_id(data: bytes, starts: bool) -> None:
    connection = _Connection()
    connection.requests[7] = "Heartbeat", 4
    assert connection._starts_response(data) is starts
