"""State machines as text and as SVG, drawn from their tables and edges.

`TABLES` contains the machines with tables. A cell of a table holds the handler for a kind of event in a
state. `kproto.cli.machines` also lists machines that have only edges.

`text` prints every transition and every cell. `picture` draws the states and numbered transitions. The
numbers refer to a list of causes below the drawing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from ..group.classic import coordinator
from ..group.classic.member import table as member
from ..machine import Drawing, DrawnCell, DrawnEdge, Table
from ..transactions import table as transactions
from .sequence import COLOURS

TABLES: Final[Mapping[str, Table[Any, Any]]] = {
    "coordinator": coordinator.TABLE,
    "member": member.TABLE,
    "transaction": transactions.TABLE,
}

_STYLE = """
svg { color: var(--ink) } svg text { font: 12px system-ui, sans-serif; fill: currentColor }
.paper { fill: var(--paper) }
.state { fill: var(--paper); stroke: currentColor } .edge { fill: none; stroke: var(--ask) }
.number { fill: var(--ask) }
"""
_CURRENT_STATE_STYLE = ".current { fill: var(--note); stroke-width: 3 }\n"
# In pixels: the height of a box, the gap below it, the width of a lane of arcs, and the height of a line.
_BOX_HEIGHT, _BOX_GAP, _LANE_WIDTH, _LINE_HEIGHT = 30, 44, 32, 17
# In pixels: the minimum width of a box, and the mean width of a character.
_MIN_BOX_WIDTH, _CHARACTER_WIDTH = 190, 8.5


def text(name: str, drawing: Drawing, width: int = 110) -> str:
    """Return a state machine as text: its states, transitions and cells. `width` is in characters."""
    kinds = f", {len(drawing.rows)} kinds of events" if drawing.rows else ""
    lines = [f"{name}: {len(drawing.columns)} states{kinds}", "", "Transitions"]
    for edge in drawing.edges:
        lines += wrap(f"  {_with_causes(edge, ' -> ')}", width, subsequent_indent="    ")
    for kind, meaning, cells in drawing.rows:
        lines += ["", *wrap(f"{kind}: {meaning}", width)]
        for states, cell in _group_equal(drawing, cells):
            lines += wrap(f"  {', '.join(states)}: {_describe(cell)}", width, subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def _with_causes(edge: DrawnEdge, arrow: str) -> str:
    head = f"{edge.before}{arrow}{edge.after}"
    return f"{head}: {', '.join(edge.causes)}" if edge.causes else head


def _group_equal(drawing: Drawing, cells: tuple[DrawnCell, ...]) -> list[tuple[list[str], DrawnCell]]:
    """Group the states of a row by equal cells; leave out cells of events that cannot occur."""
    groups: dict[DrawnCell, list[str]] = {}
    for state, cell in zip(drawing.columns, cells, strict=True):
        if cell.action:
            groups.setdefault(cell, []).append(state)
    return [(states, cell) for cell, states in groups.items()]


def _describe(cell: DrawnCell) -> str:
    parts = [cell.action]
    if cell.to:
        parts.append(f"May move to {', '.join(cell.to)}.")
    if cell.errors:
        parts.append(f"May answer {', '.join(cell.errors)}.")
    if cell.rules:
        parts.append(f"Rules: {', '.join(cell.rules)}.")
    return " ".join(parts)


def picture(name: str, drawing: Drawing, current: str | None = None) -> str:
    """Return the states and transitions of a state machine as a complete SVG document.

    The state `current` is highlighted.
    """
    positions = {state: index for index, state in enumerate(drawing.columns)}
    legend = [
        line
        for number, edge in enumerate(drawing.edges, 1)
        for line in wrap(f"{number}. {_with_causes(edge, ' to ')}", 120, subsequent_indent="     ")
    ]
    ends = [(positions[edge.before], positions[edge.after]) for edge in drawing.edges]
    lanes = _assign_lanes(ends)
    margin = 60 + _LANE_WIDTH * max(lanes, default=0)
    legend_y = 30 + len(positions) * (_BOX_HEIGHT + _BOX_GAP)
    box_width = max(_MIN_BOX_WIDTH, 20 + _CHARACTER_WIDTH * max(map(len, drawing.columns)))
    width, height = max(2 * margin + box_width, 860), legend_y + len(legend) * _LINE_HEIGHT + 20
    svg = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}")
    SubElement(svg, "title").text = f"The states of {name}"
    SubElement(svg, "style").text = COLOURS + _STYLE + (_CURRENT_STATE_STYLE if current else "")
    SubElement(svg, "rect", {"class": "paper", "width": "100%", "height": "100%"})
    box_x = (width - box_width) / 2
    for number, ((before, after), lane) in enumerate(zip(ends, lanes, strict=True), 1):
        _draw_edge(svg, number, before, after, lane, (box_x, box_x + box_width))
    for state, index in positions.items():
        top = _box_top(index)
        box = {"x": box_x, "y": top, "width": box_width, "height": _BOX_HEIGHT, "rx": 6}
        style = "state current" if state == current else "state"
        SubElement(svg, "rect", {"class": style, **{key: f"{value:g}" for key, value in box.items()}})
        label = {"x": f"{box_x + box_width / 2:g}", "y": f"{top + 19:g}", "text-anchor": "middle"}
        SubElement(svg, "text", label).text = state
    for index, line in enumerate(legend):
        SubElement(svg, "text", {"x": "20", "y": f"{legend_y + index * _LINE_HEIGHT:g}"}).text = line
    return tostring(svg, encoding="unicode") + "\n"


def _box_top(index: int) -> float:
    return 20 + index * (_BOX_HEIGHT + _BOX_GAP)


def _assign_lanes(ends: Sequence[tuple[int, int]]) -> list[int]:
    """Return the lane of each transition. Arcs on the same side and in the same lane do not overlap.

    Short arcs are assigned first, to the lanes next to the states.
    """
    lanes = [0] * len(ends)
    occupied: set[tuple[bool, int, int]] = set()
    for index in sorted(range(len(ends)), key=lambda index: abs(ends[index][1] - ends[index][0])):
        before, after = ends[index]
        top, bottom = min(before, after), max(before, after)
        rows = range(top, max(bottom, top + 1))
        is_downward = after >= before
        lane = 0
        while any((is_downward, lane, row) in occupied for row in rows):
            lane += 1
        occupied.update((is_downward, lane, row) for row in rows)
        lanes[index] = lane
    return lanes


def _draw_edge(
    svg: Element, number: int, before: int, after: int, lane: int, sides: tuple[float, float]
) -> None:
    """Draw a transition as an arc, downwards on the right side of the boxes or upwards on the left side.

    `before` and `after` are the positions of the states. `sides` are the boxes' left and right x coordinates.
    """
    is_downward = after >= before
    side_x = sides[1] if is_downward else sides[0]
    outward = 1 if is_downward else -1
    control_x = side_x + outward * (30 + _LANE_WIDTH * lane)  # The x of the Bézier curve's control points.
    start_y, end_y = _box_top(before) + _BOX_HEIGHT * 0.7, _box_top(after) + _BOX_HEIGHT * 0.3
    if before == after:
        start_y, end_y = _box_top(before) + 4, _box_top(before) + _BOX_HEIGHT - 4
    arc = f"M {side_x:g} {start_y:g} C {control_x:g} {start_y:g} {control_x:g} {end_y:g} {side_x:g} {end_y:g}"
    SubElement(svg, "path", {"class": "edge", "d": arc})
    barb_x = side_x + outward * 7
    arrow = f"M {barb_x:g} {end_y - 4:g} L {side_x:g} {end_y:g} L {barb_x:g} {end_y + 4:g}"
    SubElement(svg, "path", {"class": "edge", "d": arrow})
    label = {
        "class": "number",
        "x": f"{side_x + (control_x - side_x) * 0.75:g}",
        "y": f"{(start_y + end_y) / 2 + 4:g}",
        "text-anchor": "start" if is_downward else "end",
    }
    SubElement(svg, "text", label).text = str(number)
