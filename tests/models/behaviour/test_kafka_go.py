"""The model of kafka-go's Reader takes the same steps as kafka-go's consumergroup.go and reader.go."""

from __future__ import annotations

import pytest

from kproto.errors import ConfigError
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.sync_group import SyncGroupRequest
from kproto.models import contract as c
from kproto.models.kafka_go.groupbalancer import assign
from kproto.models.kafka_go.partition_reader import fetch_wait, wait_until
from kproto.models.kafka_go.reader import CLOSED
from kproto.models.kafka_go.state import ConsumerGroupPhase, ReaderCommitLoop, ReaderPhase
from tests.models.kafka_go.stage import ReaderStage, request_name, tp

READS = {"auto_commit": True, "auto_commit_ms": 1_000}


def test_a_leader_requests_partitions_between_join_and_sync() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.settle(but=("OffsetFetch",))
    assert reader.names() == ["FindCoordinator", "JoinGroup", "Metadata", "SyncGroup", "OffsetFetch"]


def test_a_subscription_claims_version_1_with_the_fields_of_version_0() -> None:
    (join,) = ReaderStage().join().requests_of("JoinGroup")
    assert join.protocols[0].metadata == b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
    assert [protocol.name for protocol in join.protocols] == ["range", "roundrobin"]
    assert join.member_id == ""


def test_each_partition_requests_both_ends_of_the_log_twice_before_it_fetches() -> None:
    reader = ReaderStage(watch=False).join()
    requested = [request.topics[0].partitions[0] for request in reader.requests_of("ListOffsets")]
    assert [partition.timestamp for partition in requested if partition.partition_index == 0] == [
        -2,
        -1,
        -2,
        -1,
    ]
    assert len(reader.requests_of("Fetch")) == 2


def test_each_partition_has_a_connection_of_its_own() -> None:
    reader = ReaderStage().join()
    lanes = {action.to for action in reader.actions_of(c.SendRequest) if request_name(action) == "Fetch"}
    assert len(lanes) == 2


def test_a_fetch_waits_max_wait_minus_a_round_trip() -> None:
    assert [fetch_wait(ms) for ms in (100, 1_000, 10_000)] == [75, 0, 9_000]


@pytest.mark.parametrize("code", [14, 15, 16, 22, 25, 27, 30])
def test_every_heartbeat_error_rejoins_with_the_same_id(code: int) -> None:
    reader = ReaderStage(watch=False).join()
    reader.errors[HeartbeatRequest] = [code]
    reader.wait(250)
    assert len(reader.requests_of("JoinGroup")) == 1
    reader.records(0)
    reader.records(1)
    reader.settle()
    assert [request.member_id for request in reader.requests_of("JoinGroup")] == ["", "m-1"]
    assert reader.requests_of("LeaveGroup") == []


def test_a_rebalance_waits_for_open_fetches_without_a_heartbeat() -> None:
    reader = ReaderStage(watch=False).join()
    reader.errors[HeartbeatRequest] = [27]
    reader.wait(5_000)
    assert len(reader.requests_of("Heartbeat")) == 1
    reader.records(0)
    assert len(reader.requests_of("FindCoordinator")) == 1
    reader.records(1)
    assert len(reader.requests_of("FindCoordinator")) == 2


def test_queued_records_are_committed_before_the_next_generation() -> None:
    reader = ReaderStage(watch=False, **READS).join()
    reader.records(0, b"a", b"b")
    reader.do(c.PollCalled(50))
    reader.errors[HeartbeatRequest] = [27]
    reader.wait(250)
    (commit,) = reader.requests_of("OffsetCommit")
    assert commit.topics[0].partitions[0].committed_offset == 2
    assert commit.generation_id_or_member_epoch == 1


def test_records_read_between_generations_are_committed_by_the_next() -> None:
    reader = ReaderStage(watch=False, **READS).join()
    reader.records(0, b"a", b"b")
    reader.errors[HeartbeatRequest] = [27]
    reader.wait(250)
    reader.records(1)
    # Between two generations no commit loop is running, so these records are not committed yet.
    reader.do(c.PollCalled(50))
    polled = reader.actions_of(c.FinishPoll)[-1]
    assert [record.offset for record in polled.records] == [0, 1]
    reader.records(0)
    reader.settle()
    reader.wait(1_100)
    (commit,) = reader.requests_of("OffsetCommit")
    assert commit.generation_id_or_member_epoch == 2


def test_records_of_an_older_assignment_are_dropped() -> None:
    reader = ReaderStage(watch=False, **READS).join()
    reader.records(0, b"a", b"b")
    reader.errors[HeartbeatRequest] = [27]
    reader.wait(250)
    reader.records(0)
    reader.records(1)
    reader.settle()
    reader.do(c.PollCalled(0))
    assert reader.actions_of(c.FinishPoll)[-1].records == ()


def test_a_commit_is_tried_three_times_and_kept() -> None:
    reader = ReaderStage(watch=False, **READS).join()
    reader.records(0, b"a")
    reader.do(c.PollCalled(50))
    reader.errors[OffsetCommitRequest] = [25, 25, 25]
    reader.wait(1_600)
    assert len(reader.requests_of("OffsetCommit")) == 3
    reader.wait(1_000)
    assert len(reader.requests_of("OffsetCommit")) == 4


def test_a_join_group_error_forgets_the_id_and_backs_off() -> None:
    reader = ReaderStage(watch=False).join()
    reader.errors[HeartbeatRequest] = [25]
    reader.wait(250)
    reader.errors[JoinGroupRequest] = [25]
    reader.records(0)
    reader.records(1)
    reader.settle()
    reader.wait(4_900)
    assert len(reader.requests_of("JoinGroup")) == 2
    reader.wait(200)
    assert [request.member_id for request in reader.requests_of("JoinGroup")] == ["", "m-1", ""]
    assert reader.requests_of("LeaveGroup") == []


def test_a_sync_group_error_leaves_the_group_first() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.errors[SyncGroupRequest] = [25]
    reader.settle()
    assert reader.names()[-2:] == ["FindCoordinator", "LeaveGroup"]
    reader.wait(5_100)
    assert [request.member_id for request in reader.requests_of("JoinGroup")] == ["", ""]


def test_rebalance_in_progress_in_sync_group_rejoins_at_once_with_the_id() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.errors[SyncGroupRequest] = [27]
    reader.settle()
    assert [request.member_id for request in reader.requests_of("JoinGroup")] == ["", "m-1"]


def test_the_third_consecutive_error_ends_the_open_poll() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.errors[JoinGroupRequest] = [15, 15, 15]
    reader.settle()
    reader.do(c.PollCalled(60_000))
    reader.wait(10_100)
    (polled,) = reader.actions_of(c.FinishPoll)
    assert polled.error is not None
    assert polled.error[0] == "Error(15)"


def test_a_watcher_that_finds_new_partitions_ends_the_generation() -> None:
    reader = ReaderStage(metadata_ms=500).join()
    reader.partitions = 3
    reader.wait(600)
    reader.records(0)
    reader.records(1)
    reader.settle()
    assert len(reader.requests_of("JoinGroup")) == 2


def test_without_the_watcher_new_partitions_are_never_noticed() -> None:
    reader = ReaderStage(watch=False).join()
    reader.partitions = 3
    reader.wait(600_000)
    assert len(reader.requests_of("JoinGroup")) == 1


def test_a_watcher_ignores_error_codes() -> None:
    reader = ReaderStage(metadata_ms=500).join()
    reader.errors[MetadataRequest] = [5, 29]
    reader.wait(1_600)
    assert len(reader.requests_of("JoinGroup")) == 1


def test_a_full_queue_stops_the_fetches() -> None:
    reader = ReaderStage(watch=False, extra={"QueueCapacity": 3}).join()
    reader.records(0, b"a", b"b", b"c", b"d")
    assert not [
        action
        for action in reader.open
        if request_name(action) == "Fetch" and action.request.topics[0].partitions[0].partition == 0
    ]  # type: ignore[attr-defined]
    reader.do(c.PollCalled(0))
    assert [record.offset for record in reader.actions_of(c.FinishPoll)[-1].records] == [0, 1, 2, 3]
    assert reader.fetch(0).request.topics[0].partitions[0].fetch_offset == 4  # type: ignore[attr-defined]


def test_close_commits_and_leaves_on_a_new_connection() -> None:
    reader = ReaderStage(watch=False, **READS).join()
    reader.records(0, b"a")
    reader.do(c.PollCalled(50))
    before = len(reader.names())
    reader.do(c.CloseCalled())
    reader.settle()
    reader.records(0)
    reader.records(1)
    reader.settle()
    assert reader.names()[before:] == ["OffsetCommit", "FindCoordinator", "LeaveGroup"]
    assert isinstance(reader.said[-1], c.FinishClose)


def test_close_waits_for_a_join_group_in_flight() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.settle(but=("JoinGroup",))
    reader.do(c.CloseCalled())
    assert reader.actions_of(c.FinishClose) == []
    reader.settle()
    assert isinstance(reader.said[-1], c.FinishClose)
    assert len(reader.requests_of("LeaveGroup")) == 1
    assert reader.requests_of("Fetch") == []


def test_close_during_the_backoff_sends_no_leave_group() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.errors[JoinGroupRequest] = [15]
    reader.settle()
    assert isinstance(reader.do(c.CloseCalled())[-1], c.FinishClose)
    assert reader.requests_of("LeaveGroup") == []


def test_commit_messages_waits_for_the_response() -> None:
    reader = ReaderStage(watch=False).join()
    reader.records(0, b"a")
    reader.do(c.PollCalled(50))
    token = object()
    reader.do(c.CommitCalled(token))
    assert reader.actions_of(c.FinishCommit) == []
    reader.settle()
    assert reader.actions_of(c.FinishCommit) == [c.FinishCommit(token)]


def test_commit_messages_during_a_join_ends_with_its_context() -> None:
    reader = ReaderStage(watch=False).join()
    reader.records(0, b"a")
    reader.do(c.PollCalled(50))
    reader.errors[HeartbeatRequest] = [27]
    reader.wait(250)
    reader.do(c.CommitCalled("token"))
    reader.wait(5_100)
    (committed,) = reader.actions_of(c.FinishCommit)
    assert committed.error is not None
    assert committed.error[0] == "context.deadlineExceededError"


def test_a_leader_rejects_subscriptions_with_more_fields_than_version_0() -> None:
    reader = ReaderStage(watch=False).begin()
    # Append an empty list of owned partitions, the field that version 1 adds.
    reader.metadata += b"\x00\x00\x00\x00"
    reader.settle()
    assert reader.requests_of("SyncGroup") == []
    assert len(reader.requests_of("LeaveGroup")) == 1
    # kafka-go formats a nil error here, hence the "%!w(<nil>)".
    [report] = reader.actions_of(c.Notify)
    assert report.text == "unable to read metadata for member, m-1: %!w(<nil>)"


def test_a_leader_rejects_subscriptions_that_end_too_early() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.metadata = reader.metadata[:5]
    reader.settle()
    [report] = reader.actions_of(c.Notify)
    cause = "not enough bytes available to load the response"
    assert report.text == f"unable to read metadata for member, m-1: {cause}"


def test_the_larger_shares_of_a_range_are_not_the_first() -> None:
    plan = assign("range", {"b": ["t"], "a": ["t"], "c": ["t"]}, {"t": [0, 1, 2, 3, 4]})
    assert plan == {"a": {"t": [0]}, "b": {"t": [1, 2]}, "c": {"t": [3, 4]}}


def test_roundrobin_starts_each_topic_with_the_first_member() -> None:
    plan = assign("roundrobin", {"a": ["t", "u"], "b": ["t", "u"]}, {"t": [0], "u": [0]})
    assert plan == {"a": {"t": [0], "u": [0]}, "b": {}}


@pytest.mark.parametrize("options", [{"assignors": ("sticky",)}, {"reset": "none"}])
def test_options_at_which_newreader_panics_are_rejected(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ReaderStage(**options)


def test_a_connection_with_a_late_response_is_closed() -> None:
    reader = ReaderStage(watch=False).join()
    reader.now += 200
    (beat,) = [action for action in reader.do(c.DeadlineReached()) if isinstance(action, c.SendRequest)]
    out = reader.do(c.RequestFailed(beat.request, "late", late=True))
    assert c.CloseConnection(beat.to) in out


def test_only_a_late_response_of_the_coordinator_closes_its_connection() -> None:
    reader = ReaderStage(watch=False).join()
    coordinator = reader.state.coordinator
    assert coordinator is not None
    reader.now += 200
    (beat,) = [action for action in reader.do(c.DeadlineReached()) if isinstance(action, c.SendRequest)]
    assert c.CloseConnection(coordinator) not in reader.do(
        c.RequestFailed(reader.fetch(0).request, "x", late=True)
    )
    assert c.CloseConnection(coordinator) not in reader.do(c.RequestFailed(beat.request, "broken"))


def test_close_ends_the_open_poll_and_the_waiting_commits() -> None:
    """CommitMessages returns io.ErrClosedPipe after Close."""
    reader = ReaderStage(watch=False).join()
    reader.records(0, b"a")
    reader.do(c.PollCalled(50))
    reader.errors[HeartbeatRequest] = [27]
    reader.errors[JoinGroupRequest] = [16]
    reader.wait(250)
    for partition in (0, 1):
        reader.records(partition)
    reader.settle()
    assert reader.state.state is ConsumerGroupPhase.BACKING_OFF
    reader.do(c.CommitCalled("token"))
    reader.do(c.PollCalled(9_000))
    reader.do(c.CloseCalled())
    reader.do(c.CloseCalled())
    reader.wait(500)
    (committed,) = reader.actions_of(c.FinishCommit)
    assert (committed.token, committed.error) == ("token", CLOSED)
    assert len(reader.actions_of(c.FinishClose)) == 1
    polls = reader.actions_of(c.FinishPoll)
    reader.do(c.CommitCalled("later"))
    assert reader.actions_of(c.FinishCommit)[1:] == [c.FinishCommit("later", CLOSED)]
    assert reader.actions_of(c.FinishPoll) == polls


@pytest.mark.parametrize(("highest", "version"), [(18, 10), (10, 10), (9, 5), (5, 5)])
def test_fetch_has_version_10_or_5(highest: int, version: int) -> None:
    reader = ReaderStage(watch=False)
    reader.do(c.Started((("broker", 9092),), {1: (4, highest), 3: (0, 13)}))
    reader.do(c.SubscribeCalled(("t",)))
    reader.settle()
    assert reader.fetch(0).version == version


def test_a_poll_returns_at_most_as_many_records_as_it_asks_for() -> None:
    reader = ReaderStage(watch=False).join()
    reader.records(0, b"a", b"b", b"c")
    reader.do(c.PollCalled(50, 2))
    reader.do(c.PollCalled(50, 2))
    assert [[record.value for record in poll.records] for poll in reader.actions_of(c.FinishPoll)] == [
        [b"a", b"b"],
        [b"c"],
    ]


def test_topics_cannot_be_changed_and_patterns_are_not_supported() -> None:
    reader = ReaderStage(watch=False).join()
    reader.do(c.SubscribeCalled(("u",)))
    pattern = ReaderStage(watch=False)
    pattern.do(c.SubscribeCalled(pattern="t.*"))
    reports = [*reader.actions_of(c.Notify), *pattern.actions_of(c.Notify)]
    assert [(report.kind, report.name, report.text) for report in reports] == [
        ("error", "Unsupported", "kafka-go's Reader: topics cannot be changed; create a new Reader"),
        ("error", "Unsupported", "kafka-go's Reader: patterns are not supported; name the topics"),
    ]


def test_assigned_and_revoked_are_reported_without_waiting() -> None:
    reader = ReaderStage(watch=False).join()
    (callback,) = reader.actions_of(c.RunCallback)
    assert callback == c.RunCallback("assigned", (tp(0), tp(1)), wait=False)


def test_the_reader_whose_backoff_ends_first_continues_first() -> None:
    reader = ReaderStage(watch=False, **READS).join()
    generation = reader.state.generation
    assert generation is not None
    for waiting, deadline in zip(generation.readers, (2_000, 3_000), strict=True):
        wait_until(reader.state, waiting, ReaderPhase.READ_BACKOFF, deadline)
    assert generation.next_reader_wakeup == 2_000


def test_a_commit_that_waits_for_its_retry_delays_the_next_one() -> None:
    assert ReaderCommitLoop(None, retry_at=2_000).is_busy
    assert not ReaderCommitLoop(None).is_busy


def test_unchanged_partitions_do_not_end_the_generation() -> None:
    reader = ReaderStage(metadata_ms=500).join()
    reader.wait(3_000)
    reader.records(0)
    reader.records(1)
    reader.settle()
    assert len(reader.requests_of("JoinGroup")) == 1
