"""JSON lines on stdin and their answers on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from io import BufferedReader


def answer(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Answer the lines of stdin as soon as they are there: all that have come, then one flush."""
    from ..json_lines import answers

    if sys.stdin.isatty():
        print("type JSON, an object a line; end it with Ctrl-D", file=sys.stderr)
    for lines in _lines(cast("BufferedReader", sys.stdin.buffer)):
        for told in answers(lines, answer):
            sys.stdout.buffer.write(told.encode() + b"\n")
        sys.stdout.buffer.flush()


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
