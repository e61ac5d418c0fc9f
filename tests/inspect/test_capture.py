"""Frames are decoded from captures with cut, duplicate, reordered and lost segments."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kproto.errors import ConfigError
from kproto.inspect.capture import CapturedFrame, frames
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.wire.frame import Frames, frame
from tests.inspect.stage import BEATS, FIRST, LINKS, Segment, capture, conversation, cut

pytest.importorskip("dpkt")


def one_by_one() -> list[Segment]:
    """Return every frame in its own segment: all requests, then all responses."""
    found: list[Segment] = []
    for to_broker, data in zip((True, False), conversation(), strict=True):
        sequence = FIRST + 1
        for body in Frames().feed(data):
            found.append((to_broker, sequence % (1 << 32), frame(body)))
            sequence += 4 + len(body)
    return found


def read(found: list[CapturedFrame], kind: str) -> int:
    return sum(f"Heartbeat{kind}" in one.title for one in found)


@pytest.mark.parametrize("v6", [False, True])
@pytest.mark.parametrize("link", LINKS)
def test_every_link_type_is_decoded(tmp_path: Path, link: str, v6: bool) -> None:
    asked, told = conversation()
    path = capture(tmp_path / "c", [*cut(True, asked, 50), *cut(False, told, 50)], link=link, v6=v6)
    found = list(frames(path))
    assert whole(found)
    assert found[0].connection == ("[::1]:5000 -> [::1]:9092" if v6 else "127.0.0.1:5000 -> 127.0.0.1:9092")


def test_a_lost_segment_loses_only_its_frames(tmp_path: Path) -> None:
    segments = one_by_one()
    found = list(
        frames(capture(tmp_path / "c", segments[:3] + segments[4 : BEATS + 5] + segments[BEATS + 6 :]))
    )
    assert (read(found, "Request"), read(found, "Response")) == (BEATS - 1, BEATS - 2)
    assert [one.note for one in found if one.note] == [
        f"{len(segments[3][2])} bytes are missing, or belong to frames that started earlier",
        f"{len(segments[BEATS + 5][2])} bytes are missing, or belong to frames that started earlier",
        "the requests of 1 responses are not in the capture",
    ]


def test_a_capture_may_start_inside_a_frame(tmp_path: Path) -> None:
    segments = one_by_one()
    for at in (0, BEATS):
        to_broker, sequence, data = segments[at]
        segments[at] = to_broker, sequence + 7, data[7:]
    found = list(frames(capture(tmp_path / "c", segments, syn=False)))
    assert (read(found, "Request"), read(found, "Response")) == (BEATS - 1, BEATS - 1)


def test_a_reused_port_does_not_affect_the_previous_connection(tmp_path: Path) -> None:
    segments = one_by_one()
    once = capture(tmp_path / "once", segments[:3] + segments[4 : BEATS + 5] + segments[BEATS + 6 :])
    twice = tmp_path / "twice"
    twice.write_bytes(once.read_bytes() + once.read_bytes()[24:])
    titles = [frame.title for frame in frames(once)]
    assert [frame.title for frame in frames(twice)] == 2 * titles


def test_a_truncated_last_frame_is_reported(tmp_path: Path) -> None:
    asked, told = conversation()
    found = list(frames(capture(tmp_path / "c", [*cut(True, asked[:-3], 50), *cut(False, told, 50)])))
    assert "the last frame is truncated: 3 bytes are missing" in [one.note for one in found]


def test_tls_is_reported(tmp_path: Path) -> None:
    hello = b"\x16\x03\x01\x02\x00" + bytes(500)
    (found,) = frames(capture(tmp_path / "c", cut(True, hello, 5000)))
    assert found.note == "505 bytes are encrypted (TLS)"


def as_pcapng(pcap: bytes) -> bytes:
    """Convert a pcap file to pcapng with the same packets."""

    def block(kind: int, body: bytes) -> bytes:
        body += bytes(-len(body) % 4)
        return struct.pack("<II", kind, len(body) + 12) + body + struct.pack("<I", len(body) + 12)

    out = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)) + block(
        1, struct.pack("<HHI", 1, 0, 0)
    )
    at = 24
    while at < len(pcap):
        size = struct.unpack_from("<I", pcap, at + 8)[0]
        raw = pcap[at + 16 : at + 16 + size]
        out += block(6, struct.pack("<IIIII", 0, 0, 0, size, size) + raw)
        at += 16 + size
    return out


@pytest.mark.parametrize("lost", [60, 3])
@pytest.mark.parametrize("written", [bytes, as_pcapng])
def test_a_truncated_file_is_reported(tmp_path: Path, written: Callable[[bytes], bytes], lost: int) -> None:
    asked, told = conversation()
    path = capture(tmp_path / "c", [*cut(True, asked, 50), *cut(False, told, 50)])
    whole_file = written(path.read_bytes())
    path.write_bytes(whole_file)
    assert "the file ends" not in " ".join(frame.note for frame in frames(path))
    path.write_bytes(whole_file[:-lost])
    found = list(frames(path))
    assert read(found, "Request") == BEATS
    assert found[-1].note == "the file ends in the middle of a packet"


def test_an_absent_port_is_rejected_with_the_ports_in_use(tmp_path: Path) -> None:
    path = capture(tmp_path / "c", one_by_one())
    with pytest.raises(ConfigError, match=r"Its busiest TCP ports: 5000 \(42 segments\), 9092"):
        list(frames(path, 9093))


def test_an_unsupported_api_versions_response_is_decoded_as_v0(tmp_path: Path) -> None:
    asked = frame(
        encode_request(ApiVersionsRequest(client_software_name="k", client_software_version="1"), 4, 7, "")
    )
    told = frame(encode_response(ApiVersionsResponse(error_code=35, api_keys=[]), 0, 7))
    found = list(frames(capture(tmp_path / "c", [*cut(True, asked, 50), *cut(False, told, 50)])))
    assert [one.title for one in found] == ["ApiVersionsRequest v4 #7", "ApiVersionsResponse v0 #7"]


def whole(found: list[CapturedFrame]) -> bool:
    titles = [one.title for one in found]
    expected = {f"Heartbeat{kind} v4 #{n}" for kind in ("Request", "Response") for n in range(BEATS)}
    return set(titles) == expected and len(titles) == len(expected)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_every_frame_is_decoded_for_any_segment_size(tmp_path: Path, size: int) -> None:
    asked, told = conversation()
    found = list(frames(capture(tmp_path / "c", [*cut(True, asked, size), *cut(False, told, size)])))
    assert whole(found)
    assert all(one.dissection and one.dissection.error is None for one in found)


def test_duplicate_and_reordered_segments_are_put_in_order(tmp_path: Path) -> None:
    asked, told = conversation()
    draw = random.Random(7)
    requests = cut(True, asked, 11)
    requests += draw.sample(requests, 10)
    draw.shuffle(requests)
    answers = cut(False, told, 5)
    draw.shuffle(answers)
    assert whole(list(frames(capture(tmp_path / "c", [*requests, *answers]))))


def test_responses_without_requests_are_counted(tmp_path: Path) -> None:
    asked, told = conversation()
    first = frame(encode_response(HeartbeatResponse(error_code=0), 4, 99))
    found = list(frames(capture(tmp_path / "c", [*cut(True, asked, 50), *cut(False, first + told, 50)])))
    assert [one.note for one in found if one.note] == ["the requests of 1 responses are not in the capture"]


def test_a_file_that_is_not_a_capture_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"not a capture at all, sorry")
    with pytest.raises(ConfigError, match="neither pcap nor pcapng"):
        list(frames(path))
