"""The table of the member is complete, and only `move` changes the state."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_args

import pytest

from kproto.group.classic import member as client
from kproto.group.classic.member import (
    EDGES,
    TABLE,
    MemberEvent,
    MemberEventKind,
    MemberState,
    Received,
    SubscriptionChanged,
    Tick,
    table,
)
from kproto.messages.metadata import MetadataRequest
from tests.group.classic.member.stage import Solo

SOURCES = sorted(Path(client.__file__).parent.glob("*.py"))


def test_the_table_has_a_cell_for_each_kind_of_event_in_each_state() -> None:
    assert TABLE.keys() == {(kind, state) for kind in MemberEventKind for state in MemberState}


def test_each_event_has_a_row() -> None:
    assert table.KINDS.keys() == set(get_args(MemberEvent)) - {Received}


@pytest.mark.parametrize("event", ["Tick", Tick, MetadataRequest(topics=[])])
def test_an_object_that_is_not_an_event_is_refused(event: Any) -> None:
    with pytest.raises(TypeError, match="is not an event of a member; the events are SubscriptionChanged, "):
        client.step(Solo().member, event, 0)


def test_the_name_of_one_topic_is_refused_as_a_set_of_topics() -> None:
    topics: Any = "flights"
    with pytest.raises(
        TypeError, match=r"topics='flights' is not a set of topics.* frozenset\(\{'flights'\}\)"
    ):
        client.step(Solo().member, SubscriptionChanged(topics), 0)


def test_every_state_has_edges() -> None:
    assert EDGES.keys() == set(MemberState)


def test_every_state_can_reach_the_closed_state() -> None:
    def reaches(state: MemberState, visited: frozenset[MemberState]) -> bool:
        if state is MemberState.CLOSED:
            return True
        return any(reaches(after, visited | {state}) for after in EDGES[state] if after not in visited)

    assert [state for state in MemberState if not reaches(state, frozenset())] == []


def test_only_the_constructor_and_the_shared_move_assign_a_state() -> None:
    functions: list[str] = []
    for path in SOURCES:
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    targets = node.targets if isinstance(node, ast.Assign) else []
                    flat = [part for target in targets for part in getattr(target, "elts", [target])]
                    if any(isinstance(part, ast.Attribute) and part.attr == "state" for part in flat):
                        functions.append(function.name)
    assert functions == ["__init__"]
