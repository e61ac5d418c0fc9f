"""Answer JSON lines from stdin on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from io import BufferedReader


def answer(handle: Callable[[Mapping[str, Any]], dict[str, Any]]) -> int:
    """Answer the lines of stdin as they arrive, and flush after each group of lines.

    Returns the exit code: 1 if any answer has an error.
    """
    from ..inspect.json_lines import answers
    from ..messages.json_form import one_line

    if sys.stdin.isatty():
        print("type one JSON object per line, then press Ctrl-D", file=sys.stderr)
    wrong = False
    for lines in _lines(cast("BufferedReader", sys.stdin.buffer)):
        for result in answers(lines, handle):
            wrong = wrong or "error" in result
            sys.stdout.buffer.write(one_line(result).encode() + b"\n")
        sys.stdout.buffer.flush()
    return int(wrong)


def _lines(stream: BufferedReader) -> Iterator[list[bytes]]:
    """Yield complete lines of a stream, without line ends, in the groups in which they arrive."""
    pieces: list[bytes] = []  # The pieces of the current, incomplete line.
    while chunk := stream.read1(1 << 16):
        first, *further = chunk.split(b"\n")
        pieces.append(first)
        if further:
            *lines, remainder = b"".join(pieces), *further
            pieces = [remainder]
            yield lines
    if last := b"".join(pieces):
        yield [last]
