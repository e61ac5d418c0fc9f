"""Repeated heartbeat errors end a session, and so do new partitions that the leader notices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kproto.models import contract as c
from kproto.models import sarama
from kproto.models.sarama import consumer_group_session
from kproto.testing.world import World
from tests.models.sarama.stage import (
    Mutate,
    add_second_member,
    assert_mutant_fails,
    requests_of,
    stage_with_member,
    time_of_request,
    times_printed,
)
from tests.rules import rule


def requests_after(member: object, start: str) -> list[str]:
    """Return the requests that follow a request, except successful heartbeats.

    A request is a line of text. The first line that begins with `start` is the request to search for.
    """
    requests: list[str] = member.requests  # type: ignore[attr-defined]
    position = next(number for number, request in enumerate(requests) if request.startswith(start))
    return [
        request
        for request in requests[position + 1 :]
        if not (request.startswith("Heartbeat") and request.endswith("-> 0"))
    ]


# ---- heartbeats


@rule("M113")
def test_heartbeats_start_before_the_offsets_are_fetched() -> None:
    _, a = stage_with_member()
    lines = requests_of(a, "Sync", "OffsetFetch", "Heartbeat")
    assert [line.split()[0] for line in lines[:4]] == ["Sync", "OffsetFetch", "Heartbeat", "OffsetFetch"]


def test_heartbeats_follow_their_ticker() -> None:
    stage, a = stage_with_member()
    stage.run(20_000)
    times = [line.now for line in a.lines if line.api == "Heartbeat"]
    assert len([time for time in times if time >= times[-1] - 10_000]) in (50, 51)


@pytest.mark.parametrize("code", [15, 16])
def test_a_moved_coordinator_is_looked_up_and_the_session_continues(code: int) -> None:
    stage, a = stage_with_member()
    a.inject("Heartbeat", code)
    stage.run(3_000)
    later_requests = requests_after(a, f"Heartbeat v4 gen=1 id=A1 -> {code}!")
    assert [line for line in later_requests if not line.startswith("Commit")] == ["Find v3 g -> 0"]
    assert not a.has_printed("revoked")
    assert not a.has_printed("error")


def test_the_fourth_consecutive_heartbeat_error_ends_the_session() -> None:
    stage, a = stage_with_member()
    a.inject("Heartbeat", 16, 16, 16, 0, 16, 16, 16)
    stage.run(5_000)
    assert not a.has_printed("revoked")
    a.inject("Heartbeat", 16, 16, 16, 16)
    stage.run(3_000)
    assert a.has_printed("error KError(16)")
    assert a.has_printed("revoked")


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (22, "generation id is not current"),
        (25, "member id is not known by the group coordinator"),
        (82, "group instance id has been fenced"),
        (27, "group is rebalancing"),
        (14, "kafka server: The coordinator is still loading offsets and cannot currently process requests"),
        (30, "kafka server: The client is not authorized to access this group"),
    ],
)
def test_the_cause_of_the_end_is_the_reason_of_the_next_join(code: int, reason: str) -> None:
    # Mirrors sarama's TestConsumerGroupReason, TestConsumerGroupSessionCancelCause_Rebalance
    stage, a = stage_with_member()
    a.inject("Heartbeat", code)
    stage.run(3_000)
    join = next(
        line for line in requests_after(a, f"Heartbeat v4 gen=1 id=A1 -> {code}!") if line.startswith("Join")
    )
    assert join.startswith(f'Join v8 id=A1 sess=6000 reb=30000 reason="{reason}"')
    assert a.has_printed(f"error KError({code})") == (code in (14, 30, 82))


@rule("M58", "M113")
def test_heartbeats_continue_during_the_callback_and_the_last_commit() -> None:
    stage, a = stage_with_member(revoke_ms=2_500)
    stage.produce("t", [0], 3)
    add_second_member(stage)
    revoked, joined_again = times_printed(a, "revoked")[0], time_of_request(a, "Join", 2)
    beats = [line.now for line in a.lines if line.api == "Heartbeat" and revoked < line.now < joined_again]
    assert len(beats) >= 10


def test_a_broken_connection_is_reopened_in_the_same_session() -> None:
    stage, a = stage_with_member()
    a.drop_connections()
    stage.run(1_500)
    assert not a.has_printed("revoked")
    assert requests_of(a, "Heartbeat")[-2].endswith("gen=1 id=A1 -> 0")
    assert len(requests_of(a, "Find")) == 2


# ---- the partition checker


@rule("M204")
def test_s1_2_new_partitions_end_the_session_and_the_loop_consumes_them() -> None:
    stage, a = stage_with_member(metadata_ms=1_000)
    stage.grow("t", 4)
    stage.produce("t", [2, 3], 5)
    assert stage.run(until=lambda: len(a.records) == 20)
    assert 'reason="partitions were added to a subscribed topic"' in requests_of(a, "Join")[2]
    assert a.has_printed("assigned t:0 t:1 t:2 t:3")


def test_s1_4_without_refreshes_new_partitions_are_never_noticed() -> None:
    stage, a = stage_with_member(metadata_ms=0)
    stage.grow("t", 4)
    stage.run(60_000)
    assert len(requests_of(a, "Join")) == 2


def test_s1_4_only_the_leader_checks() -> None:
    stage, a = stage_with_member(metadata_ms=1_000)
    b = add_second_member(stage, metadata_ms=1_000)
    watches = [member.state.group.session.partition_checker is not None for member in (a, b)]
    assert sorted(watches) == [False, True]


@rule("M204")
@pytest.mark.parametrize(("release", "sessions"), [("1.38.1", 2), ("1.61.1", 1)])
def test_before_1_41_a_follower_that_notices_new_partitions_restarts_its_session(
    release: str, sessions: int
) -> None:
    """A follower checks the topics that it consumes, and ends only its own session.

    The follower's JoinGroup is the same as before, so the coordinator answers with the current generation.
    """
    world = World({"t": 2, "u": 1})
    usual: dict[str, Any] = {"group_id": "g", "reset": "earliest", "heartbeat_ms": 500}
    leader, follower = (
        world.join(name, sarama, topics=topics, metadata_ms=ms, extra={"Release": release}, **usual)
        for name, topics, ms in (("a", ["t", "u"], 10_000), ("b", ["t"], 1_000))
    )
    world.run(5_000)
    checker = follower.state.group.session.partition_checker
    assert (None if checker is None else checker.counts) == ({"t": 2} if sessions == 2 else None)
    assert leader.state.group.session.partition_checker.counts == {"t": 2, "u": 1}
    world.grow("t", 4)
    world.run(4_000)
    assert [kind for kind, _ in follower.calls].count("assigned") == sessions
    assert (leader.state.generation, follower.state.generation) == (2, 2)
    assert len(leader.owned | follower.owned) == 3
    world.run(17_000)
    # The leader, which refreshes its metadata every 10 s, has also noticed the new partitions.
    assert len(leader.owned | follower.owned) == 5


def test_new_partitions_are_noticed_after_at_most_two_ticks() -> None:
    for phase in range(0, 1_000, 90):
        stage, a = stage_with_member(metadata_ms=1_000)
        stage.run(phase)
        grown = stage.now
        stage.grow("t", 3)
        stage.run(until=lambda: a.has_printed("revoked"))  # noqa: B023
        assert times_printed(a, "revoked")[0] - grown <= 2_000 + 200


# ---- release and close


def test_a_fenced_member_keeps_joining_with_its_old_id() -> None:
    stage, a = stage_with_member(instance="i")
    add_second_member(stage, "C", instance="i")
    stage.run(3_000)
    fenced = [line for line in requests_of(a, "Join") if line.endswith("-> 82")]
    assert len(fenced) >= 2
    assert all(" id=A1 " in line for line in fenced)
    assert a.has_printed("error KError(82)", times=3)


def test_a_heartbeat_looks_an_unknown_coordinator_up() -> None:
    stage, a = stage_with_member()
    lookups = len(requests_of(a, "Find"))
    a.state.coordinator.node_id = None
    stage.run(250)
    assert len(requests_of(a, "Find")) == lookups + 1
    assert requests_of(a, "Heartbeat")[-1].endswith("gen=1 id=A1 -> 0")
    assert not a.has_printed("revoked")


def test_the_fourth_failed_lookup_of_a_heartbeat_ends_the_session() -> None:
    stage, a = stage_with_member(auto_commit=False)
    lookups = len(requests_of(a, "Find"))
    a.state.coordinator.node_id = None
    a.inject("Find", 16, 16, 16)
    stage.run(1_500)
    assert not a.has_printed("revoked")
    times = [line.now for line in a.lines if line.api == "Find"][lookups:]
    assert len(times) == 4
    assert all(later - earlier >= 250 for earlier, later in pairwise(times))
    a.state.coordinator.node_id = None
    a.inject("Find", 16, 16, 16, 16)
    stage.run(1_500)
    assert a.has_printed("error KError(16)")
    assert a.has_printed("revoked")


def test_the_fourth_consecutive_broken_heartbeat_ends_the_session() -> None:
    stage, a = stage_with_member(auto_commit=False)
    a.hold("Heartbeat", 40)
    beats = len(requests_of(a, "Heartbeat"))
    assert stage.run(1_000, until=lambda: len(requests_of(a, "Heartbeat")) > beats)
    for count in range(4):
        assert not a.has_printed("revoked"), count
        a.hold("Heartbeat", 40)
        stage.run(10)
        a.drop_connections()
    stage.run(100)
    assert a.has_printed("revoked")
    assert a.has_printed("error errors.errorString")


@rule("M204")
def test_a_topic_that_the_cache_lost_is_refreshed_before_it_counts_as_changed() -> None:
    stage, a = stage_with_member(metadata_ms=1_000)
    stage.run(1_500)
    a.state.metadata.topics.clear()
    stage.run(2_500)
    assert len(requests_of(a, "Join")) == 2
    a.state.metadata.topics.clear()
    a.inject("Metadata", *[3] * 10)
    assert stage.run(4_000, until=lambda: a.has_printed("revoked"))
    stage.run(3_000)
    assert 'reason="partitions were added to a subscribed topic"' in requests_of(a, "Join")[2]


def test_a_heartbeat_that_timed_out_closes_its_connection_and_is_repeated() -> None:
    stage, a = stage_with_member(auto_commit=False)
    a.polling = False
    a.hold("Heartbeat", 40)
    assert stage.run(1_000, until=lambda: requests_of(a, "Heartbeat")[-1].endswith("silence"))
    (wire,) = {id(wire): wire for wire in a.wires.values() if wire.group}.values()
    beat = next(line.request for line in reversed(a.lines) if line.api == "Heartbeat")
    a.do(c.RequestFailed(beat, "i/o timeout", late=True))
    stage.run(500)
    assert wire not in a.wires.values()
    assert requests_of(a, "Heartbeat")[-1].endswith("gen=1 id=A1 -> 0")
    assert not a.has_printed("revoked")


def test_a_heartbeat_loop_that_has_to_end_does_not_back_off() -> None:
    """A close during a coordinator lookup waits for the lookup, but for no backoff after it.

    The heartbeat loop looks the coordinator up after NOT_COORDINATOR. Without the close, the loop would back
    off between this lookup and the next heartbeat.
    """
    stage, a = stage_with_member(1, auto_commit=False)
    b = add_second_member(stage, auto_commit=False)
    (idle,) = [member for member in (a, b) if not member.state.group.session.claims]
    idle.inject("Heartbeat", 16)
    idle.hold("Find", 100)
    heartbeat = idle.state.group.session.heartbeat
    assert stage.run(1_000, until=lambda: heartbeat.state.value == "rediscovering")
    found_at = stage.now + 100
    idle.run_command("close")
    assert stage.run(1_000, until=lambda: idle.closed)
    assert found_at <= stage.now <= found_at + 20


def test_the_checker_of_a_session_that_ended_during_its_refresh_stops() -> None:
    stage, a = stage_with_member(metadata_ms=1_000)
    checker = a.state.group.session.partition_checker
    a.state.metadata.topics.clear()
    a.hold("Metadata", 400)
    assert stage.run(1_500, until=lambda: checker.state.value == "refreshing_topic")
    a.run_command("unsubscribe")
    stage.run(1_000)
    assert checker.state.value == "stopped"
    assert len(requests_of(a, "Join")) == 2


# -- mutants: mistakes in the model that a test must detect


def stop_heartbeats_at_the_rebalance(patch: pytest.MonkeyPatch) -> None:
    wait = consumer_group_session._wait

    def stop(heartbeat: consumer_group_session.Heartbeat) -> None:
        wait(heartbeat) if heartbeat.session.cause is None else consumer_group_session._stop(heartbeat)

    patch.setattr(consumer_group_session, "_wait", stop)


MUTANTS: list[tuple[Mutate, Callable[[], None]]] = [
    (stop_heartbeats_at_the_rebalance, test_heartbeats_continue_during_the_callback_and_the_last_commit),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutate", "test"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_each_mutant_fails_its_test(mutate: Mutate, test: Callable[[], None]) -> None:
    assert_mutant_fails(mutate, test)
