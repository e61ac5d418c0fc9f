"""Values survive a round trip through JSON, and unusable serializers are rejected."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.serializers import JsonDeserializer, JsonSerializer, function_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)


@dataclass
class Flight:
    to: str
    seats: int = 0


def to_json(value: Any) -> bytes:
    return JsonSerializer().serialize("t", value, ())


@given(JSON)
def test_json_survives_a_round_trip_and_other_programs_read_it(value: Any) -> None:
    data = to_json(value)
    read: Any = JsonDeserializer().deserialize("t", data, ())
    assert read == value
    assert json.loads(data) == value


@given(JSON)
def test_json_of_other_programs_is_read(value: Any) -> None:
    read: Any = JsonDeserializer().deserialize("t", json.dumps(value).encode(), ())
    assert read == value


def test_a_type_is_checked_and_returned() -> None:
    deserializer = JsonDeserializer(Flight)
    assert deserializer.deserialize("t", to_json(Flight("BER", 3)), ()) == Flight("BER", 3)
    assert deserializer.deserialize("t", b'{"to": "BER"}', ()) == Flight("BER")
    for data in (b"{}", b'{"to": 1}', b"no JSON", b"", b"\xff"):
        with pytest.raises(ValueError, match=r"(?s)."):
            deserializer.deserialize("t", data, ())


def test_values_without_a_form_in_json_are_rejected_or_documented() -> None:
    assert to_json(datetime(2026, 1, 2, tzinfo=UTC)) == b'"2026-01-02T00:00:00Z"'
    assert to_json(float("nan")) == b"null"
    with pytest.raises(TypeError, match="type object is unsupported"):
        to_json(object())


def test_an_object_with_the_method_is_preferred_to_calling_it() -> None:
    class Both:
        def __call__(self, topic: str, data: bytes, headers: Any) -> str:
            return "called"

        def deserialize(self, topic: str, data: bytes, headers: Any) -> str:
            return "deserialized"

    function = function_of("value_deserializer", Both(), "deserialize", coroutines=False, client="")
    assert function is not None
    assert function("t", b"", ()) == "deserialized"
