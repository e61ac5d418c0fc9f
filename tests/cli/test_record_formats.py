"""Each format prints data as text and as JSON, and encodes the text to bytes again."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kproto.cli.record_formats import FORMATS, encode_text, format_value, json_value

# The format, the bytes, their text, and their value in a JSON line.
CASES: list[tuple[str, bytes, str, Any]] = [
    ("string", "é\t".encode(), "é\t", "é\t"),
    ("string", b"\xff", "\\xff", "\\xff"),
    ("hex", b"\x00\xff", "00ff", "00ff"),
    ("base64", b"\x00\xff", "AP8=", "AP8="),
    ("json", '{ "é" : [1, null] }'.encode(), '{"é":[1,null]}', {"é": [1, None]}),
    ("json", b"null", "null", None),
]


@pytest.mark.parametrize(("form", "data", "text", "value"), CASES)
def test_a_value_has_a_text_and_a_json_form(form: str, data: bytes, text: str, value: Any) -> None:
    assert json_value(data, form) == value
    assert format_value(value, form) == text
    if form != "json" and data != b"\xff":
        assert encode_text(text, form) == data


@pytest.mark.parametrize("form", FORMATS)
def test_a_missing_value_is_null(form: str) -> None:
    assert format_value(None, form) == "null"
    assert json_value(None, form) is None


def test_json_is_sent_as_it_was_written() -> None:
    assert encode_text('{ "a" : 1 }', "json") == b'{ "a" : 1 }'
    assert encode_text("\udcff", "string") == b"\xff"


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("hex", "0", "non-hexadecimal"),
        ("hex", "zz", "non-hexadecimal"),
        ("base64", "A*==", "base64"),
        ("json", "{", "Expecting"),
        ("json", "[NaN]", "NaN is not a JSON number"),
        ("json", "-1e999", "-1e999 is not a JSON number"),
    ],
)
def test_text_that_is_not_in_its_format_is_rejected(form: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"(?i){message}"):
        encode_text(text, form)


def test_unprintable_characters_are_escaped_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert format_value("\x1b[2J", "string") == "\x1b[2J"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert format_value("\x1b[2J", "string") == "\\u001b[2J"
    assert format_value(["\x9b"], "avro") == '["\\u009b"]'
