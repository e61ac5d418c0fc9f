"""Read the tables of docs/coming-from/, whose first column has names of another library or tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "coming-from"


def rows(page: str, heading: str = "") -> Iterator[list[str]]:
    """Yield the cells of each row of the page's tables, without the title rows.

    `heading` is a regular expression. Only tables below the headings that it matches are read.
    """
    text = re.sub(r"(?ms)^```.*?^```$", "", (FOLDER / f"{page}.md").read_text(encoding="utf-8"))
    for section in re.split(r"(?m)^#+ ", text)[1:]:
        title, _, body = section.partition("\n")
        if re.search(heading, title):
            for table in re.findall(r"(?m)(?:^\|.*\n)+", body):
                for line in table.splitlines()[2:]:
                    yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code(cell: str) -> list[str]:
    """Return the parts of a cell that are code."""
    return [part.replace("\\|", "|") for part in re.findall("`(.*?)`", cell)]


def names(page: str, heading: str = "") -> set[str]:
    """Return the dotted names in the first column of the page's tables.

    A name may omit a prefix of the previous name in its row. After `Group.Session.Timeout`,
    `Heartbeat.Interval` may also mean `Group.Heartbeat.Interval`, so both names are returned.
    """
    names_on_page: set[str] = set()
    for cells in rows(page, heading):
        parents: set[str] = set()
        for word in re.findall(r"[A-Za-z_][\w.]*", " ".join(code(cells[0]))):
            name = word.rstrip(".")
            full_names = {name, *(f"{parent}.{name}" for parent in parents)}
            names_on_page |= full_names
            parents = {
                full.rsplit(".", depth)[0] for full in full_names for depth in range(1, full.count(".") + 1)
            }
    return names_on_page
