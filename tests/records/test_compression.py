"""Codecs restore all data, raise only CodecError, and limit decompression bombs."""

from __future__ import annotations

import contextlib
import importlib
import sys
import zlib
from collections.abc import Callable
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.errors import ConfigError, RecordError
from kproto.records import Record, encode_batch, rows
from kproto.records.codecs import CodecError, gzip, zstd
from kproto.records.codecs import cramjam as packages
from kproto.records.codecs.lz4 import header_checksum, is_linked, with_old_header
from kproto.records.compression import (
    ALWAYS_ALLOWED,
    CODECS,
    LOOK,
    Begins,
    allowance,
    codec_number,
    compress,
    decompress,
    decompress_blocks,
    decompress_into,
    has_codec,
)

cramjam = pytest.importorskip("cramjam")
NUMBERS = range(len(CODECS))
DATA = st.binary(max_size=300) | st.tuples(st.binary(min_size=1, max_size=30), st.integers(1, 9000)).map(
    lambda pair: pair[0] * pair[1]
)


# A skippable frame of zstd. It contains no compressed data, and readers skip it.
SKIPPABLE = b"\x50\x2a\x4d\x18\2\0\0\0ab"


def into(codec: int, data: bytes, begins: Begins | None = None) -> bytes:
    """Decompress into a buffer that is large enough and contains the bytes from an earlier use."""
    out = bytearray(b"\x0c" * (20 << 20 if begins else 1 << 20))
    written = decompress_into(codec, memoryview(data), memoryview(out), begins=begins)
    assert written is not None
    return bytes(out[:written])


def by_blocks(codec: int, data: bytes, begins: Begins | None = None) -> bytes:
    return b"".join(decompress_blocks(codec, data, begins=begins))


def whole(codec: int, data: bytes, begins: Begins | None = None) -> bytes:
    return decompress(codec, data, begins=begins)


WAYS: dict[str, Callable[..., bytes]] = {"whole": whole, "into": into, "by blocks": by_blocks}


@pytest.mark.parametrize("codec", NUMBERS, ids=CODECS)
@given(data=DATA)
def test_compressed_data_is_decompressed(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", NUMBERS, ids=CODECS)
@given(data=DATA)
def test_a_buffer_is_filled_or_reported_too_small(codec: int, data: bytes) -> None:
    packed = memoryview(compress(codec, data))
    if codec:
        out = bytearray(len(data) + 8)
        assert decompress_into(codec, packed, memoryview(out)) in (len(data), None)
        if len(data):
            assert decompress_into(codec, packed, memoryview(bytearray(len(data) - 1))) is None


@pytest.mark.parametrize("codec", NUMBERS[1:], ids=CODECS[1:])
@given(data=st.data())
def test_malformed_bytes_raise_codec_error(codec: int, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"flight-" * data.draw(st.integers(0, 40))))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    del packed[data.draw(st.integers(0, len(packed))) :]
    with contextlib.suppress(CodecError):
        decompress(codec, bytes(packed))


@pytest.mark.parametrize("codec", NUMBERS[1:], ids=CODECS[1:])
@given(data=st.binary(max_size=80))
def test_any_bytes_are_decompressed_or_raise_codec_error(codec: int, data: bytes) -> None:
    with contextlib.suppress(CodecError):
        decompress(codec, data)


def test_a_raw_snappy_block_is_read_too() -> None:
    assert decompress(2, bytes(cramjam.snappy.compress_raw(b"ab" * 900))) == b"ab" * 900


def test_xerial_streams_may_be_concatenated() -> None:
    packed = compress(2, b"x" * 40000)
    assert decompress(2, packed + packed) == b"x" * 80000


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
def test_up_to_three_bytes_behind_xerial_blocks_are_ignored(read: Callable[..., bytes]) -> None:
    """A block begins with a length of four bytes. Fewer bytes after the last block are ignored (Java)."""
    packed = compress(2, b"flight")
    assert read(2, packed + b"\0\0\1") == b"flight"
    with pytest.raises(CodecError, match="a xerial block ends too early"):
        read(2, packed + b"\0\0\0\1")


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
def test_xerial_headers_of_versions_below_1_are_malformed(read: Callable[..., bytes]) -> None:
    packed = compress(2, b"flight")
    old = packed[:8] + (0).to_bytes(4, "big") + packed[12:]
    for data in (old, packed + old):
        with pytest.raises(CodecError, match="version below 1"):
            read(2, data)


@pytest.mark.parametrize("codec", NUMBERS[1:], ids=CODECS[1:])
@given(data=DATA, drawn=st.data())
def test_all_ways_of_decompression_read_the_same(codec: int, data: bytes, drawn: st.DataObject) -> None:
    packed = bytearray(compress(codec, data))
    if drawn.draw(st.booleans()):
        packed[drawn.draw(st.integers(0, len(packed) - 1))] = drawn.draw(st.integers(0, 255))
    packed = packed[: drawn.draw(st.just(len(packed)) | st.integers(0, len(packed)))]
    packed += drawn.draw(st.just(b"") | st.binary(max_size=6) | st.just(bytes(packed)))

    def outcome(read: Callable[..., bytes]) -> bytes | None:
        with contextlib.suppress(CodecError):
            return read(codec, bytes(packed))
        return None

    assert outcome(into) == outcome(by_blocks) == outcome(whole)


def test_gzip_members_may_be_concatenated() -> None:
    assert decompress(1, compress(1, b"a") + compress(1, b"b")) == b"ab"


@given(
    members=st.lists(
        st.binary(max_size=5) | st.randoms(use_true_random=False).map(lambda r: r.randbytes(9000))
    ),
    behind=st.binary(max_size=3),
    package=st.sampled_from(["zlib", "isal.isal_zlib"]),
)
@example(members=[b"one"], behind=b"\x1f\x8b", package="zlib")
@example(members=[b"one"], behind=b"\x1f\x8b\x08", package="zlib")
def test_members_of_any_size_are_read_to_the_last(members: list[bytes], behind: bytes, package: str) -> None:
    pytest.importorskip(package)
    data = b"".join(compress(1, member) for member in (b"", *members))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gzip, "_zlib_package", lambda: importlib.import_module(package))
        assert decompress(1, data + behind) == b"".join(members)
        with pytest.raises(CodecError):
            decompress(1, data[:-1])


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the size of each input of gzip's decompressors is appended.

    A decompressor copies the part of its input that it has not consumed. A large input that is passed in
    every step would therefore be copied many times.
    """
    sizes: list[int] = []

    class Counting:
        def __init__(self, wbits: int) -> None:
            self.inner = zlib.decompressobj(wbits)

        def decompress(self, data: bytes, most: int) -> bytes:
            sizes.append(len(data))
            return self.inner.decompress(data, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    package = SimpleNamespace(decompressobj=Counting, error=zlib.error)
    monkeypatch.setattr(gzip, "_zlib_package", lambda: package)
    return sizes


def test_many_small_members_are_not_copied_repeatedly(handed: list[int]) -> None:
    data = compress(1, b"") * 5_000
    assert decompress(1, data) == b""
    assert sum(handed) < 100 * len(data)


def test_large_members_are_not_copied_at_each_step(handed: list[int]) -> None:
    """Regression: each call of the decompressor copied all unread input."""
    plain = Random(0).randbytes(2 << 20)
    data = compress(1, plain) + compress(1, b"a second member") + compress(1, plain)
    assert decompress(1, data) == plain + b"a second member" + plain
    assert sum(handed) < 2 * len(data)


@given(data=st.binary(max_size=300), drawn=st.data())
def test_isal_reads_what_zlib_reads(data: bytes, drawn: st.DataObject) -> None:
    pytest.importorskip("isal")
    packed = bytearray(compress(1, data, drawn.draw(st.sampled_from([0, 1, 9]))))
    if drawn.draw(st.booleans()):
        packed[drawn.draw(st.integers(0, len(packed) - 1))] ^= 1 << drawn.draw(st.integers(0, 7))
    packed = packed[: drawn.draw(st.sampled_from([len(packed)] * 3) | st.integers(0, len(packed)))]

    def outcome(package: str) -> bytes | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gzip, "_zlib_package", lambda: importlib.import_module(package))
            try:
                return decompress(1, bytes(packed))
            except CodecError:
                return None

    wanted = outcome("zlib")
    # Data that zlib rejects is not compared, because isal accepts headers with reserved flags.
    if wanted is not None:
        assert outcome("isal.isal_zlib") == wanted


@pytest.mark.parametrize("package", ["zstandard", None])
@given(data=st.binary(max_size=300) | st.just(b"gate-" * 60000), drawn=st.data())
def test_zstd_reads_only_whole_frames(package: str | None, data: bytes, drawn: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if package is None:
            patch.setattr(zstd, "_zstandard", lambda: None)
        frame = compress(4, data)
        assert decompress(4, frame) == data
        assert decompress(4, frame + frame) == data + data
        cut = drawn.draw(st.integers(0, len(frame) - 1))
        for broken in (frame[:cut], frame + b"\0", frame + frame[:-1], frame + SKIPPABLE[:-1]):
            for read in WAYS.values():
                with pytest.raises(CodecError):
                    read(4, broken)
        for read in WAYS.values():
            assert read(4, SKIPPABLE + frame + frame + SKIPPABLE) == data + data


@pytest.mark.parametrize("level", [None, 1, 5, 9])
def test_lz4_frames_of_all_levels_are_read_by_other_libraries(level: int | None) -> None:
    data = b"gate-" * 30000
    assert bytes(cramjam.lz4.decompress(compress(3, data, level))) == data


def test_lz4_frames_with_linked_blocks_and_checksums_are_read() -> None:
    data = bytes(range(256)) * 1000
    assert decompress(3, bytes(cramjam.lz4.compress(data))) == data


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
def test_lz4_frames_with_linked_blocks_do_not_exceed_the_allowance(read: Callable[..., bytes]) -> None:
    """The output of linked blocks may not exceed `allowance`, even if it starts like records.

    Such a frame is decompressed in one step, so the start of its output cannot be checked before the rest is
    decompressed.
    (Java's consumer rejects every frame of linked blocks.)
    """
    with pytest.raises(CodecError, match="grows beyond"):
        read(3, bytes(cramjam.lz4.compress(bytes(18 << 20))), lambda start: True)


def test_an_lz4_block_that_starts_like_a_size_is_read() -> None:
    data = bytes.fromhex("000000ff000000ff00ff000000000000ff00ff000000000000ff000000ffff") + bytes(7)
    assert decompress(3, compress(3, data)) == data


def test_the_lz4_header_of_magic_0_is_accepted_only_on_request() -> None:
    frame = with_old_header(compress(3, b"old"))
    assert decompress(3, frame, old_lz4=True) == b"old"
    with pytest.raises(CodecError, match="checksum"):
        decompress(3, frame)


def test_the_level_of_gzip_is_used() -> None:
    data = bytes(range(256)) * 99
    assert len(compress(1, data, 0)) > len(data) > len(compress(1, data, 9))


@pytest.mark.parametrize(("codec", "level"), [("gzip", 10), ("gzip", "9"), ("lz4", 18), ("zstd", 23)])
def test_an_unknown_compression_level_is_rejected(codec: str, level: Any) -> None:
    with pytest.raises(ConfigError, match=f"level=.* is not allowed; {codec} has"):
        encode_batch([Record(0, 0, None, b"")], compression=codec, level=level)


def test_an_unknown_codec_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="none, gzip, snappy, lz4, zstd"):
        codec_number("brotli")


def test_the_allowance_follows_the_input_or_the_limit() -> None:
    assert allowance(10) == ALWAYS_ALLOWED
    assert allowance(10 << 20) == 160 << 20
    assert allowance(10 << 20, 99) == 99


@pytest.mark.parametrize("codec", NUMBERS[1:], ids=CODECS[1:])
def test_max_decompressed_allows_more_or_less(codec: int) -> None:
    data = encode_batch([Record(0, 0, None, bytes(20 << 20))], compression=CODECS[codec])
    assert len(rows(data, max_decompressed=32 << 20)[0].value or b"") == 20 << 20
    small = encode_batch([Record(0, 0, None, bytes(2000))], compression=CODECS[codec])
    with pytest.raises(RecordError, match="max_decompressed"):
        rows(small, max_decompressed=1000)


@cache
def large_stream(codec: str, size: int) -> bytes:
    """Compress an `r` and zeros. The `r` gets its own frame if the codec's reader reads several frames."""
    number = codec_number(codec)
    if codec == "lz4":  # The lz4 reader reads only one frame, so the `r` and the zeros share it.
        return compress(number, b"r" + bytes(size - 1))
    return compress(number, b"r") + compress(number, bytes(size - 1))


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_a_large_batch_is_judged_by_its_first_bytes(codec: str, read: Callable[..., bytes]) -> None:
    """More than 16 MiB are decompressed if they begin like records, even after a short first frame."""
    size = 18 << 20
    starts: list[bytes] = []

    def begins(start: memoryview) -> bool:
        starts.append(bytes(start))
        return True

    assert len(read(codec_number(codec), large_stream(codec, size), begins)) == size
    assert starts == [b"r" + bytes(LOOK - 1)]


def lz4_frame(descriptor: bytes, *blocks: bytes, end: bytes = bytes(4)) -> bytes:
    """Return an lz4 frame with this frame descriptor and these blocks, which are not compressed."""
    head = b"\x04\x22\x4d\x18" + descriptor + bytes((header_checksum(descriptor),))
    stored = b"".join((len(block) | 1 << 31).to_bytes(4, "little") + block for block in blocks)
    return head + stored + end


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "frame",
    [
        lz4_frame(b"\x20\x40", b"v"),
        lz4_frame(b"\xa0\x40", b"v"),
        lz4_frame(b"\x60\x30", b"v"),
        lz4_frame(b"\x61\x40\0\0\0\1", b"v"),
        lz4_frame(b"\x60\x40")[:6],
        b"\x05" + lz4_frame(b"\x60\x40", b"v")[1:],
        lz4_frame(b"\x60\x40", b"v", end=b""),
        lz4_frame(b"\x60\x40", b"v", end=b"\0\0\0"),
        lz4_frame(b"\x60\x40", b"v")[:-5],
        lz4_frame(b"\x60\x40", bytes((64 << 10) + 1)),
        lz4_frame(b"\x60\x40", end=(3).to_bytes(4, "little") + b"???" + bytes(4)),
    ],
    ids=[
        "version 0",
        "version 2",
        "block size",
        "dictionary",
        "short header",
        "magic number",
        "no end",
        "short end",
        "cut block",
        "large block",
        "malformed block",
    ],
)
def test_malformed_lz4_frames_raise_codec_error(read: Callable[..., bytes], frame: bytes) -> None:
    with pytest.raises(CodecError):
        read(3, frame)


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
def test_lz4_frames_with_a_content_size_block_checksums_and_the_largest_blocks_are_read(
    read: Callable[..., bytes],
) -> None:
    size = (64 << 10) + 1
    sized = lz4_frame(b"\x68\x50" + size.to_bytes(8, "little"), bytes(size))
    assert read(3, sized) == bytes(size)
    checked = lz4_frame(b"\x70\x40", b"ab", end=b"????" + bytes(4))
    assert read(3, checked) == b"ab"
    assert read(3, lz4_frame(b"\x60\x40", bytes(64 << 10))) == bytes(64 << 10)
    assert read(3, lz4_frame(b"\x60\x40", b"a", end=(1 << 31).to_bytes(4, "little") + b"behind")) == b"a"


def test_only_a_frame_of_several_dependent_blocks_is_linked() -> None:
    assert is_linked(memoryview(lz4_frame(b"\x40\x40", b"a", b"b")))
    assert not is_linked(memoryview(lz4_frame(b"\x40\x40", b"a")))
    assert not is_linked(memoryview(lz4_frame(b"\x60\x40", b"a", b"b")))
    assert is_linked(memoryview(lz4_frame(b"\x40\x40", b"a", end=b"")))


def test_linked_blocks_of_magic_0_are_read_on_request() -> None:
    data = bytes(range(256)) * 600
    frame = with_old_header(bytes(cramjam.lz4.compress(data)))
    assert is_linked(memoryview(frame), True)
    assert decompress(3, frame, old_lz4=True) == data


@pytest.mark.parametrize("read", WAYS.values(), ids=WAYS)
def test_a_codec_that_does_not_exist_is_an_error(read: Callable[..., bytes]) -> None:
    with pytest.raises(CodecError, match="codec 5 doesn't exist"):
        read(5, b"data")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_the_limit_of_decompressed_bytes_is_exact(codec: int) -> None:
    data = bytes(100_000)
    compressed = compress(codec, data)
    out = memoryview(bytearray(200_000))
    assert decompress(codec, compressed, 100_000) == data
    assert decompress_into(codec, memoryview(compressed), out, 100_000) == 100_000
    assert b"".join(decompress_blocks(codec, compressed, 100_000)) == data
    for way in (
        lambda: decompress(codec, compressed, 99_999),
        lambda: decompress_into(codec, memoryview(compressed), out, 99_999),
        lambda: list(decompress_blocks(codec, compressed, 99_999)),
    ):
        with pytest.raises(CodecError, match="grows beyond 99999 bytes"):
            way()
    assert decompress_into(codec, memoryview(compressed), out[:99_999], 100_000) is None


def test_a_codec_is_known_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(map(has_codec, NUMBERS))
    packages.cache_clear()
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert [codec for codec in NUMBERS if has_codec(codec)] == [0, 1]
    packages.cache_clear()
