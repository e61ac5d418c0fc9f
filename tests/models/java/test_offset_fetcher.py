"""Java's start positions: committed offsets, and their validation."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.error_codes import ErrorCode
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import java_2_6
from tests.models.stage import Stage, StageMember

BOTH = pytest.mark.parametrize("release", [java, java_2_6], ids=["4.3", "2.6"])


def subscribed_member(stage: Stage, release: ModuleType, name: str = "A") -> StageMember:
    """Return a member that subscribes to t. Its heartbeats are too rare to end a wait of its poll."""
    a = stage.add_member(
        name, release, reset="earliest", assignors=["range"], heartbeat_ms=10_000, auto_commit_ms=60_000
    )
    a.do(c.SubscribeCalled(("t",)))
    return a


def times_of(member: StageMember, api: str) -> list[int]:
    return [line.now for line in member.lines if line.api == api]


@BOTH
def test_a_failed_offset_fetch_is_retried_within_a_long_poll(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    stage.produce("t", [0], 1)
    a = subscribed_member(stage, release)
    a.inject("OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert len(a.poll(5_000)) == 1
    first, second = times_of(a, "OffsetFetch")
    assert 100 <= second - first <= 110


@BOTH
def test_a_position_waits_for_its_validation_in_flight(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    stage.produce("t", [0], 1)
    a = subscribed_member(stage, release)
    a.poll(1_000)
    a.run_command("commit")
    a.run_command("close")
    assert stage.run(until=lambda: a.closed)
    b = subscribed_member(stage, release, "B")
    b.hold("EpochEnd", 500)
    b.run_command("poll on")
    stage.run(2_000)
    assert len(times_of(b, "EpochEnd")) == 1
