"""Draw a group's exchanges as a sequence diagram in SVG.

Each client and each broker has a lane (a vertical line), and time runs downwards.

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
_TEXT_CLASSES = {
    "ask": "",
    "answer": "",
    "error": "wrong",
    "silence": "wrong",
    "quiet": "quiet",
    "rebalance": "begin",
}
_ARROW_ROW_HEIGHT, _ROW_HEIGHT = 32, 25  # The height in pixels of a row with an arrow, and of any other row.
_HEADER_HEIGHT = 40  # The height in pixels of the names of the lanes.
# The height in pixels after which the names of the lanes are repeated.
_HEADER_INTERVAL = 900
# The minimum distance between two lanes in pixels.
_MIN_LANE_DISTANCE = 92


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
    """Draws a diagram from top to bottom. `y` is the top of the next row, `x` the centre of each lane."""

    def __init__(self, diagram: Diagram, width: int) -> None:
        self.diagram = diagram
        self.is_narrow = width <= NARROW
        self.left = 50 if self.is_narrow else 74
        self.letter_width = 6.4 if self.is_narrow else 6.7  # The approximate width of a character in pixels.
        lanes = [*diagram.clients, *diagram.brokers]
        self.width = max(width, self.left + _MIN_LANE_DISTANCE * len(lanes))
        available_width = self.width - self.left
        self.x = {
            lane: self.left + available_width * (2 * index + 1) / (2 * len(lanes))
            for index, lane in enumerate(lanes)
        }
        self.y = 0.0
        self.root = Element("svg", {"class": f"sequence{' small' if self.is_narrow else ''}", "role": "img"})
        self.shades = SubElement(self.root, "g")
        self.lines = SubElement(self.root, "g")

    def draw(self) -> Element:
        self._draw_lane_headers()
        header_y = self.y
        rebalance_top: float | None = None
        for row in self.diagram.rows:
            if row.inside and rebalance_top is None:
                rebalance_top = self.y
            elif not row.inside and rebalance_top is not None:
                self._shade_rebalance(rebalance_top)
                rebalance_top = None
            if self.y - header_y > _HEADER_INTERVAL:
                self._draw_lane_headers()
                header_y = self.y
            self._draw_row(row)
        if rebalance_top is not None:
            self._shade_rebalance(rebalance_top)
        bottom = self.y + 8
        for x in self.x.values():
            self._add_shape(
                self.lines, "line", css_class="lifeline", x1=x, x2=x, y1=_HEADER_HEIGHT / 2, y2=bottom
            )
        self.root.set("viewBox", f"0 0 {self.width:g} {bottom:g}")
        self.root.set("width", f"{self.width:g}")
        self.root.set("height", f"{bottom:g}")
        return self.root

    # ---- rows

    def _draw_lane_headers(self) -> None:
        available_width = (self.width - self.left) / len(self.x) - 8
        for lane, x in self.x.items():
            box_width = min(available_width, max(60.0, len(lane) * 7 + 20))
            self._add_shape(
                self.root,
                "rect",
                css_class="head",
                x=x - box_width / 2,
                y=self.y + 8,
                width=box_width,
                height=22,
                rx=5,
            )
            self._draw_text(
                self.root, lane, x, self.y + 23, "name", available_width=box_width - 6, tooltip=lane
            )
        self.y += _HEADER_HEIGHT

    def _draw_row(self, row: DiagramRow) -> None:
        match row.kind:
            case "ask" | "answer" | "error" | "silence":
                self._draw_arrow(row)
            case "note":
                self._draw_note(row)
            case "quiet" | "rebalance":
                middle = self.left + (self.width - self.left) / 2
                self._draw_time(row, 16)
                css_class = f"{_TEXT_CLASSES[row.kind]} behind"
                self._draw_text(self.root, row.text, middle, self.y + 16, css_class, tooltip=row.tooltip)
                self.y += _ROW_HEIGHT

    def _draw_arrow(self, row: DiagramRow) -> None:
        client, broker = self.x[row.who], self.x[row.broker]
        start, end = (client, broker) if row.kind in ("ask", "silence") else (broker, client)
        if row.kind == "silence":
            end = start + (end - start) * 0.6
        step = 6 if end > start else -6
        y = self.y + 24
        self._draw_time(row, 28)
        group = self._add_shape(self.root, "g", row.tooltip, css_class=row.kind)
        self._add_shape(group, "path", css_class="shaft", d=f"M{start:.1f} {y:g}H{end - step:.1f}")
        if row.kind == "silence":
            self._add_shape(
                group, "path", css_class="shaft", d=f"M{end - 5:.1f} {y - 5:g}l10 10m0 -10l-10 10"
            )
        else:
            self._add_shape(group, "path", css_class="tip", d=f"M{end:.1f} {y:g}l{-step * 1.5:g} -4v8z")
        self._draw_text(
            self.root,
            row.text,
            (start + end) / 2,
            self.y + 17,
            f"{_TEXT_CLASSES[row.kind]} behind",
            tooltip=row.tooltip,
        )
        self.y += _ARROW_ROW_HEIGHT

    def _draw_note(self, row: DiagramRow) -> None:
        middle = self.x.get(row.who, self.left + (self.width - self.left) / 2)
        text = row.text if row.who in self.x or not row.who else f"{row.who}: {row.text}"
        visible_text = self._truncate(text, self.width - self.left - 20)
        box_width = len(visible_text) * self.letter_width + 16
        x = min(max(middle - box_width / 2, self.left), self.width - box_width - 2)
        self._draw_time(row, 16)
        self._add_shape(
            self.root,
            "rect",
            row.tooltip,
            css_class="note",
            x=x,
            y=self.y + 2,
            width=box_width,
            height=20,
            rx=9,
        )
        self._draw_text(self.root, visible_text, x + box_width / 2, self.y + 16, "", tooltip=row.tooltip)
        self.y += _ROW_HEIGHT

    def _shade_rebalance(self, top: float) -> None:
        self._add_shape(
            self.shades,
            "rect",
            css_class="rebalance",
            x=0,
            y=top,
            width=self.width,
            height=self.y - top,
            rx=4,
        )

    def _draw_time(self, row: DiagramRow, y_offset: int) -> None:
        seconds = f"{(row.at - self.diagram.began) / 1000:.3f}"
        self._draw_text(self.root, seconds, self.left - 8, self.y + y_offset, "time", "end")

    # ---- shapes

    def _add_shape(
        self, parent: Element, name: str, tooltip: str = "", css_class: str = "", **attributes: object
    ) -> Element:
        """Add an SVG element with the CSS class `css_class`. Floats are rounded to one decimal place."""
        texts = {
            key: f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
            for key, value in attributes.items()
        }
        shape = SubElement(parent, name, {"class": css_class, **texts})
        if tooltip:
            SubElement(shape, "title").text = tooltip
        return shape

    def _draw_text(
        self,
        parent: Element,
        text: str,
        x: float,
        y: float,
        css_class: str,
        anchor: str = "middle",
        *,
        available_width: float = 0,
        tooltip: str = "",
    ) -> None:
        """Draw a text, truncated to `available_width`.

        Without `available_width`, the text is truncated to the width of the drawing. A centred text is then
        moved horizontally so that it stays within the drawing.
        """
        visible_text = self._truncate(text, available_width or self.width - self.left)
        if anchor == "middle" and not available_width:
            half = len(visible_text) * self.letter_width / 2
            x = min(max(x, self.left + half), max(self.left + half, self.width - half - 2))
        shape = self._add_shape(parent, "text", css_class=css_class, x=x, y=y)
        shape.set("text-anchor", anchor)
        shape.text = visible_text
        if tooltip and tooltip != visible_text:
            SubElement(shape, "title").text = tooltip

    def _truncate(self, text: str, available_width: float) -> str:
        max_length = max(3, int(available_width / self.letter_width))
        return text if len(text) <= max_length else f"{text[: max_length - 1].rstrip()}…"
