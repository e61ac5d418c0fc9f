"""Helpers for the inspect tests: captures written byte by byte, and requests with their responses."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from kproto.inspect.diagram_rows import Diagram, DiagramBuilder, Note
from kproto.inspect.exchanges import Exchange
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.wire.frame import frame
from kproto.wire.message import Message

# (True for a segment to the broker, TCP sequence number, payload)
Segment = tuple[bool, int, bytes]
HEARTBEATS = 20
FIRST_SEQUENCE = 0xFFFF_FFF0  # TCP sequence numbers begin close to 2^32, so that they wrap around.


def encode_heartbeats() -> tuple[bytes, bytes]:
    requests = [HeartbeatRequest(group_id="g" * n, generation_id=n, member_id="m") for n in range(HEARTBEATS)]
    to_broker = b"".join(frame(encode_request(request, 4, n, "me")) for n, request in enumerate(requests))
    from_broker = b"".join(
        frame(encode_response(HeartbeatResponse(error_code=n), 4, n)) for n in range(HEARTBEATS)
    )
    return to_broker, from_broker


def segments_of(to_broker: bool, data: bytes, size: int) -> list[Segment]:
    return [
        (to_broker, (FIRST_SEQUENCE + 1 + at) % (1 << 32), data[at : at + size])
        for at in range(0, len(data), size)
    ]


def ethernet(packet: bytes, tag: bytes = b"") -> bytes:
    return bytes(12) + tag + (b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet


# A value is (link type number in a pcap file, function that adds the link header to an IP packet).
LINKS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "ethernet": (1, ethernet),
    "vlan": (1, lambda packet: ethernet(packet, b"\x81\x00\x00\x05")),
    "loopback of BSD": (0, lambda packet: struct.pack("<I", 2 if packet[0] >> 4 == 4 else 30) + packet),
    "loopback of OpenBSD": (108, lambda packet: struct.pack(">I", 2 if packet[0] >> 4 == 4 else 24) + packet),
    "cooked": (113, lambda packet: bytes(14) + (b"\x08\0" if packet[0] >> 4 == 4 else b"\x86\xdd") + packet),
    "cooked 2": (
        276,
        lambda packet: (b"\x08\0" if packet[0] >> 4 == 4 else b"\x86\xdd") + bytes(18) + packet,
    ),
    "raw": (101, lambda packet: packet),
}


def packet(segment: Segment, syn: bool, v6: bool) -> bytes:
    """Build an IP packet with a TCP segment, independently of the decoder under test."""
    to_broker, sequence, data = segment
    ports = (5000, 9092) if to_broker else (9092, 5000)
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence, 0, 5 << 4, 2 if syn else 16, 9, 0, 0) + data
    if v6:
        return struct.pack(">IHBB32s", 6 << 28, len(tcp), 6, 64, bytes(15) + b"\1" + bytes(15) + b"\1") + tcp
    return struct.pack(">BBHIBBHII", 0x45, 0, 20 + len(tcp), 0, 64, 6, 0, 0x7F000001, 0x7F000001) + tcp


def write_capture(
    path: Path, segments: list[Segment], *, syn: bool = True, v6: bool = False, link: str = "ethernet"
) -> Path:
    kind, wrap = LINKS[link]
    handshake = [(True, FIRST_SEQUENCE, b""), (False, FIRST_SEQUENCE, b"")] if syn else []
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, kind)]
    for number, segment in enumerate([*handshake, *segments]):
        raw = wrap(packet(segment, number < len(handshake), v6))
        out.append(struct.pack("<IIII", number, 0, len(raw), len(raw)) + raw)
    path.write_bytes(b"".join(out))
    return path


def exchange(
    at: int,
    request: Message,
    response: Message | None,
    *,
    client: str = "a",
    took: int = 1,
    connection: int = 1,
) -> Exchange:
    api = type(request).__name__.removesuffix("Request")
    answered_at = None if response is None else at + took
    return Exchange(
        connection, "p:1", client, api, 4, 1, at, request, answered_at, response, broker="broker 1"
    )


def draw_diagram(*exchanges: Exchange, notes: tuple[Note, ...] = (), most: int = 100) -> Diagram:
    builder = DiagramBuilder(lambda request: request.client, most=most)
    for exchange in exchanges:
        builder.add(exchange)
    for note in notes:
        builder.add_note(note)
    diagram = builder.diagram()
    assert diagram is not None
    return diagram


def drawn_apis(diagram: Diagram) -> list[str]:
    return [row.text.split()[0] for row in diagram.rows if row.kind == "ask"]
