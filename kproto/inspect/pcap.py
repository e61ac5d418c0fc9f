"""Write frames as a capture file for Wireshark and tshark. The TCP segments of connections are generated.

    with path.open("wb") as file:
        writer = PcapWriter(file)
        writer.write_frame(("10.0.0.7", 50312), ("10.0.0.1", 9092), True, frame, at)   # from the client
        writer.write_frame(("10.0.0.7", 50312), ("10.0.0.1", 9092), False, frame, at)  # from the broker
        writer.close_connection(("10.0.0.7", 50312), ("10.0.0.1", 9092), at)

The file looks like a capture of the same traffic without TLS. It is a pcap file of IP packets. Each
connection begins with a TCP handshake and ends with a FIN. Each frame has its size prefix.

Fields that tools do not evaluate, such as TCP windows, are constants. If only one address of a connection is
IPv6, the other is mapped to IPv6.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import BinaryIO, Final

from .exchanges import Address

# The maximum number of bytes per segment. An IP packet must have fewer than 65,536 bytes.
_MAX_SEGMENT_SIZE: Final = 32_768
# TCP sequence numbers wrap at this value.
_SEQUENCE_MODULUS: Final = 1 << 32
_LINKTYPE_RAW: Final = 101  # For IP packets without a link header.
_FIN, _SYN, _PUSH, _ACK = 0x01, 0x02, 0x08, 0x10


@dataclass(slots=True)
class _Side:
    """One side of a connection: its packed address, its port, and the sequence number of its next byte."""

    host: bytes
    port: int
    sequence: int = 0


class PcapWriter:
    """Writes frames to `file`, which the caller closes. The arguments `at` are in nanoseconds since 1970."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._connections: dict[tuple[Address, Address], tuple[_Side, _Side]] = {}
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, _LINKTYPE_RAW))
        file.flush()

    def write_frame(self, client: Address, broker: Address, from_client: bool, frame: bytes, at: int) -> None:
        """Write a frame, which is passed without its size prefix. `from_client` says whether the client sent
        it.

        The hosts in `client` and `broker` are IP addresses. Before the first frame of a connection, a TCP
        handshake is written.
        """
        sides = self._connections.get((client, broker)) or self._open_connection(client, broker, at)
        data = len(frame).to_bytes(4, "big") + frame
        for start in range(0, len(data), _MAX_SEGMENT_SIZE):
            self._write_segment(sides, from_client, _PUSH | _ACK, at, data[start : start + _MAX_SEGMENT_SIZE])
        self._file.flush()

    def close_connection(self, client: Address, broker: Address, at: int) -> None:
        """End the connection with a FIN in both directions."""
        sides = self._connections.pop((client, broker), None)
        if sides is not None:
            for from_client in (True, False):
                self._write_segment(sides, from_client, _FIN | _ACK, at)
            self._write_segment(sides, True, _ACK, at)
            self._file.flush()

    def _open_connection(self, client: Address, broker: Address, at: int) -> tuple[_Side, _Side]:
        hosts = [ip_address(host.partition("%")[0]) for host, _ in (client, broker)]
        if len({host.version for host in hosts}) == 2:
            hosts = [IPv6Address(f"::ffff:{host}") if host.version == 4 else host for host in hosts]
        sides = _Side(hosts[0].packed, client[1]), _Side(hosts[1].packed, broker[1])
        self._connections[client, broker] = sides
        self._write_segment(sides, True, _SYN, at)
        self._write_segment(sides, False, _SYN | _ACK, at)
        self._write_segment(sides, True, _ACK, at)
        return sides

    def _write_segment(
        self, sides: tuple[_Side, _Side], from_client: bool, flags: int, at: int, data: bytes = b""
    ) -> None:
        """Write one packet with a TCP segment, and advance the sequence number of its sender."""
        source, target = sides if from_client else sides[::-1]
        acknowledged = target.sequence if flags & _ACK else 0
        tcp_header = struct.pack(
            ">HHIIBBHHH", source.port, target.port, source.sequence, acknowledged, 5 << 4, flags, 65_535, 0, 0
        )
        size = len(tcp_header) + len(data)
        pseudo_header = source.host + target.host + struct.pack(">II", size, 6)
        tcp = tcp_header[:16] + _checksum(pseudo_header + tcp_header + data) + tcp_header[18:] + data
        ip_header = _ip_header(source.host, target.host, size)
        seconds, nanoseconds = divmod(at, 1_000_000_000)
        length = len(ip_header) + size
        self._file.write(struct.pack("<IIII", seconds, nanoseconds // 1000, length, length) + ip_header + tcp)
        # A SYN or a FIN takes one sequence number.
        source.sequence = (source.sequence + len(data) + bool(flags & (_SYN | _FIN))) % _SEQUENCE_MODULUS


def _ip_header(source: bytes, target: bytes, size: int) -> bytes:
    """Return the IPv4 or IPv6 header of a packet. `size` is the size (bytes) of the TCP segment with its
    header.
    """
    if len(source) == 4:
        header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + size, 0, 0x4000, 64, 6, 0, source, target)
        return header[:10] + _checksum(header) + header[12:]
    return struct.pack(">IHBB16s16s", 6 << 28, size, 6, 64, source, target)


def _checksum(data: bytes) -> bytes:
    """Return the internet checksum (RFC 1071). The sum of the words may be taken in either byte order."""
    total = sum(array("H", data if len(data) % 2 == 0 else data + b"\0"))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return (total ^ 0xFFFF).to_bytes(2, sys.byteorder)
