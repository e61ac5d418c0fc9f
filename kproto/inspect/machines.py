"""State machines as text and as SVG, drawn from their tables.

`MACHINES` lists the tables by name. `text` prints every transition and every cell. `picture` draws the
states and the transitions; the kinds of events that cause a transition are listed below it, by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from ..group.classic import coordinator
from ..group.classic.member import table as member
from ..machine import Drawing, DrawnCell, Table, draw
from ..transactions import table as transactions
from .sequence import COLOURS

MACHINES: Final[Mapping[str, Table[Any, Any]]] = {
    "coordinator": coordinator.TABLE,
    "member": member.TABLE,
    "transaction": transactions.TABLE,
}

_STYLE = """
svg { color: var(--ink) } svg text { font: 12px system-ui, sans-serif; fill: currentColor }
.state { fill: var(--paper); stroke: currentColor } .edge { fill: none; stroke: var(--ask) }
.number { fill: var(--ask) }
"""
_BOX_WIDTH, _BOX_HEIGHT, _GAP, _ARC, _LINE = 190, 30, 44, 16, 17


def text(name: str, width: int = 110) -> str:
    """Return a machine as text: its states, transitions and cells. `width` is in characters."""
    drawing = draw(MACHINES[name])
    lines = [f"{name}: {len(drawing.columns)} states, {len(drawing.rows)} kinds of events", "", "Transitions"]
    for edge in drawing.edges:
        head = f"  {edge.before} -> {edge.after}: "
        lines += wrap(head + ", ".join(edge.causes), width, subsequent_indent="    ")
    for kind, meaning, cells in drawing.rows:
        lines += ["", *wrap(f"{kind}: {meaning}", width)]
        for states, cell in _group_equal(drawing, cells):
            lines += wrap(f"  {', '.join(states)}: {_describe(cell)}", width, subsequent_indent="    ")
    return "\n".join(lines) + "\n"


def _group_equal(drawing: Drawing, cells: tuple[DrawnCell, ...]) -> list[tuple[list[str], DrawnCell]]:
    """Return the possible cells of a row, each with the states that have it."""
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


def picture(name: str) -> str:
    """Return the states and transitions of a machine as a complete SVG document."""
    drawing = draw(MACHINES[name])
    positions = {state: index for index, state in enumerate(drawing.columns)}
    legend = [
        line
        for number, edge in enumerate(drawing.edges, 1)
        for line in wrap(
            f"{number}. {edge.before} to {edge.after}: {', '.join(edge.causes)}",
            120,
            subsequent_indent="     ",
        )
    ]
    margin = 40 + _ARC * len(drawing.edges)
    below = 30 + len(positions) * (_BOX_HEIGHT + _GAP)
    width, height = max(2 * margin + _BOX_WIDTH, 860), below + len(legend) * _LINE + 20
    svg = Element("svg", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}")
    SubElement(svg, "title").text = f"The states of the {name}"
    SubElement(svg, "style").text = COLOURS + _STYLE
    left = (width - _BOX_WIDTH) / 2
    for number, edge in enumerate(drawing.edges, 1):
        _draw_edge(svg, number, positions[edge.before], positions[edge.after], left)
    for state, index in positions.items():
        top = _top(index)
        box = {"x": left, "y": top, "width": _BOX_WIDTH, "height": _BOX_HEIGHT, "rx": 6}
        SubElement(svg, "rect", {"class": "state", **{key: f"{value:g}" for key, value in box.items()}})
        label = {"x": f"{left + _BOX_WIDTH / 2:g}", "y": f"{top + 19:g}", "text-anchor": "middle"}
        SubElement(svg, "text", label).text = state
    for index, line in enumerate(legend):
        SubElement(svg, "text", {"x": "20", "y": f"{below + index * _LINE:g}"}).text = line
    return tostring(svg, encoding="unicode") + "\n"


def _top(index: int) -> float:
    return 20 + index * (_BOX_HEIGHT + _GAP)


def _draw_edge(svg: Element, number: int, before: int, after: int, left: float) -> None:
    """Draw a transition as an arc: down on the right side, up on the left side."""
    down = after >= before
    side = left + _BOX_WIDTH if down else left
    reach = side + (1 if down else -1) * (22 + _ARC * number)
    start, end = _top(before) + _BOX_HEIGHT * 0.7, _top(after) + _BOX_HEIGHT * 0.3
    if before == after:
        start, end = _top(before) + 4, _top(before) + _BOX_HEIGHT - 4
    path = f"M {side:g} {start:g} C {reach:g} {start:g} {reach:g} {end:g} {side:g} {end:g}"
    SubElement(svg, "path", {"class": "edge", "d": path})
    tip = side + (7 if down else -7)
    arrow = f"M {tip:g} {end - 4:g} L {side:g} {end:g} L {tip:g} {end + 4:g}"
    SubElement(svg, "path", {"class": "edge", "d": arrow})
    x = side + (reach - side) * 0.75
    anchor = "start" if down else "end"
    position = {"class": "number", "x": f"{x:g}", "y": f"{(start + end) / 2 + 4:g}", "text-anchor": anchor}
    SubElement(svg, "text", position).text = str(number)
