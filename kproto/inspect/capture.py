"""A captured conversation: the frames of every Kafka connection in a pcap or pcapng file, in order.

    for frame in frames(Path("kafka.pcap"), port=9092):
        print(frame.connection, frame.title)

Rules of this file:

* A response is read as the answer to the request with its correlation id. One whose request isn't in the
  capture can't be read.
* Segments that came twice or out of order are put right. Where bytes are missing (the capture lost them, or
  began in the middle of a connection) reading goes on where a segment looks like the start of a frame.
* What could not be read is said at the end, a frame per connection, with no `dissection` and why in `note`.
"""

from __future__ import annotations

import importlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ConfigError, FrameError, MissingExtra
from ..messages.headers import RequestHeader
from ..messages.index import API_NAMES, message_class, request_class
from ..wire.frame import MAX_FRAME_SIZE, Frames
from .dissect import Dissection, dissect

_SEQUENCES = 1 << 32  # sequence numbers wrap here; what is less than half of it ahead is later
_PATIENCE = 16 << 20  # bytes that wait for a segment that is late: as much as a window of TCP may have
_COST = 100  # bytes, about: what keeping a segment costs besides its own
_MOST_WAITING = 1000
_API_VERSIONS = 18
_BLOCK = b"\x0a\x0d\x0d\x0a"  # how pcapng begins
# What little-endian files have in front: pcap with micro- and nanoseconds, and pcapng's byte order.
_LITTLE = (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1", b"\x4d\x3c\x2b\x1a")

Found = tuple[float, bytes]


class Frame(NamedTuple):
    """One request or response. `at` is seconds since 1970; `connection` is "client -> broker"."""

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
    """One half of a connection: what is there in order, and the segments that came too early.

    Positions are sequence numbers that don't wrap. `expected` is that of the next byte; None while the start
    of a frame is searched.
    """

    begins: Callable[[bytes], bool]
    frames: Frames = field(default_factory=Frames)
    expected: int | None = None
    early: list[tuple[int, float, bytes]] = field(default_factory=list[tuple[int, float, bytes]])  # a heap
    held: int = 0
    unread: int = 0
    encrypted: bool = False

    def take(self, at: float, sequence: int, data: bytes, start: bool) -> Iterator[Found]:
        """Frames that are complete with this segment, each with its time."""
        if start:
            yield from self.rest()
            sequence = (sequence + 1) % _SEQUENCES
            self.frames, self.expected, self.early, self.held = Frames(), sequence, [], 0
        if not data or (self.expected is None and not self._begin(sequence, data)):
            return
        assert self.expected is not None
        half = _SEQUENCES // 2
        position = self.expected + (sequence - self.expected + half) % _SEQUENCES - half
        heappush(self.early, (position, at, data))
        self.held += len(data) + _COST
        yield from self._in_order()
        if self.held > _PATIENCE:
            yield from self.rest()

    def rest(self) -> Iterator[Found]:
        """Give up what is missing; the frames in the segments behind it."""
        while self.early:
            position, _, data = self.early[0]
            if self.expected is not None and position > self.expected:
                self._lose(position - self.expected)
            if self.expected is None and not self._begin(position, data):
                heappop(self.early)
            yield from self._in_order()
        self.held = 0

    def _begin(self, position: int, data: bytes) -> bool:
        if self.begins(data):
            self.frames, self.expected = Frames(), position
            return True
        self._lose(len(data), data)
        return False

    def _in_order(self) -> Iterator[Found]:
        while self.expected is not None and self.early and self.early[0][0] <= self.expected:
            position, at, data = heappop(self.early)
            self.held -= len(data) + _COST
            fresh = data[self.expected - position :]  # the rest came twice
            self.expected += len(fresh)
            try:
                for frame in self.frames.feed(fresh):
                    yield at, frame
            except FrameError:
                self._lose(len(fresh), fresh)

    def _lose(self, count: int, data: bytes = b"") -> None:
        self.unread += count
        self.encrypted = self.encrypted or data[:2] == b"\x16\x03"
        self.expected = None

    def notes(self) -> Iterator[str]:
        """What was not read, and why."""
        if self.encrypted:
            yield f"{self.unread} bytes are encrypted (TLS)"
        elif self.unread:
            yield f"{self.unread} bytes are missing, or in no frame whose start is here"
        if self.expected is not None and self.frames.missing:
            yield f"the last frame is not whole: {self.frames.missing} bytes are missing"


class _Connection:
    """Both halves, what was asked (correlation id -> API name, version), and answers to nothing so far."""

    def __init__(self) -> None:
        self.asked: dict[int, tuple[str, int]] = {}
        self.to_broker = _Direction(_begins_request)
        self.to_client = _Direction(self._begins_response)
        self.waiting: list[Found] = []
        self.last = 0.0

    def _begins_response(self, data: bytes) -> bool:
        """Whether all sizes make sense up to the end of the segment, or to an answer that is waited for."""
        at = 0
        while len(data) - at >= 8:
            size, correlation_id = struct.unpack_from(">ii", data, at)
            if not 4 <= size <= MAX_FRAME_SIZE:
                return False
            if correlation_id in self.asked:
                return True
            at += 4 + size
        return at == len(data)

    def read(self, asking: bool, found: Iterator[Found], name: str) -> Iterator[Frame]:
        """The frames as messages."""
        for at, frame in found:
            told = _request(self, frame) if asking else _response(self, frame)
            if told is not None:
                yield Frame(at, name, *told)
            elif len(self.waiting) < _MOST_WAITING:
                self.waiting.append((at, frame))

    def end(self, client: _Address, broker: _Address) -> Iterator[Frame]:
        """What is left when the capture ends: frames behind holes, and why others are not there."""
        for half, arrow in ((self.to_broker, "->"), (self.to_client, "<-")):
            name = f"{client} {arrow} {broker}"
            yield from self.read(arrow == "->", half.rest(), name)
        name = f"{client} <- {broker}"
        waiting, self.waiting = self.waiting, []
        yield from self.read(False, iter(waiting), name)
        for half, arrow in ((self.to_broker, "->"), (self.to_client, "<-")):
            if note := "; ".join(half.notes()):
                yield Frame(self.last, f"{client} {arrow} {broker}", "not read", None, note)
        if self.waiting:
            note = f"no question is here for these answers: {len(self.waiting)}"
            yield Frame(self.last, name, "not read", None, note)


def _begins_request(data: bytes) -> bool:
    if len(data) < 12:
        return False
    size, key, version = struct.unpack_from(">ihh", data)
    if not (8 <= size <= MAX_FRAME_SIZE and key in API_NAMES):
        return False
    return version in request_class(key).__versions__


def frames(path: Path, port: int = 9092) -> Iterator[Frame]:
    """Every frame to and from `port` that can be read, in the order of their last segments.

    Raises MissingExtra without dpkt, and ConfigError for a file that is no capture or has nothing of `port`.
    """
    connections: dict[tuple[_Address, _Address], _Connection] = {}
    ports: Counter[int] = Counter()
    for at, source, target, sequence, start, data in _segments(path):
        ports.update((source.port, target.port))
        if port not in (source.port, target.port):
            continue
        asking = target.port == port
        client, broker = (source, target) if asking else (target, source)
        connection = connections.get((client, broker))
        if connection is None or (start and asking):
            if connection is not None:  # the port is used again
                yield from connection.end(client, broker)
            connection = connections[client, broker] = _Connection()
        connection.last = at
        half = connection.to_broker if asking else connection.to_client
        name = f"{client} {'->' if asking else '<-'} {broker}"
        yield from connection.read(asking, half.take(at, sequence, data, start), name)
    if not connections:
        seen = ", ".join(f"{number} ({count} segments)" for number, count in ports.most_common(5))
        raise ConfigError("port", port, f"{path} has nothing of it; its TCP ports: {seen or 'none'}")
    for (client, broker), connection in connections.items():
        yield from connection.end(client, broker)
    if _is_cut(path):
        last = max(connection.last for connection in connections.values())
        yield Frame(last, str(path), "not read", None, "the file ends in the middle of a packet")


def _request(connection: _Connection, frame: bytes) -> tuple[str, Dissection | None, str]:
    found = dissect(frame, sized=False)
    header = found.parts[0].reading.message
    if not isinstance(header, RequestHeader) or header.request_api_key not in API_NAMES:
        return "request", found, ""
    api = API_NAMES[header.request_api_key]
    connection.asked[header.correlation_id] = api, header.request_api_version
    return f"{api}Request v{header.request_api_version} #{header.correlation_id}", found, ""


def _response(connection: _Connection, frame: bytes) -> tuple[str, Dissection | None, str] | None:
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    asked = connection.asked.pop(correlation_id, None)
    if asked is None:
        return None
    api, version = asked
    known = version in message_class(f"{api}Response").__versions__
    found = dissect(frame, asked, sized=False) if known else None
    if api == API_NAMES[_API_VERSIONS] and (found is None or found.error is not None):
        found = dissect(frame, (api, 0), sized=False)  # so answers a broker that lacks the version
        version = 0
    note = "" if found is not None else f"{api} {version} is not known here"
    return f"{api}Response v{version} #{correlation_id}", found, note


def _segments(path: Path) -> Iterator[tuple[float, _Address, _Address, int, bool, bytes]]:
    """Every TCP segment: time, source, target, sequence number, whether it is a SYN, and its bytes."""
    try:
        dpkt: Any = importlib.import_module("dpkt")  # it ships no types
    except ImportError:
        raise MissingExtra("reading captures", "dpkt", "pcap") from None

    def ip(data: bytes) -> Any:
        return dpkt.ip6.IP6(data) if data[:1] and data[0] >> 4 == 6 else dpkt.ip.IP(data)

    def loopback(data: bytes) -> Any:
        return ip(data[4:])  # the family in front has other numbers in each system

    # The numbers are libpcap's LINKTYPE_ ones, which files have; RAW has had several.
    links: dict[int, Callable[[bytes], Any]] = {
        0: loopback,
        108: loopback,
        1: lambda data: dpkt.ethernet.Ethernet(data).data,
        113: lambda data: dpkt.sll.SLL(data).data,
        276: lambda data: dpkt.sll2.SLL2(data).data,
        **dict.fromkeys((12, 14, 101, 228, 229), ip),
    }
    try:
        file = path.open("rb")
    except OSError as error:
        raise ConfigError("pcap", str(path), error.strerror or str(error)) from None
    with file:
        try:
            reader = dpkt.pcap.UniversalReader(file)
        except (ValueError, OSError, struct.error, dpkt.dpkt.Error) as error:
            raise ConfigError("pcap", str(path), f"it is neither pcap nor pcapng: {error}") from None
        link = links.get(reader.datalink())
        if link is None:
            known = ", ".join(map(str, sorted(links)))
            raise ConfigError("pcap", str(path), f"link type {reader.datalink()}; known are {known}")
        for at, packet in _packets(reader, dpkt.dpkt.Error):
            try:
                packed = link(packet)
                tcp = packed.data
                if not isinstance(tcp, dpkt.tcp.TCP):
                    continue
            except (dpkt.dpkt.Error, AttributeError, IndexError, struct.error):
                continue  # not IP, or cut
            host = _host6 if isinstance(packed, dpkt.ip6.IP6) else _host4
            start = bool(tcp.flags & dpkt.tcp.TH_SYN)
            source, target = _Address(host(packed.src), tcp.sport), _Address(host(packed.dst), tcp.dport)
            yield float(at), source, target, tcp.seq, start, bytes(tcp.data)


def _packets(reader: Any, broken: type[Exception]) -> Iterator[tuple[float, bytes]]:
    """The packets of a capture up to where the file is cut."""
    packets = iter(reader)
    while True:
        try:
            yield next(packets)
        except (StopIteration, ValueError, struct.error, broken):
            return


def _is_cut(path: Path) -> bool:
    """Whether a capture ends within a packet of pcap or a block of pcapng, as when the disk was full."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(24)
        blocks = head[:4] == _BLOCK
        magic = head[8:12] if blocks else head[:4]
        order = "<" if magic in _LITTLE else ">"
        at = 0 if blocks else len(head)
        while at < size:
            file.seek(at)
            field = file.read(16)
            if len(field) < (12 if blocks else 16):
                return True
            length: int = struct.unpack_from(f"{order}I", field, 4 if blocks else 8)[0]
            at += max(length, 12) if blocks else 16 + length
    return at > size


def _host4(address: bytes) -> str:
    return ".".join(map(str, address))


def _host6(address: bytes) -> str:
    return f"[{IPv6Address(address)}]"
