"""A commit that an application requests from Java's consumer is retried, or fails, as in Java."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.models import contract as c
from kproto.models.java.state import FetchStates
from tests.models.java.stage import BOTH, COORDINATOR, T0, T1, JavaStage, committed, found_coordinator
from tests.models.stage import Stage


@BOTH
def test_commit_sync_retries_a_retriable_error_after_the_backoff(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    a = stage.add_member("A", release, reset="earliest", assignors=["range"], auto_commit=False)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    stage.run(400)
    a.inject("Commit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    a.run_command("commit")
    assert stage.run(1_000, until=lambda: a.has_printed("commit ok"))
    first, second = (line.now for line in a.lines if line.api == "Commit")
    assert 100 <= second - first <= 110


def results_of(consumer: JavaStage) -> list[tuple[object, str | None]]:
    return [(done.token, done.error and done.error[0]) for done in consumer.actions_of(c.FinishCommit)]


def offsets_in(consumer: JavaStage) -> list[dict[int, tuple[int, int, str | None]]]:
    return [
        {
            p.partition_index: (p.committed_offset, p.committed_leader_epoch, p.committed_metadata)
            for topic in request.topics
            for p in topic.partitions
        }
        for request in consumer.requests_of("OffsetCommit")
    ]


@BOTH
def test_a_commit_without_offsets_commits_the_positions_and_one_with_offsets_has_no_epoch(
    release: ModuleType,
) -> None:
    consumer = JavaStage(release).stable()
    consumer.do(c.CommitCalled(1))
    consumer.do(c.CommitCalled(2, {T0: 3}))
    assert offsets_in(consumer) == [{0: (5, 0, ""), 1: (5, 0, "")}, {0: (3, -1, "")}]


@BOTH
def test_a_partition_without_a_position_is_not_committed(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.state.assigned[T0].state = FetchStates.AWAIT_RESET
    consumer.state.assigned[T1].state = FetchStates.INITIALIZING
    consumer.do(c.CommitCalled("token"))
    assert results_of(consumer) == [("token", None)]
    assert offsets_in(consumer) == []


@BOTH
def test_only_2_6_commits_a_position_that_is_being_validated(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.state.assigned[T0].state = FetchStates.AWAIT_VALIDATION
    consumer.do(c.CommitCalled("token"))
    assert set(offsets_in(consumer)[0]) == ({1} if release.__name__.endswith("java") else {0, 1})


@BOTH
@pytest.mark.rule("M123")
def test_an_auto_commit_without_a_coordinator_is_retried_after_the_backoff(release: ModuleType) -> None:
    consumer = JavaStage(release, auto_commit=True, auto_commit_ms=5_000)
    consumer.do(c.AssignCalled({T0: 5}))
    consumer.now += 5_000
    consumer.poll()
    consumer.answer("FindCoordinator", found_coordinator())
    consumer.poll()
    assert offsets_in(consumer) == []
    consumer.now += 99
    consumer.poll()
    assert offsets_in(consumer) == []
    consumer.now += 1
    consumer.poll()
    assert offsets_in(consumer) == [{0: (5, -1, "")}]
    assert results_of(consumer) == []


@BOTH
@pytest.mark.rule("M61", "M130")
@pytest.mark.parametrize(
    ("code", "name"),
    [
        (14, "RetriableCommitFailedException"),
        (15, "RetriableCommitFailedException"),
        (7, "RetriableCommitFailedException"),
        (3, "RetriableCommitFailedException"),
        (27, "RebalanceInProgressException"),
        (22, "CommitFailedException"),
        (25, "CommitFailedException"),
        (82, "FencedInstanceIdException"),
        (29, "TopicAuthorizationException"),
        (12, "OffsetMetadataTooLarge"),
        (28, "InvalidCommitOffsetSizeException"),
        (42, "KafkaException"),
    ],
)
def test_an_asynchronous_commit_is_not_retried_and_its_callback_gets_the_exception(
    release: ModuleType, code: int, name: str
) -> None:
    consumer = JavaStage(release).stable()
    consumer.do(c.CommitCalled("token", wait=False))
    consumer.answer("OffsetCommit", committed(code))
    assert results_of(consumer) == []  # The commit's callback runs only inside the next poll.
    consumer.wait(500)
    consumer.poll()
    assert results_of(consumer) == [("token", name)]
    assert len(offsets_in(consumer)) == 1


@BOTH
def test_an_asynchronous_commit_without_a_response_is_not_retried(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.do(c.CommitCalled("token", wait=False))
    consumer.fail("OffsetCommit")
    consumer.wait(500)
    consumer.poll()
    assert results_of(consumer) == [("token", "RetriableCommitFailedException")]
    assert len(offsets_in(consumer)) == 1
    assert consumer.state.coordinator is None


@BOTH
def test_an_asynchronous_commit_without_a_coordinator_is_sent_when_it_is_known(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.do(c.AssignCalled({T0: 5}))
    consumer.do(c.CommitCalled("token", wait=False))
    assert results_of(consumer) == []
    consumer.answer("FindCoordinator", found_coordinator())
    consumer.wait(100)
    assert offsets_in(consumer) == [{0: (5, -1, "")}]
    consumer.answer("OffsetCommit", committed(0))
    consumer.poll()
    assert results_of(consumer) == [("token", None)]
    consumer.wait(70_000)
    assert len(offsets_in(consumer)) == 1


@BOTH
def test_commit_sync_ends_after_60_s_although_its_error_is_retriable(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.state.coordinator = COORDINATOR
    consumer.do(c.AssignCalled({T0: 5}))
    consumer.do(c.CommitCalled("token"))
    for _ in range(10):
        consumer.answer("OffsetCommit", committed(14))
        consumer.wait(100)
    assert len(offsets_in(consumer)) == 11
    consumer.answer("OffsetCommit", committed(14))
    consumer.now += 59_000
    consumer.do(c.DeadlineReached())
    assert results_of(consumer) == [("token", "RetriableCommitFailedException")]


@BOTH
def test_a_commit_before_the_first_join_fails_and_one_during_a_join_says_so(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.state.coordinator = COORDINATOR
    consumer.do(c.SubscribeCalled(("t",)))
    consumer.do(c.CommitCalled(1, {T0: 3}))
    consumer.poll()
    consumer.do(c.CommitCalled(2, {T0: 3}))
    assert results_of(consumer) == [(1, "CommitFailedException"), (2, "RebalanceInProgressException")]
    assert offsets_in(consumer) == []


@BOTH
@pytest.mark.rule("M61")
@pytest.mark.parametrize("code", [22, 25, 82])
def test_an_error_of_a_commit_of_an_older_generation_changes_nothing(release: ModuleType, code: int) -> None:
    """The commit's error arrives during the next join, and becomes a RebalanceInProgressException."""
    consumer = JavaStage(release, instance="i").stable()
    consumer.do(c.CommitCalled("token", {T0: 3}))
    consumer.wait(3_000)
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=25))
    consumer.poll()
    before = consumer.state.generation
    consumer.answer("OffsetCommit", committed(code))
    assert results_of(consumer) == [("token", "RebalanceInProgressException")]
    assert consumer.state.generation == before
    assert not consumer.state.commit_fenced


@BOTH
@pytest.mark.rule("M130")
def test_after_a_fenced_asynchronous_commit_every_commit_fails(release: ModuleType) -> None:
    consumer = JavaStage(release, instance="i").stable()
    consumer.do(c.CommitCalled(1, wait=False))
    consumer.answer("OffsetCommit", committed(82))
    for token in (2, 3):
        consumer.do(c.CommitCalled(token))
    fenced = "FencedInstanceIdException"
    assert results_of(consumer) == [(1, fenced), (2, fenced), (3, fenced)]
    assert len(offsets_in(consumer)) == 1
    consumer.do(c.CloseCalled())
    assert len(offsets_in(consumer)) == 1


@BOTH
@pytest.mark.rule("M130")
def test_a_fenced_commit_sync_fails_alone(release: ModuleType) -> None:
    consumer = JavaStage(release, instance="i").stable()
    consumer.do(c.CommitCalled(1))
    consumer.answer("OffsetCommit", committed(82))
    consumer.do(c.CommitCalled(2))
    assert len(offsets_in(consumer)) == 2
