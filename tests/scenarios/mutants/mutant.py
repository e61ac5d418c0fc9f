"""Mutants: mistakes patched into models that must break a scenario. Each module here has one table."""

from __future__ import annotations

from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A change to a model: `name` in `where` (a module, a class or a table of states) becomes `new`."""

    change: str
    where: Any
    name: Any
    new: Any


# A key is a scenario's id. A value is the mutant that must break the scenario. Several scenarios may share a
# mutant.
Table = dict[str, Mutant]


def nothing(*_: Any) -> None:
    """Do nothing, in place of a step that a mutant skips."""
