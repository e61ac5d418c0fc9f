"""Check each step of a member against the cell of its state table: the cell lists the next states."""

from __future__ import annotations

import functools

import pytest

from kproto.group.classic.member import Member, MemberEvent, MemberEventKind, MemberState, state, table
from kproto.group.classic.member.state import Actions
from kproto.machine import Cell

_TABLE = table.TABLE
# The states that the running handler has entered.
_visited: list[MemberState] = []


def _checked(kind: MemberEventKind, before: MemberState) -> Cell:
    """Return a cell that also fails if its handler enters a state that the cell does not list."""

    @functools.wraps(_TABLE[kind, before].act)
    def act(member: Member, event: MemberEvent, now: int, out: Actions) -> None:
        # tests/rule_mutants.py replaces cells of the table after this module has been imported.
        cell = _TABLE[kind, before]
        _visited.clear()
        cell.act(member, event, now, out)
        outside = [to.name for to in _visited if to not in cell.to]
        assert not outside, f"{kind.name} in {before.name} moved to {outside}, which its cell does not name"

    return _TABLE[kind, before]._replace(act=act)


_CHECKED = {(kind, before): _checked(kind, before) for kind, before in _TABLE}


@pytest.fixture(autouse=True)
def checked_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a handler enters a state that its cell (event, state) in TABLE does not list."""
    move = state.move

    def checked_move(member: Member, to: MemberState) -> None:
        if to is not member.state:
            _visited.append(to)
        move(member, to)

    for module in vars(table).values():
        if getattr(module, "move", None) is move:
            monkeypatch.setattr(module, "move", checked_move)
    monkeypatch.setattr(state, "move", checked_move)
    monkeypatch.setattr(table, "TABLE", _CHECKED)
