"""Conversions between Arrow, numpy and Python give pyarrow's results, without pandas."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
pa: Any = pytest.importorskip("pyarrow")

from kproto.records.arrow_arrays import (  # noqa: E402
    from_bytes,
    from_numpy,
    from_texts,
    to_numpy,
    validity,
)

# A program whose import finder prints a line for each attempt to import pandas, even if pandas is not
# installed.
NOTES_PANDAS = """
import sys
class Notes:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas": print("imports pandas")
sys.meta_path.insert(0, Notes())
from kproto.records import Record, encode_batch
from kproto.records.columns import columns
rows = [Record(o, 1, b"k" if o % 2 else None, b"v", (("h" * (o % 3), b"x"),) * (o % 4)) for o in range(300)]
for data in (encode_batch(rows), encode_batch(rows, compression="gzip"), encode_batch(rows[:1]), b""):
    table = columns(data).to_arrow()
    table.validate(full=True)
    columns(data).rows()
"""


@given(st.lists(st.none() | st.binary()), st.data())
def test_bytes_are_converted_as_pyarrow_does(values: list[bytes | None], data: st.DataObject) -> None:
    array = from_bytes(values)
    assert array.equals(pa.array(values, pa.binary()))
    array.validate(full=True)
    start = data.draw(st.integers(0, len(values)))
    assert validity(array.slice(start)).tolist() == [value is not None for value in values[start:]]


@given(st.lists(st.none() | st.text()))
def test_texts_are_converted_as_pyarrow_does(values: list[str | None]) -> None:
    assert from_texts(values).equals(pa.array(values, pa.string()))


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "bool"])
def test_numbers_are_converted_as_pyarrow_does(kind: str) -> None:
    numbers = np.arange(20).astype(kind)[::2]
    null = np.arange(10) % 3 == 0
    assert from_numpy(numbers).equals(pa.array(numbers))
    assert from_numpy(numbers, null).equals(pa.array(numbers, mask=null))
    if kind != "bool":
        assert (
            to_numpy(from_numpy(numbers).slice(3, 4), np.dtype(kind).type).tolist() == numbers[3:7].tolist()
        )


def test_columns_are_converted_without_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", NOTES_PANDAS], capture_output=True, text=True, check=True)
    assert done.stdout == ""
