"""How kafka-go's ConsumerGroup reacts if a request fails, or if it is closed, between two generations.

After an error it leaves the group if it has a member id, and backs off before it joins again. After
REBALANCE_IN_PROGRESS it joins again immediately.
"""

from __future__ import annotations

import pytest

from kproto.messages.offset_fetch import OffsetFetchRequest
from kproto.messages.sync_group import SyncGroupRequest
from kproto.models import contract as c
from kproto.models.kafka_go.state import ConsumerGroupPhase
from tests.models.kafka_go.stage import ReaderStage, request_name

TWO_BROKERS = (("a", 9092), ("b", 9093))


def fail(reader: ReaderStage, api: str) -> c.SendRequest:
    """Break the connection of the only open request of an API."""
    (sent,) = [sent for sent in reader.open if request_name(sent) == api]
    reader.open.remove(sent)
    reader.do(c.RequestFailed(sent.request, "connection reset by peer"))
    return sent


def errors_logged(reader: ReaderStage) -> list[str]:
    return [note.name for note in reader.actions_of(c.Notify) if note.kind == "log"]


def test_a_failed_lookup_is_repeated_at_the_next_bootstrap_address_without_a_backoff() -> None:
    reader = ReaderStage(watch=False)
    reader.do(c.Started(TWO_BROKERS, {}))
    reader.do(c.SubscribeCalled(("t",)))
    first, second = fail(reader, "FindCoordinator"), fail(reader, "FindCoordinator")
    assert [(sent.to.host, sent.to.port) for sent in (first, second)] == list(TWO_BROKERS)
    assert first.to in [action.address for action in reader.actions_of(c.CloseConnection)]
    assert errors_logged(reader) == ["net.OpError"]
    assert reader.state.state is ConsumerGroupPhase.BACKING_OFF
    reader.now += 4_999
    assert reader.do(c.DeadlineReached()) == []
    reader.now += 1
    reader.do(c.DeadlineReached())
    (third,) = reader.open
    assert third.to.host == "a"


def test_a_reader_that_is_subscribed_before_its_start_looks_up_the_coordinator_at_the_start() -> None:
    reader = ReaderStage(watch=False)
    reader.do(c.SubscribeCalled(("t",)))
    assert reader.names() == []
    reader.do(c.Started(TWO_BROKERS, {}))
    assert reader.names() == ["FindCoordinator"]


def test_a_failed_lookup_to_leave_ends_in_the_backoff_without_a_leave_group() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.errors[SyncGroupRequest] = [25]
    reader.settle(but=("SyncGroup",))
    reader.settle(but=("FindCoordinator",))
    fail(reader, "FindCoordinator")
    assert reader.state.state is ConsumerGroupPhase.BACKING_OFF
    assert errors_logged(reader) == ["Error(25)"]
    reader.wait(5_000)
    assert reader.requests_of("LeaveGroup") == []
    assert [request.member_id for request in reader.requests_of("JoinGroup")] == ["", ""]


@pytest.mark.parametrize("api", ["JoinGroup", "Metadata", "SyncGroup", "OffsetFetch"])
def test_a_broken_connection_before_the_generation_closes_it_and_leaves_with_the_id(api: str) -> None:
    reader = ReaderStage(watch=False).begin()
    reader.settle(but=(api,))
    sent = fail(reader, api)
    assert c.CloseConnection(sent.to) in reader.said
    reader.settle(but=("JoinGroup",))
    has_id = api != "JoinGroup"
    assert [request.member_id for request in reader.requests_of("LeaveGroup")] == ["m-1"] * has_id
    assert errors_logged(reader) == ["net.OpError"]
    assert reader.requests_of("Fetch") == []


def test_a_leader_assigns_nothing_of_an_unknown_topic_and_leaves_after_another_error() -> None:
    for code, syncs in ((3, 1), (29, 0)):
        reader = ReaderStage(watch=False).begin()
        reader.settle(but=("Metadata",))
        reader.answer(reader.open[0], code)
        assert len(reader.requests_of("SyncGroup")) == syncs
        assert [
            plan.assignment[:6] for sync in reader.requests_of("SyncGroup") for plan in sync.assignments
        ] == [b"\x00\x01\x00\x00\x00\x00"] * syncs


def test_an_error_of_a_committed_offset_leaves_the_group() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.errors[OffsetFetchRequest] = [16]
    reader.settle()
    assert reader.names()[-2:] == ["FindCoordinator", "LeaveGroup"]
    assert errors_logged(reader) == ["Error(16)"]


def test_a_close_during_sync_group_ends_without_leave_group_if_the_group_is_rebalancing() -> None:
    """After REBALANCE_IN_PROGRESS, kafka-go's ConsumerGroup.run returns without a call of leaveGroup."""
    reader = ReaderStage(watch=False).begin()
    reader.errors[SyncGroupRequest] = [27]
    reader.settle(but=("SyncGroup",))
    reader.do(c.PollCalled(60_000))
    reader.do(c.CloseCalled())
    reader.settle()
    assert reader.requests_of("LeaveGroup") == []
    assert len(reader.actions_of(c.FinishPoll)) == 1
    assert isinstance(reader.said[-1], c.FinishClose)


def test_a_close_during_offset_fetch_starts_no_partition_reader() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.settle(but=("OffsetFetch",))
    reader.do(c.CloseCalled())
    reader.settle()
    assert reader.names()[-3:] == ["OffsetFetch", "FindCoordinator", "LeaveGroup"]
    assert reader.actions_of(c.RunCallback) == []
    assert isinstance(reader.said[-1], c.FinishClose)


def test_a_started_generation_ends_the_count_of_consecutive_errors() -> None:
    """The poll returns the third error in a row. A generation between two errors resets the count."""
    reader = ReaderStage(watch=False).begin()
    reader.errors[SyncGroupRequest] = [27, 27, 0, 27, 27]
    reader.settle()
    reader.do(c.PollCalled(60_000))
    reader.wait(3_000)
    heartbeats = len(reader.requests_of("Heartbeat"))
    assert heartbeats > 0
    assert reader.actions_of(c.FinishPoll) == []
    assert errors_logged(reader) == ["Error(27)", "Error(27)"]
