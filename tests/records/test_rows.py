"""A `records` field has the same rows as one list, as several lists, and after decoding to columns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kproto.errors import ConfigError, RecordError
from kproto.records import Record, batches, encode_batch, row_lists, rows
from kproto.records.reader import has_many_records
from tests.records.raw_batches import NOW, SAMPLE, TWO


def test_rows_start_at_from_offset() -> None:
    assert rows(SAMPLE, from_offset=41) == TWO[1:]
    assert rows(SAMPLE, from_offset=42) == []


def test_lists_of_rows_have_at_most_the_size() -> None:
    data = b"".join(encode_batch([Record(base + at, NOW, None, b"") for at in range(7)]) for base in (0, 7))
    assert [len(some) for some in row_lists(data, 3)] == [3, 3, 1, 3, 3, 1]
    assert [row for some in row_lists(data, 3) for row in some] == rows(data)


@pytest.mark.parametrize("size", [0, -1])
def test_a_list_size_below_one_is_rejected(size: int) -> None:
    for count in (1, 1200):
        with pytest.raises(ConfigError, match="size"):
            next(row_lists(encode_batch([Record(at, NOW, None, b"") for at in range(count)]), size))


@pytest.mark.parametrize("data", [[0, 1], 5], ids=str)
def test_data_that_is_not_bytes_is_rejected(data: Any) -> None:
    with pytest.raises(TypeError):
        rows(data)
    with pytest.raises(TypeError):
        next(batches(data))


def test_large_fields_decoded_by_columns_have_the_same_rows() -> None:
    data = b"".join(
        encode_batch([Record(base + at, NOW, b"k%d" % at, b"v" * 90) for at in range(150)])
        for base in range(0, 1500, 150)
    )
    slow = [row for batch in batches(data) for row in batch.records()]
    assert has_many_records(data)
    assert rows(data) == slow
    assert [row for some in row_lists(data) for row in some] == slow


def test_lists_before_a_malformed_batch_are_returned_first() -> None:
    good = encode_batch([Record(at, NOW, None, b"v" * 50) for at in range(1200)])
    lists = row_lists(good + good[:-1] + b"!", 1500)
    assert len(next(lists)) == 1200
    with pytest.raises(RecordError):
        next(lists)


def test_rows_work_without_any_extra() -> None:
    script = """
import sys
from pathlib import Path
from typing import Any
for name in ("numpy", "pyarrow", "cramjam", "zstandard"):
    sys.modules[name] = None
from kproto.errors import MissingExtra
from kproto.records import Record, encode_batch, row_lists, rows
many = [Record(at, 0, None, b"v" * 90) for at in range(1200)]
assert rows(encode_batch(many)) == many == [one for some in row_lists(encode_batch(many)) for one in some]
assert rows(encode_batch(many, compression="gzip")) == many
for call in (lambda: encode_batch(many, compression="zstd"), lambda: __import__("kproto.records.columns")):
    try:
        call()
    except MissingExtra as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'kproto[compression]'" in done.stdout
    assert "pip install 'kproto[columns]'" in done.stdout


@pytest.mark.parametrize("read", [rows, lambda data: list(batches(data))])
@pytest.mark.parametrize("path", ["00000000.log", Path("00000000.log")])
def test_a_path_is_rejected(read: Any, path: Any) -> None:
    with pytest.raises(ConfigError, match=r"data=.*00000000.log.* is not allowed; bytes; .*read_bytes"):
        read(path)
