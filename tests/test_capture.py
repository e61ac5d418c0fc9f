"""Frames out of a capture, however the network has cut, doubled or shuffled them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kproto.capture import Frame, frames
from kproto.errors import ConfigError
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.wire.frame import frame

dpkt = pytest.importorskip("dpkt")

Segment = tuple[bool, int, bytes]  # to the broker, sequence number, bytes
BEATS = 20
FIRST = 0xFFFF_FFF0  # so that sequence numbers wrap


def conversation() -> tuple[bytes, bytes]:
    beats = [HeartbeatRequest(group_id="g" * n, generation_id=n, member_id="m") for n in range(BEATS)]
    asked = b"".join(frame(encode_request(beat, 4, n, "me")) for n, beat in enumerate(beats))
    told = b"".join(frame(encode_response(HeartbeatResponse(error_code=n), 4, n)) for n in range(BEATS))
    return asked, told


def cut(to_broker: bool, data: bytes, size: int) -> list[Segment]:
    return [
        (to_broker, (FIRST + 1 + at) % (1 << 32), data[at : at + size]) for at in range(0, len(data), size)
    ]


def capture(path: Path, segments: list[Segment]) -> Path:
    with path.open("wb") as file:
        writer = dpkt.pcap.Writer(file)
        for number, (to_broker, sequence, data) in enumerate(
            [(True, FIRST, b""), (False, FIRST, b""), *segments]
        ):
            ports = {"sport": 5000, "dport": 9092} if to_broker else {"sport": 9092, "dport": 5000}
            flags = dpkt.tcp.TH_SYN if number < 2 else dpkt.tcp.TH_ACK
            tcp = dpkt.tcp.TCP(seq=sequence, flags=flags, data=data, **ports)
            ip = dpkt.ip.IP(src=b"\x7f\0\0\1", dst=b"\x7f\0\0\1", p=dpkt.ip.IP_PROTO_TCP, data=tcp)
            ip.len = len(ip)
            writer.writepkt(bytes(dpkt.ethernet.Ethernet(data=ip)), ts=number)
    return path


def whole(found: list[Frame]) -> bool:
    titles = [one.title for one in found]
    expected = {f"Heartbeat{kind} v4 #{n}" for kind in ("Request", "Response") for n in range(BEATS)}
    return set(titles) == expected and len(titles) == len(expected)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_every_frame_is_read_however_it_was_cut(tmp_path: Path, size: int) -> None:
    asked, told = conversation()
    found = list(frames(capture(tmp_path / "c", [*cut(True, asked, size), *cut(False, told, size)])))
    assert whole(found)
    assert all(one.dissection and one.dissection.error is None for one in found)


def test_segments_that_come_twice_or_out_of_order_are_put_right(tmp_path: Path) -> None:
    asked, told = conversation()
    draw = random.Random(7)
    requests = cut(True, asked, 11)
    requests += draw.sample(requests, 10)
    draw.shuffle(requests)
    answers = cut(False, told, 5)
    draw.shuffle(answers)
    assert whole(list(frames(capture(tmp_path / "c", [*requests, *answers]))))


def test_answers_without_their_questions_are_counted(tmp_path: Path) -> None:
    asked, told = conversation()
    first = frame(encode_response(HeartbeatResponse(error_code=0), 4, 99))
    found = list(frames(capture(tmp_path / "c", [*cut(True, asked, 50), *cut(False, first + told, 50)])))
    assert [one.note for one in found if one.note] == ["1 answers before this one have no question here"]


def test_a_file_that_is_no_capture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"not a capture at all, sorry")
    with pytest.raises(ConfigError, match="neither pcap nor pcapng"):
        list(frames(path))
