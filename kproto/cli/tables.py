"""Tables and JSON lines of the commands that describe a cluster, with the columns of Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..printable import escape_unprintable

# A column: its title, and its minimum width in characters.
Column = tuple[str, int]


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print the titles and the rows. None becomes "-", and unprintable characters are escaped."""
    titles = [title for title, _ in columns]
    table = [titles, *([cell(value) for value in row] for row in rows)]
    widths = [
        max(min_width, *(len(row[index]) for row in table)) for index, (_, min_width) in enumerate(columns)
    ]
    for row in table:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        print(" ".join(padded).rstrip())


def cell(value: object) -> str:
    """Return the text of one cell."""
    return "-" if value is None else escape_unprintable(str(value))


def print_json(values: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object on each line."""
    from ..messages.json_form import one_line

    for value in values:
        print(one_line(value))
