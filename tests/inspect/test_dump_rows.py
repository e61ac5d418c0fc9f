"""The rows of a hex dump are joined, or rejected with the number of the line that breaks a rule."""

from __future__ import annotations

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.errors import ConfigError
from kproto.inspect.dump_rows import read


def _row(offset: int, data: bytes, width: int) -> str:
    characters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return f"{offset:08x}: {data.hex(' ', 2).ljust(width * 5 // 2)} {characters}"


@example(b"  \0", 8, "")
@given(
    st.binary(min_size=1, max_size=80), st.sampled_from([8, 16]), st.sampled_from(["", "12:00:01 INFO [a] "])
)
def test_rows_of_any_bytes_are_joined(data: bytes, width: int, prefix: str) -> None:
    starts = range(0, len(data), width)
    text = "\n".join(prefix + _row(start, data[start : start + width], width) for start in starts)
    assert read(text) == [data]


@given(st.binary(min_size=49, max_size=80), st.integers(1, 2))
def test_a_missing_row_is_rejected(data: bytes, missing: int) -> None:
    rows = [_row(start, data[start : start + 16], 16) for start in range(0, len(data), 16)]
    del rows[missing]
    with pytest.raises(ConfigError, match="a row is missing or changed"):
        read("\n".join(rows))


def test_characters_that_look_like_digits_are_not_bytes() -> None:
    assert read("00000000: 6162 6364  abcd") == [b"abcd"]
    assert read("00000000  31 32 33 34  |1234|") == [b"1234"]


def test_two_dumps_are_returned_apart() -> None:
    assert read("a > b\n\t0x0000:  0001\na < b\n\t0x0000:  0002") == [b"\0\1", b"\0\2"]


def test_rows_at_an_address_need_a_mark() -> None:
    assert read("0x7ffe10: 00 01\n0x7ffe12: 02") == [b"\0\1\2"]
    with pytest.raises(ConfigError, match="the first offset must be 0"):
        read("00000010  00 01\n00000012  02")


def test_a_line_that_is_not_a_row_is_quoted_up_to_40_characters() -> None:
    line = "0000O002  " + "00 " * 16
    with pytest.raises(ConfigError, match=f"line 2 is not a row: '{line[:40]}'$"):
        read(f"00000000  00 0b\n{line}")


def test_words_of_several_bytes_need_a_mark() -> None:
    with pytest.raises(ConfigError, match="the dump consists of words in the machine's byte order"):
        read("0000000 0b00 0900\n0000004")


@pytest.mark.parametrize(
    ("second", "end"), [("0000020", "0000040"), ("0000016", "0000032"), ("0000010", "0000020")]
)
def test_offsets_of_seven_digits_are_octal_decimal_or_hexadecimal(second: str, end: str) -> None:
    row = " ".join(["41"] * 16)
    assert read(f"0000000 {row}\n{second} {row}\n{end}\n") == [b"A" * 32]


def test_lines_of_plain_hex_are_not_rows() -> None:
    assert read("000B 0009 0000 0007\n0002 6D65 0008 677C") == []


def test_digits_behind_a_marked_word_are_not_an_offset() -> None:
    """Digits after a number and a colon in a log line do not begin a row of a hex dump.

    In a hex dump an offset may also be followed by a colon.
    """
    for line in ("0050: zz  0010  ab cd", "1234: note  0000  ab cd"):
        assert read(line) == []
    assert read("log 1234: 0000  ab cd") == [b"\x00\x00\xab\xcd"]


def calls(text: str) -> int:
    """Return the number of function calls that `read` makes for a text."""
    count = 0

    def on_event(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        assert read(text) == []
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("end", ["", "zz"])
def test_the_cost_of_a_long_line_of_words_is_linear(end: str) -> None:
    """If the cost were quadratic, a line of 20 KB would take seconds, and a line of 200 KB minutes."""
    assert calls("0000 " * 600 + end) < 3 * calls("0000 " * 300 + end)


def test_the_cost_of_many_offsets_without_bytes_is_linear() -> None:
    assert calls("00000000\n" * 600) < 3 * calls("00000000\n" * 300)


def test_the_longest_row_of_xxd_has_its_characters() -> None:
    row = f"00000000: {'41 ' * 256} {'A' * 256}"
    assert len(row) == 1_035
    assert read(row) == [b"A" * 256]
