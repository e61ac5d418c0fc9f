"""Read the rows in which tools print bytes: an offset, hex digits, and optionally a column of characters.

    read("00000000: 000c 0004 0000 0007  ........")

Rules:

* The offset of a row is the offset of the previous row plus the number of bytes in the previous row. The
  first row begins at 0, or at any address if a colon or a bar follows the address.

* The characters of a row must match its hex digits. So a dump of little-endian words (`xxd -e`) is rejected.

* Text before an offset, such as the prefix of a log line, is ignored. A line with several groups of hex
  digits must be a row.

* A row that breaks a rule is rejected with its line number. But if the text may be hex digits without
  offsets, the other forms of `hexdump.FORMS` are tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..errors import ConfigError
from ..wire.frame import MAX_FRAME_SIZE

_OFFSET = re.compile(
    r"(?:^|(?<=[\s|]))(?P<prefix>0x)?(?P<digits>[0-9A-Fa-f]{4,16})(?:\s<[^>]*>)?"
    r"(?P<end>\s*:(?:\s|$)|\s*\||\t|\s{2,}|\s|$)"
)
# A group of hex digits without spaces: two digits per byte.
_GROUP = re.compile(r"0x([0-9A-Fa-f]{2})|((?:[0-9A-Fa-f]{2})+)")
# The separators that may stand between the hex digits of a row and its column of characters.
_GAP = re.compile(r"\s{2,}|\t|\s*\||\s")
# The maximum length of a row in which to search for a column of characters, because the search takes more
# than quadratic time. The longest rows of xxd (`xxd -g1 -c 256`) have 1,035 characters.
_MAX_ROW_LENGTH: Final = 1_100
# The words "00" to "ff". Some tools print them as a heading above the rows, to number the columns of bytes.
_HEADING = [f"{number:02x}" for number in range(256)]


class _Row(NamedTuple):
    number: int
    offset: str
    # `is_marked`: a colon or a bar marks the end of the offset. `is_separated`: at least two spaces or a tab
    # follow the offset, or no bytes follow it.
    is_marked: bool
    is_separated: bool
    data: bytes
    # The number of digits of the longest group.
    most_digits: int
    # Whether a line with `*` precedes the row. The line stands for repetitions of the previous row.
    is_repeat: bool


class _InvalidRow(Exception):
    """Raised for a line that is not a valid row of a dump.

    `maybe_no_dump` means that it is uncertain whether the text is a dump: it may be hex digits without
    offsets.
    """

    def __init__(self, reason: str, maybe_no_dump: bool = False) -> None:
        super().__init__(reason)
        self.maybe_no_dump = maybe_no_dump


def read(text: str) -> list[bytes]:
    """Return the bytes of each dump in a text.

    If a row is invalid, ConfigError is raised, unless the text may be hex digits without offsets. In that
    case the result is [].
    """
    try:
        return [_join_dump(rows) for rows in _split_dumps(text.splitlines())]
    except _InvalidRow as error:
        if error.maybe_no_dump:
            return []
        raise ConfigError("data", text.strip().partition("\n")[0][:60], str(error)) from None


def _split_dumps(lines: list[str]) -> Iterator[list[_Row]]:
    """Yield the rows of each dump. A dump ends at a line that is not a row, or before a row with offset 0."""
    rows: list[_Row] = []
    has_data = is_repeat = False
    for number, line in enumerate(lines, 1):
        if line.strip() == "*" and rows:
            is_repeat = True
            continue
        row = _parse_row(line, number, is_repeat)
        is_repeat = False
        if row is None and _contains_bytes(line):
            reason = f"line {number} is not a row: {line.strip()[:40]!r}"
            raise _InvalidRow(reason, maybe_no_dump=not _is_certain(rows))
        if has_data and (row is None or (row.data and not int(row.offset, 16))):
            yield rows
            rows, has_data = [], False
        if row is not None:
            rows.append(row)
            has_data = has_data or bool(row.data)
    if has_data:
        yield rows


def _is_certain(rows: list[_Row]) -> bool:
    """Return whether the rows certainly form a dump: all are marked or separated (see `_Row`)."""
    return bool(rows) and all(row.is_marked or row.is_separated for row in rows)


def _contains_bytes(line: str) -> bool:
    """Return whether a line has several groups of hex digits, and is not a heading."""
    groups = [group.lower() for group in line.split() if re.fullmatch("[0-9A-Fa-f]{2}|[0-9A-Fa-f]{4}", group)]
    return len(groups) > 1 and groups != _HEADING[: len(groups)]


def _parse_row(line: str, number: int, is_repeat: bool) -> _Row | None:
    """Return the dump's row that a line contains, or None if the line contains no row.

    Several numbers in the line may look like the row's offset. The row starts at the first of them after
    which valid bytes follow. An offset is marked if a colon or a bar follows it. To the right of a marked
    offset, unmarked offsets are ignored.
    """
    is_mark_seen = False
    for match in _OFFSET.finditer(line):
        separator, rest = match["end"], line[match.end() :]
        is_marked = ":" in separator or "|" in separator
        if is_mark_seen and not is_marked:
            continue
        is_mark_seen = is_mark_seen or is_marked
        try:
            data, most_digits = _parse_digits(rest.rstrip("\r\n"), number)
        except _InvalidRow:
            if is_marked and (match["prefix"] or int(match["digits"], 16) == 0):
                raise
            if len(line) > _MAX_ROW_LENGTH:
                return None
            continue
        is_only_offset = not is_marked and not rest.strip()
        if data or is_only_offset:
            is_separated = separator == "\t" or len(separator) > 1 or not data
            return _Row(number, match["digits"], is_marked, is_separated, data, most_digits, is_repeat)
    return None


def _parse_digits(rest: str, number: int) -> tuple[bytes, int]:
    """Return the bytes of a row, and the number of digits of its longest group.

    To the right of the digits, a row may show its bytes as characters, which may look like hex digits. So the
    bytes are the longest sequence of digits that is followed by its own characters. If no such sequence
    exists, all digits are bytes.
    """
    all_groups = _hex_groups(rest)
    gaps = [] if len(rest) > _MAX_ROW_LENGTH else list(_GAP.finditer(rest))
    for gap in reversed(gaps):
        if all_groups is not None and gap[0] == " ":
            continue
        groups = _hex_groups(rest[: gap.start()])
        if not groups:
            continue
        data = bytes.fromhex("".join(groups))
        characters = rest[gap.end() :]
        is_enclosed = "|" in gap[0]
        if is_enclosed:
            characters = re.sub(r"\|\s*$", "", characters)
        elif characters[:1] == ">" and characters.rstrip()[-1:] == "<":  # od -tx1z
            is_enclosed, characters = True, characters.rstrip()[1:-1]
        # In Wireshark's dump of a stream, a space divides the characters in the middle. If the first
        # characters are spaces, `_GAP` has matched them as part of the gap.
        spaces = b" " * (len(data) - len(data.lstrip(b" ")))
        variants = (
            characters,
            characters.removeprefix(" "),
            characters[:8] + characters[9:],
            spaces.decode() + characters,
        )
        if any(_shows_bytes(variant, data, is_enclosed) for variant in variants):
            return data, max(map(len, groups))
    if all_groups is None:
        raise _InvalidRow(
            f"the digits of line {number} are not hex bytes in the order of the characters to their right; "
            "print bytes, not words (with xxd, hexdump -C, od -tx1 or gdb's x/16xb)"
        )
    return bytes.fromhex("".join(all_groups)), max(map(len, all_groups), default=0)


def _hex_groups(text: str) -> list[str] | None:
    """Return the groups of hex digits in a text, without `0x`, or None if it contains anything else."""
    matches = [_GROUP.fullmatch(group) for group in text.split()]
    return [match[1] or match[2] for match in matches if match is not None] if all(matches) else None


def _shows_bytes(characters: str, data: bytes, is_enclosed: bool) -> bool:
    """Return whether a column of characters shows these bytes. Trailing spaces may be missing.

    A column that is enclosed in bars may have any length, because the closing bar marks its end.
    """
    shown = characters.rstrip() if len(characters) > len(data) else characters
    is_whole = 0 < len(shown) <= len(data) and not data[len(shown) :].strip()
    return (is_whole or is_enclosed) and all(
        character == chr(byte) or character == "." or not "!" <= character <= "~"
        for character, byte in zip(shown, data, strict=False)
    )


def _join_dump(rows: list[_Row]) -> bytes:
    """Return the bytes of a dump's rows. The offsets of the rows may be hex, octal or decimal."""
    is_certain = _is_certain(rows)
    if len(rows) == 1 and not is_certain:
        raise _InvalidRow("", maybe_no_dump=True)
    first_error = None
    # od prints offsets of seven octal digits, or of seven decimal digits with -Ad. xxd -d prints eight
    # decimal digits.
    for base in (8, 10, 16) if len(rows[0].offset) == 7 else (16, 10):
        try:
            data = _join_rows(rows, base)
        except (_InvalidRow, ValueError) as error:
            first_error = first_error or error
            continue
        if any(row.most_digits > 2 for row in rows if not row.is_marked):
            raise _InvalidRow(
                "the dump consists of words in the machine's byte order; dump bytes (hexdump -C, od -tx1)"
            )
        return data
    has_words = any(row.most_digits != 2 for row in rows if row.data)
    raise _InvalidRow(str(first_error), maybe_no_dump=not is_certain and has_words)


def _join_rows(rows: list[_Row], base: int) -> bytes:
    """Return the bytes of a dump's rows. Raises _InvalidRow for a wrong offset.

    `base` is the number base of the offsets: 8, 10 or 16.
    """
    first_offset = int(rows[0].offset, base)
    if first_offset and not all(row.is_marked for row in rows if row.data):
        raise _InvalidRow(
            f"line {rows[0].number} has the offset {rows[0].offset}; the first offset must be 0"
        )
    data = bytearray()
    row_above = b""
    for row in rows:
        missing = int(row.offset, base) - first_offset - len(data)
        is_plausible_size = 0 < missing <= MAX_FRAME_SIZE
        if row.is_repeat and row_above and is_plausible_size and missing % len(row_above) == 0:
            data += row_above * (missing // len(row_above))
        elif missing:
            raise _InvalidRow(
                f"line {row.number} has the offset {row.offset}, but the rows before it have {len(data)} "
                "bytes; a row is missing or changed"
            )
        data += row.data
        row_above = row.data or row_above
    return bytes(data)
