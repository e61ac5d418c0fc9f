"""A captured conversation: the frames of every Kafka connection in a pcap or pcapng file, in order.

    for frame in frames(Path("kafka.pcap"), port=9092):
        print(frame.connection, frame.title)

A response is read as the answer to the request with its correlation id, so a capture that begins in the
middle of a connection has answers that nobody can read: they are left out, and `Frame.note` of the next one
says how many. Segments that came twice or out of order are put right; bytes that the capture lost end their
connection's direction.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .dissect import Dissection, dissect
from .errors import ConfigError, FrameError, MissingExtra, UnsupportedVersion
from .messages.headers import RequestHeader
from .messages.index import API_NAMES
from .wire.frame import Frames

_SEQUENCES = 1 << 32  # sequence numbers wrap here; what is less than half of it ahead is later


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
    """One half of a connection: what is there in order, and the segments that came too early."""

    frames: Frames = field(default_factory=Frames)
    expected: int | None = None
    early: dict[int, bytes] = field(default_factory=dict[int, bytes])
    broken: bool = False

    def take(self, sequence: int, data: bytes, start: bool) -> list[bytes]:
        """Frames that are complete with this segment."""
        if start or self.expected is None:
            self.expected = sequence = (sequence + start) % _SEQUENCES
        if data:
            self.early[sequence] = max(data, self.early.get(sequence, b""), key=len)
        done: list[bytes] = []
        while (due := self._due(self.expected)) is not None:
            fresh = self.early.pop(due)[(self.expected - due) % _SEQUENCES :]
            self.expected = (self.expected + len(fresh)) % _SEQUENCES
            if fresh and not self.broken:
                try:
                    done += self.frames.feed(fresh)
                except FrameError:
                    self.broken = True
        return done

    def _due(self, expected: int) -> int | None:
        """A segment that begins where the bytes so far end, or before that (it came twice)."""
        return next((at for at in self.early if (expected - at) % _SEQUENCES < _SEQUENCES // 2), None)


@dataclass(slots=True)
class _Connection:
    """Both halves, and what was asked: correlation id -> (API name, version)."""

    asked: dict[int, tuple[str, int]] = field(default_factory=dict[int, tuple[str, int]])
    to_broker: _Direction = field(default_factory=_Direction)
    to_client: _Direction = field(default_factory=_Direction)
    unread: int = 0


def frames(path: Path, port: int = 9092) -> Iterator[Frame]:
    """Every frame to and from `port` that can be read, in the order of their last segments.

    Raises MissingExtra without dpkt, and ConfigError for a file that is no capture.
    """
    connections: dict[tuple[_Address, _Address], _Connection] = {}
    for at, source, target, sequence, start, data in _segments(path):
        if port not in (source.port, target.port):
            continue
        asking = target.port == port
        client, broker = (source, target) if asking else (target, source)
        if start and asking:
            connections[client, broker] = _Connection()
        connection = connections.setdefault((client, broker), _Connection())
        half = connection.to_broker if asking else connection.to_client
        for frame in half.take(sequence, data, start):
            name = f"{client} {'->' if asking else '<-'} {broker}"
            found = _request(connection, frame) if asking else _response(connection, frame)
            if found is not None:
                yield Frame(at, name, *found)


def _request(connection: _Connection, frame: bytes) -> tuple[str, Dissection | None, str]:
    try:
        found = dissect(frame, sized=False)
    except UnsupportedVersion as error:
        return "request", None, str(error)
    header = found.parts[0].reading.message
    if not isinstance(header, RequestHeader):
        return "request", found, ""
    api = API_NAMES[header.request_api_key]
    connection.asked[header.correlation_id] = api, header.request_api_version
    return f"{api}Request v{header.request_api_version} #{header.correlation_id}", found, ""


def _response(connection: _Connection, frame: bytes) -> tuple[str, Dissection | None, str] | None:
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    asked = connection.asked.pop(correlation_id, None)
    if asked is None:
        connection.unread += 1
        return None
    note = f"{connection.unread} answers before this one have no question here" if connection.unread else ""
    connection.unread = 0
    found = dissect(frame, asked, sized=False)
    if asked[0] == "ApiVersions" and found.error is not None:
        found = dissect(
            frame, ("ApiVersions", 0), sized=False
        )  # a broker that lacks the version answers in version 0
    return f"{asked[0]}Response v{asked[1]} #{correlation_id}", found, note


def _segments(path: Path) -> Iterator[tuple[float, _Address, _Address, int, bool, bytes]]:
    """Every TCP segment: time, source, target, sequence number, whether it is a SYN, and its bytes."""
    try:
        dpkt: Any = importlib.import_module("dpkt")  # it ships no types
    except ImportError:
        raise MissingExtra("reading captures", "dpkt", "pcap") from None
    links: dict[int, Callable[[bytes], Any]] = {
        dpkt.pcap.DLT_EN10MB: lambda data: dpkt.ethernet.Ethernet(data).data,
        dpkt.pcap.DLT_LINUX_SLL: lambda data: dpkt.sll.SLL(data).data,
        dpkt.pcap.DLT_LINUX_SLL2: lambda data: dpkt.sll2.SLL2(data).data,
        dpkt.pcap.DLT_RAW: lambda data: _ip(dpkt, data),
        dpkt.pcap.DLT_NULL: lambda data: dpkt.loopback.Loopback(data).data,
    }
    with path.open("rb") as file:
        try:
            reader = dpkt.pcap.UniversalReader(file)
        except (ValueError, dpkt.dpkt.Error) as error:
            raise ConfigError("capture", str(path), f"it is neither pcap nor pcapng: {error}") from None
        link = links.get(reader.datalink())
        if link is None:
            raise ConfigError("capture", str(path), f"link type {reader.datalink()} is not known here")
        for at, packet in reader:
            try:
                ip = link(packet)
                tcp = ip.data
                if not isinstance(tcp, dpkt.tcp.TCP):
                    continue
            except (dpkt.dpkt.Error, AttributeError):
                continue  # not IP, or cut
            host = _host6 if isinstance(ip, dpkt.ip6.IP6) else _host4
            start = bool(tcp.flags & dpkt.tcp.TH_SYN)
            source, target = _Address(host(ip.src), tcp.sport), _Address(host(ip.dst), tcp.dport)
            yield float(at), source, target, tcp.seq, start, bytes(tcp.data)


def _ip(dpkt: Any, data: bytes) -> Any:
    return dpkt.ip6.IP6(data) if data[:1] and data[0] >> 4 == 6 else dpkt.ip.IP(data)


def _host4(address: bytes) -> str:
    return ".".join(map(str, address))


def _host6(address: bytes) -> str:
    return "[" + ":".join(address[i : i + 2].hex() for i in range(0, 16, 2)) + "]"
