"""Read the packets of a pcap or pcapng file, which may be compressed with gzip.

    with open_capture(path) as capture:
        for packet in capture:
            print(packet.at, packet.link, packet.data)
        print(capture.is_cut)

Rules:

* Each packet has the link type and the clock of its own interface. A pcapng file may have several sections,
  each with several interfaces.

* A Simple Packet Block belongs to the first interface of its section. The block has no time, so its packet
  has the time of the previous packet.

* Blocks of other types are skipped, and so are packets whose interface the section does not describe.

* Reading stops where the file is truncated or corrupt. Then `is_cut` is true.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from ..errors import ConfigError

GZIP: Final = b"\x1f\x8b"
# Maps the magic number of a pcap file to (byte order, clock ticks per second, size of a packet header in
# bytes).
_PCAP: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 10**6, 16),
    b"\xa1\xb2\xc3\xd4": (">", 10**6, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 10**9, 16),
    b"\xa1\xb2\x3c\x4d": (">", 10**9, 16),
    # The format of Kuznetzov's patch to libpcap, whose packet headers also name the interface.
    b"\x34\xcd\xb2\xa1": ("<", 10**6, 24),
    b"\xa1\xb2\xcd\x34": (">", 10**6, 24),
}
# The first four bytes of capture files that are not compressed.
MAGIC_NUMBERS: Final = (*_PCAP, b"\x0a\x0d\x0d\x0a")
# Maps the magic number of a compressed file to its format, which this module does not read.
_COMPRESSED: Final = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zX": "xz",
    b"BZh": "bzip2",
}

# Block types of pcapng.
_SECTION_HEADER: Final = 0x0A0D0D0A
_INTERFACE, _PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET = 1, 2, 3, 6
_BYTE_ORDERS: Final = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
# Codes of an interface's options: the resolution of its clock, and the seconds to add to its times.
_RESOLUTION, _OFFSET = 9, 14
# The largest packet or block to read, in bytes. It exceeds Wireshark's limits for packets: 256 KiB, and 128
# MiB for USB captures.
_MAX_SIZE: Final = 256 << 20


class Packet(NamedTuple):
    """A packet of a capture: its time in seconds since 1970, its link type (LINKTYPE_*), and its bytes."""

    at: float
    link: int
    data: bytes


@dataclass(slots=True)
class _Interface:
    link: int
    most: int  # The maximum number of bytes captured per packet (snap length). 0 means no limit.
    per_second: int = 10**6
    offset: int = 0

    def time(self, ticks: int) -> float:
        return max(0.0, ticks / self.per_second + self.offset)


@dataclass(slots=True)
class _Section:
    byte_order: str
    interfaces: list[_Interface] = field(default_factory=list[_Interface])


class _CutError(Exception):
    """Raised if the file ends within a packet or a block, or cannot be read any further."""


class Capture:
    """The packets of a file, which can be iterated over only once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._last = 0.0
        self.is_cut = False
        self._magic = self._read(4, at_end=True)
        self.is_capture = self._magic in MAGIC_NUMBERS

    def __iter__(self) -> Iterator[Packet]:
        packets = self._pcap() if self._magic in _PCAP else self._pcapng()
        try:
            for packet in packets:
                self._last = packet.at
                yield packet
        except _CutError:
            self.is_cut = True

    def _read(self, count: int, *, at_end: bool = False) -> bytes:
        """Read `count` bytes. Raises _CutError if fewer are left.

        With `at_end`, b"" is returned if no byte is left.
        """
        try:
            data = self._file.read(count) if count <= _MAX_SIZE else b""
        except (EOFError, OSError, zlib.error):  # The gzip file is truncated or broken.
            raise _CutError from None
        if len(data) < count and (data or not at_end):
            raise _CutError
        return data

    def _pcap(self) -> Iterator[Packet]:
        byte_order, per_second, size = _PCAP[self._magic]
        (link,) = struct.unpack_from(f"{byte_order}I", self._read(20), 16)
        while header := self._read(size, at_end=True):
            seconds, fraction, captured = struct.unpack_from(f"{byte_order}III", header)
            # The lower 16 bits are the link type. The upper bits describe the frame check sequence.
            yield Packet(seconds + fraction / per_second, link & 0xFFFF, self._read(captured))

    def _pcapng(self) -> Iterator[Packet]:
        section = _Section("<")
        kind_bytes = self._magic
        while kind_bytes:
            length_bytes = self._read(4)
            start = b""
            if kind_bytes == MAGIC_NUMBERS[-1]:
                start = self._read(4)
                if start not in _BYTE_ORDERS:
                    raise _CutError
                section = _Section(_BYTE_ORDERS[start])
            order = section.byte_order
            (kind,) = struct.unpack(f"{order}I", kind_bytes)
            (length,) = struct.unpack(f"{order}I", length_bytes)
            if length < 12 + len(start):
                raise _CutError
            # The body is padded to a multiple of four bytes. After it the block's length is repeated.
            body = start + self._read(length - 8 - len(start) + -length % 4)[:-4]
            try:
                if kind == _INTERFACE:
                    section.interfaces.append(_interface(body, order))
                elif (packet := self._packet(kind, body, section)) is not None:
                    yield packet
            except struct.error:  # The block is too short for its type.
                raise _CutError from None
            kind_bytes = self._read(4, at_end=True)

    def _packet(self, kind: int, body: bytes, section: _Section) -> Packet | None:
        order, start, at = section.byte_order, 20, None
        if kind == _ENHANCED_PACKET:
            number, high, low, captured = struct.unpack_from(f"{order}IIII", body)
        elif kind == _PACKET:
            number, _, high, low, captured = struct.unpack_from(f"{order}HHIII", body)
        elif kind == _SIMPLE_PACKET:
            number, high, low, start, at = 0, 0, 0, 4, self._last
            (captured,) = struct.unpack_from(f"{order}I", body)
        else:
            return None
        if number >= len(section.interfaces):
            return None
        interface = section.interfaces[number]
        # A Simple Packet Block gives only the packet's original length, although the capture may have
        # truncated the packet to the interface's snap length.
        if kind == _SIMPLE_PACKET:
            captured = min(captured, interface.most or captured, len(body) - start)
        elif captured > len(body) - start:
            raise _CutError
        if at is None:
            at = interface.time(high << 32 | low)
        return Packet(at, interface.link, body[start : start + captured])


def _interface(body: bytes, order: str) -> _Interface:
    link, _, most = struct.unpack_from(f"{order}HHI", body)
    interface, offset = _Interface(link, most), 8
    while offset + 4 <= len(body):
        code, size = struct.unpack_from(f"{order}HH", body, offset)
        value = body[offset + 4 : offset + 4 + size]
        if code == _RESOLUTION and size == 1:
            # The lower seven bits of the value are n. The clock ticks 10**n times per second, or 2**n times
            # if the highest bit is set.
            interface.per_second = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == _OFFSET and size == 8:
            (interface.offset,) = struct.unpack(f"{order}q", value)
        offset += 4 + size + -size % 4
    return interface


@contextmanager
def open_capture(path: Path) -> Generator[Capture]:
    """Open a capture file. Raises ConfigError if it cannot be read, or is not a capture."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(0)
            is_zipped = start.startswith(GZIP)
            capture = Capture(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_zipped else file)
            if not capture.is_capture:
                names = [name for magic, name in _COMPRESSED.items() if start.startswith(magic)]
                reason = (
                    f"the file is compressed with {names[0]}; decompress it first, or use gzip"
                    if names
                    else "the file is neither pcap nor pcapng, nor one of them compressed with gzip"
                )
                raise ConfigError("pcap", str(path), reason)
            yield capture
    except OSError as error:
        raise ConfigError("pcap", str(path), error.strerror or str(error)) from None
    except _CutError:
        reason = "the file is neither pcap nor pcapng, or is truncated"
        raise ConfigError("pcap", str(path), reason) from None
