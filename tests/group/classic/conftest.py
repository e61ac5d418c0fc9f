"""Check each step of a member in these tests against its cell of the table."""

from __future__ import annotations

import pytest

from kproto.group.classic.member import Member, MemberEvent, MemberEventKind, MemberState, state, table
from kproto.group.classic.member.state import Actions


@pytest.fixture(autouse=True)
def checked_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a handler enters a state that its cell in `table.TABLE` does not list."""
    dispatch, move = table.dispatch, state.move
    visited: list[MemberState] = []

    def checked_move(member: Member, to: MemberState) -> None:
        if to is not member.state:
            visited.append(to)
        move(member, to)

    def checked_dispatch(
        kind: MemberEventKind, member: Member, event: MemberEvent, now: int, out: Actions
    ) -> None:
        before, cell = member.state, table.TABLE[kind, member.state]
        visited.clear()
        dispatch(kind, member, event, now, out)
        outside = [to.name for to in visited if to not in cell.to]
        assert not outside, f"{kind.name} in {before.name} moved to {outside}, which its cell does not name"

    for module in vars(table).values():
        if getattr(module, "move", None) is move:
            monkeypatch.setattr(module, "move", checked_move)
    monkeypatch.setattr(state, "move", checked_move)
    monkeypatch.setattr(table, "dispatch", checked_dispatch)
