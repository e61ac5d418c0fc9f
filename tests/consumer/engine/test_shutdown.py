"""`close` and `unsubscribe` work during a rebalance, in a consumer that runs in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import RequestTimedOut
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from tests.consumer.engine.stage import AUTO, answer_commits
from tests.consumer.stage import Consumer, World, tp

PARTITIONS = [tp("t", number) for number in range(4)]


def joining(**options: Any) -> tuple[World, Consumer]:
    """Return a member that keeps its two partitions while it joins. The join takes 2 s, because the group's
    second member is frozen.

    The member has read five records of each partition since its last commit.
    """
    world = World({"t": 4})
    options_without_commits: dict[str, Any] = {
        **AUTO,
        "auto_commit_interval_ms": 60_000,
        "max_poll_interval_ms": 60_000,
    }
    members = [world.consumer(**{**options_without_commits, **options}) for _ in range(2)]
    for member in members:
        member.subscribe("t")
    assert world.run(until=lambda: all(len(member.owns()) == 2 and member.is_stable() for member in members))
    a, b = members
    world.run(2_000)
    for partition in PARTITIONS:
        world.write("t", partition.partition, *map(str, range(5)))
    assert world.run(until=lambda: len(a.records) == len(b.records) == 10)
    world.run(1_000)
    b.freeze(2_500)
    world.consumer(**AUTO).subscribe("t")
    assert world.run(until=lambda: a.is_joining)
    return world, a


def committed(world: World, partitions: set[Any]) -> list[int | None]:
    return [world.committed("g", partition) for partition in sorted(partitions)]


@pytest.mark.rule("M97")
@pytest.mark.parametrize("leave", [Consumer.close, Consumer.unsubscribe])
def test_processed_offsets_are_committed_during_a_rebalance(
    leave: Callable[[Consumer], object],
) -> None:
    world, a = joining()
    owned = a.owns()
    assert committed(world, owned) == [0, 0]
    done = leave(a)
    assert world.run(1_000, until=lambda: done in a.done)
    assert a.done[done][1] is None
    assert committed(world, owned) == [5, 5]
    assert not a.changes_of("uncommitted")


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
def test_a_commit_that_arrives_after_the_next_generation_is_repeated_with_it(code: ErrorCode) -> None:
    world, a = joining()
    owned = a.owns()
    answer_commits(world, code)
    done = a.close()
    world.run(10)
    world.tamper = None
    assert world.run(4_000, until=lambda: done in a.done)
    assert a.done[done][1] is None
    assert committed(world, owned) == [5, 5]


def test_a_commit_that_no_generation_accepts_is_raised() -> None:
    world, a = joining()
    answer_commits(world, ErrorCode.REBALANCE_IN_PROGRESS)
    done = a.close()
    assert world.run(6_000, until=lambda: done in a.done)
    assert isinstance(a.done[done][1], RequestTimedOut)
    assert a.changes_of("uncommitted")


def test_a_silent_coordinator_does_not_delay_close_beyond_its_timeout() -> None:
    world, a = joining()
    world.fault("stall", a)
    done = a.close(timeout_ms=6_000)
    assert world.run(6_100, until=lambda: done in a.done)
    assert isinstance(a.done[done][1], RequestTimedOut)
    assert a.changes_of("uncommitted")


@pytest.mark.parametrize("timeout_ms", [0, 1, 10])
def test_a_short_timeout_of_close_still_sends_leave_group(timeout_ms: int) -> None:
    world = World({"t": 4})
    member = world.consumer(**AUTO)
    member.subscribe("t")
    assert world.run(until=member.is_stable)
    done = member.close(timeout_ms=timeout_ms)
    assert world.run(timeout_ms + 1, until=lambda: done in member.done)
    world.run(100)
    assert len(world.requests_of(member, LeaveGroupRequest)) == 1
    successor = world.consumer(**AUTO)
    successor.subscribe("t")
    assert world.run(5_000, until=lambda: len(successor.owns()) == 4)


def test_a_member_without_processed_records_leaves_at_once() -> None:
    world, a = joining(enable_auto_commit=False)
    commits = len(world.requests_of(a, OffsetCommitRequest))
    done = a.close()
    assert world.run(1_000, until=lambda: done in a.done)
    assert len(world.requests_of(a, OffsetCommitRequest)) == commits


def test_a_subscription_before_the_commit_is_answered_joins_again() -> None:
    world, a = joining()
    owned = a.owns()
    done = a.unsubscribe()
    a.subscribe("t")
    assert world.run(1_000, until=lambda: done in a.done)
    assert committed(world, owned) == [5, 5]
    assert world.run(90_000, until=lambda: a.is_stable() and bool(a.owns()))


def test_unsubscribe_waits_for_its_commit_after_an_earlier_call_that_has_not_completed() -> None:
    world = World({"t": 2})
    for number in range(2):
        world.write("t", number, "x")
    a = world.consumer(**AUTO, auto_commit_interval_ms=60_000)
    answer_commits(world, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    for number in range(2):
        a.assign({tp("t", number): 0})
        world.run(5_000)
        assert len(a.records) == number + 1
        done = a.unsubscribe()
        world.run(500)
        assert done not in a.done
    world.tamper = None
    assert world.run(5_000, until=lambda: done in a.done)
    assert committed(world, {tp("t", 0), tp("t", 1)}) == [1, 1]
