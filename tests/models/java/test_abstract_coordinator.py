"""How Java's AbstractCoordinator joins: late responses, a leader's metadata, and JoinGroup's fields."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.group.subscription import Assignment, Subscription
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.sync_group import SyncGroupResponse
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import java_2_6
from tests.models.java.stage import BOTH, T0, JavaStage, found_coordinator, joined, metadata_of


def synced() -> SyncGroupResponse:
    return SyncGroupResponse(error_code=0, assignment=Assignment(partitions=(T0,)).encode())


def member_ids(consumer: JavaStage) -> list[str]:
    return [request.member_id for request in consumer.requests_of("JoinGroup")]


@BOTH
@pytest.mark.rule("M8")
def test_a_join_whose_member_was_reset_in_the_meantime_is_repeated(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.wait(3_000)
    consumer.rebalance()
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=25))
    consumer.answer("JoinGroup", joined(leader="another"))
    assert consumer.requests_of("SyncGroup") == []
    consumer.poll()
    consumer.wait(100)
    consumer.poll()
    assert member_ids(consumer) == ["a-1", ""]


@BOTH
@pytest.mark.rule("M10")
def test_a_sync_group_response_of_a_member_that_was_reset_is_dropped(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.rebalance()
    consumer.answer("JoinGroup", joined(leader="another"))
    consumer.wait(3_000)
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=25))
    consumer.answer("SyncGroup", synced())
    consumer.poll()
    assert "assigned" not in [callback.kind for callback in consumer.actions_of(c.RunCallback)]
    assert member_ids(consumer) == ["a-1", ""]


@BOTH
def test_a_leader_whose_coordinator_is_lost_while_it_waits_for_metadata_joins_again(
    release: ModuleType,
) -> None:
    consumer = JavaStage(release).stable()
    consumer.rebalance()
    consumer.do(c.PollCalled(60_000))
    consumer.answer("JoinGroup", joined("t", "u"))
    assert consumer.requests_of("SyncGroup") == []
    assert consumer.state.coordinator is not None
    consumer.do(c.ConnectionLost(consumer.state.coordinator))
    consumer.answer("Metadata", metadata_of(t=2, u=1))
    assert consumer.requests_of("SyncGroup") == []
    consumer.answer("FindCoordinator", found_coordinator())
    consumer.wait(100)
    assert len(consumer.requests_of("JoinGroup")) == 2


@BOTH
def test_a_leader_requests_topics_that_only_other_members_subscribe_to_before_it_assigns(
    release: ModuleType,
) -> None:
    consumer = JavaStage(release).stable()
    consumer.rebalance()
    consumer.do(c.PollCalled(60_000))
    consumer.answer("JoinGroup", joined("t", "u"))
    (request,) = consumer.requests_of("Metadata")
    assert [topic.name for topic in request.topics] == ["t", "u"]
    consumer.answer("Metadata", metadata_of(t=2, u=1))
    (sync,) = consumer.requests_of("SyncGroup")
    (plan,) = sync.assignments
    assert {tp.topic for tp in Assignment.decode(plan.assignment).partitions} == {"t", "u"}


@BOTH
def test_between_polls_a_consumer_does_nothing_while_it_joins(release: ModuleType) -> None:
    """The heartbeat thread is disabled from the JoinGroup request until its response."""
    consumer = JavaStage(release, session_ms=6_000).stable()
    consumer.rebalance()
    assert release.next_deadline(consumer.state) is None
    consumer.wait(60_000)
    assert consumer.requests_of("Heartbeat") == []
    assert consumer.requests_of("FindCoordinator") == []


@BOTH
def test_between_polls_a_member_that_was_removed_does_nothing(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.wait(3_000)
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=25))
    assert release.next_deadline(consumer.state) is None


@BOTH
@pytest.mark.rule("M7")
def test_heartbeats_start_with_the_join_group_response_and_its_timers(release: ModuleType) -> None:
    consumer = JavaStage(release, heartbeat_ms=300, session_ms=6_000).stable()
    consumer.rebalance()
    consumer.now += 20_000
    consumer.answer("JoinGroup", joined(leader="another"))
    consumer.wait(299)
    assert consumer.requests_of("Heartbeat") == []
    consumer.wait(1)
    (beat,) = consumer.requests_of("Heartbeat")
    assert (beat.generation_id, beat.member_id) == (4, "a-1")
    consumer.wait(5_699)
    assert consumer.state.coordinator is not None
    consumer.wait(1)
    # The session timeout runs from the JoinGroup response, and expires only now.
    assert consumer.state.coordinator is None


def sent_subscription(release: ModuleType, **conf: object) -> Subscription:
    consumer = JavaStage(release, **conf).stable()
    consumer.rebalance()
    (join,) = consumer.requests_of("JoinGroup")
    assert isinstance(join, JoinGroupRequest)
    return Subscription.decode(join.protocols[0].metadata)


def test_a_join_of_4_3_names_generation_rack_and_owned_partitions_and_2_6_no_generation_and_no_rack() -> None:
    coop = {"assignors": ("cooperative-sticky",), "rack": "east"}
    new, old = sent_subscription(java, **coop), sent_subscription(java_2_6, **coop)
    assert (new.generation, new.rack_id) == (3, "east")
    assert (old.generation, old.rack_id) == (None, None)
    assert set(new.owned) == set(old.owned) != set()
    assert (new.user_data is None, old.user_data) == (False, None)


def test_a_join_of_4_3_without_a_generation_or_rack_names_none() -> None:
    consumer = JavaStage(java)
    consumer.do(c.SubscribeCalled(("t",)))
    consumer.do(c.PollCalled(1_000))
    consumer.answer("FindCoordinator", found_coordinator())
    (join,) = consumer.requests_of("JoinGroup")
    subscription = Subscription.decode(join.protocols[0].metadata)
    assert (subscription.generation, subscription.rack_id, subscription.owned) == (None, None, ())


@BOTH
def test_a_sticky_member_names_its_last_assignment_in_its_next_join(release: ModuleType) -> None:
    consumer = JavaStage(release, assignors=("sticky",)).stable()
    consumer.rebalance()
    first = Subscription.decode(consumer.requests_of("JoinGroup")[0].protocols[0].metadata)
    assert first.user_data is None
    consumer.answer("JoinGroup", joined(leader="another", protocol="sticky"))
    consumer.answer("SyncGroup", synced())
    consumer.poll()
    consumer.rebalance()
    second = Subscription.decode(consumer.requests_of("JoinGroup")[1].protocols[0].metadata)
    assert second.user_data is not None
    assert second.user_data.endswith(b"\0\0\0\1\0\0\0\0" + (4).to_bytes(4, "big"))


@BOTH
def test_a_leader_that_is_removed_while_it_waits_for_metadata_joins_again(release: ModuleType) -> None:
    consumer = JavaStage(release, heartbeat_ms=300).stable()
    consumer.rebalance()
    consumer.do(c.PollCalled(60_000))
    consumer.answer("JoinGroup", joined("t", "u"))
    consumer.wait(300)
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=25))
    consumer.answer("Metadata", metadata_of(t=2, u=1))
    consumer.wait(100)
    assert member_ids(consumer) == ["a-1", ""]
    assert consumer.requests_of("SyncGroup") == []
