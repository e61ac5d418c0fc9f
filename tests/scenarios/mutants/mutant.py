"""Which change to a machine spoils which story: a table for each document, filled by `document_*.py`."""

from __future__ import annotations

from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A change to a machine: `name` of `where`, a module, a class or a table of states, becomes `new`."""

    what: str
    where: Any
    name: Any
    new: Any


Table = dict[str, Mutant]  # Story -> the mutant that has to break it. One mutant may serve several stories.


def nothing(*_: Any) -> None:
    """A step that is left out."""
