"""Declarations do not import codecs, and the modules have no import cycle."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import kproto.wire

ROOM = Path(kproto.wire.__file__).parent


def imported(path: Path) -> set[str]:
    """Return the modules of the package that a module imports, including imports within functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names |= {node.module} if node.module else {alias.name for alias in node.names}
    return names


def order(graph: dict[str, set[str]]) -> list[str]:
    return [*TopologicalSorter(graph).static_order()]


def test_the_modules_of_wire_have_no_import_cycle() -> None:
    graph = {path.stem: imported(path) for path in ROOM.glob("*.py") if path.stem != "__init__"}
    module_order = order(graph)
    assert module_order.index("message") < module_order.index("interpreter") < module_order.index("compiler")


def test_an_import_cycle_is_noticed() -> None:
    with pytest.raises(CycleError):
        order({"message": {"compile"}, "compile": {"message"}})
