"""Draw HTML pages with inline SVG: a group's timeline, and its exchanges as a sequence diagram.

`timeline` draws the events of `kproto.inspect.timeline`. Each member has a lane, with a bar for each
partition that the member owned. A partition has one colour in all lanes. The top lane shows when partitions
had no owner.

`kproto.inspect.sequence` draws the sequence diagram.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from xml.etree.ElementTree import Element, SubElement, tostring

from ..group.subscription import TopicPartition
from ..printable import escape_lines
from .diagram_rows import Diagram
from .sequence import COLOURS, NARROW, WIDE, diagram_svg
from .sequence import STYLE as SEQUENCE_STYLE
from .timeline import (
    GroupEvent,
    Standstill,
    causes,
    ownership_verdict,
    ownerships,
    replacements,
    standstills,
)

_COLOURS = (
    *("#3b7dd8", "#e07b39", "#3a9e6e", "#b8529b", "#c9a227"),
    *("#5fa8b8", "#8a6fd1", "#c4524f", "#7c8f3d", "#8c6d53"),
)
# Sizes in pixels.
_RIGHT_MARGIN, _TOP_MARGIN, _BAR_HEIGHT, _LANE_GAP = 24, 64, 9, 22
# The width of a generation's label in pixels. Labels that are closer to each other are merged.
_LABEL_WIDTH = 72
# The name of the lane (the horizontal band) of partitions without an owner.
_NO_OWNER = "standing still"
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
# The possible distances in ms between two labels of the time axis. For longer spans, the distance is a whole
# number of days.
_AXIS_STEPS_MS = (
    *(100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 600_000),
    *(_HOUR_MS, 6 * _HOUR_MS, _DAY_MS),
)
# The approximate width of a character in pixels.
_CHARACTER_WIDTH = 7
_LANE_STYLE = """
svg text { font: 12px system-ui, sans-serif; fill: currentColor }
.dim { opacity: .65 }
.lane { fill: currentColor; opacity: .05 } .generation { stroke: currentColor; opacity: .3 }
.edge { stroke: currentColor } .rejoining { fill: currentColor; opacity: .5 }
.grown { stroke: #3a9e6e; stroke-width: 1.5; stroke-dasharray: 5 4 }
.killed { stroke: #c4524f; stroke-width: 2.5 }
.fault { stroke: #c4524f; stroke-width: 1.5; stroke-dasharray: 2 2 }
"""
_PAGE_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 0; background: var(--paper); color: var(--ink) }
main { max-width: 1120px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.4em; margin-bottom: 0 }
h2 { font-size: 1.15em; margin: 2em 0 0 } svg { max-width: 100%; height: auto }
.narrow { display: none }
.table { overflow-x: auto }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .15em .8em; text-align: right }
th { border-bottom: 1px solid #8888; white-space: nowrap }
td:first-child, td:last-child, th:last-child { text-align: left }
caption { text-align: left; padding: .5em 0 }
@media (max-width: 760px) { .wide { display: none } .narrow { display: block; overflow-x: auto }
  .narrow svg { max-width: none } main { padding: 0 12px } ul { padding-left: 1.2em } }
"""


def timeline(events: Sequence[GroupEvent], title: str, facts: Sequence[str] = ()) -> str:
    """Draw a group's timeline as a complete HTML page. `facts` are lines of text below the title."""
    return page(title, facts, [section(events)])


def page(title: str, facts: Sequence[str], parts: Sequence[str]) -> str:
    """Return a complete HTML page. `parts` are HTML sections, and `facts` are lines of text above them."""
    fact_list = f"<ul>{''.join(f'<li>{escape(fact)}</li>' for fact in facts)}</ul>" if facts else ""
    styles = f"{COLOURS}{_LANE_STYLE}{_PAGE_STYLE}{SEQUENCE_STYLE}"
    return escape_lines(
        "".join(
            [
                "<!doctype html><html lang=en><meta charset=utf-8>",
                "<meta name=viewport content='width=device-width, initial-scale=1'>",
                f"<title>{escape(title)}</title><style>{styles}</style>",
                f"<main><h1>{escape(title)}</h1>{fact_list}",
                *parts,
                "</main></html>\n",
            ]
        )
    )


def section(events: Sequence[GroupEvent], began: int | None = None, heading: str = "") -> str:
    """Draw a group's timeline as a section of a page. Raises ValueError if there are no events.

    `began` is the time in ms that the page shows as 0; None stands for the time of the first event. All
    sections of a page need the same value. `heading` is the text above the section.
    """
    if not events:
        raise ValueError("a timeline needs at least one event")
    wide, narrow = _Drawing(events, WIDE, began), _Drawing(events, NARROW, began)
    return "".join(
        [
            f"<section>{f'<h2>{escape(heading)}</h2>' if heading else ''}",
            '<p class=dim>A bar shows when a member owned a partition. The lane "standing still" shows when ',
            "no member read a partition. Hover over a bar or a mark for details.</p>",
            legend(events),
            f"<div class=wide>{wide.draw()}</div><div class=narrow>{narrow.draw()}</div>",
            f"<div class=table>{table(events)}</div></section>",
        ]
    )


def legend(events: Sequence[GroupEvent]) -> str:
    """Return the legend of a timeline: a paragraph that shows the colour of each partition.

    The coloured squares are characters, because a notebook removes style sheets from its outputs until the
    reader runs the notebook.
    """
    drawing = _Drawing(events, NARROW)
    entries = [
        f'<span style="color:{drawing.colour(partition)}">&#9632;</span> {escape(str(partition))}'
        for partition in drawing.partitions
    ]
    return f"<p>{'&emsp;'.join(entries)}</p>"


def picture(events: Sequence[GroupEvent], width: int = NARROW) -> str:
    """Draw a group's timeline as a complete SVG document. Raises ValueError if there are no events."""
    if not events:
        raise ValueError("a timeline needs at least one event")
    drawing = _Drawing(events, width)
    drawing.draw()
    drawing.root.set("xmlns", "http://www.w3.org/2000/svg")
    paper = Element("rect", {"width": "100%", "height": "100%", "style": "fill: var(--paper)"})
    style = Element("style")
    style.text = f"{COLOURS}{_LANE_STYLE}svg {{ color: var(--ink) }}\n"
    drawing.root[0:0] = [style, paper]
    return tostring(drawing.root, encoding="unicode") + "\n"


def conversation(diagram: Diagram) -> str:
    """Draw a sequence diagram as a section of a page."""
    wide, narrow = diagram_svg(diagram, WIDE), diagram_svg(diagram, NARROW)
    return "".join(
        [
            "<section><p class=dim>Time runs downwards. An arrow is a request or a response, and a shaded ",
            "area is a rebalance. Repeated requests that succeed are counted. ",
            "Hover over an arrow for details.</p>",
            f"<div class=wide>{wide}</div><div class=narrow>{narrow}</div></section>",
        ]
    )


class _Drawing:
    """The layout of a timeline.

    Each member has a lane, with one row per partition. Time runs from left to right.
    """

    def __init__(self, events: Sequence[GroupEvent], width: int, began: int | None = None) -> None:
        self.events = sorted(events, key=lambda event: event.at)
        self.partitions = sorted({p for event in events for p in event.partitions})
        self.members = [_NO_OWNER, *dict.fromkeys(event.member for event in self.events if event.member)]
        self.start = self.events[0].at if began is None else min(began, self.events[0].at)
        self.span = max(self.events[-1].at - self.start, 1)
        self.width = width
        self.left = 130 if width > NARROW else 92
        self.lane_height = _BAR_HEIGHT * max(len(self.partitions), 1) + 8
        self.height = _TOP_MARGIN + len(self.members) * (self.lane_height + _LANE_GAP) + 30
        self.root = Element("svg", viewBox=f"0 0 {width} {self.height}", width=str(width), role="img")

    def draw(self) -> str:
        """Add all shapes to `root`, and return it as SVG. May be called only once."""
        self._draw_axis()
        self._draw_generations()
        self._draw_lanes()
        self._draw_bars()
        for event in self.events:
            self._draw_mark(event)
        return tostring(self.root, encoding="unicode")

    def colour(self, partition: TopicPartition) -> str:
        return _COLOURS[self.partitions.index(partition) % len(_COLOURS)]

    def x(self, at: int) -> float:
        return round(self.left + (at - self.start) / self.span * (self.width - self.left - _RIGHT_MARGIN), 1)

    def y(self, member: str) -> int:
        return _TOP_MARGIN + self.members.index(member) * (self.lane_height + _LANE_GAP)

    def seconds(self, at: int) -> str:
        return f"{(at - self.start) / 1000:.3f} s"

    def _add_shape(self, name: str, tooltip: str = "", **attributes: object) -> None:
        """Add a shape to the drawing. `tooltip` is shown on hover."""
        shape = SubElement(self.root, name, {key: str(value) for key, value in attributes.items()})
        if tooltip:
            SubElement(shape, "title").text = tooltip

    def _add_text(
        self, text: str, x: float, y: float, anchor: str = "start", kind: str = "", *, tooltip: str = ""
    ) -> None:
        attributes = {"x": str(x), "y": str(y), "text-anchor": anchor, "class": kind}
        shape = SubElement(self.root, "text", attributes)
        shape.text = text
        if tooltip not in ("", text):
            SubElement(shape, "title").text = tooltip

    def _add_text_beside(self, text: str, x: float, y: float, gap: int) -> None:
        """Write a text on the right of a mark, or on its left if there is no room on the right."""
        if x + gap + len(text) * _CHARACTER_WIDTH <= self.width:
            self._add_text(text, x + gap, y)
        else:
            self._add_text(text, x - gap, y, "end")

    def _add_vertical_line(self, kind: str, x: float, top: float, bottom: float, tooltip: str) -> None:
        self._add_shape("line", tooltip, **{"class": kind}, x1=x, x2=x, y1=top, y2=bottom)

    def _draw_axis(self) -> None:
        min_step = self.span * 80 / self.width
        step = next((s for s in _AXIS_STEPS_MS if s >= min_step), math.ceil(min_step / _DAY_MS) * _DAY_MS)
        unit, name = (_HOUR_MS, "h") if step >= _HOUR_MS else (1000, "s")
        for at in range(0, self.span + 1, step):
            self._add_text(f"{at / unit:g} {name}", self.x(self.start + at), self.height - 8, "middle", "dim")

    def _draw_generations(self) -> None:
        start_times: dict[int, int] = {}
        for event in self.events:
            if event.kind in ("assigned", "generation") and event.generation >= 0:
                start_times.setdefault(event.generation, event.at)
        # Each label covers one or more generations, and is a list of pairs (generation, x coordinate).
        labels: list[list[tuple[int, float]]] = []
        reasons = causes(self.events, start_times)
        for generation, at in sorted(start_times.items()):
            x = self.x(at)
            tooltip = f"generation {generation}: {reasons[generation]}"
            self._add_vertical_line("generation", x, _TOP_MARGIN - 14, self.height - 24, tooltip)
            if not labels or x - labels[-1][-1][1] >= _LABEL_WIDTH:
                labels.append([])
            labels[-1].append((generation, x))
        for label in labels:
            (low, left), (high, right) = label[0], label[-1]
            text = f"gen {low} to {high}" if high > low else f"gen {low}"
            x = min((left + right) / 2, self.width - len(text) * _CHARACTER_WIDTH / 2)
            self._add_text(text, x, _TOP_MARGIN - 18, "middle", "dim")

    def _draw_lanes(self) -> None:
        for member in self.members:
            y, width = self.y(member), self.width - self.left - _RIGHT_MARGIN
            self._add_shape(
                "rect", **{"class": "lane"}, x=self.left, y=y, width=width, height=self.lane_height
            )
            # The end of a long name is shown, because the ends of client ids differ more than their starts.
            letters = (self.left - 12) // _CHARACTER_WIDTH
            shown = member if member == _NO_OWNER or len(member) <= letters else f"…{member[1 - letters :]}"
            self._add_text(shown, self.left - 10, y + self.lane_height / 2 + 4, "end", tooltip=member)

    def _draw_bars(self) -> None:
        for ownership in ownerships(self.events):
            tooltip = f"{ownership.partition} owned by {ownership.member}, generation {ownership.generation}"
            self._draw_bar(ownership.member, ownership.partition, ownership.start, ownership.end, tooltip)
        for standstill in standstills(self.events):
            duration = f"stood still for {standstill.ms} ms"
            tooltip = f"{standstill.partition} {duration}, until generation {standstill.generation}"
            self._draw_bar(_NO_OWNER, standstill.partition, standstill.start, standstill.end, tooltip)

    def _draw_bar(self, lane: str, partition: TopicPartition, start: int, end: int, tooltip: str) -> None:
        x = self.x(start)
        y = self.y(lane) + 4 + _BAR_HEIGHT * self.partitions.index(partition)
        width = max(round(self.x(end) - x, 1), 1.5)
        tooltip = f"{tooltip}, {self.seconds(start)} to {self.seconds(end)}"
        fill = self.colour(partition)
        self._add_shape("rect", tooltip, x=x, y=y, width=width, height=_BAR_HEIGHT - 2, rx=1.5, fill=fill)

    def _draw_mark(self, event: GroupEvent) -> None:
        x = self.x(event.at)
        y = self.y(event.member) if event.member else 0
        below_y, middle_y = y + self.lane_height + 17, y + self.lane_height / 2
        tooltip = f"{event.kind} at {self.seconds(event.at)}: {event.reason or event.member}"
        match event.kind:
            case "grown":
                self._add_vertical_line("grown", x, 14, self.height - 24, tooltip)
                self._add_text_beside(f"topic grows by {len(event.partitions)}", x, 12, 4)
            case "started":
                self._add_vertical_line("edge", x, y, y + self.lane_height, tooltip)
                self._add_text_beside("▸ joins", x, below_y, 0)
            case "left":
                self._add_vertical_line("edge", x, y, y + self.lane_height, tooltip)
                self._add_text("leaves ▸", x, below_y, "end")
            case "killed" | "disconnected" | "removed":
                self._add_shape(
                    "path", tooltip, **{"class": "killed"}, d=f"M{x - 6} {middle_y - 6} l12 12 m0 -12 l-12 12"
                )
                # A killed member gets a second mark, `removed`, when its session expires. The labels of the
                # two marks have different heights, so that they do not overlap.
                label_y = middle_y - 8 if event.kind == "removed" else middle_y + 4
                self._add_text_beside(event.kind, x, label_y, 10)
            case "silent" | "fault" | "resumed":
                top = y if event.member else _TOP_MARGIN
                self._add_vertical_line("fault", x, top, top + self.lane_height, tooltip)
                self._add_text_beside(event.reason or event.kind, x, top + self.lane_height + 17, 0)
            case "rejoining":
                self._add_shape(
                    "circle", tooltip, **{"class": "rejoining"}, cx=x, cy=y + self.lane_height + 4, r=2.5
                )
            case "assigned" | "releasing" | "revoked" | "lost" | "generation" | "ended":
                # These events have no marks here. Other methods draw ownerships and standstills as bars, and
                # generations as vertical lines.
                pass


def table(events: Sequence[GroupEvent]) -> str:
    """Return an HTML table with a row per generation: its cause, and how long each partition was not read."""
    partitions = sorted({partition for event in events for partition in event.partitions})
    # Excludes each standstill (time in which a partition is not read) that the replacement of a member ended:
    # replacements have rows of their own.
    by_generation: dict[int, list[Standstill]] = {}
    for standstill in standstills(events):
        if standstill.after == standstill.before:
            by_generation.setdefault(standstill.generation, []).append(standstill)
    generations = {
        event.generation
        for event in events
        if event.kind in ("assigned", "generation") and event.generation >= 0
    }
    # Maps each row of the table to its standstills. A row is (generation, time, reason). The first row of a
    # generation has time -1, and the generation's cause as its reason. Each further row is a replacement
    # (`replacements`).
    standstills_by_row = {
        (generation, -1, reason): by_generation.get(generation, [])
        for generation, reason in causes(events, generations).items()
    } | replacements(events)
    rows: list[str] = []
    for (generation, _, reason), standstills_of_row in sorted(
        standstills_by_row.items(), key=lambda item: item[0]
    ):
        by_partition = {standstill.partition: standstill for standstill in standstills_of_row}
        cells = [
            f"<td>{by_partition[partition].ms} ms"
            f"{' (new)' if by_partition[partition].is_new_partition else ''}"
            if partition in by_partition
            else "<td>·"
            for partition in partitions
        ]
        rows.append(f"<tr><td>{generation}{''.join(cells)}<td>{escape(reason)}</tr>")
    return "".join(
        [
            "<table><caption>How long no member read each partition, and the generation that ended it ",
            f"(· = no interruption); {ownership_verdict(events)}</caption>",
            f"<tr><th>generation{''.join(f'<th>{escape(str(p))}' for p in partitions)}<th>why</tr>",
            *rows,
            "</table>",
        ]
    )
