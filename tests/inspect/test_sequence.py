"""A sequence diagram draws a lane per participant, arrows and notes, and truncates no text that fits."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from kproto.inspect.diagram_rows import Diagram, DiagramRow
from kproto.inspect.sequence import NARROW, WIDE, diagram_svg, picture


def row(kind: Any, text: str = "text", **fields: Any) -> DiagramRow:
    values: dict[str, Any] = {"at": 1_500, "who": "a", "broker": "broker 1", "tooltip": "", **fields}
    return DiagramRow(kind=kind, text=text, **values)


def drawing(*rows: DiagramRow, clients: tuple[str, ...] = ("a", "b"), width: int = WIDE) -> Element:
    diagram = Diagram(began=1_000, clients=list(clients), brokers=["broker 1"], rows=list(rows))
    return fromstring(diagram_svg(diagram, width))


def of_class(svg: Element, *names: str) -> list[Element]:
    return [element for element in svg.iter() if element.get("class") in names]


def numbers(element: Element, *names: str) -> list[float]:
    return [float(element.get(name) or "nan") for name in names]


def lanes(svg: Element) -> dict[str, float]:
    """Return the x position of each participant's name."""
    return {element.text or "": numbers(element, "x")[0] for element in of_class(svg, "name")}


def test_the_lanes_share_the_width_and_their_lines_reach_the_bottom() -> None:
    svg = drawing(row("quiet"))
    width, height = numbers(svg, "width", "height")
    assert svg.get("viewBox") == f"0 0 {width:g} {height:g}" == f"0 0 {WIDE} 73"
    assert list(lanes(svg)) == ["a", "b", "broker 1"]
    first, second, third = lanes(svg).values()
    assert second - first == pytest.approx(third - second, abs=0.11)
    assert first - 74 == pytest.approx(WIDE - third, abs=0.11)
    lines = of_class(svg, "lifeline")
    assert [numbers(line, "x1", "x2", "y1", "y2") for line in lines] == [
        [pytest.approx(x, abs=0.11), pytest.approx(x, abs=0.11), 20, height] for x in lanes(svg).values()
    ]


@pytest.mark.parametrize(("lane_count", "width"), [(3, 366), (4, 50 + 92 * 5)])
def test_a_drawing_is_wider_than_a_telephone_if_its_lanes_need_it(lane_count: int, width: int) -> None:
    svg = drawing(clients=tuple("abcd"[: 2 if lane_count == 3 else 4]), width=NARROW)
    assert svg.get("class") == "sequence small"
    assert numbers(svg, "width") == [width]


@pytest.mark.parametrize(
    ("kind", "start", "end"),
    [("ask", "a", "broker 1"), ("answer", "broker 1", "a"), ("error", "broker 1", "a")],
)
def test_an_arrow_points_to_the_receiver(kind: str, start: str, end: str) -> None:
    svg = drawing(row(kind, tooltip="all of it"))
    x = lanes(svg)
    step = 6 if x[end] > x[start] else -6
    (group,) = of_class(svg, kind)
    shaft, tip = of_class(group, "shaft", "tip")
    assert shaft.get("d") == f"M{x[start]:.1f} 64H{x[end] - step:.1f}"
    assert tip.get("d") == f"M{x[end]:.1f} 64l{-1.5 * step:g} -4v8z"
    assert [title.text for title in group.iter("title")] == ["all of it"]
    (text,) = [element for element in svg.iter("text") if element.text == "text"]
    assert numbers(text, "x", "y") == [pytest.approx((x[start] + x[end]) / 2, abs=0.11), 57]
    assert ("wrong" in (text.get("class") or "")) is (kind == "error")


def test_a_missing_response_ends_on_the_way_with_a_cross() -> None:
    svg = drawing(row("silence"))
    x = lanes(svg)
    end = x["a"] + (x["broker 1"] - x["a"]) * 0.6
    shaft, cross = of_class(svg, "shaft")
    assert shaft.get("d") == f"M{x['a']:.1f} 64H{end - 6:.1f}"
    assert cross.get("d") == f"M{end - 5:.1f} 59l10 10m0 -10l-10 10"
    assert of_class(svg, "tip") == []


def test_rows_follow_each_other_with_their_times() -> None:
    svg = drawing(row("ask"), row("quiet", at=1_000), row("rebalance"), row("note"), row("answer", at=4_321))
    times = [(element.text, *numbers(element, "x", "y")) for element in of_class(svg, "time")]
    assert times == [
        ("0.500", 66, 68),
        ("0.000", 66, 88),
        ("0.500", 66, 113),
        ("0.500", 66, 138),
        ("3.321", 66, 175),
    ]
    assert {element.get("text-anchor") for element in of_class(svg, "time")} == {"end"}
    assert numbers(svg, "height") == [40 + 2 * 32 + 3 * 25 + 8]
    middle = 74 + (WIDE - 74) / 2
    for kind in ("quiet behind", "begin behind"):
        (text,) = of_class(svg, kind)
        assert numbers(text, "x") == [middle]


def test_the_shade_covers_the_rows_of_a_rebalance() -> None:
    svg = drawing(row("quiet"), row("ask", inside=True), row("quiet", inside=True), row("quiet"))
    assert [numbers(shade, "x", "y", "width", "height") for shade in of_class(svg, "rebalance")] == [
        [0, 65, WIDE, 57]
    ]
    open_end = drawing(row("quiet"), row("ask", inside=True))
    assert [numbers(shade, "y", "height") for shade in of_class(open_end, "rebalance")] == [[65, 32]]


@pytest.mark.parametrize("who", ["a", "broker 1", "", "gone"])
def test_a_note_is_near_its_lane_and_inside_the_drawing(who: str) -> None:
    svg = drawing(row("note", "is assigned t-0", who=who, tooltip="all of it"))
    (box,) = of_class(svg, "note")
    x, y, width, height = numbers(box, "x", "y", "width", "height")
    (text,) = [element for element in svg.iter("text") if (element.text or "").endswith("is assigned t-0")]
    assert text.text == ("gone: is assigned t-0" if who == "gone" else "is assigned t-0")
    assert width == pytest.approx(len(text.text) * 6.7 + 16, abs=0.11)
    assert (y, height) == (42, 20)
    middle = lanes(svg).get(who, 74 + (WIDE - 74) / 2)
    assert x == pytest.approx(max(74.0, min(middle - width / 2, WIDE - width - 2)), abs=0.11)
    assert numbers(text, "x", "y") == [pytest.approx(x + width / 2, abs=0.11), 56]
    assert [title.text for title in box.iter("title")] == ["all of it"]


def test_long_texts_are_cut_and_stay_in_the_tooltip() -> None:
    svg = drawing(row("note", "n" * 400, tooltip="n" * 400), row("quiet", "q" * 400, tooltip="q" * 400))
    (box,) = of_class(svg, "note")
    x, width = numbers(box, "x", "width")
    assert x >= 74
    assert x + width <= WIDE
    texts = [element for element in svg.iter("text") if (element.text or "").endswith("…")]
    assert [(element.text or "")[0] for element in texts] == ["n", "q"]
    assert [title.text for element in texts for title in element.iter("title")] == ["n" * 400, "q" * 400]


def test_a_text_is_cut_only_if_it_has_no_room() -> None:
    letters = int((WIDE - 74 - 20) / 6.7)
    for length, shown in ((letters, "n" * letters), (letters + 1, "n" * (letters - 1) + "…")):
        svg = drawing(row("note", "n" * length))
        assert [text.text for text in svg.iter("text") if "nn" in (text.text or "")] == [shown]


def test_the_names_are_repeated_in_long_drawings() -> None:
    svg = drawing(*[row("ask")] * 60)
    heads = [numbers(head, "y")[0] for head in of_class(svg, "head")]
    assert heads == [8] * 3 + [40 + 29 * 32 + 8] * 3 + [2 * 40 + 58 * 32 + 8] * 3


def test_the_name_of_a_lane_is_cut_to_its_box() -> None:
    svg = drawing(clients=("c" * 300, "b"))
    (box, *_) = of_class(svg, "head")
    (name, *_) = of_class(svg, "name")
    assert numbers(box, "width") == [pytest.approx((WIDE - 74) / 3 - 8, abs=0.11)]
    assert len(name.text or "") <= numbers(box, "width")[0] / 6.7
    assert [title.text for title in name.iter("title")] == ["c" * 300]


def test_a_picture_is_a_complete_svg_document() -> None:
    svg = picture(Diagram(began=0, clients=["a"], brokers=["broker 1"], rows=[row("ask")]))
    assert svg.endswith("</svg>\n")
    root = fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    style, paper = root[0], root[1]
    assert ".sequence .lifeline" in (style.text or "")
    assert ":root" in (style.text or "")
    assert (paper.get("width"), paper.get("height")) == ("100%", "100%")
