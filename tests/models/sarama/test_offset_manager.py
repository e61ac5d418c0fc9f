"""The offset manager: the cases of sarama's offset_manager_test.go that test behaviour."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.models import sarama
from kproto.models.sarama import offset_manager
from kproto.models.sarama.offset_manager import PartitionOffset
from kproto.testing.world import World
from tests.models.sarama.stage import (
    Mutate,
    assert_mutant_fails,
    requests_of,
    stage_with_client,
    stage_with_member,
    times_printed,
)
from tests.rules import rule

T0 = TopicPartition("t", 0)
GOOD = "Commit v8 gen=1 id=A1 t:0@5/e-1,t:1@5/e-1 -> 0"


@rule("M135")
def test_mark_only_advances_the_offset() -> None:
    # TestPartitionOffsetManagerMarkOffset
    offset = PartitionOffset(5, -1, "original")
    offset.mark(4, "lower")
    offset.mark(5, "equal")
    assert (offset.offset, offset.metadata, offset.dirty) == (5, "original", False)
    offset.mark(6, "higher")
    assert (offset.offset, offset.metadata, offset.dirty) == (6, "higher", True)


@rule("M135")
def test_reset_never_advances_the_offset() -> None:
    # TestPartitionOffsetManagerResetOffset
    offset = PartitionOffset(5, -1, "original")
    offset.reset(6, "higher")
    assert (offset.offset, offset.dirty) == (5, False)
    offset.reset(5, "equal")
    assert (offset.offset, offset.metadata, offset.dirty) == (5, "equal", True)
    offset.reset(1, "lower")
    assert (offset.offset, offset.metadata) == (1, "lower")


@rule("M135")
def test_s3_18_an_offset_marked_since_the_commit_stays_dirty() -> None:
    offset = PartitionOffset(0, -1, "")
    offset.mark(5)
    offset.mark(6)
    offset.on_committed(5, "")
    assert offset.dirty
    offset.on_committed(6, "other")
    assert offset.dirty
    offset.on_committed(6, "")
    assert not offset.dirty


@rule("M127")
def test_s3_4_the_ticker_commits_each_marked_offset_once() -> None:
    # TestNewOffsetManagerOffsetsAutoCommit: enabled
    stage, a = stage_with_member()
    stage.run(5_000)
    assert requests_of(a, "Commit") == [GOOD]


def test_s3_21_without_auto_commit_only_commit_commits() -> None:
    # TestNewOffsetManagerOffsetsAutoCommit: disabled; TestNewOffsetManagerOffsetsManualCommit
    stage, a = stage_with_member(auto_commit=False)
    stage.run(2_000)
    assert not requests_of(a, "Commit")
    a.run_command("commit")
    stage.run(until=lambda: a.has_printed("commit ok"))
    assert requests_of(a, "Commit") == [GOOD]
    a.run_command("close")
    stage.run(2_000)
    assert requests_of(a, "Commit") == [GOOD]


def test_s3_15_without_dirty_offsets_no_request_is_sent() -> None:
    stage, a = stage_with_member()
    stage.run(1_000)
    a.run_command("commit")
    assert stage.run(2_000, until=lambda: a.has_printed("commit ok"))
    assert len(requests_of(a, "Commit")) == 1


@pytest.mark.parametrize("code", [3, 22, 25, 27])
def test_commit_errors_are_reported_per_partition_and_retried_after_a_lookup(code: int) -> None:
    # TestPartitionOffsetManagerCommitErr
    stage, a = stage_with_client()
    a.inject("Commit", code)
    a.run_command("subscribe t")
    stage.run(3_000)
    assert len(times_printed(a, f"error KError({code})")) == 2
    assert requests_of(a, "Commit", "Find")[-3:] == [f"{GOOD[:-1]}{code}!", "Find v3 g -> 0", GOOD]
    assert not a.has_printed("revoked")


@pytest.mark.parametrize(
    ("code", "lookups", "reports"), [(14, 0, 0), (15, 1, 0), (16, 1, 0), (6, 1, 0), (12, 0, 2)]
)
def test_some_commit_errors_are_not_reported_or_need_no_lookup(code: int, lookups: int, reports: int) -> None:
    stage, a = stage_with_client()
    a.inject("Commit", code)
    a.run_command("subscribe t")
    stage.run(3_000)
    assert len(requests_of(a, "Find")) == 2 + lookups
    assert len(times_printed(a, f"error KError({code})")) == reports
    assert requests_of(a, "Commit")[-1] == GOOD


def test_a_fenced_commit_ends_the_session() -> None:
    stage, a = stage_with_client()
    a.inject("Commit", 82)
    a.run_command("subscribe t")
    stage.run(3_000)
    assert a.has_printed("revoked")
    assert 'reason="group instance id has been fenced"' in requests_of(a, "Join")[2]


@pytest.mark.parametrize(("hours", "retention_ms"), [(0, -1), (1, 3_600_000)])
def test_the_retention_is_sent_if_the_request_has_the_field(hours: int, retention_ms: int) -> None:
    # TestConstructRequestRetentionTime
    world = World({"t": 1}, highest={"OffsetCommit": 4})
    world.write("t", 0, "x")
    a = world.join(
        "a",
        sarama,
        topics=["t"],
        group_id="g",
        reset="earliest",
        extra={"Offsets.Retention": hours * 3_600_000},
    )
    world.run(3_000)
    assert [request.retention_time_ms for request in world.requests_of(a, OffsetCommitRequest)] == [
        retention_ms
    ]


# -- mutants


def mark_lower_offsets(patch: pytest.MonkeyPatch) -> None:
    def mark(self: offset_manager.PartitionOffset, offset: int, metadata: str = "") -> None:
        self.offset, self.metadata, self.dirty = offset, metadata, True

    patch.setattr(offset_manager.PartitionOffset, "mark", mark)


def clean_uncommitted_offsets(patch: pytest.MonkeyPatch) -> None:
    def on_committed(self: offset_manager.PartitionOffset, offset: int, metadata: str) -> None:
        self.dirty = False

    patch.setattr(offset_manager.PartitionOffset, "on_committed", on_committed)


MUTANTS: list[tuple[Mutate, Callable[[], None]]] = [
    (mark_lower_offsets, test_mark_only_advances_the_offset),
    (clean_uncommitted_offsets, test_s3_18_an_offset_marked_since_the_commit_stays_dirty),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutate", "test"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_each_mutant_fails_its_test(mutate: Mutate, test: Callable[[], None]) -> None:
    assert_mutant_fails(mutate, test)
