"""kproto.records passes all checks of claims.py; each mutant (a copy with one mistake) fails one."""

from __future__ import annotations

import importlib
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import kproto
from tests.records import claims
from tests.records.claims import Claim, Package

pytest.importorskip("pyarrow")
pytest.importorskip("cramjam")

SOURCE = Path(kproto.__file__).parent


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> Package:
    modules = ("records", "records.columns", "records.batch_table", "records.column_decoder", "errors")
    package = Package(*(importlib.import_module(f"{name}.{module}") for module in modules))
    package.hurry(monkeypatch)
    return package


@dataclass
class Mutant:
    file: str
    before: str
    after: str
    broken: Claim


MUTANTS = {
    "the CRC is not checked": Mutant(
        "batch", "crc32c(checked[at + CRC_FROM : stop]) != crc", "False", claims.a_changed_bit_is_noticed
    ),
    "rows that are left over are ignored": Mutant(
        "batch", "    if at != stop:", "    if at > stop:", claims.a_wrong_count_is_noticed
    ),
    "control batches pass for data": Mutant(
        "rows", "(batch.is_control and not control)", "False", claims.control_batches_are_no_rows
    ),
    "a batch ends with its last record": Mutant(
        "batch",
        "batch.base_offset + last_delta",
        "batch.base_offset + max(batch.count - 1, 0)",
        claims.headers_of_batches_are_read_as_written,
    ),
    "gaps are closed": Mutant(
        "record",
        "offset = base_offset + ((delta >> 1) ^ -(delta & 1))",
        "offset, base_offset = base_offset, base_offset + 1",
        claims.what_is_written_is_read,
    ),
    "LogAppendTime is forgotten": Mutant(
        "record", "if append_time is not None:", "if False:", claims.what_is_written_is_read
    ),
    "a null value is empty": Mutant(
        "record", "            value = None", '            value = b""', claims.what_is_written_is_read
    ),
    "an abort marker ends nothing": Mutant(
        "reader", "del self._open[batch.producer_id]", "pass", claims.aborted_records_are_left_out
    ),
    "a cut batch is an error": Mutant(
        "reader",
        "return  # The last batch is truncated.",
        'raise RecordError("RecordBatch", -1, "size", at)',
        claims.a_cut_last_batch_is_not_there,
    ),
    "columns: gaps are closed": Mutant(
        "column_decoder",
        "fields.offset[low:high] += offset",
        "fields.offset[low:high] += np.arange(high - low)",
        claims.columns_are_the_rows,
    ),
    "columns: nulls are empty": Mutant(
        "columns",
        "_gather_chosen(data, fields.key, fields.null_key, chosen)",
        "_gather_chosen(data, fields.key, None, chosen)",
        claims.columns_are_the_rows,
    ),
    "lent columns: nulls are empty": Mutant(
        "columns",
        "return views(data, start, stop, null)",
        "return views(data, start, stop, None)",
        claims.columns_are_the_rows,
    ),
    "lent columns: what is short lies in the data": Mutant(
        "arrow_arrays", "if len(short):", "if False:", claims.columns_are_the_rows
    ),
    "lent columns: the longest short ones lie in the data": Mutant(
        "arrow_arrays",
        "view[:, 0] <= _MAX_INLINE_SIZE",
        "view[:, 0] < _MAX_INLINE_SIZE",
        claims.columns_are_the_rows,
    ),
    "lent columns: all rows are wanted": Mutant(
        "columns",
        "start, stop, null = start[chosen], stop[chosen]",
        "start, stop, null = start, stop",
        claims.columns_are_the_rows,
    ),
    "columns: long varints are put together wrongly": Mutant(
        "windows", "<< (7 * byte)", "<< (8 * byte)", claims.columns_are_the_rows
    ),
    "columns: varints of three bytes are put together wrongly": Mutant(
        "windows", ".astype(np.int64) << 14", ".astype(np.int64) << 13", claims.columns_are_the_rows
    ),
    "columns: a window may be too short": Mutant(
        "column_decoder",
        "(min_width == 0) | (used > window_bytes)",
        "min_width == 0",
        claims.columns_are_the_rows,
    ),
    "columns: LogAppendTime is forgotten": Mutant(
        "columns", "if table[APPENDED].any():", "if False:", claims.columns_are_the_rows
    ),
    "headers at once: null values are empty": Mutant(
        "header_decoder", "is_null[headers] = has_null_value", "pass", claims.columns_are_the_rows
    ),
    "headers at once: the value is the key": Mutant(
        "header_decoder",
        "(key_start, key_end, value_start, value_end)",
        "(key_start, key_end, key_start, key_end)",
        claims.columns_are_the_rows,
    ),
    "columns: what is between the ends of a run is believed": Mutant(
        "column_decoder",
        "if not np.array_equal(record_end, end):",
        "if False:",
        claims.columns_see_through_runs_of_records,
    ),
    "columns: fields may end before the record": Mutant(
        "column_decoder",
        "if int(headers_size.max()) > 1 and (no_headers & (headers_size > 1)).any():",
        "if False:",
        claims.broken_records_are_the_same_errors,
    ),
}


@pytest.fixture
def original(monkeypatch: pytest.MonkeyPatch) -> Package:
    return load("kproto", monkeypatch)


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda claim: claim.__name__)
def test_the_claim_holds(claim: Claim, original: Package) -> None:
    claim(original)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("name", MUTANTS)
def test_the_claim_kills_the_mutant(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    copy = f"mutant_{list(MUTANTS).index(name)}"
    shutil.copytree(SOURCE / "records", tmp_path / copy / "records")
    for shared in SOURCE.glob("*.py"):
        shutil.copy(shared, tmp_path / copy)
    (tmp_path / copy / "__init__.py").write_text("")
    file = tmp_path / copy / "records" / f"{mutant.file}.py"
    text = file.read_text()
    assert mutant.before in text, "the mutant's line is gone from the source: mutate another one"
    file.write_text(text.replace(mutant.before, mutant.after))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        package = load(copy, monkeypatch)
        with pytest.raises((AssertionError, package.error, IndexError, ValueError, ExceptionGroup)):
            mutant.broken(package)
    finally:
        for module in [module for module in sys.modules if module.split(".")[0] == copy]:
            del sys.modules[module]
