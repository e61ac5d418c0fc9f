"""Commits: the coordinator has each offset that is reported as committed (M95, M98, M123).

Every failure of a commit is raised or reported.

The engine runs in virtual time against the embedded broker. Each test reproduces a bug that was fixed.
"""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import (
    CommitFailed,
    Fenced,
    IllegalState,
    KprotoError,
    NotAuthorized,
    RequestTimedOut,
)
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from tests.consumer.engine.stage import (
    AUTO,
    GROUP,
    answer_commits,
    caught_up_member,
    forget_member,
    lose_commits_and_member,
    numbers,
    world_with_records,
)
from tests.consumer.stage import Client, World, tp


def test_a_commit_after_max_poll_interval_ms_fails() -> None:
    world = world_with_records()
    a = caught_up_member(world, max_poll_interval_ms=2000)
    a.pause_polling()
    world.run(2500)
    token = a.commit()
    world.run(100)
    assert isinstance(a.done[token][1], CommitFailed)
    assert "t-0" in str(a.done[token][1])
    assert world.committed("g", tp("t", 0)) == 0  # So far only the initial position, 0, has been committed.


def test_a_commit_after_the_coordinator_removed_the_member_fails() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    a.pause_polling()
    forget_member(world)
    world.run(600)
    token = a.commit()
    world.run(100)
    assert isinstance(a.done[token][1], CommitFailed)


def test_every_commit_of_a_fenced_member_fails() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    forget_member(world, ErrorCode.FENCED_INSTANCE_ID)
    assert world.run(until=lambda: bool(a.errors))
    world.run(1000)
    for token in (a.commit(), a.commit({tp("t", 0): 3})):
        world.run(100)
        assert isinstance(a.done[token][1], Fenced)


def test_commits_succeed_again_after_the_loss_was_reported() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    forget_member(world)
    assert world.run(until=lambda: ("lost", (tp("t", 0),)) in a.calls)
    assert world.run(until=lambda: len(a.records) == 20)
    token = a.commit()
    world.run(100)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 10


@pytest.mark.parametrize("timeout_ms", [None, 1], ids=["open", "given up"])
@pytest.mark.parametrize("queued", [0, 1, 3])
def test_the_last_commit_wins_over_queued_commits_of_earlier_offsets(
    timeout_ms: int | None, queued: int
) -> None:
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    a = caught_up_member(world)
    a.pause_polling()
    a.commit()
    world.run(100)
    earlier = [a.commit({tp("t", 0): 3}, timeout_ms=timeout_ms)]
    earlier += [a.commit({tp("t", 0): 4 + number}) for number in range(queued)]
    world.run(2)
    assert (earlier[0] in a.done) is (timeout_ms is not None)
    token = a.commit()
    assert token not in a.done
    world.run(1000)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 10
    requests = len(world.requests_of(a, OffsetCommitRequest))
    repeated = a.commit()
    world.run(1000)
    assert a.done[repeated] == (None, None)
    # The client sends no request, because it knows that this offset is already committed.
    assert len(world.requests_of(a, OffsetCommitRequest)) == requests


def test_a_response_does_not_complete_a_commit_queued_behind_it() -> None:
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    a = caught_up_member(world)
    a.pause_polling()
    for offset in (10, 5):
        a.commit({tp("t", 0): offset})
    world.run(42)  # By now the response to the first commit has arrived.
    token = a.commit()
    world.run(1000)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 10


def test_close_commits_processed_offsets_behind_an_open_commit() -> None:
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    a = caught_up_member(world, **AUTO)
    a.commit()
    world.run(1000)
    a.commit({tp("t", 0): 3})
    a.close()
    assert world.run(until=lambda: not a.alive)
    assert world.committed("g", tp("t", 0)) == 10


@pytest.mark.parametrize("offset", [8, 10])
def test_an_automatic_commit_never_goes_behind_a_manual_one(offset: int) -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 10))
    a = caught_up_member(world, **AUTO, max_poll_records=5)
    a.pause_polling()  # By now the polls have marked five of the ten records as processed.
    token = a.commit({tp("t", 0): offset})
    world.run(20_000)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == offset


def test_a_loss_is_reported_while_an_older_offset_may_still_be_committed() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    a.commit()
    world.run(100)
    a.pause_polling()
    lose_commits_and_member(world)
    a.commit({tp("t", 0): 3})
    assert world.run(until=lambda: bool(a.changes_of("lost")))
    token = a.commit()
    world.run(100)
    assert isinstance(a.done[token][1], CommitFailed)


def test_close_completes_queued_commits() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    tokens = [a.commit({tp("t", 0): offset}) for offset in range(1, 11)]
    a.close()
    world.run(1000)
    assert [a.done[token] for token in tokens] == [(None, None)] * 10
    assert world.committed("g", tp("t", 0)) == 10


def test_unfinished_commits_fail_within_the_timeout_of_close() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    answer_commits(world, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    tokens = [a.commit({tp("t", 0): offset}) for offset in range(1, 11)]
    started_at = world.now
    closing = a.close(timeout_ms=3000)
    assert world.run(5000, until=lambda: not a.alive)
    assert world.now - started_at <= 3001
    assert all(isinstance(a.done[token][1], KprotoError) for token in tokens)
    assert closing in a.done


def test_close_raises_the_error_of_its_last_commit() -> None:
    world = world_with_records()
    a = caught_up_member(world, **AUTO)
    answer_commits(world, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    token = a.close()
    world.run(3000)
    assert isinstance(a.done[token][1], NotAuthorized)
    assert [change.partitions for change in a.changes_of("uncommitted")] == [(tp("t", 0),)]


def test_close_raises_a_timeout_if_its_last_commit_gets_no_response() -> None:
    world = world_with_records()
    a = caught_up_member(world, **AUTO)
    answer_commits(world, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    token = a.close(timeout_ms=2000)
    world.run(3000)
    assert isinstance(a.done[token][1], (RequestTimedOut, IllegalState))


@pytest.mark.parametrize("down", [True, False], ids=["down", "silent"])
def test_close_without_a_broker_reports_the_commit_as_unsent_and_not_as_lost_partitions(
    down: bool,
) -> None:
    world = world_with_records()
    a, b = caught_up_member(world, **AUTO), caught_up_member(world, **{**GROUP, "group_id": "h"})
    if down:
        world.down = True
        world.cut(a)
        world.cut(b)
    else:
        world.fault("stall")
    token = b.commit()
    tokens = [a.close(timeout_ms=2000), b.close(timeout_ms=2000)]
    assert world.run(5000, until=lambda: not a.alive and not b.alive)
    for error in (a.done[tokens[0]][1], b.done[token][1]):
        assert isinstance(error, IllegalState)
        assert "was closed before these offsets were committed" in str(error)
    assert b.done[tokens[1]] == (None, None)


def test_a_loss_during_the_last_commit_is_reported_by_the_callback() -> None:
    world = world_with_records()
    a = caught_up_member(world, **AUTO)
    lose_commits_and_member(world)
    token = a.close(timeout_ms=5000)
    assert world.run(2000, until=lambda: token in a.done)
    assert [kind for kind, _ in a.calls][-2:] == ["revoked", "lost"]
    assert a.done[token][1] is None


def test_a_failed_commit_at_a_revocation_is_reported() -> None:
    world = world_with_records(2)
    a = caught_up_member(world, **{**AUTO, "partition_assignment_strategy": "range"})
    answer_commits(world, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    b = world.consumer(**GROUP | {"partition_assignment_strategy": "range"})
    b.subscribe("t")
    world.run(3000)
    assert a.changes_of("uncommitted")
    assert len(a.owns()) == len(b.owns()) == 1


def test_unsubscribe_ends_pending_commits() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    answer_commits(world, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    token = a.commit(timeout_ms=60_000)
    world.run(100)
    a.unsubscribe()
    world.run(61_000)
    assert isinstance(a.done[token][1], KprotoError)


def test_unsubscribe_ends_when_all_partitions_are_released_despite_a_new_subscription() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    token = a.unsubscribe()
    a.subscribe("t")
    world.run(1000)
    assert a.done[token] == (None, None)
    assert world.run(2000, until=lambda: a.owns() == {tp("t", 0)})


def test_a_commit_response_without_a_partition_is_not_a_success() -> None:
    world = world_with_records()
    a = caught_up_member(world)

    def leave_out(client: Client, request: Any, version: int) -> Any:
        return OffsetCommitResponse(topics=[]) if isinstance(request, OffsetCommitRequest) else None

    world.tamper = leave_out
    token = a.commit(timeout_ms=2000)
    world.run(3000)
    error = a.done[token][1]
    assert isinstance(error, RequestTimedOut)
    assert "the coordinator's response does not contain t-0" in str(error)
    world.tamper = None
    token = a.commit()
    world.run(3000)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 10


@pytest.mark.rule("M123")
def test_a_rejected_automatic_commit_is_raised_once_and_retried_at_the_interval() -> None:
    world = world_with_records()
    a = world.consumer(**AUTO, auto_commit_interval_ms=1000)
    answer_commits(world, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    a.subscribe("t")
    world.run(10_000)
    commits = [
        request
        for request in world.requests_of(a, OffsetCommitRequest)
        if request.topics[0].partitions[0].committed_offset
    ]
    assert 8 <= len(commits) <= 11
    assert [type(error) for error in a.errors] == [NotAuthorized]


@pytest.mark.parametrize("group", [False, True])
def test_no_interval_commit_runs_beside_the_commit_of_close(group: bool) -> None:
    """No periodic auto-commit is sent while the commit of close() is in flight.

    Regression: `close` reported offsets as not committed, although its own commit had stored them.
    """
    world = World({"t": 1}, latency=(40, 40))
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**AUTO, auto_commit_interval_ms=20)
    a.works_ms = 5
    a.subscribe("t") if group else a.assign({tp("t", 0): 0})
    assert world.run(until=lambda: len(a.records) == 10)
    token = a.close()
    assert world.run(until=lambda: token in a.done)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 10


@pytest.mark.parametrize("group", [False, True])
def test_a_seek_before_close_leaves_nothing_uncommitted(group: bool) -> None:
    world = World({"t": 2}, latency=(40, 40))
    for partition in (0, 1):
        world.write("t", partition, *numbers(0, 10))
    a = world.consumer(**AUTO, auto_commit_interval_ms=60_000)
    a.subscribe("t") if group else a.assign({tp("t", 0): 0, tp("t", 1): 0})
    assert world.run(until=lambda: len(a.records) == 20)
    a.seek_to("earliest", tp("t", 1))
    token = a.close()
    assert world.run(until=lambda: token in a.done)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 10


def test_retained_partitions_are_read_while_the_commit_of_a_rebalance_is_pending() -> None:
    world = World({"t": 2})
    a = world.consumer(**AUTO)
    a.subscribe("t")
    world.write("t", 0, "x")
    world.write("t", 1, "x")
    assert world.run(until=lambda: len(a.records) == 2)
    answer_commits(world, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    b = world.consumer(**AUTO)
    b.subscribe("t")
    assert world.run(until=lambda: any(kind == "revoked" for kind, _ in a.calls))
    [revoked] = next(partitions for kind, partitions in a.calls if kind == "revoked")
    retained = 1 - revoked.partition
    for _ in range(20):
        world.write("t", retained, "y")
        world.run(50)
    assert a.values("t", retained) == ["x"] + ["y"] * 20
    assert not b.owns()
