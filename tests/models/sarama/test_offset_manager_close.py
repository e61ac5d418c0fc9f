"""sarama tries the last commit of a session up to four times, and looks up a lost coordinator for it."""

from __future__ import annotations

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.models.sarama.errors import GoError
from kproto.models.sarama.offset_manager import OffsetManager, PartitionOffset
from kproto.models.sarama.offset_manager_close import LastFlush
from tests.models.sarama.stage import (
    ClientStage,
    add_second_member,
    requests_of,
    stage_with_member,
    times_printed,
)
from tests.rules import rule

GOOD = "Commit v8 gen=1 id=A1 t:0@5/e-1,t:1@5/e-1 -> 0"


@rule("M127")
def test_the_last_commit_has_four_attempts() -> None:
    # With Offsets.Retry.Max = 3 there are four attempts, each with a lookup of the coordinator.
    stage, a = stage_with_member(auto_commit_ms=60_000)
    a.inject("Commit", *[27] * 9)
    add_second_member(stage)
    failed = [line for line in requests_of(a, "Commit") if line.endswith("27!")]
    assert len(failed) == 4
    assert len(times_printed(a, "error KError(27)")) == 8


def test_offsets_retry_max_limits_the_last_commit() -> None:
    stage, a = stage_with_member(auto_commit_ms=60_000, **{"Offsets.Retry.Max": 0})
    a.inject("Commit", *[27] * 9)
    add_second_member(stage)
    assert len([line for line in requests_of(a, "Commit") if line.endswith("27!")]) == 1


def test_close_looks_up_a_lost_coordinator_and_commits() -> None:
    # Mirrors sarama's TestAbortPartitionOffsetManager
    stage, a = stage_with_member(auto_commit_ms=60_000)
    a.drop_connections()
    stage.run(500)
    a.run_command("close")
    assert stage.run(10_000, until=lambda: a.closed)
    assert requests_of(a, "Commit")[-1] == GOOD


def last_flush(stage: ClientStage, *targets: int) -> OffsetManager:
    """Mark offset 5 of t-0 and t-1, then close partitions while every commit fails.

    `targets` are the numbers of the partitions to close. Without a number, all partitions are closed.
    """
    reported: list[TopicPartition] = []
    offsets = OffsetManager(stage.client, "m", 1, lambda error, partition: reported.append(partition), ignore)
    offsets.broker = stage.client.metadata.brokers[1].open()
    stage.client.coordinator.node_id = 1
    for index in (0, 1):
        offsets.partition_offsets[TopicPartition("t", index)] = PartitionOffset(0, -1, "")
        offsets.partition_offsets[TopicPartition("t", index)].mark(5)
    closed = [TopicPartition("t", index) for index in targets] or None
    stage.start(LastFlush(offsets, stage.caller, closed).start)
    while not stage.signals:
        request = stage.requests_of("OffsetCommit")[-1]
        topics = [
            OffsetCommitResponseTopic(
                name="t",
                partitions=[
                    OffsetCommitResponsePartition(partition_index=block.partition_index, error_code=12)
                    for block in request.topics[0].partitions
                ],
            )
        ]
        stage.answer(OffsetCommitResponse(topics=topics))
    assert stage.signals == [("offsets_closed", None)]
    assert len(reported) == 4 * len(targets or (0, 1))
    return offsets


def ignore(error: GoError) -> None: ...


def test_offsets_that_four_attempts_could_not_commit_are_dropped() -> None:
    stage = ClientStage()
    offsets = last_flush(stage)
    assert len(stage.requests_of("OffsetCommit")) == 4
    assert offsets.partition_offsets == {}
    assert offsets.broker is None
    assert stage.client.next_deadline() is None  # The ticker has stopped.


def test_only_the_closed_partitions_are_flushed_and_dropped() -> None:
    stage = ClientStage()
    offsets = last_flush(stage, 0)
    requests = stage.requests_of("OffsetCommit")
    assert [[block.partition_index for block in request.topics[0].partitions] for request in requests] == [
        [0]
    ] * 4
    assert list(offsets.partition_offsets) == [TopicPartition("t", 1)]
    assert offsets.partition_offsets[TopicPartition("t", 1)].dirty
    assert not offsets.partition_offsets[TopicPartition("t", 1)].done
    assert offsets.broker is stage.client.metadata.brokers[1]
    assert stage.client.next_deadline() == stage.client.now + 1_000  # The ticker continues.


@pytest.mark.parametrize("extra", [{"Offsets.Retry.Max": -1}, {}])
def test_without_an_attempt_or_auto_commit_offsets_are_dropped_without_a_commit(
    extra: dict[str, int],
) -> None:
    stage = ClientStage(extra=extra, auto_commit=bool(extra))
    offsets = OffsetManager(stage.client, "m", 1, lambda error, partition: None, ignore)
    offsets.partition_offsets[TopicPartition("t", 0)] = PartitionOffset(0, -1, "")
    offsets.partition_offsets[TopicPartition("t", 0)].mark(5)
    stage.start(LastFlush(offsets, stage.caller).start)
    assert stage.signals == [("offsets_closed", None)]
    assert offsets.partition_offsets == {}
    assert stage.requests_of("OffsetCommit") == []
