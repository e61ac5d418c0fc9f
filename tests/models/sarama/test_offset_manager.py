"""The offset manager: the cases of sarama's offset_manager_test.go that test behaviour."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.models import sarama
from kproto.models.sarama import offset_manager
from kproto.models.sarama.errors import GoError
from kproto.models.sarama.offset_manager import Flush, OffsetManager, PartitionOffset
from kproto.testing.world import World
from tests.models.sarama.stage import (
    Caller,
    ClientStage,
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
    # Mirrors sarama's TestPartitionOffsetManagerMarkOffset
    offset = PartitionOffset(5, -1, "original")
    offset.mark(4, "lower")
    offset.mark(5, "equal")
    assert (offset.offset, offset.metadata, offset.dirty) == (5, "original", False)
    offset.mark(6, "higher")
    assert (offset.offset, offset.metadata, offset.dirty) == (6, "higher", True)


@rule("M135")
def test_reset_never_advances_the_offset() -> None:
    # Mirrors sarama's TestPartitionOffsetManagerResetOffset
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
    # Mirrors sarama's TestNewOffsetManagerOffsetsAutoCommit: enabled
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
    # Mirrors sarama's TestPartitionOffsetManagerCommitErr
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
    # Mirrors sarama's TestConstructRequestRetentionTime
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


# ---- one flush at a time

T1 = TopicPartition("t", 1)


class Manager:
    """An offset manager that records reported errors. It has marked offset 7 of t-0 and offset 9 of t-1."""

    def __init__(self) -> None:
        self.stage = ClientStage(extra={"Metadata.Retry.Max": 0})
        self.errors: list[tuple[str, TopicPartition]] = []
        self.canceled: list[str] = []

        def report(error: GoError, partition: TopicPartition) -> None:
            self.errors.append((error.text, partition))

        self.offsets = OffsetManager(
            self.stage.client, "m", 4, report, lambda error: self.canceled.append(error.text)
        )
        for partition, offset in ((T0, 7), (T1, 9)):
            self.offsets.partition_offsets[partition] = PartitionOffset(0, -1, "")
            self.offsets.partition_offsets[partition].mark(offset)

    def flush(self, caller: Caller | None = None, targets: set[TopicPartition] | None = None) -> None:
        self.stage.start(Flush(self.offsets, caller or self.stage.caller, targets).start)

    def find_coordinator(self, code: int = 0) -> None:
        self.stage.answer(FindCoordinatorResponse(error_code=code, node_id=1, host="broker1", port=9092))

    def answer(self, codes: dict[int, int]) -> None:
        partitions = [
            OffsetCommitResponsePartition(partition_index=index, error_code=code)
            for index, code in codes.items()
        ]
        topics = [OffsetCommitResponseTopic(name="t", partitions=partitions)]
        self.stage.answer(OffsetCommitResponse(topics=topics))

    @property
    def dirty(self) -> list[TopicPartition]:
        return [partition for partition, offset in self.offsets.partition_offsets.items() if offset.dirty]

    def committed(self) -> list[dict[int, int]]:
        return [
            {p.partition_index: p.committed_offset for topic in request.topics for p in topic.partitions}
            for request in self.stage.requests_of("OffsetCommit")
        ]


def test_a_flush_commits_the_marked_offsets_and_cleans_them() -> None:
    manager = Manager()
    manager.flush()
    manager.find_coordinator()
    manager.answer({0: 0, 1: 0})
    assert (manager.committed(), manager.dirty, manager.errors) == ([{0: 7, 1: 9}], [], [])
    assert manager.stage.signals == [("flushed", None)]
    manager.flush()
    assert (len(manager.committed()), len(manager.stage.signals)) == (1, 2)


def test_a_failed_lookup_is_reported_for_each_target_of_the_flush() -> None:
    for targets, partitions in ((None, [T0, T1]), ({T1}, [T1])):
        manager = Manager()
        manager.flush(targets=targets)
        manager.find_coordinator(30)
        text = "kafka server: The client is not authorized to access this group"
        assert manager.errors == [(text, partition) for partition in partitions]
        assert manager.stage.signals == [("flushed", None)]
        assert manager.committed() == []


def test_flushes_share_a_lookup_and_the_second_one_repeats_a_failed_one() -> None:
    manager, second = Manager(), Caller()
    manager.flush()
    manager.flush(second)
    assert len(manager.stage.requests_of("FindCoordinator")) == 1
    manager.find_coordinator(24)
    assert manager.stage.signals == [("flushed", None)]
    assert second.signals == []
    assert len(manager.stage.requests_of("FindCoordinator")) == 2
    manager.find_coordinator()
    assert manager.committed() == [{0: 7, 1: 9}]


def test_flushes_that_wait_for_the_same_lookup_both_commit() -> None:
    manager, second = Manager(), Caller()
    manager.flush(targets={T0})
    manager.flush(second, {T1})
    manager.find_coordinator()
    assert manager.committed() == [{0: 7}, {1: 9}]


def test_a_partition_that_the_response_lacks_is_reported_and_stays_dirty() -> None:
    manager = Manager()
    manager.flush()
    manager.find_coordinator()
    manager.answer({0: 0})
    text = "kafka: response did not contain all the expected topic/partition blocks"
    assert (manager.errors, manager.dirty) == ([(text, T1)], [T1])


@pytest.mark.parametrize(
    ("code", "reported", "looks_up", "canceled"),
    [
        (14, False, False, False),
        (15, False, True, False),
        (16, False, True, False),
        (22, True, True, False),
        (25, True, True, False),
        (82, True, False, True),
    ],
)
def test_an_error_of_a_partition_is_reported_or_looks_the_coordinator_up_again(
    code: int, reported: bool, looks_up: bool, canceled: bool
) -> None:
    manager = Manager()
    manager.flush()
    manager.find_coordinator()
    manager.answer({0: 0, 1: code})
    assert [partition for _, partition in manager.errors] == [T1] * reported
    assert manager.dirty == [T1]
    assert (manager.offsets.broker is None) is looks_up
    assert bool(manager.canceled) is canceled


def test_a_flush_without_a_response_closes_the_coordinators_connection() -> None:
    manager = Manager()
    manager.flush()
    manager.find_coordinator()
    manager.stage.fail()
    assert manager.errors == [("EOF", T0), ("EOF", T1)]
    assert manager.offsets.broker is None
    assert not manager.stage.client.metadata.brokers[1].opened


def test_a_change_of_the_generation_waits_for_the_open_flush_and_holds_back_the_next() -> None:
    manager, writer = Manager(), Caller()
    manager.flush()
    manager.find_coordinator()
    manager.stage.start(lambda: manager.offsets.lock_generation(writer))
    manager.flush(targets={T1})
    assert (writer.signals, len(manager.committed())) == ([], 1)
    manager.answer({0: 0, 1: 14})
    assert writer.signals == [("commits_locked", None)]
    assert len(manager.committed()) == 1
    manager.stage.start(lambda: manager.offsets.unlock_generation("n", 5))
    assert manager.committed() == [{0: 7, 1: 9}, {1: 9}]
    last = manager.stage.requests_of("OffsetCommit")[-1]
    assert (last.member_id, last.generation_id_or_member_epoch) == ("n", 5)


def test_a_closed_partition_is_removed_when_its_offset_is_clean_or_by_force() -> None:
    manager = Manager()
    manager.offsets.close([T0, TopicPartition("t", 9)])
    assert manager.offsets.release_closed(False, None) == 2
    manager.offsets.partition_offsets[T0].on_committed(7, "")
    assert manager.offsets.release_closed(False, {T1}) == 1
    assert set(manager.offsets.partition_offsets) == {T0, T1}
    assert manager.offsets.release_closed(False, None) == 1
    assert set(manager.offsets.partition_offsets) == {T1}
    manager.offsets.close([T1])
    assert manager.offsets.release_closed(True, None) == 0


# -- mutants: mistakes in the model that a test must detect


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
