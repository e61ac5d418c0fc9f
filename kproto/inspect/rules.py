"""Find the cells and the tests of each rule, for `kproto rules` and the pages in docs/rules.

docs/rules defines a rule under a heading such as `### R64`. Each cell of a state machine's table lists the
rules that its handler implements. A test of a rule is marked with `@rule("R64")`.

The rules' texts and tests are read from a checkout or an unpacked source distribution. A wheel contains
neither, so `definitions()` and `tests()` then return nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from .machines import TABLES

ROOT: Final = Path(__file__).resolve().parents[2]
# The pages below docs/rules that define rules, in reading order.
PAGES: Final = ("member", "coordinator", "transactions", "invariants")

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class RuleCell(NamedTuple):
    """A cell that implements a rule: the state machine, the kind of event, and the state."""

    machine: str
    kind: str
    state: str


class RuleTest(NamedTuple):
    """A test that checks a rule: its file (relative to the project's root), its name and its source."""

    path: str
    name: str
    source: str


@cache
def definitions() -> Mapping[str, str]:
    """Return a mapping from rule numbers to the texts of the rules, in the order of the pages."""
    return {number: text for page in PAGES for number, text in definitions_of(page).items()}


@cache
def definitions_of(page: str) -> Mapping[str, str]:
    """Return the texts of the rules that a page of docs/rules defines, by rule number."""
    path = ROOT / "docs" / "rules" / f"{page}.md"
    if not path.exists():
        return {}
    # The parts with odd indexes are rule numbers. The part after each number is the text of its rule.
    parts = re.split(r"(?m)^### ([A-Z]\d+)\n", path.read_text(encoding="utf-8"))
    return {number: text.strip() for number, text in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def cells() -> Mapping[str, list[RuleCell]]:
    """Map the number of each rule to the table cells that implement it, in all state machines."""
    result: dict[str, list[RuleCell]] = {}
    for machine, table in TABLES.items():
        for kind in table.kinds:
            for state in table.states:
                for number in table[kind, state].rules:
                    result.setdefault(number, []).append(RuleCell(machine, kind.name, state.value))
    return result


@cache
def tests() -> Mapping[str, list[RuleTest]]:
    """Map the number of each rule to the tests that are marked with the rule."""
    result: dict[str, list[RuleTest]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "rule(" not in source:  # Skip files without a rule, because parsing all files would take seconds.
            continue
        for node in _functions_and_classes(ast.parse(source)):
            for number in _marked_rules(node):
                test = RuleTest(
                    path.relative_to(ROOT).as_posix(), node.name, _definition_source(source, node)
                )
                result.setdefault(number, []).append(test)
    return result


def _functions_and_classes(scope: ast.Module | ast.ClassDef) -> Iterator[_Definition]:
    """Yield the functions and classes of a module or class, including those inside its classes."""
    for node in scope.body:
        if isinstance(node, _Definition):
            yield node
        if isinstance(node, ast.ClassDef):
            yield from _functions_and_classes(node)


def _marked_rules(definition: _Definition) -> Iterator[str]:
    """Yield the rule numbers in the decorators `@rule(...)` and `@pytest.mark.rule(...)` of a test."""
    for decorator in definition.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in ("rule", "pytest.mark.rule"):
            for argument in decorator.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def _definition_source(text: str, node: _Definition) -> str:
    """Return the lines of a definition, including its decorators. `text` is the source of the whole file."""
    first_line = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return "\n".join(text.splitlines()[first_line - 1 : node.end_lineno])


def numbers() -> list[str]:
    """Return the numbers of all rules that are defined, or that a cell implements."""
    return list(dict.fromkeys([*definitions(), *cells()]))


def numbers_in(state: str | None, event: str | None) -> list[str]:
    """Return the rule numbers in the cells for a state and an event. None selects all states or events.

    A word such as "JoinGroup" selects the kinds of events whose name or meaning contains it. Case and
    underscores are ignored.
    """
    wanted_state = _normalize(state or "")
    result: dict[str, None] = {}
    for table in TABLES.values():
        for kind in table.kinds:
            if event is not None and not _matches(kind, event):
                continue
            for candidate in table.states:
                if not state or _normalize(candidate.value) == wanted_state:
                    result |= dict.fromkeys(table[kind, candidate].rules)
    return list(result)


def is_event(word: str) -> bool:
    """Return whether `word` selects at least one kind of event; see `numbers_in`."""
    return any(_matches(kind, word) for table in TABLES.values() for kind in table.kinds)


def _matches(kind: Enum, word: str) -> bool:
    wanted = _normalize(word)
    return wanted != "" and (wanted in _normalize(kind.name) or wanted in _normalize(str(kind.value)))


def state_names() -> list[str]:
    """Return the names of the states of all state machines."""
    return list(dict.fromkeys(state.value for table in TABLES.values() for state in table.states))


def _normalize(text: str) -> str:
    """Return only the letters and digits of `text`, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())
