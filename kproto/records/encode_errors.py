"""Determine why a record cannot be encoded.

The encoders do not check values beforehand. For an invalid value, an encoder raises one of `UNWRITABLE`. Then
`explain_unwritable` finds the value and names its path, such as ``records[3].headers[0].value``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from ..errors import EncodeError
from .record import Record, wrap

# The exceptions that encoders raise for values that cannot be encoded. `explain_unwritable` finds the value.
UNWRITABLE = (TypeError, ValueError, AttributeError)


def explain_unwritable(message: str, magic: int, records: Sequence[Record], first: int = 0) -> EncodeError:
    """Return the error for the first record that cannot be encoded. `first` is the index of `records[0]`."""
    # The import is local, because only this error needs the messages' codec module.
    from ..wire.interpreter import short_repr

    for index, record in enumerate(records, first):
        for path, value, expected in _invalid_fields(record):
            field = f"records[{index}]{path}"
            return EncodeError(message, magic, field, f"{short_repr(value)} is not {expected}")
    return EncodeError(message, magic, "records", "some value cannot be encoded")


def _invalid_fields(record: object) -> Iterator[tuple[str, object, str]]:
    """Yield each field that keeps the record from being encoded, as (path, value, what is expected)."""
    if not isinstance(record, Record):
        yield "", record, "a Record"
        return
    # The types of the fields are not checked when a Record is created.
    unchecked = cast(Any, record)
    for path, value in ((".offset", unchecked.offset), (".timestamp", unchecked.timestamp)):
        if not isinstance(value, int) or wrap(value) != value:
            yield path, value, "a value of int64"
    for path, value in ((".key", unchecked.key), (".value", unchecked.value)):
        if not isinstance(value, _BYTES):
            yield path, value, "bytes"
    headers = unchecked.headers
    if not isinstance(headers, _LISTS):
        yield ".headers", headers, "a list of pairs"
        return
    for index, pair in enumerate(headers):
        path = f".headers[{index}]"
        if not isinstance(pair, _LISTS) or len(pair) != 2:
            yield path, pair, "a pair of a key and a value"
        elif not isinstance(pair[0], str) or _has_surrogate(pair[0]):
            yield f"{path}.key", pair[0], "a str that can be encoded as UTF-8"
        elif not isinstance(pair[1], _BYTES):
            yield f"{path}.value", pair[1], "bytes"


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


_LISTS: Any = (list, tuple)
_BYTES: Any = (bytes, bytearray, memoryview, type(None))
