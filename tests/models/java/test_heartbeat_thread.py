"""The heartbeats of Java's consumer, and its reaction to each heartbeat response (HeartbeatThread)."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.messages.heartbeat import HeartbeatResponse
from kproto.models import contract as c
from kproto.models import java
from tests.models.java.stage import BOTH, JavaStage, found_coordinator, joined


def beating(release: ModuleType, **conf: object) -> JavaStage:
    """Return a member whose heartbeat is in flight."""
    consumer = JavaStage(release, heartbeat_ms=3_000, session_ms=10_000, **conf).stable()
    consumer.wait(3_000)
    assert len(consumer.requests_of("Heartbeat")) == 1
    return consumer


def beats_after(consumer: JavaStage, ms: int) -> int:
    before = len(consumer.requests_of("Heartbeat"))
    consumer.wait(ms)
    return len(consumer.requests_of("Heartbeat")) - before


@BOTH
def test_a_heartbeat_without_a_response_looks_the_coordinator_up_and_is_repeated_after_the_backoff(
    release: ModuleType,
) -> None:
    consumer = beating(release)
    consumer.fail("Heartbeat")
    assert len(consumer.requests_of("FindCoordinator")) == 1
    consumer.answer("FindCoordinator", found_coordinator())
    assert beats_after(consumer, 99) == 0
    assert beats_after(consumer, 1) == 1
    assert consumer.state.generation.number == 3


@BOTH
@pytest.mark.parametrize("code", [15, 16])
def test_a_moved_coordinator_is_disconnected_and_looked_up_again(release: ModuleType, code: int) -> None:
    consumer = beating(release)
    coordinator = consumer.state.coordinator
    assert coordinator is not None
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=code))
    assert c.CloseConnection(coordinator) in consumer.said
    consumer.answer("FindCoordinator", found_coordinator())
    assert beats_after(consumer, 99) == 0
    assert beats_after(consumer, 1) == 1


@BOTH
def test_the_backoff_of_4_3_grows_from_100_ms_to_1_s_and_that_of_2_6_is_constant(release: ModuleType) -> None:
    consumer = beating(release, max_poll_ms=600_000)
    consumer.state.session_deadline = consumer.now + 600_000
    for backoff in (100, 200, 400, 800, 1_000, 1_000) if release is java else (100,) * 6:
        consumer.answer("Heartbeat", HeartbeatResponse(error_code=14))
        assert beats_after(consumer, backoff - 1) == 0
        assert beats_after(consumer, 1) == 1
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=0))
    assert beats_after(consumer, 2_999) == 0
    assert beats_after(consumer, 1) == 1
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=14))
    assert beats_after(consumer, 99) == 0
    assert beats_after(consumer, 1) == 1


@BOTH
@pytest.mark.parametrize("code", [0, 27])
def test_an_accepted_heartbeat_and_a_rebalance_restart_the_session_timeout(
    release: ModuleType, code: int
) -> None:
    consumer = beating(release)
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=code))
    consumer.wait(9_999)
    assert consumer.state.coordinator is not None
    consumer.wait(1)
    assert consumer.state.coordinator is None


@BOTH
@pytest.mark.rule("M14", "M15")
def test_a_rebalance_is_joined_by_the_next_poll(release: ModuleType) -> None:
    consumer = beating(release)
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=27))
    assert consumer.requests_of("JoinGroup") == []
    consumer.poll()
    (join,) = consumer.requests_of("JoinGroup")
    assert join.reason == ("group is already rebalancing" if release is java else None)


@BOTH
@pytest.mark.rule("M118")
@pytest.mark.parametrize("code", [22, 25, 82])
def test_an_error_of_a_heartbeat_of_an_older_generation_changes_nothing(
    release: ModuleType, code: int
) -> None:
    consumer = beating(release)
    consumer.rebalance()
    consumer.answer("JoinGroup", joined(leader="another"))
    before = consumer.state.generation
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=code))
    assert consumer.state.generation == before
    assert consumer.poll()[-1] == c.FinishPoll()


@BOTH
def test_a_heartbeat_has_the_generation_the_member_id_and_the_instance_id(release: ModuleType) -> None:
    (beat,) = beating(release, instance="i").requests_of("Heartbeat")
    assert (beat.generation_id, beat.member_id, beat.group_instance_id) == (3, "a-1", "i")


@BOTH
def test_a_fenced_member_sends_no_heartbeat_until_it_has_joined_again(release: ModuleType) -> None:
    consumer = beating(release, instance="i")
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=82))
    assert beats_after(consumer, 60_000) == 0
    (thrown,) = consumer.poll()
    assert isinstance(thrown, c.FinishPoll)
    assert thrown.error is not None
    assert thrown.error[0] == "FencedInstanceIdException"
    consumer.poll()
    (join,) = consumer.requests_of("JoinGroup")
    assert join.member_id == ""
