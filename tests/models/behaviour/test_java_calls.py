"""Concurrent calls, wakeup, and exceptions of plugins have the same results as with Java's consumer.

The results for a listener that raises were observed with kafka-clients 2.6.2 and 4.3.1, on kproto's broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan
from types import ModuleType
from typing import Any

import pytest

from kproto.group.assignors import ASSIGNORS
from kproto.group.subscription import TopicPartition
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import java_2_6
from kproto.models.java.kafka_consumer_metrics import KafkaConsumerMetrics
from kproto.models.java.plugins import CustomAssignor
from kproto.testing.world import Client, World
from kproto.wire.message import Message

BOTH = pytest.mark.parametrize("release", [java, java_2_6], ids=["4.3", "2.6"])
COOP = ("cooperative-sticky",)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class RuntimeException(Exception):
    """An exception that the application raises."""


class CommitFailedException(Exception):
    """An exception with the name of one of Kafka's exceptions."""


def join_member(world: World, release: ModuleType, name: str = "a", **conf: Any) -> Any:
    usual = {"reset": "earliest", "assignors": ("range",), "heartbeat_ms": 300, "session_ms": 6_000}
    return world.join(name, release, topics=["t"], group_id="g", **{**usual, **conf})


def raising_listener(**causes: Exception) -> Callable[[str, tuple[TopicPartition, ...]], None]:
    """Return a listener that raises each of these exceptions once."""

    def call(kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        if kind in causes:
            raise causes.pop(kind)

    return call


def wrapped_exception(cause: str) -> tuple[str, str]:
    return "KafkaException", f"User rebalance callback throws an error; caused by {cause}"


# ---- wakeup


@BOTH
def test_wakeup_ends_the_waiting_poll_only(release: ModuleType) -> None:
    world = World({"t": 1})
    a = join_member(world, release)
    world.run(2_000)
    a.poll_timeout_ms = 5_000
    world.run(100)
    a.wakeup()
    assert [name for name, _ in a.errors] == ["WakeupException"]
    world.write("t", 0, "x")
    world.run(2_000)
    assert a.values() == ["x"]
    assert len(a.errors) == 1


@BOTH
def test_wakeup_between_polls_is_thrown_by_the_next_poll_without_losing_records(release: ModuleType) -> None:
    world = World({"t": 1})
    a = join_member(world, release)
    world.write("t", 0, "x", "y")
    world.run(2_000, until=lambda: bool(a.owned))
    a.pause_polling()
    world.run(500)
    a.wakeup()
    before = len(a.records)
    a.poll_once(0, 10)
    assert [name for name, _ in a.errors] == ["WakeupException"]
    assert len(a.records) == before
    a.resume_polling()
    world.run(500)
    assert a.values() == ["x", "y"]


@BOTH
def test_wakeup_ends_a_waiting_commit(release: ModuleType) -> None:
    world = World({"t": 1})
    a = join_member(world, release, auto_commit=False)
    world.run(2_000)
    token = a.commit({T0: 0})
    a.wakeup()
    assert a.committed[token][0] == "WakeupException"
    world.run(500)
    assert a.errors == []
    assert world.committed("g", T0) == 0


@BOTH
def test_wakeup_before_a_commit_ends_it_after_its_request_was_sent(release: ModuleType) -> None:
    world = World({"t": 1})
    a = join_member(world, release, auto_commit=False)
    world.run(2_000)
    a.pause_polling()
    world.run(100)
    a.wakeup()
    token = a.commit({T0: 0})
    assert a.committed[token][0] == "WakeupException"
    world.run(500)
    assert world.committed("g", T0) == 0
    later = a.commit({T0: 0})
    world.run(500)
    assert a.committed[later] is None


@BOTH
def test_wakeup_during_the_commit_before_a_join_skips_on_partitions_revoked(release: ModuleType) -> None:
    world = World({"t": 2})
    a = join_member(world, release, auto_commit_ms=60_000)
    world.write("t", 0, "x")
    world.run(2_000)
    join_member(world, release, "b")
    a.poll_timeout_ms = 1_000
    assert world.run(5_000, until=lambda: len(world.requests_of(a, OffsetCommitRequest)) == 1)
    a.wakeup()
    world.run(3_000)
    assert [name for name, _ in a.errors] == ["WakeupException"]
    assert "revoked" not in [kind for kind, _ in a.calls]
    assert len(a.state.assigned) == 1


def test_wakeup_does_nothing_to_close() -> None:
    world = World({"t": 1})
    a = join_member(world, java_2_6)
    world.write("t", 0, "x")
    world.run(2_000)
    a.close()
    a.wakeup()
    assert world.run(2_000, until=lambda: a.closed)
    assert len(world.requests_of(a, LeaveGroupRequest)) == 1


# ---- concurrent calls


@pytest.mark.rule("M119")
@BOTH
def test_a_concurrent_poll_throws_and_the_open_poll_continues(release: ModuleType) -> None:
    world = World({"t": 1})
    a = join_member(world, release)
    world.run(2_000)
    a.poll_timeout_ms = 5_000
    world.run(100)
    actions = a.model.step(a.state, c.PollCalled(), world.now)
    assert [(line.kind, line.name) for line in actions] == [("error", "ConcurrentModificationException")]
    world.write("t", 0, "x")
    world.run(1_000)
    assert a.values() == ["x"]


@BOTH
def test_a_poll_after_close_throws(release: ModuleType) -> None:
    world = World({"t": 1})
    a = join_member(world, release)
    world.run(2_000)
    a.close()
    assert world.run(2_000, until=lambda: a.closed)
    (action,) = a.model.step(a.state, c.PollCalled(), world.now)
    assert action.error == ("IllegalStateException", "This consumer has already been closed.")


# ---- poll(long)


def first_long_poll(world: World) -> tuple[Any, int]:
    """Return a member of kafka-clients 2.6 after its first poll(500), and the time when this poll began."""
    a = join_member(world, java_2_6)
    a.pause_polling()
    world.run(60)
    begun = world.now
    a.poll_once(500, patient=True)
    assert world.run(10_000, until=lambda: not a.polling)
    return a, begun


def test_poll_long_keeps_its_timeout_when_the_join_is_quick() -> None:
    world = World({"t": 1})
    a, begun = first_long_poll(world)
    assert a.owned
    assert world.now - begun == 500


def test_poll_long_ends_with_the_next_response_after_its_timeout() -> None:
    world = World({"t": 1}, {"group.initial.rebalance.delay.ms": 3_000})
    a, begun = first_long_poll(world)
    assigned = next(observation.at for observation in world.observations if observation.kind == "assigned")
    assert assigned - begun >= 2_900
    assert world.now - assigned < 100
    assert not a.records


def test_poll_duration_returns_in_time_and_the_next_poll_continues_the_join() -> None:
    world = World({"t": 1}, {"group.initial.rebalance.delay.ms": 3_000})
    a = join_member(world, java_2_6)
    world.run(100)
    a.pause_polling()
    world.run(100)
    begun = world.now
    a.poll_once(500)
    assert world.run(10_000, until=lambda: not a.polling)
    assert world.now - begun == 500
    a.resume_polling()
    world.run(4_000)
    assert a.owned == {T0}
    assert len([request for request in world.requests_of(a, JoinGroupRequest) if request.member_id]) == 1


# ---- exceptions of a listener


@BOTH
def test_an_exception_of_on_partitions_assigned_is_thrown_and_the_call_repeated_empty(
    release: ModuleType,
) -> None:
    world = World({"t": 2})
    a = world.join("a", release, group_id="g", reset="earliest", assignors=("range",))
    a.listener = raising_listener(assigned=RuntimeException("no"))
    a.subscribe("t")
    world.run(3_000)
    assert a.errors == [wrapped_exception("RuntimeException: no")]
    assert [(kind, set(which)) for kind, which in a.calls] == [("assigned", {T0, T1}), ("assigned", set())]
    assert set(a.state.assigned) == {T0, T1}


@BOTH
def test_an_exception_of_on_partitions_revoked_does_not_keep_the_partitions(release: ModuleType) -> None:
    world = World({"t": 2})
    a = join_member(world, release)
    world.run(2_000)
    a.listener = raising_listener(revoked=CommitFailedException("no"))
    b = join_member(world, release, "b")
    world.run(5_000)
    assert a.errors == [wrapped_exception("CommitFailedException: no")]
    assert len(a.state.assigned) == len(b.state.assigned) == 1
    assert [kind for kind, _ in a.calls] == ["assigned", "revoked", "assigned"]


@BOTH
@pytest.mark.parametrize(
    ("cause", "thrown"),
    [
        (RuntimeException("first"), wrapped_exception("RuntimeException: first")),
        (CommitFailedException("first"), ("CommitFailedException", "first")),
    ],
)
def test_the_first_of_two_listener_exceptions_after_a_join_is_thrown(
    release: ModuleType, cause: Exception, thrown: tuple[str, str]
) -> None:
    world = World({"t": 2})
    a = join_member(world, release, assignors=COOP)
    world.run(2_000)
    a.listener = raising_listener(revoked=cause, assigned=RuntimeException("second"))
    b = join_member(world, release, "b", assignors=COOP)
    world.run(5_000)
    assert a.errors == [thrown]
    assert len(a.state.assigned) == len(b.state.assigned) == 1


@BOTH
def test_an_exception_of_on_partitions_revoked_in_close_prevents_leave_group(release: ModuleType) -> None:
    world = World({"t": 1})
    a = join_member(world, release)
    world.run(2_000)
    a.listener = raising_listener(revoked=RuntimeException("no"))
    a.close()
    assert world.run(2_000, until=lambda: a.closed)
    assert [(report.name, report.text) for report in a.reports] == [wrapped_exception("RuntimeException: no")]
    assert world.requests_of(a, LeaveGroupRequest) == []


@BOTH
def test_an_exception_of_on_partitions_revoked_in_unsubscribe_keeps_the_subscription(
    release: ModuleType,
) -> None:
    world = World({"t": 1})
    a = join_member(world, release)
    world.run(2_000)
    a.listener = raising_listener(revoked=RuntimeException("no"))
    a.unsubscribe()
    world.run(1_000)
    assert world.requests_of(a, LeaveGroupRequest) == []
    assert a.state.topics == {"t"}


# ---- responses of the coordinator


def replace_next_response(world: World, kind: type[Message], make: Callable[[Message], Message]) -> None:
    """Replace the next response of one API."""
    replacements = [make]

    def tamper(client: Client, request: Message, version: int) -> Message | None:
        return replacements.pop()(request) if isinstance(request, kind) and replacements else None

    world.tamper = tamper


@BOTH
@pytest.mark.parametrize(
    ("data", "thrown"),
    [(b"", "IllegalStateException"), (b"\0", "IllegalStateException"), (b"\0\1", "Schema")],
)
def test_a_corrupt_assignment_is_thrown_by_every_poll(release: ModuleType, data: bytes, thrown: str) -> None:
    world = World({"t": 1})
    replace_next_response(
        world, SyncGroupRequest, lambda request: SyncGroupResponse(error_code=0, assignment=data)
    )
    a = join_member(world, release)
    world.run(3_000)
    assert len(a.errors) > 10
    assert {name.startswith(thrown) for name, _ in a.errors} == {True}
    assert a.calls == []
    assert len(world.requests_of(a, HeartbeatRequest)) > 5
    assert a.state.group_metadata == a.state.generation


@BOTH
def test_an_assignor_that_was_not_offered_is_thrown_by_every_poll_of_a_follower(release: ModuleType) -> None:
    world = World({"t": 1})

    def follower(request: Any) -> Message:
        return JoinGroupResponse(
            error_code=0,
            generation_id=1,
            protocol_type="consumer",
            protocol_name="best",
            leader="somebody",
            member_id="me",
            members=[],
        )

    def tamper(client: Client, request: Message, version: int) -> Message | None:
        if isinstance(request, JoinGroupRequest):
            return follower(request)
        return (
            SyncGroupResponse(error_code=0, assignment=b"\0\0\0\0\0\0\0\0\0\0")
            if isinstance(request, SyncGroupRequest)
            else None
        )

    world.tamper = tamper
    a = join_member(world, release, heartbeat_ms=2_000)
    world.run(1_500)
    assert len(a.errors) > 10
    assert set(a.errors) == {
        ("IllegalStateException", "Coordinator selected invalid assignment protocol: best")
    }
    assert len(world.requests_of(a, JoinGroupRequest)) == 1


@BOTH
def test_an_assignor_that_was_not_offered_makes_a_leader_rejoin(release: ModuleType) -> None:
    world = World({"t": 1})
    replace_next_response(
        world,
        JoinGroupRequest,
        lambda request: JoinGroupResponse(
            error_code=0,
            generation_id=1,
            protocol_type="consumer",
            protocol_name="best",
            leader="me",
            member_id="me",
            members=[],
        ),
    )
    a = join_member(world, release)
    world.run(3_000)
    assert [name for name, _ in a.errors] == ["IllegalStateException"]
    assert a.owned == {T0}


# ---- interceptors, assignors


class RecordingInterceptor:
    """An interceptor that removes "secret" records and stores commits in a list.

    The interceptor's methods raise RuntimeException if `raises` is set.
    """

    def __init__(self) -> None:
        self.commits: list[Mapping[TopicPartition, int]] = []
        self.raises = False

    def on_consume(self, records: tuple[c.ModelRecord, ...]) -> tuple[c.ModelRecord, ...]:
        if self.raises:
            raise RuntimeException("no")
        return tuple(record for record in records if record.value != b"secret")

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.commits.append(offsets)
        if self.raises:
            raise RuntimeException("no")


@BOTH
def test_records_removed_by_an_interceptor_are_committed(release: ModuleType) -> None:
    world, tap = World({"t": 1}), RecordingInterceptor()
    a = join_member(world, release, auto_commit_ms=500, extra={"interceptor.classes": (tap,)})
    world.write("t", 0, "x", "secret")
    world.run(3_000)
    assert a.values() == ["x"]
    assert tap.commits[-1] == {T0: 2}
    assert world.committed("g", T0) == 2


@BOTH
def test_an_exception_of_an_interceptor_is_logged_and_ignored(release: ModuleType) -> None:
    world, broken, tap = World({"t": 1}), RecordingInterceptor(), RecordingInterceptor()
    broken.raises = True
    a = join_member(world, release, auto_commit_ms=500, extra={"interceptor.classes": (broken, tap)})
    world.write("t", 0, "x", "secret")
    world.run(3_000)
    assert a.values() == ["x"]
    assert a.errors == []
    assert tap.commits
    assert {report.name for report in a.reports} == {"WARN"}


@BOTH
def test_an_exception_of_on_assignment_is_thrown_after_on_partitions_assigned(release: ModuleType) -> None:
    world = World({"t": 1})
    calls: list[tuple[tuple[TopicPartition, ...], int]] = []

    def on_assignment(assigned: tuple[TopicPartition, ...], generation: int) -> None:
        calls.append((assigned, generation))
        if len(calls) == 1:
            raise RuntimeException("no")

    own = CustomAssignor("range", ASSIGNORS["range"].assign, on_assignment=on_assignment)
    a = join_member(world, release, extra={"partition.assignment.strategy": (own,)})
    world.run(3_000)
    assert calls == [((T0,), 1)] * 2
    assert a.errors == [wrapped_exception("RuntimeException: no")]
    assert a.calls == [("assigned", (T0,)), ("assigned", ())]


# ---- metrics


def test_poll_metrics_are_those_of_kafka_consumer_metrics() -> None:
    times = KafkaConsumerMetrics()
    assert times.values(5)["last-poll-seconds-ago"] == -1
    for begun, ended in ((1_000, 1_100), (2_000, 2_500), (5_000, 5_000)):
        times.record_poll_start(begun)
        times.record_poll_end(ended)
    metrics = times.values(8_200)
    assert metrics["last-poll-seconds-ago"] == 3
    assert metrics["time-between-poll-avg"] == pytest.approx(4_000 / 3)
    assert metrics["time-between-poll-max"] == 3_000
    assert metrics["poll-idle-ratio-avg"] == pytest.approx((1 + 500 / 1_500 + 0) / 3)


def test_a_first_poll_of_zero_duration_makes_the_average_nan_until_its_sample_expires() -> None:
    times = KafkaConsumerMetrics()
    times.record_poll_start(0)
    times.record_poll_end(0)
    for begun in range(1_000, 61_000, 1_000):
        assert isnan(times.values(begun - 1)["poll-idle-ratio-avg"])
        times.record_poll_start(begun)
        times.record_poll_end(begun + 500)
    assert times.values(61_000)["poll-idle-ratio-avg"] == pytest.approx(1 / 3)


def test_values_older_than_two_samples_are_dropped() -> None:
    times = KafkaConsumerMetrics()
    times.record_poll_start(0)
    times.record_poll_start(20_000)
    assert times.values(21_000)["time-between-poll-max"] == 20_000
    assert isnan(times.values(60_000)["time-between-poll-max"])
