"""Bytes are parsed from the output of tools, and from the literals of programming languages."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.errors import ConfigError
from kproto.inspect.hexdump import _tcp_payload, parse, read

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


_SIGNED = [byte - 256 if byte > 127 else byte for byte in DATA]
_HEX = [f"0x{byte:02x}" for byte in DATA]
_TCP = bytes.fromhex("c350 2384 00000001 00000001 5018 0200 00000000".replace(" ", ""))
_PACKET = (
    bytes([0x45, 0, 0, 40 + len(DATA), 0, 0, 0x40, 0, 64, 6, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]) + _TCP + DATA
)


def _words(data: bytes) -> str:
    rows = [data[start : start + 16] for start in range(0, len(data), 16)]
    return "\n".join(f"\t0x{number * 16:04x}:  {row.hex(' ', 2)}" for number, row in enumerate(rows))


# (text, the output format that is detected)
DETECTED = {
    "Java, Arrays.toString": (str(_SIGNED), "decimal"),
    "Go, %v": ("[" + " ".join(map(str, DATA)) + "]", "decimal"),
    "Go, []byte": ("[]byte{" + ", ".join(map(str, DATA)) + "}", "decimal"),
    "Go, %#v": ("[]byte{" + ", ".join(f"0x{byte:x}" for byte in DATA) + "}", "hex"),
    "JSON": ('{"type":"Buffer","data":' + str(list(DATA)).replace(" ", "") + "}", "decimal"),
    "Erlang": ("<<" + ",".join(map(str, DATA)) + ">>", "decimal"),
    "YAML": ("\n".join(f"- {byte}" for byte in DATA), "decimal"),
    "Kotlin": ("byteArrayOf(" + ", ".join(map(str, _SIGNED)) + ")", "decimal"),
    "Java source": ("new byte[] {" + ", ".join(f"(byte) {byte}" for byte in _HEX) + "};", "hex"),
    "Rust": (
        f"const RAW: [u8; {len(DATA)}] = [\n  {_HEX[0]}, // 1\n  " + ", ".join(_HEX[1:]) + "\n];",
        "hex",
    ),
    "Rust, {:x?}": ("[" + ", ".join(f"{byte:x}" for byte in DATA) + "]", "hex"),
    "C with comments": ("/* key */ " + ", ".join(_HEX[:2]) + ",\n/* 3 */ " + ", ".join(_HEX[2:]), "hex"),
    "xxd -i": (f"unsigned char a[] = {{\n {', '.join(_HEX)}\n}};\nunsigned int a_len = {len(DATA)};", "hex"),
    "Node": ("<Buffer " + DATA.hex(" ") + ">", "hex"),
    "PostgreSQL": ("\\x" + DATA.hex(), "hex"),
    "Python's bytearray": (repr(bytearray(DATA)), "string"),
    "a command": (
        "echo -ne '" + "".join(f"\\x{byte:02x}" for byte in DATA) + "' | nc localhost 9092",
        "string",
    ),
    "C in lines": ("".join(f'"\\x{byte:02x}" \\\n' for byte in DATA), "string"),
    "gdb, p": ('$1 = "' + "".join(f"\\{byte:03o}" for byte in DATA) + '"', "string"),
    "tcpdump -x": (_words(DATA), "dump"),
    "tcpdump of a packet": (
        "12:00:00 IP a.1 > b.2: seq 1:26, ack 1000, length 25\n" + _words(_PACKET),
        "dump",
    ),
    "a packet as hex": (_PACKET.hex(), "hex"),
    "gdb, x/8xb": (
        "\n".join(
            f"0x7ffe{start:04x} <buf+{start}>:\t" + "\t".join(_HEX[start : start + 8])
            for start in range(0, len(DATA), 8)
        ),
        "dump",
    ),
    "a table in a log": (
        "[t] Idx  | Hex | ASCII\n[t] -----+----+---\n"
        "[t] 0000 | 00 0b 00 09 00 00 00 07 00 02 6d 65 00 08 67 7c | ..........me..g|\n"
        "[t] 0010 | c3 a9 20 20 78 00 00 af c8                      | ..  x....",
        "dump",
    ),
    "od -tx1z": (
        "0000000 00 0b 00 09 00 00 00 07 00 02 6d 65 00 08 67 7c  >..........me..g|<\n"
        "0000020 c3 a9 20 20 78 00 00 af c8                       >..  x....<\n0000031\n",
        "dump",
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_bytes(form: str) -> None:
    assert read(FORMS[form]) == DATA
    assert read(FORMS[form].replace("\n", "\r\n")) == DATA


@pytest.mark.parametrize("name", DETECTED)
def test_each_print_of_the_bytes_is_read_in_the_form_that_is_reported(name: str) -> None:
    text, form = DETECTED[name]
    assert parse(text) == (DATA, form)
    assert parse(text, form) == (DATA, form)


def test_a_star_repeats_the_row_above_up_to_the_next_offset() -> None:
    assert read("00000000  " + "07 " * 16 + " |....|\n*\n00000040  01\n00000041\n") == b"\x07" * 64 + b"\x01"


def test_a_star_does_not_exceed_the_maximum_frame_size() -> None:
    with pytest.raises(
        ConfigError, match="line 3 has the offset 7ffffffe, but the rows before it have 2 bytes"
    ):
        read("00000000  00 00  |..|\n*\n7ffffffe\n")


@pytest.mark.parametrize(
    ("lines", "is_base64"),
    [
        (["G" * 16, "G" * 16, "Gg=="], True),
        (["G" * 16, "Gg=="], True),
        (["G" * 16, "G" * 12, "Gg=="], False),
        (["G" * 12, "G" * 12, "Gg=="], False),
        (["G" * 12, "G" * 16], False),
        (["Gg=="], True),
        (["-_" * 8], True),
        (["+_" * 8], False),
    ],
)
def test_the_lines_of_a_base64_text_have_one_length_of_at_least_16(lines: list[str], is_base64: bool) -> None:
    assert (read("\n".join(lines)) is not None) is is_base64


def test_a_named_form_is_rejected_with_the_wrong_digit_however_short_the_text_is() -> None:
    with pytest.raises(ConfigError, match="'z' is not a hex digit"):
        parse("0z", "hex")


@pytest.mark.parametrize("number", [-129, 256])
def test_a_decimal_byte_is_signed_or_unsigned(number: int) -> None:
    assert read("[-128, 255, 127, 0]") == bytes([128, 255, 127, 0])
    with pytest.raises(ConfigError, match=f"{number} is not a byte; decimal bytes are 0 to 255, or -128 to"):
        read(f"[0, {number}]")


def test_plain_hex_may_start_like_an_offset() -> None:
    assert read("0000 0009 0000 0001") == bytes.fromhex("0000000900000001")


@pytest.mark.parametrize("text", ["zz!", "JoinGroup", "\0\1", "00h 0bh 00h", "%00%0b"])
def test_other_text_gives_no_bytes(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("000b0", "odd number"),
        ("b'", "odd number"),
        ("0000: zz", "the digits of line 1 are not hex bytes"),
        ("0000000 0b00 0900\n", "hexdump -C"),
        ("000c0004 0000000O", "'O' is not a hex digit"),
        ("0000000 000000 0900 0b00\n", "odd number"),
        ("00000000: 6d020065 00000000  e..m....", "not words"),
        ("00000000: 00000000 00001011  ..", "not words"),
        ("00000000: 000b  ..\n00000004: 0007  ..", "a row is missing"),
        ("00000000  00 0b\n0000O002  00 09", "line 2 is not a row"),
        ("0x7ffe0:\t0x21000000\t0x0b000c00", "x/16xb"),
        ("0x0000:  000b\n\n0x0000:  0009", "2 dumps"),
        ("0000 00 0b 00", "an offset or bytes"),
        ("0x000b, 0x0009", "unknown byte order"),
        ("[0, 11, 300]", "300 is not a byte"),
        ("a = {1, 2}; b = {3, 4, 5}", "arrays of 3 and 2 numbers"),
        ("byte[3] {0x00, 0x0b}", "paste one"),
        ("0x00, 0x0b, // key 0x00, 0x09", "the end of its comment is unknown"),
        ("0:0:0:11", "--form decimal"),
        ("<Buffer 00 0b 00 ... 13 more bytes>", "shortened"),
        ("$1 = {0x0, 0xb <repeats 12 times>}", "gdb omits"),
        ("[B@1b6d3586", "identity of a Java array"),
        ("'\\x00\ufffd'", "U\\+FFFD"),
        ('"\\\\x00\\\\x0b"', "escaped twice"),
        ('"\\u0000\\u00c8"', "depend on an encoding"),
        ('"\\00" "\\1"', "octal"),
        ('"\\x00" and "\\x0b"', "paste only the strings"),
        ('"\\x00\\q"', "not a known escape"),
        (" 27000000 03001200\n 07000000\n", "byte order of the machine"),
        (" 0000 2700 1200\n 0b00", "byte order of the machine"),
        ("[0b00000000, 0b00100111]", "bits or hex"),
        ("00000000 00001011 00000000 00001001 00000000 00000000", "bits or hex"),
        ('"\\0\\0\\0\\39"', "decimal or octal"),
        ('"\\0\\8"', "decimal or octal"),
        ("Label: String <1234>\n00 0b 00 09 00 00", "numbers inside and outside of brackets"),
        ('"\\x00\\777"', "777 is more than a byte; the largest is .377"),
        ('"\\x00\u00e9"', "the bytes of '\u00e9' depend on an encoding; print hex"),
    ],
)
def test_mistyped_hex_is_rejected_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(text)


def test_an_octal_escape_is_at_most_a_byte() -> None:
    assert read(r'"\x00\377\7"') == b"\0\xff\7"


def test_escapes_need_no_quotes() -> None:
    assert read(r"\000 \013\n") == b"\0\x0b\n"


def test_numbers_between_angle_brackets_are_hex() -> None:
    assert parse("<10 20 30>") == (bytes.fromhex("102030"), "hex")


def test_quoted_hex_may_have_spaces() -> None:
    for text in ("x'000b 0009'", "'000b 0009'", "\\x000b0009"):
        assert read(text) == bytes.fromhex("000b0009")


def test_lines_of_one_odd_length_are_parts_of_one_hex_text() -> None:
    assert read("000b000\n9000000\n07") == bytes.fromhex("000b0009 00000007")
    for text in ("000b000\n900000\n007", "000b000 9000000 07", "000b000\n9000000\n070"):
        with pytest.raises(ConfigError, match="odd number"):
            read(text)


def test_rust_prints_a_zero_byte_in_front_of_a_digit() -> None:
    assert read(r'b"\0\x0b\00"') == b"\0\x0b\x000"


def test_a_text_of_two_forms_is_read_in_the_form_that_is_named() -> None:
    assert parse("10 20 30") == (bytes.fromhex("102030"), "hex")
    assert parse("100 200") == (bytes([100, 200]), "decimal")
    assert parse("10 20 30", "decimal") == (bytes([10, 20, 30]), "decimal")
    assert read("0x000b, 0x0009", "hex") == bytes.fromhex("000b0009")
    with pytest.raises(ConfigError, match="--form dump reads rows with offsets"):
        parse("10 20 30", "dump")
    with pytest.raises(ConfigError, match="one of dump, string, decimal, hex, base64"):
        parse("10 20 30", "octal")


@pytest.mark.parametrize("separator", ["_", ".", "|"])
def test_pairs_of_hex_digits_may_have_another_separator(separator: str) -> None:
    assert parse(DATA.hex(separator)) == (DATA, "hex")


@pytest.mark.parametrize(
    ("text", "form", "data"),
    [
        ("0b00000000 0b00100111", "hex", bytes.fromhex("0b000000000b00100111")),
        ("00000001" * 6, "hex", bytes([0, 0, 0, 1] * 6)),
        (r"'\0\39'", "string", b"\0\x039"),
        ("00 " * 32, None, bytes(32)),
        (r"'\\39'", None, rb"\39"),
    ],
)
def test_digits_with_another_meaning_are_read_if_the_form_is_named(
    text: str, form: str | None, data: bytes
) -> None:
    assert read(text, form) == data


@given(st.binary(min_size=1))
@example(b"\\\0")
@example(b"\\10")
def test_prints_of_any_bytes_are_read(data: bytes) -> None:
    assert read(repr(data)) == data
    assert read(str(list(data))) == data
    assert read("[" + ", ".join(f"0x{byte:x}" for byte in data) + "]") == data


@given(st.binary(min_size=1), st.sampled_from([" ", ":", ", "]))
@example(b"00 ", " ")
def test_hex_of_any_bytes_is_read(data: bytes, between: str) -> None:
    assert read(between.join(f"{byte:02x}" for byte in data)) == data


@given(st.text("0123456789abcdef xX:|*\n'b\\=[]{}<>,-\"/", max_size=60))
def test_any_text_is_read_rejected_or_gives_no_bytes(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(read(text), bytes | None)


def ipv4(payload: bytes, *, words: int = 5, tcp_words: int = 5, protocol: int = 6, cut: int = 0) -> bytes:
    """Build an IPv4 packet. `words` and `tcp_words` are the lengths of its headers in words of 4 bytes."""
    tcp = bytes(12) + bytes([tcp_words << 4]) + bytes(tcp_words * 4 - 13) + payload
    size = words * 4 + len(tcp)
    head = bytes([0x40 | words, 0]) + size.to_bytes(2, "big") + bytes(5) + bytes([protocol]) + bytes(10)
    return (head + bytes(words * 4 - 20) + tcp)[: size - cut]


def ipv6(payload: bytes, *, following: int = 6) -> bytes:
    tcp = bytes(12) + b"\x50" + bytes(7) + payload
    return b"\x60\0\0\0" + len(tcp).to_bytes(2, "big") + bytes([following, 64]) + bytes(32) + tcp


ETHERNET = bytes(12)


@pytest.mark.parametrize(
    ("packet", "payload"),
    [
        (ipv4(b"kafka"), b"kafka"),
        (ipv4(b""), b""),
        (ipv4(b"kafka", words=7, tcp_words=8), b"kafka"),
        (ipv4(b"kafka") + b"padding", b"kafka"),
        (ETHERNET + b"\x08\x00" + ipv4(b"kafka"), b"kafka"),
        (ETHERNET + b"\x86\xdd" + ipv6(b"kafka"), b"kafka"),
        (ipv6(b"kafka") + b"padding", b"kafka"),
        (ipv6(b""), b""),
        (ipv4(b"kafka", protocol=17), None),
        (ipv6(b"kafka", following=17), None),
        (ipv4(b"kafka", cut=1), None),
        (ipv6(b"kafka")[:-1], None),
        (ipv4(b"")[:39], None),
        (ETHERNET + b"\x08\x06" + ipv4(b"kafka"), None),
        (b"\0\0\0\x08" + bytes(60), None),
    ],
)
def test_the_payload_of_a_tcp_packet_is_what_its_headers_say(packet: bytes, payload: bytes | None) -> None:
    assert _tcp_payload(packet) == payload
