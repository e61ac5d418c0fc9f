"""An `array` is rejected as a key, value or header. Of a `memoryview`, the bytes of its elements are written.

The elements of the `memoryview` may have any size and stride.

`len()` of an array counts its elements and not its bytes. If arrays were accepted, they would be encoded with
a wrong length. The batch would have a valid checksum, but no consumer could read it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import pytest

from kproto.errors import EncodeError
from kproto.records import BatchBuilder, Record, encode_batch, rows
from kproto.records.legacy import encode_messages
from kproto.records.list_encoder import unnumbered

LARGE = 70_000


def built(key: Any, value: Any, headers: Any) -> bytes:
    builder = BatchBuilder()
    builder.append(0, key, value, headers)
    return builder.build()


def listed(key: Any, value: Any, headers: Any) -> bytes:
    several = [headers] * 3 if headers else None
    return unnumbered([0, 1, 2], [key] * 3, [value] * 3, several).numbered(-1, -1, -1, is_transactional=False)


def listed_alike(_key: Any, value: Any, _headers: Any) -> bytes:
    return unnumbered([0] * 50, [None] * 50, [value] * 50).numbered(-1, -1, -1, is_transactional=False)


WAYS: dict[str, Callable[[Any, Any, Any], bytes]] = {
    "a batch": lambda key, value, headers: encode_batch([Record(0, 0, key, value, headers)]),
    "a builder": built,
    "lists": listed,
    "lists that are all alike": listed_alike,
    "magic 1": lambda key, value, _: encode_messages([Record(0, 0, key, value)], 1),
}


@pytest.mark.parametrize("count", [2, LARGE], ids=["short", "long"])
@pytest.mark.parametrize("way", WAYS)
def test_an_array_is_rejected(way: str, count: int) -> None:
    numbers = array("i", range(count))
    for name, record in {
        "value": (None, numbers, ()),
        "key": (numbers, b"v", ()),
        "headers[0].value": (None, b"v", (("h", numbers),)),
    }.items():
        if name == "value" or way in ("a batch", "a builder", "lists") or (name, way) == ("key", "magic 1"):
            with pytest.raises(EncodeError) as raised:
                WAYS[way](*record)
            assert raised.value.field == f"records[0].{name}", name


@pytest.mark.parametrize("way", WAYS)
def test_a_view_of_anything_is_written_as_its_bytes(way: str) -> None:
    for view in (memoryview(array("h", [1, 2])), memoryview(b"abcdef")[::2], bytearray(b"xy")):
        [record, *_] = rows(WAYS[way](view, view, (("h", view),)))
        assert record.value == bytes(view)
        assert record.key in (None, bytes(view))
        assert record.headers in ((), (("h", bytes(view)),))
