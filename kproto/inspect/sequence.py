"""Draw a group's exchanges as a sequence diagram in SVG.

Each client and each broker has a lane, and time runs downwards.

A row is an arrow with a text above it, a note about a client, or a pause. A rebalance has a shaded
background. A text that is too wide is truncated, and its tooltip shows the full text.

A page has a wide drawing for desktops and a narrow one for phones.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, tostring

from .diagram_rows import Diagram, DiagramRow

WIDE, NARROW = 1080, 366  # The widths of a drawing in pixels, for a desktop and for a phone.
STYLE = """
.sequence text { font: 12px system-ui, sans-serif; fill: currentColor }
.sequence.small text { font-size: 11px }
.sequence .behind { stroke: var(--paper); stroke-width: 3; stroke-linejoin: round; paint-order: stroke }
.sequence .time { opacity: .6; font-size: 11px; font-variant-numeric: tabular-nums }
.sequence .lifeline { stroke: currentColor; opacity: .25 }
.sequence .head { fill: var(--paper); stroke: currentColor; stroke-opacity: .45 }
.sequence .name { font-weight: 600 } .sequence .quiet { opacity: .65; font-style: italic }
.sequence .wrong { fill: var(--error); font-weight: 600 } .sequence .begin { font-weight: 600 }
.sequence .ask { stroke: var(--ask); fill: var(--ask) }
.sequence .answer { stroke: currentColor; fill: currentColor; opacity: .75 }
.sequence .answer .shaft { stroke-dasharray: 5 3 }
.sequence .error, .sequence .silence { stroke: var(--error); fill: var(--error) }
.sequence .shaft { fill: none; stroke-width: 1.4 } .sequence .tip { stroke: none }
.sequence .note { fill: var(--note); stroke: currentColor; stroke-opacity: .25 }
.sequence .rebalance { fill: var(--rebalance) }
"""
COLOURS = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1d21; --ask: #2567c4; --error: #b3261e;
  --note: #eef3e6; --rebalance: #c9a22726 }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181c; --ink: #e6e6e6; --ask: #7db1ff; --error: #ff8f87; --note: #2b3324;
    --rebalance: #c9a2272e } }
"""
# Maps the kind of a row to the CSS class of its text.
_TEXT = {
    "ask": "",
    "answer": "",
    "error": "wrong",
    "silence": "wrong",
    "quiet": "quiet",
    "rebalance": "begin",
}
_ARROW, _OTHER = 32, 25  # The height in pixels of a row with an arrow, and of any other row.
_HEAD = 40
# The height in pixels after which the names of the lanes are repeated.
_AGAIN = 900
# The minimum distance between two lanes in pixels.
_LEAST = 92


def diagram_svg(diagram: Diagram, width: int = WIDE) -> str:
    """Return the diagram as an <svg> element for a page that has `STYLE` and `COLOURS`."""
    return tostring(_Drawing(diagram, width).draw(), encoding="unicode")


def picture(diagram: Diagram, width: int = 820) -> str:
    """Return the diagram as a complete SVG document."""
    root = _Drawing(diagram, width).draw()
    root.set("xmlns", "http://www.w3.org/2000/svg")
    paper = Element("rect", {"width": "100%", "height": "100%", "style": "fill: var(--paper)"})
    style = Element("style")
    style.text = f"{COLOURS}{STYLE}svg {{ color: var(--ink) }}\n"
    root[0:0] = [style, paper]
    return tostring(root, encoding="unicode") + "\n"


class _Drawing:
    def __init__(self, diagram: Diagram, width: int) -> None:
        self.diagram = diagram
        self.narrow = width <= NARROW
        self.left = 50 if self.narrow else 74
        self.letter = 6.4 if self.narrow else 6.7  # The approximate width of a character in pixels.
        lanes = [*diagram.clients, *diagram.brokers]
        self.width = max(width, self.left + _LEAST * len(lanes))
        room = self.width - self.left
        self.x = {lane: self.left + room * (2 * at + 1) / (2 * len(lanes)) for at, lane in enumerate(lanes)}
        self.y = 0.0
        self.root = Element("svg", {"class": f"sequence{' small' if self.narrow else ''}", "role": "img"})
        self.shades = SubElement(self.root, "g")
        self.lines = SubElement(self.root, "g")

    def draw(self) -> Element:
        self._heads()
        drawn = self.y
        shaded: float | None = None
        for row in self.diagram.rows:
            if row.inside and shaded is None:
                shaded = self.y
            elif not row.inside and shaded is not None:
                self._shade(shaded)
                shaded = None
            if self.y - drawn > _AGAIN:
                self._heads()
                drawn = self.y
            self._row(row)
        if shaded is not None:
            self._shade(shaded)
        bottom = self.y + 8
        for x in self.x.values():
            self._add(self.lines, "line", kind="lifeline", x1=x, x2=x, y1=_HEAD / 2, y2=bottom)
        self.root.set("viewBox", f"0 0 {self.width:g} {bottom:g}")
        self.root.set("width", f"{self.width:g}")
        self.root.set("height", f"{bottom:g}")
        return self.root

    # ---- rows

    def _heads(self) -> None:
        room = (self.width - self.left) / len(self.x) - 8
        for lane, x in self.x.items():
            box_width = min(room, max(60.0, len(lane) * 7 + 20))
            self._add(
                self.root,
                "rect",
                kind="head",
                x=x - box_width / 2,
                y=self.y + 8,
                width=box_width,
                height=22,
                rx=5,
            )
            self._text(self.root, lane, x, self.y + 23, "name", room=box_width - 6, tooltip=lane)
        self.y += _HEAD

    def _row(self, row: DiagramRow) -> None:
        match row.kind:
            case "ask" | "answer" | "error" | "silence":
                self._arrow(row)
            case "note":
                self._note(row)
            case "quiet" | "rebalance":
                middle = self.left + (self.width - self.left) / 2
                self._time(row, 16)
                self._text(
                    self.root, row.text, middle, self.y + 16, f"{_TEXT[row.kind]} behind", tooltip=row.tooltip
                )
                self.y += _OTHER

    def _arrow(self, row: DiagramRow) -> None:
        client, broker = self.x[row.who], self.x[row.broker]
        start, end = (client, broker) if row.kind in ("ask", "silence") else (broker, client)
        if row.kind == "silence":
            end = start + (end - start) * 0.6
        step = 6 if end > start else -6
        y = self.y + 24
        self._time(row, 28)
        group = self._add(self.root, "g", row.tooltip, kind=row.kind)
        self._add(group, "path", kind="shaft", d=f"M{start:.1f} {y:g}H{end - step:.1f}")
        if row.kind == "silence":
            self._add(group, "path", kind="shaft", d=f"M{end - 5:.1f} {y - 5:g}l10 10m0 -10l-10 10")
        else:
            self._add(group, "path", kind="tip", d=f"M{end:.1f} {y:g}l{-step * 1.5:g} -4v8z")
        self._text(
            self.root,
            row.text,
            (start + end) / 2,
            self.y + 17,
            f"{_TEXT[row.kind]} behind",
            tooltip=row.tooltip,
        )
        self.y += _ARROW

    def _note(self, row: DiagramRow) -> None:
        middle = self.x.get(row.who, self.left + (self.width - self.left) / 2)
        text = row.text if row.who in self.x or not row.who else f"{row.who}: {row.text}"
        shown = self._cut(text, self.width - self.left - 20)
        box_width = len(shown) * self.letter + 16
        x = min(max(middle - box_width / 2, self.left), self.width - box_width - 2)
        self._time(row, 16)
        self._add(
            self.root, "rect", row.tooltip, kind="note", x=x, y=self.y + 2, width=box_width, height=20, rx=9
        )
        self._text(self.root, shown, x + box_width / 2, self.y + 16, "", tooltip=row.tooltip)
        self.y += _OTHER

    def _shade(self, top: float) -> None:
        self._add(
            self.shades, "rect", kind="rebalance", x=0, y=top, width=self.width, height=self.y - top, rx=4
        )

    def _time(self, row: DiagramRow, down: int) -> None:
        seconds = f"{(row.at - self.diagram.began) / 1000:.3f}"
        self._text(self.root, seconds, self.left - 8, self.y + down, "time", "end")

    # ---- shapes

    def _add(
        self, above: Element, name: str, tooltip: str = "", kind: str = "", **attributes: object
    ) -> Element:
        numbers = {
            key: f"{v:.1f}".removesuffix(".0") if isinstance(v, float) else str(v)
            for key, v in attributes.items()
        }
        shape = SubElement(above, name, {"class": kind, **numbers})
        if tooltip:
            SubElement(shape, "title").text = tooltip
        return shape

    def _text(
        self,
        above: Element,
        text: str,
        x: float,
        y: float,
        kind: str,
        anchor: str = "middle",
        *,
        room: float = 0,
        tooltip: str = "",
    ) -> None:
        shown = self._cut(text, room or self.width - self.left)
        if anchor == "middle" and not room:
            half = len(shown) * self.letter / 2
            x = min(max(x, self.left + half), max(self.left + half, self.width - half - 2))
        shape = self._add(above, "text", kind=kind, x=x, y=y, text_anchor=anchor)
        shape.set("text-anchor", shape.attrib.pop("text_anchor"))
        shape.text = shown
        if tooltip and tooltip != shown:
            SubElement(shape, "title").text = tooltip

    def _cut(self, text: str, room: float) -> str:
        letters = max(3, int(room / self.letter))
        return text if len(text) <= letters else f"{text[: letters - 1].rstrip()}…"
