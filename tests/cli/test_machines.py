"""`kproto show` draws each state machine of its list with all transitions."""

from __future__ import annotations

import pytest

from kproto.cli.machines import MACHINES, drawing_of
from kproto.models.java.state import EDGES, JavaMemberState


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_drawn_with_all_its_transitions(name: str) -> None:
    drawing = drawing_of(name)
    assert len(drawing.columns) > 1
    assert {state for edge in drawing.edges for state in (edge.before, edge.after)} == set(drawing.columns)


def test_a_machine_without_a_table_is_drawn_by_its_edges() -> None:
    drawing = drawing_of("java")
    assert drawing.columns == tuple(state.name for state in JavaMemberState)
    assert drawing.rows == ()
    assert len(drawing.edges) == sum(map(len, EDGES.values()))
