"""The table has the transitions of Kafka's ClassicGroupState, and `step` rejects unknown input."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kproto.group.classic.coordinator import (
    EDGES,
    REQUESTS,
    TABLE,
    ClassicGroupState,
    GroupEventKind,
    RequestReceived,
    Tick,
    state,
    step,
)
from kproto.messages.metadata import MetadataRequest
from tests.group.classic.coordinator.stage import BOTH, Stage
from tests.machines import check_table
from tests.rules import rule

LEGAL = {
    ("Dead", "Empty"),
    ("Empty", "PreparingRebalance"),
    ("Empty", "Dead"),
    ("PreparingRebalance", "CompletingRebalance"),
    ("PreparingRebalance", "Empty"),
    ("CompletingRebalance", "Stable"),
    ("CompletingRebalance", "PreparingRebalance"),
    ("Stable", "PreparingRebalance"),
}


@rule("R11")
def test_the_table_is_complete_and_documented_and_takes_every_edge() -> None:
    check_table(TABLE, GroupEventKind)


@rule("R9")
@pytest.mark.parametrize("before", ClassicGroupState)
@pytest.mark.parametrize("after", ClassicGroupState)
def test_a_group_moves_along_the_edges_only(before: ClassicGroupState, after: ClassicGroupState) -> None:
    """A group can make only the state transitions of Kafka's ClassicGroupState.

    Mirrors the transition tests of ClassicGroupTest, except its tests of transitions from Dead: in kproto,
    Dead is the state of a group that does not exist.
    """
    stage = Stage()
    group = state.ClassicGroup("g", state=before)
    if before is not ClassicGroupState.DEAD:
        stage.coordinator.groups["g"] = group
    context = state.GroupContext(stage.coordinator, 0)
    if (before.value, after.value) in LEGAL:
        state.move(context, group, after)
        assert group.state is after
        assert ("g" in stage.coordinator.groups) == (after is not ClassicGroupState.DEAD)
    else:
        with pytest.raises(AssertionError):
            state.move(context, group, after)
        assert group.state is before


@rule("R9")
def test_the_edges_are_those_of_classic_group_state() -> None:
    assert {(before.value, after.value) for before, afters in EDGES.items() for after in afters} == LEGAL


def test_a_request_that_the_coordinator_does_not_serve_is_a_type_error() -> None:
    assert MetadataRequest not in REQUESTS
    with pytest.raises(TypeError, match="MetadataRequest"):
        step(Stage().coordinator, RequestReceived(1, MetadataRequest(topics=[]), 1), 0)


@pytest.mark.parametrize("event", [MetadataRequest(topics=[]), "Tick", Tick, None])
def test_anything_but_an_event_is_a_type_error(event: Any) -> None:
    with pytest.raises(TypeError, match=r"event=.*: not an event .* expected one of RequestReceived, Tick"):
        step(Stage().coordinator, event, 0)


@pytest.mark.parametrize("now", ["0", 0.5, None])
def test_a_time_must_be_an_int(now: Any) -> None:
    with pytest.raises(TypeError, match=r"now=.*: must be an int, in milliseconds"):
        step(Stage().coordinator, Tick(), now)


def seconds_to_gather(count: int) -> float:
    """Return the CPU time (s) of `count` members that join, sync, send ten heartbeats each and rejoin."""
    stage = Stage(group_initial_rebalance_delay_ms=60_000)
    started = time.process_time()
    members = stage.create_stable_group(
        *[{"protocols": BOTH, "session": 600_000, "rebalance": 600_000}] * count
    )
    for _ in range(10):
        for member in members:
            stage.heartbeat(member)
    for member in members:
        stage.join(member, protocols=BOTH, session=600_000, rebalance=600_000)
    assert stage.generation() == 2
    return time.process_time() - started


def test_four_times_the_members_cost_about_four_times_as_much() -> None:
    """A group with four times as many members costs about four times as much CPU.

    If each request visited every member, four times as many members would cost 16 times as much. The test
    compares the best of three runs.
    """
    seconds_to_gather(50)
    small = min(seconds_to_gather(75) for _ in range(3))
    large = min(seconds_to_gather(300) for _ in range(3))
    assert large < 9 * small
