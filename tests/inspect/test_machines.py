"""State machines are drawn as text and SVG."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kproto.cli import main
from kproto.cli.machines import MACHINES, drawing_of
from kproto.inspect.machines import _assign_lanes, picture, text


@pytest.mark.parametrize("name", MACHINES)
def test_the_text_has_every_state_kind_and_transition(name: str) -> None:
    drawing = drawing_of(name)
    shown = text(name, drawing)
    assert all(f"\n{kind}: " in shown for kind, _, _ in drawing.rows)
    for edge in drawing.edges:
        assert f"\n  {edge.before} -> {edge.after}{': ' if edge.causes else ''}" in shown
        assert " ".join(edge.causes[:1]) in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 110


@pytest.mark.parametrize("name", MACHINES)
def test_the_picture_has_every_state_and_transition(name: str) -> None:
    drawing = drawing_of(name)
    svg = ElementTree.fromstring(picture(name, drawing))
    labels = [element.text or "" for element in svg.iter() if element.tag.endswith("text")]
    (style,) = (element for element in svg.iter() if element.tag.endswith("style"))
    assert {".state", ".edge", ".number"} <= {*(style.text or "").split()}
    assert {*drawing.columns} <= {*labels}
    assert {str(number) for number in range(1, len(drawing.edges) + 1)} <= {*labels}
    legend = " ".join(" ".join(labels).split())
    for number, edge in enumerate(drawing.edges, 1):
        assert f" {number}. {edge.before} to {edge.after}" in legend


def test_a_cell_is_shown_with_its_errors_and_rules() -> None:
    words = " ".join(text("coordinator", drawing_of("coordinator")).split())
    cell = "CompletingRebalance: Restart the member's session timeout and answer NONE. May answer NONE,"
    assert cell in words
    assert "Rules: R71, R74." in words


def test_a_transition_is_caused_only_by_cells_that_take_it() -> None:
    assert "\n  Empty -> PreparingRebalance: JOIN_NEW_MEMBER\n" in text(
        "coordinator", drawing_of("coordinator")
    )


def test_transitions_of_one_side_do_not_overlap() -> None:
    ends = [(0, 3), (0, 1), (1, 3), (3, 0), (2, 2)]
    lanes = _assign_lanes(ends)
    assert lanes == [2, 0, 1, 0, 0]


def test_show_prints_a_machine_and_writes_its_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "coordinator"]) == 0
    assert capsys.readouterr().out.startswith("coordinator: 5 states")
    assert main(["show", "transaction", "--svg", str(tmp_path / "t.svg")]) == 0
    assert (tmp_path / "t.svg").read_text() == picture("transaction", drawing_of("transaction"))


def test_a_picture_needs_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "JoinGroup", "--svg", str(tmp_path / "t.svg")]) == 2
    assert "coordinator, member, transaction" in capsys.readouterr().err


def test_a_picture_is_wide_enough_for_its_arcs_and_names() -> None:
    for name in MACHINES:
        drawing = drawing_of(name)
        svg = ElementTree.fromstring(picture(name, drawing))
        _, _, width, height = (float(number) for number in (svg.get("viewBox") or "").split())
        tag = "{http://www.w3.org/2000/svg}"
        boxes = [box for box in svg.iter(f"{tag}rect") if box.get("class") != "paper"]
        assert len(boxes) == len(drawing.columns)
        for column, box in zip(drawing.columns, boxes, strict=True):
            x, box_width = float(box.get("x") or ""), float(box.get("width") or "")
            assert box_width >= 8.5 * len(column)
            assert x == (width - box_width) / 2
        for label in svg.iter(f"{tag}text"):
            assert 0 <= float(label.get("x") or "") <= width
            assert 0 <= float(label.get("y") or "") <= height
        for edge in (e for e in svg.iter(f"{tag}path") if " C " in (e.get("d") or "")):
            numbers = [float(part) for part in (edge.get("d") or "").split() if part not in "MC"]
            assert all(0 <= x <= width for x in numbers[0::2])
            # Both ends of an arc are on the same side of the boxes, the left or the right.
            sides = {(width - box_width) / 2, (width + box_width) / 2}
            assert {numbers[0], numbers[-2]} <= sides
            assert numbers[0] == numbers[-2]
            assert abs(numbers[2] - numbers[0]) >= 30


def test_the_number_of_a_transition_is_beside_its_arc_on_the_outer_side() -> None:
    """Downward arcs are on the right of the boxes, and upward arcs on the left."""
    svg = ElementTree.fromstring(picture("member", drawing_of("member")))
    _, _, width, _ = (float(number) for number in (svg.get("viewBox") or "").split())
    numbers = [element for element in svg.iter() if element.get("class") == "number"]
    sides = {(float(number.get("x") or "") > width / 2, number.get("text-anchor")) for number in numbers}
    assert sides == {(True, "start"), (False, "end")}


def test_the_outermost_arc_of_a_wide_picture_is_30_pixels_from_the_edge() -> None:
    distances: list[float] = []
    for name in MACHINES:
        svg = ElementTree.fromstring(picture(name, drawing_of(name)))
        _, _, width, _ = (float(number) for number in (svg.get("viewBox") or "").split())
        for edge in (e for e in svg.iter() if e.tag.endswith("path") and " C " in (e.get("d") or "")):
            numbers = [float(part) for part in (edge.get("d") or "").split() if part not in "MC"]
            # A drawing that needs less than 860 pixels is widened for its legend, so its arcs may be further
            # from the edge.
            if width > 860:
                distances += [min(x, width - x) for x in numbers[0::2]]
    assert min(distances) == 30


def test_only_the_picture_of_a_machine_in_a_state_highlights_it() -> None:
    drawing = drawing_of("transaction")
    plain, highlighted = picture("transaction", drawing), picture("transaction", drawing, drawing.columns[1])
    assert "current {" not in plain
    assert ".current {" in highlighted
    boxes = [e for e in ElementTree.fromstring(highlighted).iter() if e.tag.endswith("rect")][1:]
    assert [box.get("class") for box in boxes].index("state current") == 1
    assert [box.get("class") for box in boxes].count("state current") == 1


def test_a_picture_has_a_background_so_that_it_is_readable_on_a_page_of_the_other_theme() -> None:
    """The colors follow the system's theme, which may differ from the page's theme."""
    svg = ElementTree.fromstring(picture("coordinator", drawing_of("coordinator")))
    title, style, paper = list(svg)[:3]
    assert [paper.get(name) for name in ("class", "width", "height")] == ["paper", "100%", "100%"]
    assert ".paper { fill: var(--paper) }" in (style.text or "")
    assert title.text == "The states of coordinator"
