"""Packets of pcap and pcapng files are read with the link type and time resolution of their interface."""

from __future__ import annotations

import gzip
import random
import struct
from pathlib import Path

import pytest

from kproto.errors import ConfigError
from kproto.inspect.capture_file import Packet, open_capture

ETHERNET, LOOPBACK = 1, 0
SECOND = 1_700_000_000


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = len(body) + 12
    return struct.pack(f"{order}II", kind, size) + body + struct.pack(f"{order}I", size)


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)


def interface(link: int, options: bytes = b"", order: str = "<", most: int = 0) -> bytes:
    return block(1, struct.pack(f"{order}HHI", link, 0, most) + options, order)


def enhanced(number: int, ticks: int, data: bytes, order: str = "<") -> bytes:
    sizes = (len(data), len(data))
    body = struct.pack(f"{order}IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, *sizes)
    return block(6, body + data, order)


def simple(data: bytes, original: int | None = None) -> bytes:
    return block(3, struct.pack("<I", len(data) if original is None else original) + data)


def pcap(packets: list[bytes], order: str = "<", magic: int = 0xA1B2C3D4, link: int = ETHERNET) -> bytes:
    out = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65_535, link)
    for data in packets:
        out += struct.pack(f"{order}IIII", SECOND, 5, len(data), len(data)) + data
    return out


def packets_of(folder: Path, content: bytes) -> tuple[list[Packet], bool]:
    path = folder / "capture"
    path.write_bytes(content)
    with open_capture(path) as capture:
        packets = list(capture)
        return packets, capture.is_cut


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(("magic", "per_second"), [(0xA1B2C3D4, 10**6), (0xA1B23C4D, 10**9)])
def test_a_pcap_file_has_one_link_type(tmp_path: Path, order: str, magic: int, per_second: int) -> None:
    content = pcap([b"ab", b""], order, magic, link=0xF000_0000 | LOOPBACK)
    at = SECOND + 5 / per_second
    assert packets_of(tmp_path, content) == ([Packet(at, LOOPBACK, b"ab"), Packet(at, LOOPBACK, b"")], False)


def test_each_interface_has_its_link_type_and_clock(tmp_path: Path) -> None:
    content = section() + interface(ETHERNET) + interface(LOOPBACK, option(2, b"lo") + option(9, b"\x09"))
    content += interface(ETHERNET, option(9, bytes([0x80 | 20])) + option(0, b""))
    content += interface(ETHERNET, option(9, b"\x09\x09") + option(2, b"\x09"))
    content += interface(ETHERNET, option(9, b"\x00") + option(14, struct.pack("<q", SECOND)))
    content += enhanced(1, SECOND * 10**9 + 500_000_000, b"b") + enhanced(0, SECOND * 10**6 + 250_000, b"a")
    content += enhanced(2, SECOND << 20 | 1 << 19, b"c") + enhanced(4, 7, b"d")
    content += enhanced(3, SECOND * 10**6, b"e")
    assert packets_of(tmp_path, content) == (
        [
            Packet(SECOND + 0.5, LOOPBACK, b"b"),
            Packet(SECOND + 0.25, ETHERNET, b"a"),
            Packet(SECOND + 0.5, ETHERNET, b"c"),
            Packet(SECOND + 7, ETHERNET, b"d"),
            Packet(SECOND, ETHERNET, b"e"),
        ],
        False,
    )


def test_each_section_has_its_interfaces_and_byte_order(tmp_path: Path) -> None:
    content = section() + interface(ETHERNET) + enhanced(0, SECOND * 10**6, b"a")
    content += section(">") + interface(LOOPBACK, option(9, b"\x03", ">"), ">")
    content += enhanced(0, SECOND * 1000, b"b", ">") + enhanced(1, 0, b"of an unknown interface", ">")
    assert packets_of(tmp_path, content) == (
        [Packet(SECOND, ETHERNET, b"a"), Packet(SECOND, LOOPBACK, b"b")],
        False,
    )


def test_a_simple_packet_has_the_time_of_the_packet_before_it(tmp_path: Path) -> None:
    content = section() + interface(LOOPBACK, most=5) + interface(ETHERNET)
    content += simple(b"abc") + enhanced(1, SECOND * 10**6, b"e") + simple(b"abcde", original=90)
    assert packets_of(tmp_path, content) == (
        [Packet(0, LOOPBACK, b"abc"), Packet(SECOND, ETHERNET, b"e"), Packet(SECOND, LOOPBACK, b"abcde")],
        False,
    )


def test_packet_blocks_are_read_and_other_blocks_are_skipped(tmp_path: Path) -> None:
    content = section() + block(0x0BAD, b"custom") + interface(ETHERNET) + block(5, bytes(12))
    ticks = SECOND * 10**6
    content += block(2, struct.pack("<HHIIII", 0, 9, ticks >> 32, ticks & 0xFFFFFFFF, 3, 3) + b"old")
    assert packets_of(tmp_path, content) == ([Packet(SECOND, ETHERNET, b"old")], False)


FILES = {
    "pcap": pcap([b"one", b"twotwo", b"3"]),
    "pcapng": section() + interface(ETHERNET) + b"".join(enhanced(0, 0, data) for data in (b"one", b"two")),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_may_be_compressed_with_gzip(tmp_path: Path, kind: str) -> None:
    assert packets_of(tmp_path, gzip.compress(FILES[kind])) == packets_of(tmp_path, FILES[kind])


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("kind", FILES)
def test_every_truncated_file_yields_a_part_of_its_packets(tmp_path: Path, kind: str, zipped: bool) -> None:
    content = gzip.compress(FILES[kind]) if zipped else FILES[kind]
    complete, _ = packets_of(tmp_path, content)
    cut_files = 0
    for size in range(len(content)):
        try:
            packets, is_cut = packets_of(tmp_path, content[:size])
        except ConfigError:  # The file ends within its magic number.
            assert size < (40 if zipped else 4)
            continue
        assert packets == complete[: len(packets)]
        cut_files += is_cut
    assert cut_files > 20


def test_damaged_files_end_early(tmp_path: Path) -> None:
    draw = random.Random(3)
    for number in range(500):
        content = bytearray(draw.choice([*FILES.values()]))
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(4, len(content))] = draw.randrange(256)
        damaged = gzip.compress(bytes(content)) if number % 2 else bytes(content)
        packets, _ = packets_of(tmp_path, damaged)
        assert all(packet.at >= 0 for packet in packets)


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"\xfd7zXZ\0", "xz"),
        (b"BZh91AY", "bzip2"),
    ],
)
def test_another_compression_is_named(tmp_path: Path, start: bytes, name: str) -> None:
    with pytest.raises(ConfigError, match=f"compressed with {name}; decompress it first, or use gzip"):
        packets_of(tmp_path, start + bytes(100))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("text", ["", "ab", "text"])
def test_other_files_are_rejected(tmp_path: Path, text: str, zipped: bool) -> None:
    content = gzip.compress(text.encode()) if zipped else text.encode()
    with pytest.raises(ConfigError, match="neither pcap nor pcapng"):
        packets_of(tmp_path, content)


@pytest.mark.parametrize(
    "damaged",
    [
        FILES["pcapng"][:8] + b"\1\2\3\4" + FILES["pcapng"][12:],
        section() + struct.pack("<II", 0x0BAD, 11) + bytes(8),
        section()[:4] + struct.pack("<I", 12) + section()[8:12] + interface(ETHERNET),
        section() + block(1, b"\1\0"),
        section() + interface(ETHERNET) + block(6, bytes(16)),
    ],
    ids=["byte order", "length", "length of a section", "interface", "packet"],
)
def test_a_pcapng_file_ends_at_its_first_invalid_block(tmp_path: Path, damaged: bytes) -> None:
    assert packets_of(tmp_path, damaged + enhanced(0, 0, b"after it")) == ([], True)


def test_a_file_that_cannot_be_opened_is_rejected_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"), open_capture(tmp_path / "missing"):
        pass
