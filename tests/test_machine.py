"""State machines reject incomplete tables, and moves that a cell (event, state) does not list."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import pytest

from kproto import machine
from kproto.error_codes import ErrorCode
from kproto.machine import (
    IMPOSSIBLE,
    Cell,
    DrawnCell,
    DrawnEdge,
    SendResponse,
    Table,
    draw,
    draw_edges,
    ensure_state,
    label,
    move,
)
from kproto.messages.heartbeat import HeartbeatResponse
from tests.machines import check_cells, check_table


class Light(Enum):
    RED = "Red"
    GREEN = "Green"


class Kind(Enum):
    BUTTON = "a pedestrian presses the button"
    TIMER = "the timer fires"


EDGES = {Light.RED: frozenset({Light.GREEN}), Light.GREEN: frozenset({Light.RED})}


@dataclass
class TrafficLight:
    state: Light = Light.GREEN


@dataclass
class Context:
    actions: list[Any] = field(default_factory=list[Any])


def turn_red(context: Context, light: TrafficLight, event: object) -> None:
    """Stop the cars.

    They stop slowly.
    """
    machine.move(light, Light.RED, EDGES)


def turn_green(context: Context, light: TrafficLight, event: object) -> None:
    """Let the cars go."""
    machine.move(light, Light.GREEN, EDGES)


def answer(context: Context, light: TrafficLight, event: object) -> None:
    """Answer the pedestrian."""
    response = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    context.actions.append(SendResponse("token", response))


def table(**cells: Cell) -> Table[Kind, Light]:
    """Return the table of a traffic light, with some of its cells replaced."""
    busy = cells.get("busy", Cell(answer, errors=(ErrorCode.REBALANCE_IN_PROGRESS,)))
    stop = cells.get("stop", Cell(turn_red, to=(Light.RED,), rules=("X1",)))
    go = Cell(turn_green, to=(Light.GREEN,))
    return Table(Light, EDGES, {Kind.BUTTON: (busy, stop), Kind.TIMER: (go, IMPOSSIBLE)})


def test_a_move_follows_the_edges_only() -> None:
    light = TrafficLight()
    move(light, Light.RED, EDGES)
    assert light.state is Light.RED
    with pytest.raises(AssertionError, match="TrafficLight cannot move from Red to Red; allowed: Green"):
        move(light, Light.RED, EDGES)


def test_ensure_state_moves_only_to_another_state() -> None:
    light = TrafficLight(Light.RED)
    ensure_state(light, Light.RED, EDGES)
    assert light.state is Light.RED
    ensure_state(light, Light.GREEN, EDGES)
    assert light.state is Light.GREEN
    with pytest.raises(AssertionError, match="cannot move from Green to Red; allowed: no other state"):
        ensure_state(light, Light.RED, {Light.RED: {Light.GREEN}, Light.GREEN: set[Light]()})


def test_a_state_without_a_text_is_named_in_errors() -> None:
    class Level(IntEnum):
        LOW = 0
        HIGH = 1

    assert (label(Level.HIGH), label(Light.RED)) == ("HIGH", "Red")


def test_edges_are_drawn_with_their_causes() -> None:
    caused = {Light.RED: {Light.GREEN: "no pedestrian is left"}, Light.GREEN: {Light.RED}}
    drawing = draw_edges(caused)
    assert drawing.columns == ("RED", "GREEN")
    assert drawing.rows == ()
    assert drawing.edges == (
        DrawnEdge("RED", "GREEN", ("no pedestrian is left",)),
        DrawnEdge("GREEN", "RED", ()),
    )


def test_an_impossible_event_is_an_assertion_error() -> None:
    with pytest.raises(AssertionError, match="'tick' cannot occur in state Green"):
        table()[Kind.TIMER, Light.GREEN].act(Context(), TrafficLight(), "tick")


def test_a_row_needs_a_cell_for_each_state() -> None:
    with pytest.raises(ValueError, match="1 cells for 2 states"):
        Table(Light, EDGES, {Kind.BUTTON: (Cell(turn_red),)})


def test_a_cell_leads_only_to_states_that_edges_reach() -> None:
    with pytest.raises(ValueError, match="no edge leads to"):
        table(stop=Cell(turn_red, to=(Light.GREEN,)))


def test_a_complete_table_passes_its_check() -> None:
    check_table(table(), Kind)


def test_a_drawing_has_the_cells_and_the_causes_of_each_edge() -> None:
    drawing = draw(table())
    assert drawing.columns == ("Red", "Green")
    name, meaning, cells = drawing.rows[0]
    assert (name, meaning) == ("BUTTON", "a pedestrian presses the button")
    assert cells == (
        DrawnCell("Answer the pedestrian.", (), ("REBALANCE_IN_PROGRESS",), ()),
        DrawnCell("Stop the cars.", ("Red",), (), ("X1",)),
    )
    assert drawing.rows[1][2][1] == DrawnCell("", (), (), ())
    assert drawing.edges == (
        DrawnEdge("Red", "Green", ("TIMER",)),
        DrawnEdge("Green", "Red", ("BUTTON",)),
    )


@pytest.mark.parametrize(
    ("cells", "kind", "state", "message"),
    [
        ({"stop": Cell(turn_red)}, Kind.BUTTON, Light.GREEN, "moved to"),
        ({"busy": Cell(answer)}, Kind.BUTTON, Light.RED, "answered .'REBALANCE_IN_PROGRESS'"),
    ],
)
def test_a_step_that_leaves_its_cell_fails(
    cells: dict[str, Cell], kind: Kind, state: Light, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = table(**cells)
    entered = check_cells(monkeypatch, checked)
    with pytest.raises(AssertionError, match=message):
        checked[kind, state].act(Context(), TrafficLight(state), None)
    assert entered == {(kind, state)}


def test_a_step_that_keeps_to_its_cell_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = table()
    check_cells(monkeypatch, checked)
    light = TrafficLight()
    checked[Kind.BUTTON, Light.GREEN].act(Context(), light, None)
    checked[Kind.BUTTON, Light.RED].act(Context(), light, None)
    assert light.state is Light.RED
