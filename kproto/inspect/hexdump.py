r"""Read bytes from pasted text, in any form in which tools and programming languages print bytes.

    read("000c0004 0000 0007")
    parse("[0, 12, 0, 4]")            # ParsedText(data=b"\x00\x0c\x00\x04", form="decimal")
    parse("10 20 30", "decimal")      # Without the form, two digits are hex.

`FORMS` lists the supported forms, in the order in which they are tried. Rules for all forms:

* All characters of a text must fit its form. A text is never read in part, because the result would lack
  bytes.

* A shortened text is rejected with the reason. So is a text with several meanings, unless the caller names
  the form.

* If the bytes are an IP packet with a TCP segment, the result is the data of the segment.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import NamedTuple

from ..errors import ConfigError
from . import dump_rows


class ParsedText(NamedTuple):
    """The bytes that a text represents, and the name of the form in which the text was read."""

    data: bytes
    form: str


class TextForm(NamedTuple):
    """A form in which bytes are printed as text, with the function that reads it.

    `read(text, is_named)` returns the bytes, or None for a text of another form. `is_named` means that the
    caller named this form. If it is false, `read` may reject a text that could also be of another form.
    """

    description: str
    read: Callable[[str, bool], bytes | None]


# (pattern, error message). Each pattern matches texts in which a tool has omitted, replaced or swapped bytes,
# so that the original bytes are unknown.
_LOSSY_TEXTS = (
    (r"\A0{6,7}(\s+[0-9A-Fa-f]{4})+\s*$", "hexdump and od swap bytes by default; call hexdump -C or od -tx1"),
    (r"\A\[[BC]@[0-9a-f]+\s*\Z", "the text is the identity of a Java array; print Arrays.toString(bytes)"),
    (
        r"<repeats \d+ times>",
        "gdb omits repeated bytes; call `set print repeats 0`, or print them with x/64xb",
    ),
    (r"(?<=[\s,])(\.\.\.|…)|\d more (bytes|items)", "the text is shortened; print all bytes"),
    (r"�|\\ufffd", "bytes that are not UTF-8 were replaced by U+FFFD; print hex"),
    (r"(?<!\\)(\\\\)+x[0-9A-Fa-f]{2}", "the text is escaped twice; remove one escape"),
)
# (pattern of a text that has several meanings, error message). If the caller names the form of the text,
# these patterns are not used.
_AMBIGUOUS_TEXTS = (
    (
        r"\A0{4,}( [0-9A-Fa-f]{2}){2,}\s*\Z",
        "the zeros may be an offset or bytes; remove them, or use --form hex",
    ),
    (
        r"0x[0-9A-Fa-f]{3,}\W[^$]*?0x[0-9A-Fa-f]{3,}",
        "words have an unknown byte order; print bytes, or use --form hex for big-endian words",
    ),
    # Words that od -An has printed: no other tool begins each row with a single space.
    (
        r"\A(?: (?:[0-9a-f]{4}|[0-9a-f]{8}|[0-9a-f]{16}))+\s*$(?:\n .*)+\s*\Z",
        "od prints words in the byte order of the machine; call od -tx1, or use --form hex",
    ),
    (
        r"\A[\s,\[({]*0b[01]{8}\b|\A(?=[0\s]*1)[01\s]{48,}\Z",
        "the digits may be bits or hex; print hex, or use --form hex",
    ),
    # Octal or decimal escapes: Lua and Haskell print \39 for the byte that C prints as \047.
    (
        r"(?<!\\)(?:\\\\)*\\(?:[1-9][0-9](?![0-9])|[89])",
        "the escapes may be decimal or octal; print hex, or use --form string for octal",
    ),
)
# At the start of a line, // or # begins a comment only if a space follows, because base64 may begin with //.
_COMMENT = re.compile(r"/\*.*?\*/|((?<=[ \t,;])(//|#)|(//|#)[ \t])[^\n]*", re.DOTALL)
_BRACKETS = re.compile(r"(<<|[\[{(<])([^\[\](){}<>]*)[\]})>]")
_CAST = re.compile(
    r"\(\s*(?:s?byte|char|u?int8(?:_t)?)\s*\)|\.toU?Byte\(\)|\[Uint8Contents\]:|\bBuffer ", re.IGNORECASE
)
_TYPE_SUFFIX = re.compile(r"(?<=[0-9A-Fa-f])_?[ui]8\b")
_QUOTED_HEX = re.compile(r"""[\w.\s=:({\[]*["']([0-9A-Fa-f\s]+)["'](?:,\s*["']hex["'])?[\s);\]}]*""")
_HEX_SEPARATOR = re.compile(r"0[xX]|\\x|[\s:,;{}\[\]()\"'<>-]")
# A text of at least `_MIN_MISTYPED_HEX` characters counts as mistyped hex if at most one in
# `_DIGITS_PER_ERROR` characters is not a hex digit. Two in a million base64 texts of that length match.
_MIN_MISTYPED_HEX = 12
_DIGITS_PER_ERROR = 8
_LITERAL = re.compile(r"""(?<![\w\\])(br?|B|u8|\$|@)?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""", re.DOTALL)
# The text that may surround literals. Before them: a declaration, a call or a command. After them: a pipe to
# another command. Each \0 stands for a literal.
_LITERAL_CONTEXT = re.compile(r"[\w\s=:&$.(<\[\]*-]*\0(?:[\s\\+.()]*\0)*[\s\\;,)>\]]*(?:\|[^\0]*)?")
_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{2})|[xu]\{(?P<braces>[0-9A-Fa-f]{1,4})\}|"
    r"u(?P<unicode>[0-9A-Fa-f]{4})|(?P<simple>.))|(?P<character>.)",
    re.DOTALL,
)
_SIMPLE_ESCAPES = dict(zip("abtnvfre\\'\"?`#$/", b"\a\b\t\n\v\f\r\x1b\\'\"?`#$/", strict=True))


def read(text: str, form: str | None = None) -> bytes | None:
    """Return the bytes that a text encodes, or None if it has no known form.

    `parse` documents `form` and the errors. Unlike `read`, `parse` also returns the form of the text.
    """
    parsed = parse(text, form)
    return None if parsed is None else parsed.data


def parse(text: str, form: str | None = None) -> ParsedText | None:
    """Return the bytes that a text encodes, with their form, or None if the text has no form of `FORMS`.

    `form` is the name of the text's form, or None to try all forms. Raises ConfigError for a text that has an
    error, lacks bytes, has several meanings, or does not have the form that the caller named.
    """
    text = text.removeprefix("\ufeff")
    if form is not None and form not in FORMS:
        raise ConfigError("form", form, f"one of {', '.join(FORMS)}")
    if not is_text(text):
        return None
    rejected = _LOSSY_TEXTS if form else (*_LOSSY_TEXTS, *_AMBIGUOUS_TEXTS)
    without_comments = _COMMENT.sub(" ", text)
    for pattern, reason in rejected:
        if re.search(pattern, without_comments, re.MULTILINE) and not dump_rows.read(text):
            raise _text_error(text, reason)
    for name in FORMS if form is None else (form,):
        data = FORMS[name].read(text, form is not None)
        if data is not None:
            return ParsedText(_tcp_payload(data) or data, name)
    if form is not None:
        raise _text_error(text, f"--form {form} reads {FORMS[form].description}")
    return None


def is_text(text: str) -> bool:
    """Return whether a text has no control characters except white space."""
    return re.search(r"[^\t\n\v\f\r -~\x80-\U0010ffff]", text) is None


def _read_dump(text: str, is_named: bool) -> bytes | None:
    """Read the rows of a dump. The dumps of TCP packets without data are ignored."""
    dumps = dump_rows.read(text)
    # tcpdump also prints a dump for each packet without data, such as most acknowledgements.
    if len(dumps) > 1:
        dumps = [data for data in dumps if _tcp_payload(data) != b""]
    if len(dumps) > 1:
        raise _text_error(
            text, f"the text has {len(dumps)} dumps; paste one, or decode a capture with --pcap"
        )
    return dumps[0] if dumps else None


def _read_string(text: str, is_named: bool) -> bytes | None:
    """Read string literals with escapes, as in C, Python or Rust. Adjacent literals are joined."""
    text = text.strip()
    if re.fullmatch(r"['\"]?\\x(?:[0-9A-Fa-f]{2}){2,}['\"]?", text):
        return None  # The text is hex: PostgreSQL prints \x once, before all digits.
    literals = list(_LITERAL.finditer(text))
    if not is_named and "\\" not in text and not any(literal[1] for literal in literals):
        return None
    if not literals:
        if not text.startswith("\\"):
            return None
        return _unescape(re.sub(r"\s+(?=\\)", "", text), text)
    if not _LITERAL_CONTEXT.fullmatch(_LITERAL.sub("\0", text)):
        raise _text_error(
            text, "there is text between the quoted strings or around them; paste only the strings"
        )
    return _unescape("".join(literal[2][1:-1] for literal in literals), text)


def _unescape(body: str, text: str) -> bytes:
    """Return the bytes of the escapes and ASCII characters in `body`.

    `text` is the whole pasted text, for error messages.
    """
    # \0 before a digit has two meanings: Rust prints it for a zero byte, but in C and gdb it begins an octal
    # escape of up to three digits. The text is rejected unless its other escapes show which meaning applies.
    is_octal = re.search(r"\\0(?![0-7])", body) is None or re.search(r"\\[1-7]", body) is not None
    if re.search(r"\\0[0-7]", body) and is_octal and re.search(r"\\[0-7]{1,2}(?![0-7])", body):
        raise _text_error(
            text, r"\0 before a digit may be a zero byte or an octal escape; write a zero byte as \x00"
        )
    data = bytearray()
    for match in _ESCAPE.finditer(body):
        code = match["hex"] or match["braces"] or match["unicode"]
        if code:
            value = int(code, 16)
            if value > (0xFF if match["hex"] else 0x7F):
                raise _text_error(
                    text, f"{match[0]} is a character, whose bytes depend on an encoding; print hex"
                )
            data.append(value)
        elif match["octal"]:
            if not is_octal:
                data += b"\0" + match["octal"][1:].encode()
            elif int(match["octal"], 8) > 0xFF:
                raise _text_error(text, f"{match[0]} is more than a byte; the largest is \\377")
            else:
                data.append(int(match["octal"], 8))
        elif match["simple"] and match["simple"] != "\n":
            if match["simple"] not in _SIMPLE_ESCAPES:
                raise _text_error(text, f"{match[0]} is not a known escape")
            data.append(_SIMPLE_ESCAPES[match["simple"]])
        elif match["character"]:
            if not " " <= match["character"] <= "~":
                raise _text_error(text, f"the bytes of {match[0]!r} depend on an encoding; print hex")
            data += match["character"].encode()
    return bytes(data)


def _read_decimal(text: str, is_named: bool) -> bytes | None:
    """Read numbers, which are hex with the prefix 0x, and decimal without it.

    Numbers that all have two digits are read as hex, not as decimal, unless they are in brackets.
    """
    elements, bracket = _find_array(text)
    plain_numbers = [element for element in elements if not re.fullmatch("0x[0-9A-Fa-f]{1,2}", element)]
    if not plain_numbers or not all(
        re.fullmatch("-?(?:0|[1-9][0-9]{0,2})", number) for number in plain_numbers
    ):
        return None
    # Erlang prints decimal numbers between << and >>. Between < and >, the digits are hexadecimal.
    looks_like_hex = bracket == "<" or (not bracket and all(len(element) == 2 for element in elements))
    is_single_number = not bracket and len(elements) == 1
    if not is_named and (looks_like_hex or is_single_number):
        return None
    data = bytearray()
    for element in elements:
        value = int(element, 16 if element.startswith("0x") else 10)
        if not -128 <= value <= 255:
            raise _text_error(text, f"{element} is not a byte; decimal bytes are 0 to 255, or -128 to 127")
        data.append(value % 256)
    return bytes(data)


def _find_array(text: str) -> tuple[list[str], str]:
    """Return the numbers and the opening bracket of the array in a text. Comments are ignored.

    If no brackets contain numbers, the bracket is "", and the whole text is the array. If a word of this text
    is not a number, the list of numbers is empty. The declared size of the array, as in `byte[4]`, is
    ignored. Raises ConfigError for several arrays.
    """
    if "\n" not in text.strip() and re.search(r"[ ,](//|#).*\d", text):
        raise _text_error(
            text, "the text is a single line, so the end of its comment is unknown; remove the comment"
        )
    code = _TYPE_SUFFIX.sub("", _CAST.sub(" ", _COMMENT.sub(" ", text)))
    arrays = [(_split_elements(match[2]), match[1]) for match in _BRACKETS.finditer(code)]
    arrays = [array for array in arrays if _are_numbers(array[0])]
    if not arrays:
        elements = _split_elements(re.sub(r"^\s*-\s+", "", code, flags=re.MULTILINE))
        return (elements, "") if _are_numbers(elements) else ([], "")
    if re.search(r"(?:\b[0-9A-Fa-f]{2}\s+){4}", _BRACKETS.sub(" ; ", code)):
        raise _text_error(text, "there are numbers inside and outside of brackets; paste only the bytes")
    longest = max(arrays, key=_array_length)
    for array in arrays:
        if array is not longest and array[0] != [str(_array_length(longest))]:  # Not the declared size.
            raise _text_error(
                text,
                f"the text contains arrays of {_array_length(longest)} and {_array_length(array)} numbers;"
                " paste one",
            )
    return longest


def _array_length(array: tuple[list[str], str]) -> int:
    return len(array[0])


def _split_elements(text: str) -> list[str]:
    return re.sub("[,;'\"]", " ", text).split()


def _are_numbers(elements: list[str]) -> bool:
    return bool(elements) and all(
        re.fullmatch("-?[0-9]+|(0[xX])?[0-9A-Fa-f]+", element) for element in elements
    )


def _read_hex(text: str, is_named: bool) -> bytes | None:
    """Return the bytes of hex digits, or None if the text is not hex.

    Raises ConfigError for a text that looks like mistyped hex. If `is_named` is true, every text that is not
    hex counts as mistyped.
    """
    text = text.strip()
    if re.fullmatch("[0-9A-Fa-f]{2}([._|][0-9A-Fa-f]{2})+", text):
        text = re.sub("[._|]", " ", text)
    quoted = _QUOTED_HEX.fullmatch(text)
    elements, bracket = _find_array(text)
    if quoted is not None:
        groups = quoted[1].split()
    elif bracket or "\n" in text or elements:
        groups = [element.lower().removeprefix("0x") for element in elements]
    else:
        groups = []
    has_prefix = bool(elements) and all(element[:2] in ("0x", "0X") for element in elements)
    if has_prefix and all(len(group) <= 2 for group in groups):
        return bytes(int(group, 16) for group in groups)
    groups = groups or _HEX_SEPARATOR.sub(" ", text).split()
    digits = "".join(groups)
    invalid = re.findall("[^0-9A-Fa-f]", digits)
    if not invalid:
        return _read_hex_groups(groups, text, is_named)
    # At least seven of eight characters are lower-case hex digits. Almost no base64 text of this length has
    # that many, so the text counts as mistyped hex.
    errors = len(re.findall("[^0-9a-f]", digits))
    is_mistyped = len(digits) >= _MIN_MISTYPED_HEX and errors * _DIGITS_PER_ERROR <= len(digits)
    if is_named or is_mistyped:
        raise _text_error(text, f"{invalid[0]!r} is not a hex digit")
    return None


def _read_hex_groups(groups: list[str], text: str, is_named: bool) -> bytes:
    """Return the bytes of groups of hex digits.

    Raises ConfigError if a digit is missing or extra, or if the groups could also be decimal numbers.
    """
    digits = "".join(groups)
    if all(len(group) % 2 == 0 for group in groups):
        return bytes.fromhex(digits)
    if len(groups) > 1 and all(len(group) == 1 or re.fullmatch("[1-9a-fA-F].", group) for group in groups):
        # Rust's {:x?} omits zeros.
        if digits.isdecimal() and not is_named:
            raise _text_error(text, "the numbers may be decimal or hex; use --form decimal, or --form hex")
        return bytes(int(group, 16) for group in groups)
    # One long string of hex digits may be broken into lines of equal length.
    are_lines = groups == text.split("\n")
    if len(digits) % 2 == 0 and are_lines and len({len(group) for group in groups[:-1]}) == 1:
        return bytes.fromhex(digits)
    odd = next(group for group in groups if len(group) % 2)
    raise _text_error(
        text, f"an odd number of hex digits ({len(odd)}: {odd[:20]!r}); a digit is missing or extra"
    )


def _read_base64(text: str, is_named: bool) -> bytes | None:
    lines = text.split()
    # The lines of a base64 text have the same length, at least 16 characters. The last line may be shorter.
    if any(len(line) != len(lines[0]) or len(line) < 16 for line in lines[:-1]):
        return None
    encoded = "".join(lines)
    if not re.search("[+/]", encoded):
        encoded = encoded.translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None


# The supported forms, in the order in which they are tried.
FORMS = {
    "dump": TextForm(
        "rows with offsets, as of xxd, hexdump -C, od -tx1, tcpdump -X, gdb x/16xb or Wireshark", _read_dump
    ),
    "string": TextForm("strings with escapes, as of Python, C, Rust, Go, Ruby or a shell", _read_string),
    "decimal": TextForm("decimal numbers, as printed by Java, Go, JSON, Python or Erlang", _read_decimal),
    "hex": TextForm("hex digits, with or without separators, 0x, brackets and comments", _read_hex),
    "base64": TextForm("base64", _read_base64),
}


def _tcp_payload(data: bytes) -> bytes | None:
    """Return the data of the TCP segment in an IP packet, or None for other bytes.

    An Ethernet header may precede the packet. A Kafka frame is not mistaken for a packet: an IP packet begins
    with a byte of at least 0x40, and a frame size that begins with such a byte is at least 1 GiB.
    """
    if data[12:14] in (b"\x08\x00", b"\x86\xdd"):
        data = data[14:]
    if len(data) >= 40 and data[0] >> 4 == 4 and data[9] == 6:
        packet_size, tcp_start = int.from_bytes(data[2:4], "big"), (data[0] & 15) * 4
    elif len(data) >= 60 and data[0] >> 4 == 6 and data[6] == 6:
        packet_size, tcp_start = int.from_bytes(data[4:6], "big") + 40, 40
    else:
        return None
    if not tcp_start + 20 <= packet_size <= len(data):
        return None
    tcp_header_size = (data[tcp_start + 12] >> 4) * 4
    return data[tcp_start + tcp_header_size : packet_size]


def _text_error(text: str, reason: str) -> ConfigError:
    """Return an error with the reason why `text` is rejected, and the start of `text`."""
    text = text.strip()
    return ConfigError("data", text if len(text) <= 60 else text[:57] + "...", reason)
