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
_PCAP_FORMATS: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 10**6, 16),
    b"\xa1\xb2\xc3\xd4": (">", 10**6, 16),
    b"\x4d\x3c\xb2\xa1": ("<", 10**9, 16),
    b"\xa1\xb2\x3c\x4d": (">", 10**9, 16),
    # The format of Kuznetzov's patch to libpcap, whose packet headers also name the interface.
    b"\x34\xcd\xb2\xa1": ("<", 10**6, 24),
    b"\xa1\xb2\xcd\x34": (">", 10**6, 24),
}
# The type of the first block of a pcapng section. It is the same in both byte orders.
_SECTION_HEADER: Final = b"\x0a\x0d\x0d\x0a"
# The first four bytes of capture files that are not compressed.
MAGIC_NUMBERS: Final = (*_PCAP_FORMATS, _SECTION_HEADER)
# Maps the magic number of a compressed file to its format, which this module does not read.
_COMPRESSED: Final = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zX": "xz",
    b"BZh": "bzip2",
}

# The pcapng block types, besides the section header, that this module reads.
_INTERFACE, _PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET = 1, 2, 3, 6
# Maps the byte-order magic of a section header to the `struct` code of the byte order.
_BYTE_ORDERS: Final = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
# Codes of an interface's options: the resolution of its clock, and the seconds to add to its times.
_RESOLUTION, _OFFSET = 9, 14
# The largest packet or block to read: 256 MiB. Wireshark's limits for packets are lower: 256 KiB, and 128 MiB
# for USB captures.
_MAX_SIZE: Final = 256 << 20


class Packet(NamedTuple):
    """A packet of a capture: its time in seconds since 1970, its link type (LINKTYPE_*), and its bytes."""

    at: float
    link: int
    data: bytes


@dataclass(slots=True)
class _Interface:
    link: int
    snap_length: int  # The maximum number of bytes captured per packet. 0 means no limit.
    ticks_per_second: int = 10**6
    offset_seconds: int = 0

    def to_seconds(self, ticks: int) -> float:
        """Convert a packet's timestamp to seconds since 1970. A negative time becomes 0."""
        return max(0.0, ticks / self.ticks_per_second + self.offset_seconds)


@dataclass(slots=True)
class _Section:
    byte_order: str
    interfaces: list[_Interface] = field(default_factory=list[_Interface])


class _CutError(Exception):
    """Raised if the file ends within a packet or a block, or cannot be read any further."""


class Capture:
    """The packets of a file, which can be iterated over only once.

    Iterate only if `is_capture` is true, which means that the file starts as a pcap or pcapng file. `is_cut`
    is set when reading stops before the end of the file's last packet or block.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._last_at = 0.0
        self.is_cut = False
        self._magic = self._read(4, at_end=True)
        self.is_capture = self._magic in MAGIC_NUMBERS

    def __iter__(self) -> Iterator[Packet]:
        packets = self._read_pcap() if self._magic in _PCAP_FORMATS else self._read_pcapng()
        try:
            for packet in packets:
                self._last_at = packet.at
                yield packet
        except _CutError:
            self.is_cut = True

    def _read(self, count: int, *, at_end: bool = False) -> bytes:
        """Read `count` bytes. Raises _CutError if fewer are left.

        With `at_end`, the data may end here: if no byte at all is left, the result is b"".
        """
        try:
            data = self._file.read(count) if count <= _MAX_SIZE else b""
        except (EOFError, OSError, zlib.error):  # The gzip file is truncated or broken.
            raise _CutError from None
        if len(data) < count and (data or not at_end):
            raise _CutError
        return data

    def _read_pcap(self) -> Iterator[Packet]:
        byte_order, ticks_per_second, packet_header_size = _PCAP_FORMATS[self._magic]
        # The link type is the last field of the file header, after 16 of the 20 bytes that follow the magic.
        (link,) = struct.unpack_from(f"{byte_order}I", self._read(20), 16)
        while header := self._read(packet_header_size, at_end=True):
            seconds, fraction, captured = struct.unpack_from(f"{byte_order}III", header)
            # The lower 16 bits are the link type. The upper bits describe the frame check sequence.
            yield Packet(seconds + fraction / ticks_per_second, link & 0xFFFF, self._read(captured))

    def _read_pcapng(self) -> Iterator[Packet]:
        section = _Section("<")  # A placeholder: the first block is a section header and replaces it.
        kind_bytes = self._magic
        while kind_bytes:
            length_bytes = self._read(4)
            byte_order_magic = b""
            if kind_bytes == _SECTION_HEADER:
                byte_order_magic = self._read(4)
                if byte_order_magic not in _BYTE_ORDERS:
                    raise _CutError
                section = _Section(_BYTE_ORDERS[byte_order_magic])
            order = section.byte_order
            (kind,) = struct.unpack(f"{order}I", kind_bytes)
            (length,) = struct.unpack(f"{order}I", length_bytes)
            if length < 12 + len(byte_order_magic):
                raise _CutError
            # The body is padded to a multiple of four bytes. After it the block's length is repeated.
            padding = -length % 4
            unread_size = length - 8 - len(byte_order_magic) + padding
            body = byte_order_magic + self._read(unread_size)[:-4]
            try:
                if kind == _INTERFACE:
                    section.interfaces.append(_parse_interface(body, order))
                elif (packet := self._parse_packet(kind, body, section)) is not None:
                    yield packet
            except struct.error:  # The block is too short for its type.
                raise _CutError from None
            kind_bytes = self._read(4, at_end=True)

    def _parse_packet(self, kind: int, body: bytes, section: _Section) -> Packet | None:
        """Return the packet in a block.

        Returns None if the block contains no packet, or if the section does not describe the packet's
        interface.
        Raises _CutError if the packet exceeds the block, and struct.error if the block is too short.
        """
        order, data_start, at = section.byte_order, 20, None
        if kind == _ENHANCED_PACKET:
            interface_id, high, low, captured = struct.unpack_from(f"{order}IIII", body)
        elif kind == _PACKET:
            interface_id, _, high, low, captured = struct.unpack_from(f"{order}HHIII", body)
        elif kind == _SIMPLE_PACKET:
            interface_id, high, low, data_start, at = 0, 0, 0, 4, self._last_at
            (captured,) = struct.unpack_from(f"{order}I", body)
        else:
            return None
        if interface_id >= len(section.interfaces):
            return None
        interface = section.interfaces[interface_id]
        # A Simple Packet Block gives only the packet's original length, although the capture may have
        # truncated the packet to the interface's snap length.
        if kind == _SIMPLE_PACKET:
            captured = min(captured, interface.snap_length or captured, len(body) - data_start)
        elif captured > len(body) - data_start:
            raise _CutError
        if at is None:
            at = interface.to_seconds(high << 32 | low)
        return Packet(at, interface.link, body[data_start : data_start + captured])


def _parse_interface(body: bytes, order: str) -> _Interface:
    """Parse an Interface Description Block: its link type, snap length and clock."""
    link, _, snap_length = struct.unpack_from(f"{order}HHI", body)
    interface, offset = _Interface(link, snap_length), 8
    while offset + 4 <= len(body):
        code, size = struct.unpack_from(f"{order}HH", body, offset)
        value = body[offset + 4 : offset + 4 + size]
        if code == _RESOLUTION and size == 1:
            # The lower seven bits of the value are n. The clock ticks 10**n times per second, or 2**n times
            # if the highest bit is set.
            interface.ticks_per_second = 2 ** (value[0] & 0x7F) if value[0] & 0x80 else 10 ** value[0]
        elif code == _OFFSET and size == 8:
            (interface.offset_seconds,) = struct.unpack(f"{order}q", value)
        offset += 4 + size + -size % 4
    return interface


@contextmanager
def open_capture(path: Path) -> Generator[Capture]:
    """Open a capture file. Raises ConfigError if the file cannot be read or is neither pcap nor pcapng."""
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
