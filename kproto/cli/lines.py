"""JSON lines on stdin and their answers on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from io import BufferedReader


def answer(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> int:
    """Answer the lines of stdin as soon as they are there: all that have come, then one flush.

    The exit code: 1 if an answer has an error.
    """
    from ..inspect.json_lines import answers
    from ..messages.json_form import one_line

    if sys.stdin.isatty():
        print("type JSON, an object a line; end it with Ctrl-D", file=sys.stderr)
    wrong = False
    for lines in _lines(cast("BufferedReader", sys.stdin.buffer)):
        for told in answers(lines, answer):
            wrong = wrong or "error" in told
            sys.stdout.buffer.write(one_line(told).encode() + b"\n")
        sys.stdout.buffer.flush()
    return int(wrong)


def _lines(stream: BufferedReader) -> Iterator[list[bytes]]:
    """Whole lines of a stream, without their ends, in the groups in which they arrive."""
    begun: list[bytes] = []  # the pieces of a line that has not ended
    while chunk := stream.read1(1 << 16):
        first, *more = chunk.split(b"\n")
        begun.append(first)
        if more:
            *lines, rest = b"".join(begun), *more
            begun = [rest]
            yield lines
    if last := b"".join(begun):
        yield [last]
