"""Properties (claims) of the encoding and decoding of record batches.

Each claim is a function that checks kproto.records, or a mutant: a copy of it with one changed line.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kproto.records import Record
from kproto.testing.strategies import NOW, RecordBatch, headers, record_batches, record_sets, timestamps

QUICK = os.environ.get("KPROTO_PROFILE", "quick") == "quick"

# Timestamps that include pairs whose difference exceeds int64.
WILD = timestamps | st.sampled_from([(1 << 63) - 1, -(1 << 63)])
ANY = st.sampled_from([timestamps] * 9 + [WILD]).flatmap(lambda moments: record_batches(timestamps=moments))

Claim = Callable[["Package"], None]


class Package:
    """The modules of kproto.records or of a mutant of it."""

    def __init__(
        self,
        records: ModuleType,
        columns: ModuleType,
        parts: ModuleType,
        vectors: ModuleType,
        errors: ModuleType,
    ) -> None:
        self.records: Any = records
        self.columns: Any = columns
        self.parts: Any = parts
        self.vectors: Any = vectors
        self.error: type[Exception] = errors.RecordError
        self.is_mutant = not errors.__name__.startswith("kproto.")

    def encode(self, drawn: list[RecordBatch]) -> bytes:
        return b"".join(self.records.encode_batch(batch.written, **batch.header) for batch in drawn)

    def read(self, data: bytes, **options: Any) -> list[Any]:
        """Read rows with the reference implementation: batch by batch, row by row."""
        skipped = self.records.AbortedTransactions(options.get("aborted", ()))
        records: list[Any] = []
        for batch in self.records.batches(data, check_crc=options.get("check_crc", True)):
            if skipped.skips(batch) or (batch.is_control and not options.get("control")):
                continue
            records += [
                row for row in batch.records() if row.offset >= options.get("from_offset", row.offset)
            ]
        return records

    def examples(self, most: int | None = None) -> settings:
        """Return Hypothesis settings for `most` examples, or for a fifth of `most` in the quick tests.

        If the profile of Hypothesis sets a larger number, this number applies. A mutant gets up to 2000
        examples, and its first counterexample is not shrunk.
        """
        least = (most or 0) // (5 if QUICK else 1)
        number = max(least, settings().max_examples)
        if self.is_mutant:
            return settings(max_examples=2000, derandomize=True, database=None, phases=(Phase.generate,))
        return settings(max_examples=number)

    def hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lower the thresholds, so that numpy decodes even the few rows of the tests."""
        for module, name, value in (
            (self.columns, "_MIN_NUMPY_RECORDS", 1),
            (self.parts, "_NUMPY_MIN_SIZE", 0),
            (self.columns, "_LARGE_MEAN_SIZE", 1),
            (self.vectors, "_TARGET_LANES", 3),
            (self.vectors, "_MIN_RECORDS_TO_GUESS", 0),
            (self.vectors, "_MIN_PIECE", 3),
            (self.vectors, "_MIN_LANES", 1),
            (self.vectors, "_MIN_RUN", 1),
            (self.vectors, "_MAX_SHORT_SEARCHES", 1 << 30),
        ):
            monkeypatch.setattr(module, name, value)


def as_tuples(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in rows]


def what_is_written_is_read(package: Package) -> None:
    @package.examples()
    @given(record_sets(ANY))
    def claim(drawn: list[RecordBatch]) -> None:
        read_rows = package.read(package.encode(drawn), control=True)
        assert as_tuples(read_rows) == as_tuples([row for batch in drawn for row in batch.records])

    claim()


def headers_of_batches_are_read_as_written(package: Package) -> None:
    @package.examples()
    @given(ANY)
    def claim(batch: RecordBatch) -> None:
        (read_batch,) = package.records.batches(package.encode([batch]))
        assert {name: getattr(read_batch, name) for name in batch.header} == batch.header
        assert read_batch.count == len(batch.written)
        assert read_batch.size == len(read_batch.data)

    claim()


def control_batches_are_no_rows(package: Package) -> None:
    @package.examples()
    @given(record_sets(ANY))
    def claim(drawn: list[RecordBatch]) -> None:
        read_rows = package.records.rows(package.encode(drawn))
        data = [row for batch in drawn if not batch.header.get("is_control") for row in batch.records]
        assert as_tuples(read_rows) == as_tuples(data)

    claim()


def a_cut_last_batch_is_not_there(package: Package) -> None:
    @package.examples()
    @given(record_sets(ANY, max_size=2), st.data())
    def claim(drawn: list[RecordBatch], data: st.DataObject) -> None:
        whole = package.encode(drawn)
        cut = whole[: data.draw(st.integers(0, len(whole)))]
        batches, size = [], 0
        for batch in drawn:
            size += len(package.encode([batch]))
            if size <= len(cut):
                batches.append(batch)
        rows = as_tuples([row for batch in batches for row in batch.records])
        assert as_tuples(package.read(cut, control=True)) == rows

    claim()


def a_changed_bit_is_noticed(package: Package) -> None:
    """Check that a flipped bit in the CRC, or after it, causes an error.

    Brokers may change the offset and the leader epoch, which precede the CRC.
    """

    @package.examples()
    @given(ANY, st.data())
    def claim(batch: RecordBatch, data: st.DataObject) -> None:
        whole = bytearray(package.encode([batch]))
        whole[data.draw(st.integers(17, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        try:
            package.read(bytes(whole))
        except package.error:
            return
        raise AssertionError("the flipped bit was accepted")

    claim()


def a_wrong_count_is_noticed(package: Package) -> None:
    @package.examples()
    @given(ANY, st.integers(-2, 20))
    def claim(batch: RecordBatch, count: int) -> None:
        whole = bytearray(package.encode([batch]))
        if count == len(batch.written):
            return
        whole[57:61] = count.to_bytes(4, "big", signed=True)
        try:
            package.read(bytes(whole), check_crc=False, control=True)
        except package.error:
            return
        raise AssertionError("the wrong record count was accepted")

    claim()


def columns_are_the_rows(package: Package) -> None:
    @package.examples()
    @given(record_sets(ANY), st.booleans(), st.integers(0, 60) | st.none(), st.booleans())
    def claim(drawn: list[RecordBatch], control: bool, start: int | None, committed: bool) -> None:
        data = package.encode(drawn)
        options: dict[str, Any] = {"control": control}
        if start is not None:
            options["from_offset"] = (drawn[0].base_offset if drawn else 0) + start
        if committed:
            options["aborted"] = [(0, 0), (1, options.get("from_offset", 5)), (1, 1 << 41)]
        decoded = package.columns.columns(data, **options)
        rows = package.read(data, **options)
        assert as_tuples(decoded.rows()) == as_tuples(rows)
        assert decoded.offset.tolist() == [row.offset for row in rows]
        assert decoded.timestamp.tolist() == [row.timestamp for row in rows]
        assert decoded.key.to_pylist() == [row.key for row in rows]
        assert decoded.value.to_pylist() == [row.value for row in rows]
        assert decoded.headers == [row.headers for row in rows]
        assert decoded.counts == [len(rows)]
        lent = package.columns.columns(data, **options, lent=True)
        assert lent.value.to_pylist() == [row.value for row in rows]
        lent.release()

    claim()


def columns_see_through_batches_in_values(package: Package) -> None:
    """Check that values that look like records are not read as records."""

    @package.examples()
    @given(st.integers(2, 40), st.integers(6, 60), st.integers(1, 3))
    def claim(inner: int, count: int, every: int) -> None:
        header = {"last_offset": 99}
        value = package.encode([RecordBatch([Record(at, NOW, b"a", b"b") for at in range(inner)], header)])[
            61:
        ]
        rows = [Record(at, NOW + at, b"k", b"" if at % every else value) for at in range(count)]
        data = package.encode([RecordBatch(rows)])
        assert as_tuples(package.columns.columns(data).rows()) == as_tuples(rows)

    claim()


def columns_see_through_runs_of_records(package: Package) -> None:
    """Check `columns` with equally long records around one longer and one shorter record."""

    @package.examples()
    @given(st.integers(40, 45), st.integers(6, 18))
    def claim(size: int, more: int) -> None:
        def row(offset: int, length: int, header: bytes = b"") -> Record:
            record_headers = (("h", header.rjust(35, b"-")),) if header else ()
            record = Record(offset, NOW, None, b"", record_headers)
            used = len(package.encode([RecordBatch([record])])) - 61
            return Record(offset, NOW, None, bytes(length - used), record_headers)

        # The longer record ends with a header whose value looks like the start of a record. A reader that
        # takes the value for a record finds that this false record ends where the next real record ends.
        value = size - 7
        fake = bytes([2 * (size - 1), 0, 0, 4, 1, 2 * value]).ljust(more, b"f")
        rows = [row(0, size), row(1, size + more, fake), row(2, size - more), row(3, size)]
        data = package.encode([RecordBatch(rows)])
        assert as_tuples(package.columns.columns(data).rows()) == as_tuples(rows)

    claim()


def broken_records_are_the_same_errors(package: Package) -> None:
    """Check that damaged records give `read` and `columns` the same rows, or the same error.

    One or two bytes of a batch are changed, and neither function checks the CRC.
    """

    few = st.sampled_from([b"\0" * 3, b"", None, b"\0" * 70, b"\1" * 200])

    @package.examples(300)
    @given(st.lists(st.tuples(few, few, headers), min_size=1, max_size=4), st.data())
    def claim(contents: list[Any], data: st.DataObject) -> None:
        rows = [Record(at, NOW + at, *content) for at, content in enumerate(contents)]
        whole = bytearray(package.encode([RecordBatch(rows)]))
        for _ in range(data.draw(st.integers(1, 2))):
            place = data.draw(st.integers(0, len(whole) - 1) | st.integers(61, min(len(whole) - 1, 68)))
            change = data.draw(st.sampled_from([-2, 2, -4, -1, 1]) | st.integers(0, 255))
            whole[place] = whole[place] + change & 255

        def outcome(read: Callable[[], list[Any]]) -> Any:
            try:
                return as_tuples(read())
            except package.error as error:
                return error.args[:4]

        wanted = outcome(lambda: package.read(bytes(whole), check_crc=False))
        lent = data.draw(st.booleans())
        columns = outcome(lambda: package.columns.columns(bytes(whole), check_crc=False, lent=lent).rows())
        if isinstance(columns, tuple) and "headers" in columns[2]:
            # Both readers must fail, but the positions in their errors may differ: for headers, the columns
            # report positions relative to the start of the row's headers.
            assert isinstance(wanted, tuple)
        else:
            assert columns == wanted

    claim()


def aborted_records_are_left_out(package: Package) -> None:
    """Check that aborted records are omitted, by comparison with a model of transactions.

    In the model, a transaction lasts from its first record to the producer's next commit or abort marker. The
    records of a transaction without a marker are returned, too.
    """

    @package.examples(150)
    @given(st.lists(st.tuples(st.sampled_from("dmcp"), st.integers(0, 2)), max_size=20))
    def claim(story: list[tuple[str, int]]) -> None:
        drawn: list[RecordBatch] = []
        expected: list[int] = []
        aborted: list[tuple[int, int]] = []
        first: dict[int, int] = {}
        pending: dict[int, list[int]] = {}
        for offset, (step, producer) in enumerate(story):
            header: dict[str, Any] = {
                "last_offset": offset,
                "producer_id": producer,
                "is_transactional": True,
            }
            key = b"k"
            if step == "d":
                first.setdefault(producer, offset)
                pending.setdefault(producer, []).append(offset)
            elif step == "p":
                header["is_transactional"] = False
                expected.append(offset)
            else:
                header["is_control"] = True
                key = b"\0\0\0\0" if step == "m" else b"\0\0\0\1"
                mine = pending.pop(producer, [])
                start = first.pop(producer, None)
                if step == "c":
                    expected += mine
                elif start is not None:
                    aborted.append((producer, start))
            drawn.append(RecordBatch([Record(offset, NOW, key, b"v")], header))
        expected += [offset for remaining in pending.values() for offset in remaining]
        data = package.encode(drawn)
        assert [row.offset for row in package.records.rows(data, aborted=aborted)] == sorted(expected)
        assert package.columns.columns(data, aborted=aborted).offset.tolist() == sorted(expected)

    claim()


CLAIMS: list[Claim] = [
    what_is_written_is_read,
    headers_of_batches_are_read_as_written,
    control_batches_are_no_rows,
    a_cut_last_batch_is_not_there,
    a_changed_bit_is_noticed,
    a_wrong_count_is_noticed,
    columns_are_the_rows,
    columns_see_through_batches_in_values,
    columns_see_through_runs_of_records,
    broken_records_are_the_same_errors,
    aborted_records_are_left_out,
]
