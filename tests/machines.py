"""Checks of a state machine against its table, for the tests of every state machine.

A test module or a `conftest.py` calls `check_cells`. From then on a step fails if it leads to a state that
its cell does not list in `to`, or sends an error code that is not in `errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from typing import Any

import pytest

from kproto import machine
from kproto.error_codes import ErrorCode
from kproto.machine import Cell, SendResponse, Table, draw, impossible, paths
from kproto.wire.message import Message

Key = tuple[Any, Any]
CodesOf = Callable[[Any, list[Any]], Iterable[int]]


@dataclass
class _Frame:
    """What one execution of a cell did.

    `moves` are the states to which the cell moved. `inner_actions` are the actions of the other cells that it
    called.
    """

    moves: list[Enum] = field(default_factory=list[Enum])
    inner_actions: list[Any] = field(default_factory=list[Any])


def check_cells(
    patch: pytest.MonkeyPatch, table: Table[Any, Any], codes_of: CodesOf | None = None
) -> set[Key]:
    """Until `patch` is undone, fail each step whose moves or error codes its table cell does not list.

    Returns the set of cells entered so far. Every later step adds its cells to this set.

    `codes_of` returns the error codes of a cell's event and actions. The default returns all error codes in
    the responses that the cell sent.

    If the cell has called other cells, `codes_of` does not receive the actions of those other cells.
    """
    entered: set[Key] = set()
    running: list[_Frame] = []
    real_move = machine.move

    def move(holder: Any, state: Any, edges: Any) -> None:
        real_move(holder, state, edges)
        if running:
            running[-1].moves.append(state)

    def watched(key: Key, cell: Cell) -> Cell:
        @wraps(cell.act)
        def act(context: Any, holder: Any, event: Any) -> None:
            entered.add(key)
            frame = _Frame()
            running.append(frame)
            first, before = len(context.actions), holder.state
            try:
                cell.act(context, holder, event)
            finally:
                running.pop()
            actions = context.actions[first:]
            own = [action for action in actions if not any(action is inner for inner in frame.inner_actions)]
            if running:
                running[-1].inner_actions += actions
            # `moves` is empty if the machine has imported `move` by name. Then only its final state is
            # checked.
            moves = {*frame.moves} or ({holder.state} - {before})
            assert moves <= {*cell.to}, f"{key} moved to {moves}, its cell allows {cell.to}"
            codes = {*map(int, (codes_of or sent_codes)(event, own))}
            unexpected = [ErrorCode(code).name for code in codes - {*map(int, cell.errors)}]
            assert not unexpected, f"{key} answered {unexpected}, which its cell does not list"

        return cell._replace(act=act)

    patch.setattr(machine, "move", move)
    for key, cell in list(table.items()):
        if cell.act is not impossible:
            patch.setitem(table, key, watched(key, cell))
    return entered


def sent_codes(event: Any, actions: Iterable[Any]) -> Iterator[int]:
    """Yield every error code in the responses that the actions send."""
    for action in actions:
        if isinstance(action, SendResponse):
            yield from error_codes(action.response)


def error_codes(message: Message) -> Iterator[int]:
    """Yield the values of all error code fields in a message and its structs."""
    for name in type(message).__slots__:  # type: ignore[attr-defined]
        value = getattr(message, name)
        if name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Message):
                    yield from error_codes(element)


def check_table(table: Table[Any, Any], kinds: type[Enum]) -> None:
    """Check the properties that every table must have.

    A table has a cell for each kind of event and each state. Every handler has a docstring. The edges of the
    table are exactly those of its cells. Every edge that `draw` returns has a cause.
    """
    assert table.keys() == {(kind, state) for kind in kinds for state in table.states}
    undocumented = [key for key, cell in table.items() if not cell.act.__doc__]
    assert not undocumented, f"handlers without a docstring: {undocumented}"
    edges_of_cells = {edge for (_, state), cell in table.items() for edge in paths(state, cell, table.edges)}
    assert edges_of_cells == {(before, after) for before, afters in table.edges.items() for after in afters}
    assert all(edge.causes for edge in draw(table).edges)
