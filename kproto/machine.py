"""The base of all state machines: a table of cells, edges between states, and `move`.

A machine has an Enum of states and an Enum of event kinds. Its `Table` has a `Cell` for each pair of an event
kind and a state::

    TABLE = Table(State, EDGES, {Kind.SYNC: (Cell(refuse), Cell(wait, to=(State.STABLE,), rules=("R63",)))})
    TABLE[Kind.SYNC, group.state].act(context, group, request)

A machine finds the handler of each event in its table. The table is complete: for an event that cannot occur
in a state, the cell is `IMPOSSIBLE`. Only `move` assigns a state, and it accepts only the machine's edges.

`draw` returns the table as data for text and SVG. `draw_edges` does the same for a machine that has edges but
no table.

Machines that answer requests share the events `RequestReceived` and `Tick`, and the action `SendResponse`.

The design follows h11's `_state.py`: the table is the program, and pictures are drawn from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec

from .error_codes import ErrorCode
from .lazy_imports import render_html
from .wire.message import Message

StateT = TypeVar("StateT", bound=Enum)
KindT = TypeVar("KindT", bound=Enum)
RequestT_co = TypeVar("RequestT_co", bound=Message, covariant=True)

# A time in milliseconds that is later than any other: the value of a deadline that is not set.
NEVER: Final = 1 << 62

# Maps a state to the states that may directly follow it: a set, or a mapping from each next state to the
# cause of the transition.
Edges: TypeAlias = Mapping[StateT, Set[StateT] | Mapping[StateT, str]]


class Cell(NamedTuple):
    """The reaction of a machine to one kind of event in one state."""

    # The handler. It is called with the step's context, the machine's state object, and the arguments of the
    # event.
    act: Callable[..., None]
    # The states that `act` may move to, including intermediate states. Empty if `act` does not change the
    # state.
    to: tuple[Enum, ...] = ()
    # The error codes of the responses that `act` may send. Empty if `act` sends no error.
    errors: tuple[ErrorCode, ...] = ()
    # The rules of docs/rules that `act` implements, such as "R64".
    rules: tuple[str, ...] = ()


def impossible(context: object, holder: Any, event: object) -> NoReturn:
    """Raise AssertionError: this kind of event cannot occur in this state."""
    raise AssertionError(f"{event!r} cannot occur in state {holder.state.value}")


IMPOSSIBLE: Final = Cell(impossible)


class Table(dict[tuple[KindT, StateT], Cell], Generic[KindT, StateT]):
    """The cells of a machine by kind of event and state.

    Raises ValueError if a row does not have one cell for each state, or if no path of edges leads to a state
    in a cell's `to`.
    """

    def __init__(
        self,
        states: type[StateT],
        edges: Edges[StateT],
        rows: Mapping[KindT, Sequence[Cell]],
    ) -> None:
        """Check the table. `rows` maps each kind of event to its cells, in the order of `states`."""
        super().__init__()
        self.states: Final = tuple(states)
        self.edges: Final = edges
        self.kinds: Final = tuple(rows)
        for kind, row in rows.items():
            if len(row) != len(self.states):
                raise ValueError(
                    f"{kind}: {len(row)} cells for {len(self.states)} states, but each state needs one cell"
                )
            for state, cell in zip(self.states, row, strict=True):
                unreachable = {*cell.to} - {after for _, after in paths(state, cell, edges)}
                if unreachable:
                    raise ValueError(f"{kind} in {state}: no edge leads to {unreachable}")
                self[kind, state] = cell

    def _repr_html_(self) -> str:
        """Return a drawing of the machine, for a notebook."""
        return render_html("kproto.inspect.notebook:machine", self)


def paths(state: Enum, cell: Cell, edges: Edges[Any]) -> Iterator[tuple[Enum, Enum]]:
    """Yield the edges on the shortest paths from `state` to each state in `cell.to`.

    Except for `state` itself, the paths contain only states in `cell.to`.
    """
    frontier, unreached = [state], dict.fromkeys(cell.to)
    while frontier:
        steps = [(before, after) for before in frontier for after in unreached if after in edges[before]]
        yield from steps
        frontier = list(dict.fromkeys(after for _, after in steps))
        for after in frontier:
            del unreached[after]


class Stateful(Protocol[StateT]):
    """An object with a `state`. Only `move` assigns the state."""

    state: StateT


def move(holder: Stateful[StateT], state: StateT, edges: Edges[StateT]) -> None:
    """Assign `holder.state`. Raises AssertionError if no edge leads from the current state to `state`."""
    if state not in edges[holder.state]:
        allowed = ", ".join(map(label, edges[holder.state])) or "no other state"
        raise AssertionError(
            f"{type(holder).__name__} cannot move from {label(holder.state)} to {label(state)}; "
            f"allowed: {allowed}; the edges of the machine are declared next to its states"
        )
    holder.state = state


def ensure_state(holder: Stateful[StateT], state: StateT, edges: Edges[StateT]) -> None:
    """Move the holder to `state`, unless it is already in this state."""
    if holder.state is not state:
        move(holder, state, edges)


def label(state: Enum) -> str:
    """Return the state's value if the value is a string, otherwise the state's name."""
    return state.value if isinstance(state.value, str) else state.name


# Drawing.


class DrawnCell(NamedTuple):
    """A cell in words. `action` is the first line of the handler's docstring, or empty for `IMPOSSIBLE`."""

    action: str
    to: tuple[str, ...]
    errors: tuple[str, ...]
    rules: tuple[str, ...]


class DrawnEdge(NamedTuple):
    """A transition and its causes: kinds of events if the machine has a table, otherwise descriptions."""

    before: str
    after: str
    causes: tuple[str, ...]


class Drawing(NamedTuple):
    """A table as data: its columns are the states, its rows the kinds of events."""

    columns: tuple[str, ...]
    # The name of the kind of event, its meaning, and one cell for each column.
    rows: tuple[tuple[str, str, tuple[DrawnCell, ...]], ...]
    edges: tuple[DrawnEdge, ...]


def draw_edges(edges: Edges[Any]) -> Drawing:
    """Return a drawing of a machine that has edges and no table. States are labelled with their names."""
    return Drawing(
        columns=tuple(state.name for state in edges),
        rows=(),
        edges=tuple(
            DrawnEdge(
                before.name, after.name, (after_states[after],) if isinstance(after_states, Mapping) else ()
            )
            for before, after_states in edges.items()
            for after in edges
            if after in after_states
        ),
    )


def draw(table: Table[Any, Any]) -> Drawing:
    """Return the data for drawing the table. States and kinds of events are in the table's order."""
    causes: dict[tuple[str, str], dict[str, None]] = {}
    rows: list[tuple[str, str, tuple[DrawnCell, ...]]] = []
    for kind in table.kinds:
        cells = {state: table[kind, state] for state in table.states}
        rows.append((kind.name, str(kind.value), tuple(_draw_cell(cell) for cell in cells.values())))
        for state, cell in cells.items():
            for before, after in paths(state, cell, table.edges):
                causes.setdefault((before.value, after.value), {})[kind.name] = None
    return Drawing(
        columns=tuple(state.value for state in table.states),
        rows=tuple(rows),
        edges=tuple(
            DrawnEdge(before.value, after.value, tuple(causes.get((before.value, after.value), ())))
            for before in table.states
            for after in table.states
            if after in table.edges[before]
        ),
    )


def _draw_cell(cell: Cell) -> DrawnCell:
    """Return the cell in words."""
    documentation = "" if cell.act is impossible else (cell.act.__doc__ or "").strip().partition("\n")[0]
    return DrawnCell(
        documentation,
        tuple(state.value for state in cell.to),
        tuple(code.name for code in cell.errors),
        cell.rules,
    )


# The events and the action shared by machines that answer requests.


class RequestReceived(msgspec.Struct, Generic[RequestT_co], frozen=True):
    """A request arrived. Exactly one `SendResponse` returns its `token`, in this step or in a later one."""

    token: object
    request: RequestT_co
    version: int
    client_id: str = ""
    # The client's host in the form in which DescribeGroups returns it. Kafka's form is "/127.0.0.1" (R5).
    client_host: str = ""
    # A string that is unique to this event, such as a UUID. New member ids contain it.
    random_id: str = ""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed. The caller sends this event at the time of the machine's `next_deadline`."""


class SendResponse(msgspec.Struct, frozen=True):
    """Send `response` to the request that came with `token`."""

    token: object
    response: Message
