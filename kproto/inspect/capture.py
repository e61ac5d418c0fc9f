"""Read the Kafka frames of a pcap or pcapng file, in the order of their arrival.

    for frame in frames(Path("kafka.pcap"), port=9092):
        print(frame.connection, frame.title)

Rules:

* A response is decoded with the API and version of its request, which has the same correlation id. A response
  whose request is missing from the capture cannot be decoded.

* TCP segments are put in order, and duplicates are dropped. After a gap in the capture, decoding resumes at
  the next segment that seems to start a frame.

* Bytes that cannot be decoded are reported at the end of their connection, by one `CapturedFrame` per
  direction. Another `CapturedFrame` reports the responses without requests. In each of these frames,
  `dissection` is None, and `note` gives the reason.
"""

from __future__ import annotations

import importlib
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigError, FrameError, MissingExtra, UnsupportedVersion, brief_list
from ..messages.headers import RequestHeader
from ..messages.index import API_NAMES, request_class
from ..wire.frame import MAX_FRAME_SIZE, Frames
from .capture_file import Capture, Packet, open_capture
from .dissect import Dissection, dissect

# Sequence numbers wrap at this value. A number counts as later than another if it is less than half of this
# value ahead.
_SEQUENCE_MODULUS = 1 << 32
# The maximum number of bytes to buffer while a segment is missing: 16 MiB, about the largest TCP window in
# use.
_MAX_BUFFERED = 16 << 20
_SEGMENT_OVERHEAD = 100  # The approximate memory overhead of a buffered segment, in bytes.
# The maximum number of responses to keep per connection until their requests arrive.
_MAX_UNMATCHED_RESPONSES = 1000
# Values of libpcap's LINKTYPE_*. Several values stand for loopback interfaces, and several for packets
# without a link header.
_LOOPBACK_LINKS = (0, 108)
_RAW_LINKS = (12, 14, 101, 228, 229)
_ETHERNET_LINK, _SLL_LINK, _SLL2_LINK = 1, 113, 276
_SUPPORTED_LINKS = (*_LOOPBACK_LINKS, _ETHERNET_LINK, _SLL_LINK, _SLL2_LINK, *_RAW_LINKS)

TimedFrame = tuple[float, bytes]


class CapturedFrame(NamedTuple):
    """One request or response of a capture. `at` is in seconds since 1970.

    `connection` contains the addresses: "client -> broker" for a request, "client <- broker" for a response.
    """

    at: float
    connection: str
    title: str
    dissection: Dissection | None
    note: str


class _Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(slots=True)
class _Direction:
    """One direction of a connection. It joins its segments, in whatever order they arrive, and splits the
    bytes into frames.

    Positions are sequence numbers that do not wrap. `expected` is the position of the next byte. It is None
    until the start of a frame is found.
    """

    is_start: Callable[[bytes], bool]
    frames: Frames = field(default_factory=Frames)
    expected: int | None = None
    # The segments that wait for an earlier part of the stream: a heap of (position, time, bytes).
    early_segments: list[tuple[int, float, bytes]] = field(default_factory=list[tuple[int, float, bytes]])
    buffered_size: int = 0  # The memory that the early segments take, in bytes.
    unread_bytes: int = 0  # The number of bytes that were skipped, or could not be decoded.
    is_encrypted: bool = False

    def add_segment(self, at: float, sequence: int, data: bytes, is_syn: bool) -> Iterator[TimedFrame]:
        """Add a segment, and yield each frame that it completes, with the segment's time.

        A SYN segment starts a new stream. Frames of the old stream are yielded first.
        """
        if is_syn:
            yield from self.skip_missing()
            # The SYN itself takes one sequence number.
            sequence = (sequence + 1) % _SEQUENCE_MODULUS
            self.frames, self.expected, self.early_segments, self.buffered_size = Frames(), sequence, [], 0
        if not data or (self.expected is None and not self._find_frame_start(sequence, data)):
            return
        assert self.expected is not None
        # The position differs from the sequence number by a multiple of `_SEQUENCE_MODULUS`. Of all such
        # positions it is the nearest to `expected`.
        half = _SEQUENCE_MODULUS // 2
        position = self.expected + (sequence - self.expected + half) % _SEQUENCE_MODULUS - half
        heappush(self.early_segments, (position, at, data))
        self.buffered_size += len(data) + _SEGMENT_OVERHEAD
        yield from self._read_in_order()
        if self.buffered_size > _MAX_BUFFERED:
            yield from self.skip_missing()

    def skip_missing(self) -> Iterator[TimedFrame]:
        """Skip the missing bytes, and yield the frames in the buffered segments after them."""
        while self.early_segments:
            position, _, data = self.early_segments[0]
            if self.expected is not None and position > self.expected:
                self._skip_bytes(position - self.expected)
            if self.expected is None and not self._find_frame_start(position, data):
                heappop(self.early_segments)
            yield from self._read_in_order()
        self.buffered_size = 0

    def _find_frame_start(self, position: int, data: bytes) -> bool:
        """Resume decoding at `position` if the segment seems to start a frame, and return whether it does.

        Otherwise the segment is counted as unread.
        """
        if self.is_start(data):
            self.frames, self.expected = Frames(), position
            return True
        self._skip_bytes(len(data), data)
        return False

    def _read_in_order(self) -> Iterator[TimedFrame]:
        """Yield the frames that the buffered segments complete, up to the first missing byte."""
        early = self.early_segments
        while self.expected is not None and early and early[0][0] <= self.expected:
            position, at, data = heappop(early)
            self.buffered_size -= len(data) + _SEGMENT_OVERHEAD
            # Drop the bytes before `expected`, which are a retransmission.
            new_data = data[self.expected - position :]
            self.expected += len(new_data)
            try:
                for frame in self.frames.feed(new_data):
                    yield at, frame
            except FrameError:
                self._skip_bytes(len(new_data), new_data)

    def _skip_bytes(self, count: int, data: bytes = b"") -> None:
        """Count unread bytes, and stop decoding until the start of a frame is found.

        `data` contains the unread bytes, or nothing if the capture lacks them.
        """
        self.unread_bytes += count
        self.is_encrypted = self.is_encrypted or data[:2] == b"\x16\x03"
        self.expected = None

    def notes(self) -> Iterator[str]:
        """Yield notes about bytes that were not decoded."""
        if self.is_encrypted:
            yield f"{self.unread_bytes} bytes are encrypted (TLS)"
        elif self.unread_bytes:
            yield f"{self.unread_bytes} bytes are missing, or belong to frames that started earlier"
        if self.expected is not None and self.frames.missing:
            yield f"the last frame is truncated: {self.frames.missing} bytes are missing"


class _Connection:
    """The two directions of a connection, and its unanswered requests.

    `requests` maps the correlation id of each request without a response to (API, version).
    `unmatched_responses` contains the responses that were read before their requests. `end` tries again to
    decode them.
    """

    def __init__(self) -> None:
        self.requests: dict[int, tuple[str, int]] = {}
        self.to_broker = _Direction(_starts_request)
        self.to_client = _Direction(self._starts_response)
        self.unmatched_responses: list[TimedFrame] = []
        self.last_at = 0.0  # The time of the connection's last segment.

    def _starts_response(self, data: bytes) -> bool:
        """Return whether a segment seems to start with the first byte of a response frame.

        The result is True if the segment consists of whole frames, or if one of its frames has the
        correlation id of an unanswered request. In the second case the segment may end within a frame.
        """
        offset = 0
        while len(data) - offset >= 8:
            size, correlation_id = struct.unpack_from(">ii", data, offset)
            if not 4 <= size <= MAX_FRAME_SIZE:
                return False
            if correlation_id in self.requests:
                return True
            offset += 4 + size
        return offset == len(data)

    def read(
        self, is_request: bool, timed_frames: Iterator[TimedFrame], name: str
    ) -> Iterator[CapturedFrame]:
        """Decode frames as requests or responses. Responses without a known request are kept for `end`."""
        for at, frame in timed_frames:
            decoded = _decode_request(self, frame) if is_request else _decode_response(self, frame)
            if decoded is not None:
                yield CapturedFrame(at, name, *decoded)
            elif len(self.unmatched_responses) < _MAX_UNMATCHED_RESPONSES:
                self.unmatched_responses.append((at, frame))

    def end(self, client: _Address, broker: _Address) -> Iterator[CapturedFrame]:
        """Decode the bytes buffered at the connection's end, and report those that cannot be decoded."""
        for direction, arrow in ((self.to_broker, "->"), (self.to_client, "<-")):
            name = f"{client} {arrow} {broker}"
            yield from self.read(arrow == "->", direction.skip_missing(), name)
        name = f"{client} <- {broker}"
        unmatched_responses, self.unmatched_responses = self.unmatched_responses, []
        yield from self.read(False, iter(unmatched_responses), name)
        for direction, arrow in ((self.to_broker, "->"), (self.to_client, "<-")):
            if note := "; ".join(direction.notes()):
                yield CapturedFrame(self.last_at, f"{client} {arrow} {broker}", "not read", None, note)
        if self.unmatched_responses:
            note = f"the requests of {len(self.unmatched_responses)} responses are not in the capture"
            yield CapturedFrame(self.last_at, name, "not read", None, note)


def _starts_request(data: bytes) -> bool:
    """Return whether a segment seems to start with a request frame of a known API and version."""
    if len(data) < 12:
        return False
    size, key, version = struct.unpack_from(">ihh", data)
    if not (8 <= size <= MAX_FRAME_SIZE and key in API_NAMES):
        return False
    return version in request_class(key).__versions__


def frames(path: Path, port: int = 9092) -> Iterator[CapturedFrame]:
    """Yield the decoded frames to and from `port`, in the order in which their last segments arrived.

    Raises MissingExtra if dpkt is not installed. Raises ConfigError if the file is not a capture or has no
    traffic on `port`.
    """
    with open_capture(path) as capture:
        yield from _read_frames(capture, path, port)


def _read_frames(capture: Capture, path: Path, port: int) -> Iterator[CapturedFrame]:
    connections: dict[tuple[_Address, _Address], _Connection] = {}
    port_counts: Counter[int] = Counter()
    unsupported_links: Counter[int] = Counter()
    for at, source, target, sequence, is_syn, data in _segments(capture, unsupported_links):
        port_counts.update((source.port, target.port))
        if port not in (source.port, target.port):
            continue
        is_request = target.port == port
        client, broker = (source, target) if is_request else (target, source)
        connection = connections.get((client, broker))
        if connection is None or (is_syn and is_request):
            # A SYN from the port of a known connection starts a new connection. So the known connection has
            # ended.
            if connection is not None:
                yield from connection.end(client, broker)
            connection = connections[client, broker] = _Connection()
        connection.last_at = at
        direction = connection.to_broker if is_request else connection.to_client
        name = f"{client} {'->' if is_request else '<-'} {broker}"
        yield from connection.read(is_request, direction.add_segment(at, sequence, data, is_syn), name)
    if not connections and unsupported_links:
        known = ", ".join(map(str, sorted(_SUPPORTED_LINKS)))
        raise ConfigError("pcap", str(path), f"{_describe_links(unsupported_links)}. Supported: {known}")
    if not connections:
        busiest = ", ".join(f"{number} ({count} segments)" for number, count in port_counts.most_common(5))
        raise ConfigError(
            "port",
            port,
            f"{path} has no traffic on this port. The file's busiest TCP ports: {busiest or 'none'}",
        )
    for (client, broker), connection in connections.items():
        yield from connection.end(client, broker)
    last_at = max(connection.last_at for connection in connections.values())
    if unsupported_links:
        yield CapturedFrame(last_at, str(path), "not read", None, _describe_links(unsupported_links))
    if capture.is_cut:
        yield CapturedFrame(last_at, str(path), "not read", None, "the file ends in the middle of a packet")


def _decode_request(connection: _Connection, frame: bytes) -> tuple[str, Dissection | None, str]:
    """Return the title, dissection and note of a request, and add it to the unanswered requests."""
    dissection = dissect(frame, sized=False)
    header = dissection.parts[0].reading.message
    if not isinstance(header, RequestHeader) or header.request_api_key not in API_NAMES:
        return "request", dissection, ""
    api = API_NAMES[header.request_api_key]
    connection.requests[header.correlation_id] = api, header.request_api_version
    return f"{api}Request v{header.request_api_version} #{header.correlation_id}", dissection, ""


def _decode_response(connection: _Connection, frame: bytes) -> tuple[str, Dissection | None, str] | None:
    """Return the title, dissection and note of a response, and remove its request.

    The result is None if no unanswered request has the response's correlation id.
    """
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    request = connection.requests.pop(correlation_id, None)
    if request is None:
        return None
    api, version = request
    try:
        dissection = dissect(frame, request, sized=False)
    except UnsupportedVersion:
        return f"{api}Response v{version} #{correlation_id}", None, f"{api} version {version} is unknown"
    return f"{api}Response v{dissection.parts[-1].version} #{correlation_id}", dissection, ""


def _segments(
    packets: Iterable[Packet], unsupported_links: Counter[int]
) -> Iterator[tuple[float, _Address, _Address, int, bool, bytes]]:
    """Yield every TCP segment as (time, source, target, sequence number, whether it is a SYN, bytes).

    `unsupported_links` counts the packets of link types that are not supported.
    """
    try:
        dpkt: Any = importlib.import_module("dpkt")  # Untyped, because dpkt has no type hints.
    except ImportError:
        raise MissingExtra("reading captures", "dpkt", "pcap") from None

    def parse_ip(data: bytes) -> Any:
        return dpkt.ip6.IP6(data) if data[:1] and data[0] >> 4 == 6 else dpkt.ip.IP(data)

    def parse_loopback(data: bytes) -> Any:
        # The first four bytes are the address family, whose values differ between operating systems. So
        # `parse_ip` reads the IP version from the IP header.
        return parse_ip(data[4:])

    packet_parsers: dict[int, Callable[[bytes], Any]] = {
        **dict.fromkeys(_LOOPBACK_LINKS, parse_loopback),
        _ETHERNET_LINK: lambda data: dpkt.ethernet.Ethernet(data).data,
        _SLL_LINK: lambda data: dpkt.sll.SLL(data).data,
        _SLL2_LINK: lambda data: dpkt.sll2.SLL2(data).data,
        **dict.fromkeys(_RAW_LINKS, parse_ip),
    }
    for at, link, data in packets:
        if link not in packet_parsers:
            unsupported_links[link] += 1
            continue
        try:
            ip_packet = packet_parsers[link](data)
            tcp = ip_packet.data
            if not isinstance(tcp, dpkt.tcp.TCP):
                continue
        except (dpkt.dpkt.Error, AttributeError, IndexError, struct.error):
            continue  # The packet is not IP, or is truncated.
        format_host = _format_ipv6 if isinstance(ip_packet, dpkt.ip6.IP6) else _format_ipv4
        is_syn = bool(tcp.flags & dpkt.tcp.TH_SYN)
        source, target = (
            _Address(format_host(ip_packet.src), tcp.sport),
            _Address(format_host(ip_packet.dst), tcp.dport),
        )
        yield at, source, target, tcp.seq, is_syn, bytes(tcp.data)


def _describe_links(unsupported_links: Counter[int]) -> str:
    counts = brief_list([f"{link} ({count} packets)" for link, count in unsupported_links.most_common()], 5)
    return f"the link type {counts} is not supported"


def _format_ipv4(address: bytes) -> str:
    return ".".join(map(str, address))


def _format_ipv6(address: bytes) -> str:
    return f"[{IPv6Address(address)}]"
