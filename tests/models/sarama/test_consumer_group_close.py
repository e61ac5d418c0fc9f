"""Cleanup runs before the last commit of a session. Close completes, no matter when it is called."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.models import contract as c
from kproto.models import sarama
from kproto.models.sarama import offset_manager_close
from tests.models.sarama.stage import (
    Mutate,
    add_second_member,
    assert_mutant_fails,
    requests_of,
    stage_with_client,
    stage_with_member,
)
from tests.rules import rule


@rule("M103")
def test_the_callback_runs_before_the_commit_and_the_commit_before_the_join() -> None:
    stage, a = stage_with_member(auto_commit_ms=60_000)
    add_second_member(stage)
    commit = next(line for line in a.lines if line.api == "Commit")
    revoked = [order for _, order, line in a.printed if line.startswith("revoked")]
    joins = [line.number for line in a.lines if line.api == "Join"]
    assert len(revoked) == 1
    assert revoked[0] < commit.number < joins[2]


def test_close_commits_and_leaves_with_a_reason() -> None:
    stage, a = stage_with_member(auto_commit_ms=60_000)
    a.run_command("close")
    assert stage.run(1_000, until=lambda: a.closed)
    assert requests_of(a, "Commit", "Leave")[-2:] == [
        "Commit v8 gen=1 id=A1 t:0@5/e-1,t:1@5/e-1 -> 0",
        'Leave v5 A1 reason="the consumer is being closed" -> 0',
    ]


def test_a_static_member_does_not_leave() -> None:
    stage, a = stage_with_member(instance="i")
    a.run_command("close")
    assert stage.run(1_000, until=lambda: a.closed)
    assert not requests_of(a, "Leave")


@pytest.mark.parametrize("when", range(0, 60, 2))
def test_close_completes_at_any_time(when: int) -> None:
    stage, a = stage_with_client()
    a.run_command("subscribe t")
    stage.run(when)
    a.run_command("close")
    assert stage.run(10_000, until=lambda: a.closed)
    assert sarama.next_deadline(a.state) is None


def test_close_completes_without_a_broker() -> None:
    state = sarama.start(c.ModelConfig(client_id="a", group_id="g"))
    actions = sarama.step(state, c.Started((("nowhere", 1),), {}), 0)
    actions += sarama.step(state, c.SubscribeCalled(("t",)), 1)
    actions += sarama.step(state, c.CloseCalled(), 2)
    for now in range(3, 5_000):
        sends, actions = [action for action in actions if isinstance(action, c.SendRequest)], []
        for send in sends:
            actions += sarama.step(state, c.RequestFailed(send.request, "refused"), now)
        actions += sarama.step(state, c.DeadlineReached(), now)
        if c.FinishClose() in actions:
            return
    raise AssertionError("it did not close")


def test_an_error_of_leave_group_is_reported_and_the_client_closes() -> None:
    for code, reported in ((0, False), (27, False), (25, False), (30, True)):
        stage, a = stage_with_member()
        a.inject("Leave", code)
        a.run_command("close")
        assert stage.run(1_000, until=lambda a=a: a.closed)
        assert a.has_printed(f"error KError({code})") is reported
        assert not a.has_printed("error") or reported


def test_a_leave_group_without_a_response_is_reported_and_the_client_closes() -> None:
    stage, a = stage_with_member()
    a.hold("Leave", 40)
    a.run_command("close")
    assert stage.run(1_000, until=lambda: bool(requests_of(a, "Leave")))
    assert not a.closed
    a.drop_connections()
    stage.run(10)
    assert a.closed
    assert a.has_printed("error errors.errorString")


def test_leave_group_before_version_3_has_no_reason() -> None:
    stage, a = stage_with_member(Version="2.3.0")
    a.run_command("close")
    assert stage.run(1_000, until=lambda: a.closed)
    (leave,) = [line for line in a.lines if line.api == "Leave"]
    assert leave.version < 3
    assert (leave.request.member_id, leave.request.members) != ("", [])
    assert leave.request.members == []


@pytest.mark.parametrize(("code", "leaves"), [(0, 1), (16, 0)])
def test_close_looks_an_unknown_coordinator_up_to_leave(code: int, leaves: int) -> None:
    stage, a = stage_with_member()
    lookups = len(requests_of(a, "Find"))
    a.inject("Find", code)
    a.state.coordinator.node_id = None
    a.run_command("close")
    assert stage.run(1_000, until=lambda: a.closed)
    assert len(requests_of(a, "Find")) == lookups + 1
    assert len(requests_of(a, "Leave")) == leaves
    assert a.has_printed("error KError(16)") is not bool(leaves)


def skip_the_last_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        offset_manager_close.LastFlush, "start", lambda flush: offset_manager_close._end_closing(flush)
    )
    patch.setitem(
        offset_manager_close.LastFlush.EDGES, offset_manager_close.L.STOPPING, {offset_manager_close.L.DONE}
    )


MUTANTS: list[tuple[Mutate, Callable[[], None]]] = [
    (skip_the_last_commit, test_the_callback_runs_before_the_commit_and_the_commit_before_the_join),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutate", "test"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_each_mutant_fails_its_test(mutate: Mutate, test: Callable[[], None]) -> None:
    assert_mutant_fails(mutate, test)
