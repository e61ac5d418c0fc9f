"""Bytes are parsed from the output formats of hexdump tools, which the tests contain as text."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.errors import ConfigError
from kproto.inspect.hexdump import read

DATA = bytes.fromhex("000b00090000000700026d650008677cc3a92020780000afc8")

FORMS = {
    "plain": "000b00090000000700026d650008677cc3a92020780000afc8",
    "words in lines": "000B 0009 0000 0007\n0002 6D65 0008 677C\nC3A9 2020 7800 00AF C8\n",
    "colons": DATA.hex(":"),
    "dashes": DATA.hex("-"),
    "0x": f"0x{DATA.hex()}",
    "C": "{ " + ", ".join(f"0x{byte:02X}" for byte in DATA) + " };",
    "shell": "".join(f"\\x{byte:02x}" for byte in DATA),
    "Python": repr(DATA),
    "base64": base64.b64encode(DATA).decode(),
    "base64 in lines": base64.encodebytes(DATA).decode(),
    "xxd": """\
00000000: 000b 0009 0000 0007 0002 6d65 0008 677c  ..........me..g|
00000010: c3a9 2020 7800 00af c8                   ..  x....
""",
    "hexdump -C": """\
00000000  00 0b 00 09 00 00 00 07  00 02 6d 65 00 08 67 7c  |..........me..g||
00000010  c3 a9 20 20 78 00 00 af  c8                       |..  x....|
00000019
""",
    "od -tx1": """\
0000000 00 0b 00 09 00 00 00 07 00 02 6d 65 00 08 67 7c
0000020 c3 a9 20 20 78 00 00 af c8
0000031
""",
    "Wireshark's bytes": """\
0000   00 0b 00 09 00 00 00 07 00 02 6d 65 00 08 67 7c   ..........me..g|
0010   c3 a9 20 20 78 00 00 af c8                        ..  x....
""",
    "Wireshark's stream": """\
    00000000  00 0b 00 09 00 00 00 07  00 02 6d 65 00 08 67 7c   ........ ..me..g|
    00000010  c3 a9 20 20 78 00 00 af  c8                        ..  x... .
""",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_bytes(form: str) -> None:
    assert read(FORMS[form]) == DATA
    assert read(FORMS[form].replace("\n", "\r\n")) == DATA


def test_a_star_repeats_the_row_above_up_to_the_next_offset() -> None:
    assert read("00000000  " + "07 " * 16 + " |....|\n*\n00000040  01\n00000041\n") == b"\x07" * 64 + b"\x01"


def test_a_star_does_not_exceed_the_maximum_frame_size() -> None:
    assert read("00000000  00 00  |..|\n*\n7ffffffe\n") is None


def test_plain_hex_may_start_like_an_offset() -> None:
    assert read("0000 0009 0000 0001") == bytes.fromhex("0000000900000001")


@pytest.mark.parametrize("text", ["zz!", "JoinGroup", "b'", "0000: zz", "\0\1"])
def test_other_text_gives_no_bytes(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("000b0", "odd number"),
        ("0000000 0b00 0900\n", "hexdump -C"),
        ("000c0004 0000000O", "'O' is not a hex digit"),
    ],
)
def test_mistyped_hex_is_rejected_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(text)


@given(st.binary(min_size=1), st.sampled_from([" ", ":", ", "]))
@example(b"00 ", " ")
def test_hex_of_any_bytes_is_read(data: bytes, between: str) -> None:
    assert read(between.join(f"{byte:02x}" for byte in data)) == data


@given(st.text("0123456789abcdef xX:|*\n'b\\=", max_size=60))
def test_any_text_is_read_rejected_or_gives_no_bytes(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(read(text), bytes | None)
