"""State machines as text and SVG."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kproto.cli import main
from kproto.inspect.machines import MACHINES, picture, text
from kproto.machine import draw


@pytest.mark.parametrize("name", MACHINES)
def test_the_text_has_every_state_kind_and_transition(name: str) -> None:
    shown = text(name)
    drawing = draw(MACHINES[name])
    assert all(f"\n{kind}: " in shown for kind, _, _ in drawing.rows)
    assert all(f"  {edge.before} -> {edge.after}: {edge.causes[0]}" in shown for edge in drawing.edges)
    assert max(map(len, shown.splitlines())) <= 110


@pytest.mark.parametrize("name", MACHINES)
def test_the_picture_has_every_state_and_transition(name: str) -> None:
    drawing = draw(MACHINES[name])
    svg = ElementTree.fromstring(picture(name))
    labels = [element.text or "" for element in svg.iter() if element.tag.endswith("text")]
    assert {*drawing.columns} <= {*labels}
    assert {str(number) for number in range(1, len(drawing.edges) + 1)} <= {*labels}


def test_a_cell_is_shown_with_its_errors_and_rules() -> None:
    line = "  CompletingRebalance: Restart the session and answer NONE. May answer NONE, UNKNOWN_MEMBER_ID,"
    assert line in text("coordinator")
    assert "Rules: R71, R74." in text("coordinator")


def test_a_transition_is_caused_only_by_cells_that_take_it() -> None:
    assert "\n  Empty -> PreparingRebalance: JOIN_NEW_MEMBER\n" in text("coordinator")


def test_show_prints_a_machine_and_writes_its_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "coordinator"]) == 0
    assert capsys.readouterr().out.startswith("coordinator: 5 states")
    assert main(["show", "transaction", "--svg", str(tmp_path / "t.svg")]) == 0
    assert (tmp_path / "t.svg").read_text() == picture("transaction")


def test_a_picture_needs_a_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "JoinGroup", "--svg", str(tmp_path / "t.svg")]) == 2
    assert "coordinator, member, transaction" in capsys.readouterr().err
