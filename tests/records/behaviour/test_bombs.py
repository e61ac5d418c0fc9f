"""Decompression bombs are rejected early and cheaply; data that compresses well is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cramjam")
pytest.importorskip("pyarrow")

from kproto.errors import RecordError
from kproto.records import Record, compression, encode_batch, rows
from kproto.records.columns import columns
from kproto.records.compression import CODECS
from kproto.records.record import zigzag
from tests.records.bombs import ENTRANCES, FEW_LINES, MB, batch, bombs

PROFILE = os.environ.get("KPROTO_PROFILE", "quick")
ROOT = Path(__file__).parents[3]
# Inputs that cause no error. A batch larger than the data looks like a truncated last batch, which readers
# ignore.
HARMLESS = {"the size of a batch"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bombs")
    for name, data in bombs():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture(scope="module", params=["rows"] if PROFILE == "quick" else ENTRANCES)
def outcomes(
    request: pytest.FixtureRequest, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Return the outcomes of reading the bombs through one of ENTRANCES, in forks of a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.records.bombs", request.param, str(directory)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path_factory.mktemp("cwd"),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return json.loads(done.stdout)


def test_every_bomb_is_an_error(outcomes: Any) -> None:
    assert {name for name, (outcome, _, _) in outcomes.items() if outcome == "read"} == HARMLESS


def test_every_bomb_takes_few_lines_of_python(outcomes: Any) -> None:
    """Reading a bomb executes few lines of Python.

    The memory limits bound the work that a single line of Python can do. So a limit on the number of executed
    lines also limits the CPU time. If a command reads the bomb (entrance `cli`), two thirds of the executed
    lines are lines of the command, and one third are lines of the reader.
    """
    assert {name: lines for name, (_, lines, _) in outcomes.items() if lines > FEW_LINES} == {}


def test_no_bomb_takes_50_mb(outcomes: Any) -> None:
    assert {name: grown // MB for name, (_, _, grown) in outcomes.items() if grown > 50 * MB} == {}


@pytest.mark.parametrize(
    ("codec", "entrance"),
    [*((codec, "rows") for codec in CODECS), *(("gzip", entrance) for entrance in ENTRANCES)],
)
def test_ten_megabytes_of_zeros_are_read(
    codec: str, entrance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ENTRANCES[entrance](encode_batch([Record(0, 0, None, bytes(10 * MB))], compression=codec))


LINE = b'{"level": "INFO", "message": "a log line that repeats itself again and again"}'
LINES = 20 * MB // len(LINE)


@cache
def log_lines(codec: str) -> bytes:
    return encode_batch([Record(at, 0, None, LINE) for at in range(LINES)], compression=codec)


@pytest.mark.thorough
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("read", [rows, columns])
def test_data_compressed_to_a_hundredth_is_read(codec: str, read: Any) -> None:
    """Data that is compressed to a hundredth of its size is readable.

    Such data is no attack: kproto's producer writes it if the records repeat, and Kafka's consumer reads it,
    because it does not limit the decompressed size.
    """
    assert len(read(log_lines(codec))) == LINES


@pytest.mark.parametrize("codec", CODECS)
def test_one_large_record_that_compresses_well_is_read(codec: str) -> None:
    data = encode_batch([Record(0, 0, None, bytes(20 * MB))], compression=codec)
    assert [len(record.value or b"") for record in rows(data)] == [20 * MB]


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("read", [rows, columns])
def test_max_decompressed_is_applied_and_named_in_the_error(codec: str, read: Any) -> None:
    data = encode_batch([Record(at, 0, None, bytes(100)) for at in range(20_000)], compression=codec)
    with pytest.raises(RecordError, match=r"beyond 1000000 bytes; max_decompressed .*max_decompressed_bytes"):
        read(data, max_decompressed=1_000_000)


@pytest.mark.parametrize("first", [b"\0", b"\5"], ids=["empty", "cut"])
def test_a_large_snappy_stream_may_begin_with_an_empty_block(first: bytes) -> None:
    """A large snappy stream is read even if its first block is empty.

    The second block then determines the limit of the decompressed size. If the first block is truncated, the
    stream is malformed.
    """
    blocks = compression.compress(2, bytes(32 << 10))[16:]
    body = compression.compress(2, b"") + len(first).to_bytes(4, "big") + first + blocks * 600
    with pytest.raises(RecordError, match=f"grows beyond {16 * MB} bytes"):
        rows(batch(2, body))
    records = encode_batch([Record(0, 0, None, bytes(30 * MB))], compression="snappy")
    at = 61 + 16
    body = records[61:at] + (1).to_bytes(4, "big") + first + records[at:]
    if first == b"\0":
        assert [len(record.value or b"") for record in rows(batch(2, body))] == [30 * MB]
    else:
        with pytest.raises(RecordError, match="snappy: "):
            rows(batch(2, body))


def test_endless_records_end_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MOST", 20 * MB)
    record = zigzag(MB + 12) + b"\0\0\0\1" + zigzag(MB) + bytes(MB) + b"\0"
    record = zigzag(len(record) - len(zigzag(MB + 12))) + record[len(zigzag(MB + 12)) :]
    for codec in ("gzip", "lz4", "zstd"):
        body = compression.compress(compression.codec_number(codec), record * 25)
        with pytest.raises(RecordError, match=f"beyond {20 * MB} bytes"):
            rows(batch(compression.codec_number(codec), body, 25))
