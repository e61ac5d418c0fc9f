"""The JSON-lines mode of commands: read objects from stdin, and print one object with the result of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from io import BufferedReader


def answer_lines(handle: Callable[[Mapping[str, Any]], dict[str, Any]]) -> int:
    """Print the result of `handle` for each line of stdin; flush stdout after each batch of lines.

    Returns the exit code: 1 if at least one result has an error, else 0.
    """
    from ..inspect.json_lines import answers
    from ..messages.json_form import one_line

    if sys.stdin.isatty():
        print("type one JSON object per line, then press Ctrl-D", file=sys.stderr)
    has_error = False
    for lines in _read_line_batches(cast("BufferedReader", sys.stdin.buffer)):
        for result in answers(lines, handle):
            has_error = has_error or "error" in result
            sys.stdout.buffer.write(one_line(result).encode() + b"\n")
        sys.stdout.buffer.flush()
    return int(has_error)


def _read_line_batches(stream: BufferedReader) -> Iterator[list[bytes]]:
    """Yield lists of the complete lines that arrived together, without line ends."""
    pieces: list[bytes] = []  # The parts of the last line, which is not complete yet.
    while chunk := stream.read1(1 << 16):
        first, *further = chunk.split(b"\n")
        pieces.append(first)
        if further:
            *lines, remainder = b"".join(pieces), *further
            pieces = [remainder]
            yield lines
    if last := b"".join(pieces):
        yield [last]
