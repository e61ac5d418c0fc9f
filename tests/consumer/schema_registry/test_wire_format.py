"""The schema id of a value is written, and read back, as a prefix of the value or as a header."""

from __future__ import annotations

from uuid import UUID

import pytest

from consumer.schema_registry.wire_format import encoded_id, header_id, id_size, split

GUID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize("schema_id", [0, 1, 2**31 - 1, GUID])
def test_a_schema_id_survives_a_round_trip(schema_id: int | UUID) -> None:
    prefix = encoded_id(schema_id)
    assert len(prefix) == id_size(schema_id)
    assert split("value", prefix + b"data", ()) == (schema_id, b"data")
    assert split("value", prefix, ()) == (schema_id, b"")


def test_the_last_header_takes_precedence_over_the_bytes() -> None:
    headers = [("__value_schema_id", b"bad"), ("__key_schema_id", encoded_id(8))]
    assert split("key", encoded_id(1) + b"x", headers) == (8, encoded_id(1) + b"x")
    headers.append(("__value_schema_id", encoded_id(GUID)))
    assert split("value", b"x", headers) == (GUID, b"x")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "only 0 bytes"),
        (b"\0\0\0\1", "only 4 bytes"),
        (b"\1" + bytes(15), "only 16 bytes"),
        (b'{"a": 1}', "the first byte is 123"),
    ],
)
def test_bytes_without_a_schema_id_are_an_error(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split("value", data, ())


@pytest.mark.parametrize("header", [b"", None, b"\2" + bytes(16), b"\0\0\0\1"])
def test_a_header_without_a_schema_id_is_an_error(header: bytes | None) -> None:
    with pytest.raises(ValueError, match="the header __value_schema_id has no schema id"):
        split("value", encoded_id(1), [("__value_schema_id", header)])


def test_message_indexes_after_the_id_are_a_part_of_the_prefix() -> None:
    assert header_id(encoded_id(7) + b"\4\0\2rest", indexed=True) == encoded_id(7) + b"\4\0\2"
    assert header_id(encoded_id(7) + b"\4\0", indexed=True) is None
    assert header_id(encoded_id(7) + b"rest", indexed=False) == encoded_id(7)
