"""Single calls of KafkaConsumer, such as seek or close, have the same effects as in Java."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.messages.leave_group import LeaveGroupResponse
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import java_2_6
from tests.models.java.stage import (
    BOTH,
    COORDINATOR,
    T0,
    T1,
    U0,
    JavaStage,
    committed,
    found_coordinator,
    metadata_of,
)


def errors_of(consumer: JavaStage) -> list[tuple[str, str]]:
    return [(note.name, note.text) for note in consumer.actions_of(c.Notify) if note.kind == "error"]


def callbacks_of(consumer: JavaStage) -> list[tuple[str, set[object]]]:
    return [(call.kind, set(call.partitions)) for call in consumer.actions_of(c.RunCallback)]


@BOTH
def test_subscribe_without_topics_unsubscribes(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.do(c.SubscribeCalled(()))
    consumer.do(c.CallbackReturned())
    assert callbacks_of(consumer) == [("revoked", {T0, T1})]
    assert len(consumer.requests_of("LeaveGroup")) == 1
    assert (consumer.state.topics, consumer.state.assigned) == (frozenset(), {})
    assert consumer.poll() == [
        c.FinishPoll(
            (),
            (
                "IllegalStateException",
                "Consumer is not subscribed to any topics or assigned any partitions",
            ),
        )
    ]


@BOTH
@pytest.mark.rule("M97")
def test_unsubscribe_during_a_rebalance_loses_the_partitions(release: ModuleType) -> None:
    consumer = JavaStage(release, assignors=("cooperative-sticky",)).stable()
    consumer.rebalance()
    consumer.do(c.UnsubscribeCalled())
    assert callbacks_of(consumer) == [("lost", {T0, T1})]


@BOTH
@pytest.mark.rule("M97")
def test_unsubscribe_after_the_generation_was_lost_loses_the_partitions(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.wait(3_000)
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=25))
    consumer.do(c.UnsubscribeCalled())
    assert callbacks_of(consumer) == [("lost", {T0, T1})]


@BOTH
def test_unsubscribe_of_assigned_partitions_calls_no_listener_and_sends_nothing(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.do(c.AssignCalled({T0: 5}))
    sent = len(consumer.said)
    consumer.do(c.UnsubscribeCalled())
    assert consumer.said[sent:] == []
    # subscribe() is allowed, because unsubscribe() has ended the manual assignment.
    consumer.do(c.SubscribeCalled(("t",)))
    assert errors_of(consumer) == []


@BOTH
@pytest.mark.rule("M92")
def test_a_changed_subscription_rejoins_with_the_new_topics(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.state.cluster.update(metadata_of(t=2, u=1))
    consumer.do(c.SubscribeCalled(("t", "u")))
    consumer.poll()
    (join,) = consumer.requests_of("JoinGroup")
    assert join.reason == ("subscription has changed" if release is java else None)
    consumer.poll()
    assert len(consumer.requests_of("JoinGroup")) == 1


@BOTH
def test_a_rejoin_that_the_application_requested_keeps_its_reason(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.do(c.RebalanceCalled("rolling"))
    consumer.do(c.SubscribeCalled(("t", "u")))
    consumer.poll()
    (join,) = consumer.requests_of("JoinGroup")
    assert join.reason == ("rolling" if release is java else None)


@BOTH
def test_only_a_subscription_with_new_topics_requests_metadata_before_its_age(release: ModuleType) -> None:
    for topics, requests in ((("t",), 0), (("u",), 1)):
        consumer = JavaStage(release).stable()
        consumer.do(c.SubscribeCalled(topics))
        consumer.do(c.PollCalled(1_000))
        assert len(consumer.requests_of("Metadata")) == requests


@BOTH
def test_a_pattern_requests_the_metadata_of_all_topics_although_one_matches(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.state.cluster.update(metadata_of(t=2))
    consumer.state.metadata_refreshed_at = consumer.now
    consumer.do(c.SubscribeCalled(pattern="t.*"))
    consumer.do(c.PollCalled(1_000))
    (request,) = consumer.requests_of("Metadata")
    assert request.topics is None


@BOTH
@pytest.mark.rule("M201")
def test_a_join_by_pattern_waits_for_metadata_that_is_newer_than_the_join(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.state.pattern = "t.*"
    consumer.now += 500
    consumer.do(c.RebalanceCalled())
    consumer.do(c.PollCalled(1_000))
    assert (len(consumer.requests_of("Metadata")), consumer.requests_of("JoinGroup")) == (1, [])
    consumer.answer("Metadata", metadata_of(t=2))
    consumer.do(c.CallbackReturned())
    assert len(consumer.requests_of("JoinGroup")) == 1


@BOTH
def test_seek_and_pause_of_a_partition_that_is_not_assigned(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.do(c.SeekCalled(U0, 3))
    assert errors_of(consumer) == [("IllegalStateException", "No current assignment for partition u-0")]


@BOTH
def test_a_callback_that_returns_without_a_call_changes_nothing(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    assert consumer.do(c.CallbackReturned(("RuntimeException", "no"))) == []
    assert consumer.poll()[-1] == c.FinishPoll()


@BOTH
def test_assign_keeps_the_position_of_a_partition_and_drops_the_others(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.do(c.AssignCalled({T0: 5, T1: 6}))
    consumer.do(c.AssignCalled({T1: None, U0: 7}))
    positions = {tp: partition.offset for tp, partition in consumer.state.assigned.items()}
    assert positions == {T1: 6, U0: 7}


@BOTH
@pytest.mark.rule("M98")
def test_close_waits_30_s_for_its_commit_and_then_closes_without_leave_group(release: ModuleType) -> None:
    consumer = JavaStage(release, auto_commit=True, auto_commit_ms=60_000).stable()
    consumer.do(c.CloseCalled())
    assert len(consumer.requests_of("OffsetCommit")) == 1
    for second in range(30):
        assert consumer.actions_of(c.RunCallback) == [], second
        consumer.wait(1_000)
    consumer.do(c.CallbackReturned())
    assert len(consumer.actions_of(c.FinishClose)) == 1
    assert consumer.state.closed


@BOTH
@pytest.mark.rule("M98")
def test_close_waits_for_the_response_of_leave_group(release: ModuleType) -> None:
    for answers in (True, False):
        consumer = JavaStage(release).stable()
        consumer.do(c.CloseCalled())
        consumer.do(c.CallbackReturned())
        consumer.wait(29_999)
        assert consumer.actions_of(c.FinishClose) == []
        if answers:
            consumer.answer("LeaveGroup", LeaveGroupResponse(error_code=25))
        else:
            consumer.wait(1)
        assert len(consumer.actions_of(c.FinishClose)) == 1


@BOTH
def test_close_looks_its_coordinator_up_again_for_its_commit(release: ModuleType) -> None:
    consumer = JavaStage(release, auto_commit=True, auto_commit_ms=60_000)
    consumer.state.coordinator = COORDINATOR
    consumer.do(c.AssignCalled({T0: 5}))
    consumer.do(c.CloseCalled())
    consumer.answer("OffsetCommit", committed(16))
    consumer.wait(99)
    assert consumer.requests_of("FindCoordinator") == []
    consumer.wait(1)
    assert len(consumer.requests_of("FindCoordinator")) == 1
    consumer.answer("FindCoordinator", found_coordinator())
    assert len(consumer.requests_of("OffsetCommit")) == 2
    consumer.answer("OffsetCommit", committed(0))
    assert consumer.actions_of(c.FinishClose) == [c.FinishClose()]
    assert consumer.requests_of("LeaveGroup") == []


@BOTH
def test_close_commits_once_although_the_commit_failed_for_good(release: ModuleType) -> None:
    consumer = JavaStage(release, auto_commit=True, auto_commit_ms=60_000).stable()
    consumer.do(c.CloseCalled())
    consumer.answer("OffsetCommit", committed(12))
    assert len(consumer.requests_of("OffsetCommit")) == 1
    assert [kind for kind, _ in callbacks_of(consumer)] == ["revoked"]


@BOTH
def test_close_ends_an_open_poll(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.do(c.PollCalled(60_000))
    out = consumer.do(c.CloseCalled(stay=True))
    assert out[0] == c.FinishPoll()
    assert out[-1] == c.FinishClose()
    assert consumer.requests_of("LeaveGroup") == []
    assert callbacks_of(consumer) == []


@BOTH
def test_an_error_of_the_lookup_is_thrown_once_and_the_lookup_repeated(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.do(c.SubscribeCalled(("t",)))
    consumer.do(c.PollCalled(1_000))
    refusal = FindCoordinatorResponse(error_code=30, node_id=-1, host="", port=-1)
    out = consumer.answer("FindCoordinator", refusal)
    assert out[-1] == c.FinishPoll((), ("GroupAuthorizationException", "Not authorized to access group: g"))
    consumer.do(c.PollCalled(99))
    consumer.wait(99)
    assert len(consumer.requests_of("FindCoordinator")) == 1
    consumer.do(c.PollCalled(99))
    consumer.wait(1)
    assert len(consumer.requests_of("FindCoordinator")) == 2


@BOTH
def test_the_exception_of_the_heartbeat_thread_is_thrown_before_that_of_the_lookup(
    release: ModuleType,
) -> None:
    consumer = JavaStage(release, instance="i").stable()
    consumer.wait(3_000)
    consumer.state.find_error = ("GroupAuthorizationException", "no")
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=82))
    names = [consumer.poll()[-1].error[0] for _ in range(2)]  # type: ignore[union-attr, index]
    assert names == ["FencedInstanceIdException", "GroupAuthorizationException"]


def test_the_session_timeout_of_2_6_is_10_s_and_of_4_3_45_s() -> None:
    for release, ms in ((java, 45_000), (java_2_6, 10_000)):
        consumer = JavaStage(release).stable()
        consumer.rebalance()
        (join,) = consumer.requests_of("JoinGroup")
        assert (join.session_timeout_ms, join.rebalance_timeout_ms) == (ms, 300_000)
        (sent,) = [line for line in consumer.actions_of(c.SendRequest) if line.request is join]
        assert sent.timeout_ms == 305_000


@BOTH
def test_leave_group_before_version_3_names_one_member(release: ModuleType) -> None:
    for highest, names in ((2, ("a-1", [])), (3, ("", ["a-1"]))):
        consumer = JavaStage(release)
        consumer.do(c.Started((("broker", 9092),), {13: (0, highest)}))
        consumer.stable()
        consumer.do(c.UnsubscribeCalled())
        consumer.do(c.CallbackReturned())
        (leave,) = consumer.requests_of("LeaveGroup")
        assert (leave.member_id, [member.member_id for member in leave.members]) == names


@BOTH
def test_a_member_leaves_after_max_poll_interval_between_polls_only(release: ModuleType) -> None:
    for timeout, leaves in ((0, 1), (1_000, 0)):
        consumer = JavaStage(release, max_poll_ms=500, heartbeat_ms=60_000).stable()
        consumer.do(c.PollCalled(timeout))
        consumer.wait(499)
        assert consumer.requests_of("LeaveGroup") == []
        consumer.wait(1)
        assert len(consumer.requests_of("LeaveGroup")) == leaves
        consumer.wait(400)
        assert len(consumer.requests_of("LeaveGroup")) == leaves


@BOTH
def test_a_static_member_that_does_not_poll_sends_no_leave_group_and_stops_its_heartbeats(
    release: ModuleType,
) -> None:
    consumer = JavaStage(release, max_poll_ms=500, heartbeat_ms=60_000, instance="i").stable()
    consumer.wait(600)
    assert consumer.requests_of("LeaveGroup") == []
    assert consumer.state.generation.member_id == ""
    assert release.next_deadline(consumer.state) is None


@BOTH
def test_a_partition_that_is_assigned_later_is_looked_up_too(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.state.coordinator = COORDINATOR
    consumer.do(c.AssignCalled({T0: 5}))
    consumer.poll()
    assert consumer.requests_of("OffsetFetch") == []
    consumer.do(c.AssignCalled({T0: 5, T1: None}))
    consumer.poll()
    (request,) = consumer.requests_of("OffsetFetch")
    topics = request.groups[0].topics if request.groups else request.topics
    assert [topic.partition_indexes for topic in topics] == [[1]]


@BOTH
@pytest.mark.rule("M92")
def test_a_leader_rejoins_if_the_metadata_of_its_topics_has_changed(release: ModuleType) -> None:
    for partitions, joins in ((2, 0), (3, 1)):
        consumer = JavaStage(release, metadata_ms=1_000, heartbeat_ms=60_000).stable()
        consumer.do(c.SubscribeCalled(("t",)))
        consumer.state.assignment_snapshot = consumer.state.metadata_snapshot
        consumer.state.is_leader = True
        consumer.now += 1_000
        consumer.do(c.PollCalled(0))
        consumer.answer("Metadata", metadata_of(t=partitions))
        consumer.poll()
        requests = consumer.requests_of("JoinGroup")
        assert len(requests) == joins
        if joins and release is java:
            assert requests[0].reason == "cached metadata has changed"


@BOTH
def test_a_second_close_commits_and_revokes_nothing_again(release: ModuleType) -> None:
    consumer = JavaStage(release, auto_commit=True, auto_commit_ms=60_000).stable()
    consumer.do(c.CloseCalled())
    consumer.answer("OffsetCommit", committed(0))
    consumer.do(c.CallbackReturned())
    assert len(consumer.requests_of("LeaveGroup")) == 1
    consumer.do(c.CloseCalled())
    assert len(consumer.requests_of("OffsetCommit")) == 1
    assert callbacks_of(consumer) == [("revoked", {T0, T1})]
