"""State machines as text and SVG."""

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
