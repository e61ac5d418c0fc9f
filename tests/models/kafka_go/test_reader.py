"""kafka-go's Reader queues and retries commits, and returns queued records between two generations."""

from __future__ import annotations

import pytest

from kproto.errors import ConfigError
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.models import contract as c
from kproto.models.kafka_go.reader import CLOSED, DEADLINE_EXCEEDED
from tests.models.kafka_go.stage import ReaderStage, tp


def test_commit_messages_with_an_interval_returns_at_once_and_commits_at_the_interval() -> None:
    reader = ReaderStage(watch=False, auto_commit=True, auto_commit_ms=1_000).join()
    reader.do(c.CommitCalled("token", {tp(0): 1}))
    assert reader.actions_of(c.FinishCommit) == [c.FinishCommit("token")]
    assert reader.requests_of("OffsetCommit") == []
    reader.wait(1_100)
    (commit,) = reader.requests_of("OffsetCommit")
    assert commit.topics[0].partitions[0].committed_offset == 1


def rebalance(reader: ReaderStage) -> None:
    """End the generation with a heartbeat error, and stop before the next JoinGroup is answered."""
    reader.errors[HeartbeatRequest] = [27]
    reader.wait(250)
    for partition in (0, 1):
        reader.records(partition)
    reader.settle(but=("JoinGroup",))


def finished(reader: ReaderStage) -> list[object]:
    return [action.token for action in reader.actions_of(c.FinishCommit)]


def committed(reader: ReaderStage) -> list[dict[int, int]]:
    return [
        {p.partition_index: p.committed_offset for topic in request.topics for p in topic.partitions}
        for request in reader.requests_of("OffsetCommit")
    ]


def test_queued_records_are_returned_while_the_member_joins_again() -> None:
    reader = ReaderStage(watch=False).join()
    reader.records(0, b"a", b"b")
    rebalance(reader)
    reader.do(c.PollCalled(50, 1))
    reader.do(c.PollCalled(50, 1))
    polls = [[record.offset for record in poll.records] for poll in reader.actions_of(c.FinishPoll)]
    assert polls == [[0], [1]]


def test_a_poll_without_records_ends_at_its_timeout() -> None:
    reader = ReaderStage(watch=False, heartbeat_ms=60_000).join()
    reader.do(c.PollCalled(50))
    reader.wait(49)
    assert reader.actions_of(c.FinishPoll) == []
    reader.wait(1)
    assert reader.actions_of(c.FinishPoll) == [c.FinishPoll()]


def test_a_full_commit_queue_blocks_commit_messages_until_the_next_generation() -> None:
    reader = ReaderStage(watch=False, auto_commit=True, extra={"QueueCapacity": 1}).join()
    rebalance(reader)
    for number in (1, 2, 3):
        reader.do(c.CommitCalled(number, {tp(0): number}))
    assert finished(reader) == [1]
    reader.settle()
    assert finished(reader) == [1, 2, 3]
    reader.wait(10_000)
    assert finished(reader) == [1, 2, 3]
    assert committed(reader) == [{0: 3}]


def test_a_blocked_commit_whose_context_ends_is_not_queued() -> None:
    reader = ReaderStage(watch=False, auto_commit=True, extra={"QueueCapacity": 1}).join()
    rebalance(reader)
    for number in (1, 2):
        reader.do(c.CommitCalled(number, {tp(number - 1): number}))
    reader.now += 4_999
    reader.do(c.DeadlineReached())
    assert finished(reader) == [1]
    reader.now += 1
    reader.do(c.DeadlineReached())
    assert reader.actions_of(c.FinishCommit)[-1] == c.FinishCommit(2, DEADLINE_EXCEEDED)
    reader.settle()
    reader.wait(1_100)
    assert committed(reader) == [{0: 1}]


def test_a_queued_commit_whose_context_ends_is_still_sent() -> None:
    reader = ReaderStage(watch=False).join()
    rebalance(reader)
    reader.do(c.CommitCalled("late", {tp(0): 4}))
    reader.now += 5_000
    reader.do(c.DeadlineReached())
    assert reader.actions_of(c.FinishCommit) == [c.FinishCommit("late", DEADLINE_EXCEEDED)]
    reader.settle()
    assert committed(reader) == [{0: 4}]
    assert finished(reader) == ["late"]


def test_a_read_record_waits_in_its_queue_while_the_commit_queue_is_full() -> None:
    reader = ReaderStage(watch=False, auto_commit=True, extra={"QueueCapacity": 2}).join()
    reader.records(0, b"a", b"b", b"c")
    reader.errors[HeartbeatRequest] = [27]
    reader.wait(250)
    reader.records(1)
    reader.do(c.CommitCalled("call", {tp(1): 1}))
    for _ in range(3):
        reader.do(c.PollCalled(0))
    polls = [[record.offset for record in poll.records] for poll in reader.actions_of(c.FinishPoll)]
    assert polls == [[0], [], []]


def test_a_commit_is_retried_after_100_and_400_ms_and_its_third_error_is_returned() -> None:
    reader = ReaderStage(watch=False).join()
    reader.errors[OffsetCommitRequest] = [15, 16, 25]
    reader.do(c.CommitCalled("token", {tp(0): 4}))
    reader.settle()
    times = [len(committed(reader))]
    for ms in (99, 1, 399, 1):
        reader.wait(ms)
        times.append(len(committed(reader)))
    assert times == [1, 1, 2, 2, 3]
    (result,) = reader.actions_of(c.FinishCommit)
    assert result.error[0] == "Error(25)"
    reader.wait(10_000)
    assert len(committed(reader)) == 3


def test_a_commit_without_a_response_is_retried() -> None:
    reader = ReaderStage(watch=False).join()
    reader.do(c.CommitCalled("token", {tp(0): 4}))
    sent = reader.open.pop()
    reader.do(c.RequestFailed(sent.request, "connection reset by peer"))
    reader.wait(100)
    assert committed(reader) == [{0: 4}] * 2
    assert reader.actions_of(c.FinishCommit) == [c.FinishCommit("token")]


def test_a_close_ends_a_commit_that_waits_for_its_retry() -> None:
    reader = ReaderStage(watch=False).join()
    reader.errors[OffsetCommitRequest] = [15]
    reader.do(c.CommitCalled("token", {tp(0): 4}))
    reader.settle()
    reader.do(c.CloseCalled())
    assert reader.actions_of(c.FinishCommit) == [c.FinishCommit("token", CLOSED)]


def test_a_commit_that_fails_after_close_is_not_retried() -> None:
    reader = ReaderStage(watch=False).join()
    reader.errors[OffsetCommitRequest] = [15]
    reader.do(c.CommitCalled("token", {tp(0): 4}))
    reader.do(c.CloseCalled())
    reader.settle()
    assert committed(reader) == [{0: 4}]
    (result,) = reader.actions_of(c.FinishCommit)
    assert result.error[0] == "Error(15)"


def test_commits_behind_the_one_in_flight_are_sent_one_by_one() -> None:
    reader = ReaderStage(watch=False).join()
    for number in (5, 3):
        reader.do(c.CommitCalled(number, {tp(0): number}))
    assert committed(reader) == [{0: 5}]
    reader.settle()
    assert committed(reader) == [{0: 5}, {0: 3}]
    assert finished(reader) == [5, 3]


def test_the_end_of_a_generation_sends_the_queued_commits_in_one_request() -> None:
    reader = ReaderStage(watch=False, heartbeat_ms=200).join()
    for number in (5, 7, 6):
        reader.do(c.CommitCalled(number, {tp(0): number}))
    reader.errors[HeartbeatRequest] = [27]
    reader.now += 200
    for sent in [s for s in reader.do(c.DeadlineReached()) if isinstance(s, c.SendRequest)]:
        reader.answer(sent)
    reader.settle()
    assert committed(reader) == [{0: 5}, {0: 7}]
    assert finished(reader) == [5, 7, 6]
    revoked = reader.actions_of(c.RunCallback)[-1]
    assert revoked == c.RunCallback("revoked", (tp(0), tp(1)), wait=False)


def test_an_interval_without_a_record_sends_no_commit() -> None:
    reader = ReaderStage(watch=False, auto_commit=True, auto_commit_ms=1_000, heartbeat_ms=60_000).join()
    reader.wait(1_500)
    reader.do(c.CommitCalled("token", {tp(0): 1}))
    reader.wait(499)
    assert committed(reader) == []
    reader.wait(1)
    assert committed(reader) == [{0: 1}]
    reader.wait(2_000)
    assert committed(reader) == [{0: 1}]


@pytest.mark.parametrize("option", ["QueueCapacity", "MaxBytes", "JoinGroupBackoff"])
@pytest.mark.parametrize("number", [0, "1", None])
def test_a_number_below_1_is_rejected(option: str, number: object) -> None:
    with pytest.raises(ConfigError, match="an integer of at least 1"):
        ReaderStage(extra={option: number})
    ReaderStage(extra={option: 1})
