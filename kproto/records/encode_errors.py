"""Determine why a record cannot be encoded.

The encoders do not check values beforehand. An invalid value makes them raise one of `UNWRITABLE`. Then
`explain_unwritable` finds the value and names its path, such as ``records[3].headers[0].value``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import EncodeError
from .record import Record, wrap

# The exceptions that encoders raise for values that cannot be encoded. `explain_unwritable` finds the value.
UNWRITABLE = (TypeError, ValueError, AttributeError)


def explain_unwritable(message: str, magic: int, records: Sequence[Record], first: int = 0) -> EncodeError:
    """Return the error for the first record that cannot be encoded. `first` is the index of `records[0]`."""
    # The import is local, because only this error needs the messages' codec module.
    from ..wire.interpreter import short_repr

    for number, record in enumerate(records, first):
        for name, value, wanted in _wrong(record):
            field = f"records[{number}]{name}"
            return EncodeError(message, magic, field, f"{short_repr(value)} is not {wanted}")
    return EncodeError(message, magic, "records", "some value cannot be encoded")


def _wrong(record: object) -> Iterator[tuple[str, object, str]]:
    """Yield each field that keeps the record from being encoded, as (path, value, what is expected)."""
    if not isinstance(record, Record):
        yield "", record, "a Record"
        return
    fields: tuple[Any, ...] = (record.offset, record.timestamp, record.key, record.value, record.headers)
    for name, value in zip((".offset", ".timestamp"), fields[:2], strict=True):
        if not isinstance(value, int) or wrap(value) != value:
            yield name, value, "a value of int64"
    for name, value in zip((".key", ".value"), fields[2:4], strict=True):
        if not isinstance(value, _BYTES):
            yield name, value, "bytes"
    if not isinstance(fields[4], _LISTS):
        yield ".headers", fields[4], "a list of pairs"
        return
    for number, pair in enumerate(fields[4]):
        path = f".headers[{number}]"
        if not isinstance(pair, _LISTS) or len(pair) != 2:
            yield path, pair, "a pair of a key and a value"
        elif not isinstance(pair[0], str) or any("\ud800" <= character <= "\udfff" for character in pair[0]):
            yield f"{path}.key", pair[0], "a str that can be encoded as UTF-8"
        elif not isinstance(pair[1], _BYTES):
            yield f"{path}.value", pair[1], "bytes"


_LISTS: Any = (list, tuple)
_BYTES: Any = (bytes, bytearray, memoryview, type(None))
