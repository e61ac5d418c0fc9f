"""The consumer engine keeps its invariants in virtual time, on the embedded broker."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from consumer.engine import events as ev
from consumer.engine.admin import offsets as offset_plans
from kproto.errors import (
    CommitFailed,
    Fenced,
    IllegalState,
    NoOffsetForPartition,
    NotAuthorized,
    OffsetOutOfRange,
    RecordError,
    RequestTimedOut,
)
from kproto.messages.fetch import FetchRequest
from kproto.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.consumer.stage import Client, Consumer, World, tp

GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 1000,
    "partition_assignment_strategy": "cooperative-sticky",
}

DAY = 24 * 3600 * 1000
# Options with long intervals, so that a day of virtual time has few events.
SLOW: dict[str, Any] = {
    "session_timeout_ms": 1_800_000,
    "heartbeat_interval_ms": 600_000,
    "metadata_max_age_ms": 3_600_000,
    "fetch_max_wait_ms": 300_000,
    "request_timeout_ms": 600_000,
    "auto_commit_interval_ms": 600_000,
}


def numbers(*ends: int) -> list[str]:
    return [str(number) for number in range(*ends)]


def settled(world: World, *members: Consumer) -> bool:
    """Return whether each partition of each topic has exactly one owner, and each member is stable."""
    owned = [partition for member in members for partition in member.owns()]
    total = sum(len(topic.partitions) for topic in world.broker.topics)
    return len(owned) == len(set(owned)) == total and all(
        member.engine.group.member is not None and member.engine.group.member.state.value == "stable"
        for member in members
    )


# ---- reading


def test_a_member_reads_every_record_once_and_in_order() -> None:
    world = World({"t": 3})
    for partition in range(3):
        world.write("t", partition, *numbers(0, 700))
        world.write("t", partition, *numbers(700, 1000))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) >= 3000)
    world.run(1000)
    for partition in range(3):
        assert a.values("t", partition) == numbers(0, 1000)


def test_a_poll_returns_at_most_its_limit() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 100))
    a = world.consumer(**GROUP)
    a.limit = 7
    counts: list[int] = []
    a.subscribe("t")

    def all_read() -> bool:
        counts.append(len(a.records))
        return len(a.records) == 100

    assert world.run(until=all_read)
    assert max(after - before for before, after in itertools.pairwise(counts)) == 7


def test_partitions_added_after_a_second_subscription_are_assigned() -> None:
    """A consumer that unsubscribed and subscribed again is assigned new partitions of the topic.

    Regression (chaos seed 134): unsubscribing stopped the metadata refresh permanently.
    """
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(500)
    a.unsubscribe()
    world.run(500)
    a.subscribe("t")
    world.run(500)
    world.grow("t", 2)
    assert world.run(5_000, until=lambda: a.owned == {tp("t", 0), tp("t", 1)})


def test_columns_hold_the_same_records_as_rows() -> None:
    pytest.importorskip("pyarrow")
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 50))
    a = world.consumer()
    a.columns = True
    a.assign({tp("t", 0): 3})
    assert world.run(until=lambda: bool(a.batches))
    [batch] = a.batches
    assert batch.columns.offset.tolist() == list(range(3, 50))
    assert [bytes(value).decode() for value in batch.columns.value.to_pylist()] == numbers(3, 50)
    assert a.engine.partitions[tp("t", 0)].position == 50


def test_new_records_arrive_without_another_metadata_request() -> None:
    world = World({"t": 1})
    a = world.consumer(**{**GROUP, "metadata_max_age_ms": 10**6})
    a.subscribe("t")
    world.run(2000)
    world.write("t", 0, "x")
    written = world.now
    assert world.run(1000, until=lambda: a.values() == ["x"])
    assert world.now - written <= 20


def test_an_idle_consumer_sends_empty_incremental_fetches() -> None:
    world = World({"t": 3})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(10_000)
    last = world.requests_of(a, FetchRequest)[-1]
    assert last.session_id > 0
    assert last.session_epoch > 1
    assert last.topics == []


# ---- groups


@pytest.mark.rule("I11")
def test_a_member_owns_and_reads_partitions_that_its_metadata_does_not_contain() -> None:
    world = World({"t": 2})
    a, b = world.consumer(**GROUP), world.consumer(**{**GROUP, "metadata_max_age_ms": 300_000})
    a.subscribe("t")
    world.run(500)
    b.subscribe("t")
    assert world.run(until=lambda: settled(world, a, b))
    world.grow("t", 6)
    # The leader notices the new partitions. The follower learns of them from its assignment.
    assert world.run(5000, until=lambda: len(b.owned) == 3)
    assert b.engine.core.view.counts(["t"]) == {"t": 2}
    for partition in range(6):
        world.write("t", partition, f"{partition}")
    assert world.run(2000, until=lambda: sorted(a.values() + b.values()) == numbers(0, 6))


@pytest.mark.rule("I4")
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_share_partitions_and_take_over_those_of_members_that_leave(strategy: str) -> None:
    world = World({"t": 6})
    options = {**GROUP, "partition_assignment_strategy": strategy}
    a, b, c = (world.consumer(**options) for _ in range(3))
    a.subscribe("t")
    world.run(500)
    b.subscribe("t")
    c.subscribe("t")
    assert world.run(until=lambda: settled(world, a, b, c) and len(a.owns()) == 2)
    b.close()
    assert world.run(until=lambda: settled(world, a, c))
    c.kill()
    assert world.run(20_000, until=lambda: settled(world, a))


@pytest.mark.rule("I4", "I13", "I14")
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_no_record_is_read_twice_over_clean_rebalances(strategy: str) -> None:
    world = World({"t": 4})
    options = {**GROUP, "partition_assignment_strategy": strategy}
    a, b = world.consumer(**options), world.consumer(**options)
    a.subscribe("t")
    for turn in range(40):
        for partition in range(4):
            world.write("t", partition, *(f"{partition}:{turn * 10 + at}" for at in range(10)))
        world.run(50)
        if turn == 10:
            b.subscribe("t")
        if turn == 30:
            b.close()
    world.run(5000)
    everything = a.values() + b.values()
    assert len(everything) == 1600
    assert len(set(everything)) == 1600


@pytest.mark.rule("I12")
def test_no_record_of_a_partition_is_returned_after_its_revoked_callback() -> None:
    world = World({"t": 4})
    a, b = world.consumer(**GROUP), world.consumer(**GROUP)
    # The number of records that `a` had read when each partition was revoked.
    revoked: dict[Any, int] = {}

    def listen(kind: str, partitions: Any) -> None:
        for partition in partitions:
            if kind == "revoked":
                revoked[partition] = len(a.records)
            elif kind == "assigned":
                revoked.pop(partition, None)

    a.listener = listen
    a.limit = 3
    a.subscribe("t")
    b_subscribed = False
    for _ in range(150):
        for partition in range(4):
            world.write("t", partition, "x")
        world.run(10)
        if not b_subscribed and len(a.records) > 50:
            b_subscribed = True
            b.subscribe("t")
    assert len(revoked) == 2
    for partition, before in revoked.items():
        assert [r for r in a.records[before:] if r.topic_partition == partition] == []


@pytest.mark.rule("M78")
def test_retained_partitions_are_read_during_a_cooperative_rebalance() -> None:
    world = World({"t": 4})
    a, b = world.consumer(**GROUP), world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)
    records_before = len(a.records)
    b.callback_ms = 2000  # The slow `assigned` callback of `b` must not delay `a`.
    b.subscribe("t")
    for _ in range(100):
        world.write("t", 0, "x")
        world.run(10)
    assert settled(world, a, b)
    retained = a.owns()
    assert len(retained) == 2
    assert len(a.records) - records_before + len(b.records) >= 50


@pytest.mark.rule("M88")
def test_a_retained_partition_keeps_its_position_and_its_pause() -> None:
    world = World({"t": 2})
    for partition in (0, 1):
        world.write("t", partition, *numbers(0, 10))
    a, b = world.consumer(**GROUP), world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 20)
    a.do(ev.Pause(frozenset({tp("t", 0), tp("t", 1)})))
    b.subscribe("t")
    assert world.run(until=lambda: settled(world, a, b))
    [retained] = a.owns()
    assert a.position(retained) == 10
    world.write("t", retained.partition, "more")
    world.run(1000)
    assert len(a.records) == 20
    a.do(ev.Resume(frozenset({retained})))
    assert world.run(1000, until=lambda: a.values()[20:] == ["more"])


def test_heartbeats_continue_while_a_callback_runs() -> None:
    world = World({"t": 2})
    a, b = world.consumer(**GROUP), world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)
    a.callback_ms = 2500
    b.subscribe("t")
    before = len(world.requests_of(a, HeartbeatRequest))
    world.run(2400)
    assert len(world.requests_of(a, HeartbeatRequest)) - before >= 4
    assert world.run(until=lambda: settled(world, a, b))


def test_a_member_that_does_not_poll_leaves_the_group_and_rejoins() -> None:
    world = World({"t": 2})
    a = world.consumer(**GROUP, max_poll_interval_ms=4000)
    b = world.consumer(**GROUP, max_poll_interval_ms=4000)
    a.subscribe("t")
    b.subscribe("t")
    assert world.run(until=lambda: settled(world, a, b))
    a.pause_polling()
    assert world.run(10_000, until=lambda: len(b.owns()) == 2)
    [leave] = world.requests_of(a, LeaveGroupRequest)
    assert leave.members[0].reason == "consumer poll timeout has expired."
    a.resume_polling()
    assert world.run(10_000, until=lambda: settled(world, a, b))
    world.run(100)
    assert [kind for kind, partitions in a.calls if partitions][:3] == ["assigned", "lost", "assigned"]


def test_progress_of_an_iteration_restarts_max_poll_interval_ms() -> None:
    """The member of an application that iterates slowly over the records of one poll stays in the group."""
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**GROUP, max_poll_interval_ms=4000)
    a.subscribe("t")
    assert world.run(10_000, until=lambda: len(a.records) == 10)
    a.pause_polling()
    for offset in range(5):
        world.run(3000)
        a.do(ev.Processed({tp("t", 0): offset}))
    assert a.owns() == {tp("t", 0)}
    world.run(5000)
    assert not a.owns()


@pytest.mark.rule("M112")
def test_a_poll_that_waits_longer_than_max_poll_interval_keeps_its_partitions() -> None:
    world = World({"t": 2})
    a = world.consumer(**GROUP, max_poll_interval_ms=2000)
    a.subscribe("t")
    world.run(100)
    a.wait_in_poll(7000)
    world.run(6900)
    world.write("t", 0, "x")
    world.run(100)
    # The member joins once, with two JoinGroup requests. The first is answered with MEMBER_ID_REQUIRED and
    # the member id.
    assert len(world.requests_of(a, JoinGroupRequest)) == 2
    assert a.changes_of("lost") == []
    assert a.values() == ["x"]


def test_a_member_joins_once_in_a_day_on_a_topic_without_records() -> None:
    world = World({"t": 2})
    a = world.consumer(**{**GROUP, **SLOW})
    a.subscribe("t")
    a.wait_in_poll(DAY)
    world.run(DAY)
    assert len(world.requests_of(a, JoinGroupRequest)) == 2
    assert [change.kind for change in a.changes if change.kind in ("assigned", "lost")] == ["assigned"]


def test_max_poll_interval_counts_from_the_end_of_a_poll() -> None:
    world = World({"t": 2})
    a = world.consumer(**GROUP, max_poll_interval_ms=2000)
    a.subscribe("t")
    world.run(100)
    a.wait_in_poll(7000)
    world.run(8900)
    assert a.changes_of("lost") == []
    world.run(200)
    assert [change.reason for change in a.changes_of("lost")] == ["consumer poll timeout has expired."]


@pytest.mark.rule("M112")
def test_a_callback_that_takes_longer_than_max_poll_interval_loses_the_partitions() -> None:
    world = World({"t": 2})
    a = world.consumer(**GROUP, max_poll_interval_ms=2000)
    a.subscribe("t")
    a.wait_in_poll(60_000)
    a.callback_ms = 2500
    world.run(2400)
    assert [change.kind for change in a.changes if change.kind in ("assigned", "lost")] == [
        "assigned",
        "lost",
    ]


@pytest.mark.rule("I3")
def test_a_member_that_lost_its_partitions_rejoins_and_reports_why() -> None:
    world = World({"t": 2})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)

    def forget(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, HeartbeatRequest):
            world.tamper = None
            return HeartbeatResponse(throttle_time_ms=0, error_code=25)
        return None

    world.tamper = forget
    world.run(3000)
    assert a.changes_of("lost")[0].partitions == (tp("t", 0), tp("t", 1))
    assert any("UNKNOWN_MEMBER_ID" in change.reason for change in a.changes_of("rejoining"))
    assert len(a.owns()) == 2


@pytest.mark.rule("M121")
def test_buffered_records_are_returned_while_the_coordinator_is_unknown() -> None:
    world = World({"t": 1})
    a = world.consumer(**{**GROUP, "session_timeout_ms": 30_000})
    a.limit = 10
    a.subscribe("t")
    assert world.run(until=lambda: bool(a.owned))

    def answer(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(error_code=16)
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key="g", node_id=-1, host="", port=-1, error_code=15, error_message=None)
                ]
            )
        return None

    world.tamper = answer
    world.run(1_000)
    assert a.engine.coordinator.node is None
    world.write("t", 0, *numbers(0, 100))
    assert world.run(2_000, until=lambda: a.values() == numbers(0, 100))
    assert a.engine.coordinator.node is None


def test_a_broken_connection_loses_no_record() -> None:
    world = World({"t": 2})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    for at in range(100):
        world.write("t", at % 2, str(at))
        if at % 20 == 10:
            world.cut(a)
        world.run(50)
    world.run(3000)
    assert sorted(map(int, a.values())) == list(range(100))
    assert a.changes_of("lost") == []


@pytest.mark.rule("M201")
def test_a_pattern_subscribes_to_new_topics_from_their_first_record() -> None:
    world = World({"a.one": 1, "b.one": 1})
    a = world.consumer(**{**GROUP, "auto_offset_reset": "latest"})
    a.subscribe(pattern=r"a\..*")
    world.run(3000)
    assert {partition.topic for partition in a.owns()} == {"a.one"}
    world.create("a.two", 2)
    world.write("a.two", 0, *numbers(0, 10))
    world.write("a.two", 1, *numbers(10, 20))
    assert world.run(5000, until=lambda: len(a.values("a.two")) == 20)


# ---- start positions


@pytest.mark.rule("M147")
def test_latest_skips_existing_records_and_earliest_reads_them() -> None:
    world = World({"t": 1})
    world.write("t", 0, "old")
    a = world.consumer(**{**GROUP, "auto_offset_reset": "latest"})
    b = world.consumer(**{**GROUP, "group_id": "h"})
    a.subscribe("t")
    b.subscribe("t")
    world.run(2000)
    world.write("t", 0, "new")
    world.run(2000)
    assert a.values() == ["new"]
    assert b.values() == ["old", "new"]


@pytest.mark.rule("I10", "M209")
@pytest.mark.parametrize(
    "wait", [0, 50, *(pytest.param(ms, marks=pytest.mark.thorough) for ms in (1, 5, 400, 900))]
)
def test_latest_skips_no_record_of_a_new_partition(wait: int) -> None:
    """With `latest`, an added partition is read from its first record, whenever it is added (M209)."""
    world = World({"t": 1})
    a, b = (world.consumer(**{**GROUP, "auto_offset_reset": "latest"}) for _ in range(2))
    a.subscribe("t")
    b.subscribe("t")
    world.run(3000 + wait)
    world.grow("t", 3)
    for at in range(100):
        world.write("t", 1, f"1:{at}")
        world.write("t", 2, f"2:{at}")
        world.run(20)
    world.run(5000)
    assert sorted(a.values() + b.values()) == sorted(f"{p}:{at}" for p in (1, 2) for at in range(100))


@pytest.mark.rule("M206", "M209")
def test_a_crash_before_the_first_commit_of_a_new_partition_loses_nothing() -> None:
    """The consumer reads records and is killed before its first interval commit. More records are written
    before it restarts. No record is skipped, whereas Java and sarama skip records (M203).
    """
    world = World({"t": 1})
    options = {**GROUP, "auto_offset_reset": "latest", "auto_commit_interval_ms": 10**6}
    a = world.consumer(**options)
    a.subscribe("t")
    world.run(2000)
    world.write("t", 0, *numbers(0, 200))
    assert world.run(until=lambda: len(a.records) == 200)
    a.kill()
    world.write("t", 0, *numbers(200, 600))
    b = world.consumer(**options)
    b.subscribe("t")
    world.run(10_000)
    assert b.values() == numbers(0, 600)


@pytest.mark.rule("M206")
def test_the_start_offset_is_committed_before_the_first_record_is_returned() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP)
    world.tamper = lambda client, request, version: (
        OffsetCommitResponse(
            throttle_time_ms=0,
            topics=[
                OffsetCommitResponseTopic(
                    topic_id=topic.topic_id,
                    partitions=[OffsetCommitResponsePartition(partition_index=0, error_code=14)],
                )
                for topic in request.topics
            ],
        )
        if isinstance(request, OffsetCommitRequest)
        else None
    )
    a.subscribe("t")
    world.run(3000)
    assert a.records == []
    world.tamper = None
    assert world.run(3000, until=lambda: a.values() == ["x"])


@pytest.mark.rule("I7")
def test_an_offset_fetch_error_never_resets_the_position() -> None:
    """The position is kept whatever error OffsetFetch returns (I7)."""
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(2000)
    a.close()
    world.run(1000)
    b = world.consumer(**GROUP)
    for code in (-1, 14, 15, 16, 30, 88):
        world.tamper = lambda client, request, version, code=code: (
            OffsetFetchResponse(
                throttle_time_ms=0,
                groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)],
            )
            if isinstance(request, OffsetFetchRequest)
            else None
        )
        b.subscribe("t")
        world.run(2000)
        assert b.records == []
    world.tamper = None
    world.write("t", 0, "10")
    world.run(5000)
    assert b.values() == ["10"]
    assert world.requests_of(b, ListOffsetsRequest) == []
    assert any(isinstance(error, NotAuthorized) for error in b.errors)


def test_an_offset_out_of_range_follows_its_own_policy_and_is_reported() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 100))
    a = world.consumer(**{**GROUP, "auto_offset_reset": "latest", "on_out_of_range": "earliest"})
    a.subscribe("t")
    world.run(2000)
    a.do(ev.Seek(tp("t", 0), 10))
    world.write("t", 0, "100")
    world.delete_before("t", 0, 50)
    a.do(ev.Seek(tp("t", 0), 10))
    world.run(2000)
    assert a.values()[:2] == ["50", "51"]
    assert "offset 10 is out of range" in a.changes_of("reset")[-1].reason


def test_without_a_policy_offset_out_of_range_is_raised_until_a_seek() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 5))
    a = world.consumer(auto_offset_reset="none")
    a.assign({tp("t", 0): 77})
    world.run(1000)
    assert len(a.errors) > 1
    assert isinstance(a.errors[0], OffsetOutOfRange)
    a.do(ev.Seek(tp("t", 0), 3))
    count = len(a.errors)
    world.run(1000)
    assert a.values() == ["3", "4"]
    assert len(a.errors) == count


@pytest.mark.rule("M139")
def test_a_missing_commit_without_a_reset_policy_is_an_error() -> None:
    world = World({"t": 1})
    a = world.consumer(**{**GROUP, "auto_offset_reset": "none"})
    a.subscribe("t")
    world.run(2000)
    assert {type(error) for error in a.errors} == {NoOffsetForPartition}
    assert str(a.errors[0]).startswith("t-0: no committed offset, and the policy is none")


def test_a_commit_to_a_partition_without_one_sets_its_start() -> None:
    """With the policy "none", a partition without a committed offset starts at the first offset that the
    application commits.

    Java's consumer behaves in the same way, because each of its polls fetches the committed offsets again.
    """
    world = World({"t": 2})
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**{**GROUP, "auto_offset_reset": "none"})
    a.subscribe("t")
    assert world.run(2000, until=lambda: bool(a.errors))
    a.do(ev.Commit("mine", {tp("t", 0): (7, None, "")}, 1000))
    assert world.run(2000, until=lambda: a.values("t", 0) == numbers(7, 10))
    assert {str(error)[:3] for error in a.errors[-3:]} == {"t-1"}


@pytest.mark.rule("M147")
def test_by_duration_starts_at_the_first_record_within_the_duration() -> None:
    world = World({"t": 1})
    for at in range(10):
        world.write("t", 0, str(at))
        world.run(1000)
    a = world.consumer(**{**GROUP, "auto_offset_reset": "by_duration:PT4.5S"})
    a.subscribe("t")
    world.run(1000)
    assert a.values() == ["6", "7", "8", "9"]


def test_a_re_created_topic_is_read_from_its_start() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(2000)
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, "again 0", "again 1")
    world.run(10_000)
    assert a.values()[10:] == ["again 0", "again 1"]


@pytest.mark.parametrize(("policy", "read"), [("kproto", True), ("java", False)])
def test_partitions_that_an_expired_static_member_was_revoking_get_an_owner_soon(
    policy: str, read: bool
) -> None:
    """With kproto's policy, the partitions that an expired static member was revoking get an owner.

    The coordinator lets the expired member rejoin without a rebalance, so it does not assign the revoked
    partitions to another member. With kproto's policy the member then joins once more, which starts a
    rebalance. With Java's policy the partitions remain without an owner.
    """
    world = World({"t": 4})
    options = {**GROUP, "max_poll_interval_ms": 5000, "session_timeout_ms": 60_000, "policy": policy}
    a = world.consumer(**options, group_instance_id="a")
    a.subscribe("t")
    assert world.run(until=lambda: len(a.owned) == 4)
    a.callback_ms = 9000  # Longer than `max_poll_interval_ms`.
    b = world.consumer(**options)
    b.subscribe("t")
    assert world.run(20_000, until=lambda: ("lost", a.calls[0][1]) in a.calls)
    a.callback_ms = 0
    assert world.run(20_000, until=lambda: a.calls[-1][0] == "assigned" and len(a.owned) == 2)
    assert world.run(30_000, until=lambda: len(b.owned) == 2) is read


# ---- seeks and pauses


@pytest.mark.rule("I8")
def test_the_last_seek_overrides_everything_in_progress() -> None:
    """A seek at any moment of the startup determines the position, whatever the lookups return (I8)."""
    for moment in range(40):
        world = World({"t": 1})
        world.write("t", 0, *numbers(0, 100))
        a = world.consumer(**GROUP)
        a.subscribe("t")
        world.run(moment)
        a.do(ev.Seek(tp("t", 0), 20))
        a.do(ev.Seek(tp("t", 0), 40))
        before = len(a.records)
        world.run(300)
        assert a.values()[before:] == numbers(40, 100), f"seek after {moment} ms"


def test_a_seek_in_the_assigned_callback_applies_before_the_first_record() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**GROUP)

    def listen(kind: str, partitions: Any) -> None:
        if kind == "assigned":
            for partition in partitions:
                a.do(ev.Seek(partition, 7))

    a.listener = listen
    a.subscribe("t")
    world.run(2000)
    assert a.values() == ["7", "8", "9"]


def test_a_seek_in_a_lost_partition_does_not_affect_the_next_assignment() -> None:
    """A seek in a lost partition does not affect the next assignment.

    The application can still seek, because only the next poll reports the loss.
    """
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(until=lambda: world.committed("g", tp("t", 0)) == 10)
    stalled = world.fault("stall", a)
    a.freeze(4000)  # The loss is detected only by the next poll, which checks the session timeout.
    world.run(3999)
    a.seek(tp("t", 0), 2)
    world.network.heal(stalled)
    world.write("t", 0, "10")
    world.run(10_000)
    assert a.calls[-2:] == [("lost", (tp("t", 0),)), ("assigned", (tp("t", 0),))]
    assert a.values()[10:] == ["10"]


@pytest.mark.rule("I13")
def test_a_pause_keeps_buffered_records_and_a_resume_does_not_fetch_them_again() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 100))
    a = world.consumer(**GROUP)
    a.limit = 10
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) >= 10)
    got = len(a.records)
    a.do(ev.Pause(frozenset({tp("t", 0)})))
    fetched = [r for r in world.requests_of(a, FetchRequest) if r.topics]
    world.run(3000)
    assert len(a.records) == got
    a.do(ev.Resume(frozenset({tp("t", 0)})))
    world.run(3000)
    assert a.values() == numbers(0, 100)
    offsets = [
        partition.fetch_offset
        for request in world.requests_of(a, FetchRequest)[len(fetched) :]
        for topic in request.topics
        for partition in topic.partitions
    ]
    assert all(offset == 100 for offset in offsets)


@pytest.mark.parametrize(("policy", "wait"), [("kproto", 0), ("java", 300_000)])
def test_only_the_first_fetch_of_a_broker_does_not_wait(policy: str, wait: int) -> None:
    world = World({"t": 2})
    a = world.consumer(**SLOW, policy=policy)
    a.assign({tp("t", 0): 0, tp("t", 1): 0})
    world.run(700_000)
    waits = [
        request.max_wait_ms for request in world.requests_of(a, FetchRequest) if request.session_epoch >= 0
    ]
    assert waits[:3] == [wait, 300_000, 300_000]


def test_the_lag_of_partitions_without_new_records_is_known_at_once() -> None:
    world = World({"t": 2})
    a = world.consumer(**SLOW)
    a.assign({tp("t", 0): 0, tp("t", 1): 0})
    assert world.run(
        1000, until=lambda: all(partition.lag == 0 for partition in a.engine.partitions.values())
    )


def filled(world: World, **options: Any) -> Consumer:
    """Return a consumer with full buffers of three partitions. Each batch has ten records."""
    for partition, number in itertools.product(range(3), range(20)):
        world.write("t", partition, *numbers(10 * number, 10 * number + 10))
    # With this limit each fetch returns only one batch.
    a = world.consumer(max_partition_fetch_bytes=200, **options)
    a.limit = 0
    a.assign({tp("t", partition): 0 for partition in range(3)})
    states = a.engine.partitions
    assert world.run(until=lambda: all(state.is_full for state in states.values()))
    return a


def test_the_next_batches_of_several_partitions_are_fetched_in_one_request() -> None:
    world = World({"t": 3})
    a = filled(world)
    before = len(world.requests_of(a, FetchRequest))
    for _ in range(3):
        a.do(ev.Take(10))
        world.run(100)
    [request] = world.requests_of(a, FetchRequest)[before:]
    assert [len(topic.partitions) for topic in request.topics] == [3]


def test_a_partition_without_buffered_records_is_fetched_while_others_are_full() -> None:
    world = World({"t": 3})
    a = filled(world)
    a.do(ev.Seek(tp("t", 1), 50))
    assert world.run(100, until=lambda: bool(a.engine.partitions[tp("t", 1)].fetches))


@pytest.mark.parametrize(("least", "beside"), [(1, set()), (100_000, {2})])
def test_a_drained_partition_is_fetched_beside_an_open_fetch_only_if_the_broker_may_hold_that(
    least: int, beside: set[int]
) -> None:
    world = World({"t": 3})
    a = filled(world, fetch_min_bytes=least)
    before = len(world.requests_of(a, FetchRequest))
    a.do(ev.Seek(tp("t", 1), 50))  # After this seek the consumer fetches partition 1 immediately.
    a.do(ev.Take(40))
    world.run(200)
    requests = world.requests_of(a, FetchRequest)[before:]
    assert {
        len(topic.partitions) for request in requests if request.session_epoch < 0 for topic in request.topics
    } == beside


def test_a_high_watermark_that_the_leader_no_longer_has_delays_no_other_partition() -> None:
    world = World({"t": 2})
    a = world.consumer(**SLOW)
    world.write("t", 0, *numbers(0, 10))
    world.write("t", 1, *numbers(0, 10))
    a.assign({tp("t", 0): 0, tp("t", 1): 0})
    assert world.run(until=lambda: len(a.records) == 20)
    state = a.engine.partitions[tp("t", 0)]
    # Pretend that an earlier leader has reported a larger high watermark.
    state.high_watermark = state.last_stable_offset = 100
    state.mark_dirty()
    world.run(700_000)
    a.do(ev.Seek(tp("t", 1), 0))
    assert world.run(1000, until=lambda: len(a.records) == 30)


def test_a_seek_to_committed_undoes_a_seek_to_latest() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**GROUP)
    a.limit = 4
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 4)
    a.pause_polling()
    a.do(ev.Commit("c", None, 1000))
    world.run(100)
    assert a.done["c"] == (None, None)
    a.do(ev.SeekTo(frozenset(), "latest"))
    world.run(100)
    assert a.engine.partitions[tp("t", 0)].position == 10
    a.do(ev.SeekTo(frozenset(), "committed"))
    world.run(100)
    assert a.engine.partitions[tp("t", 0)].position == 4


# ---- commits


def committed(world: World, group: str = "g") -> dict[Any, int]:
    """Return the committed offsets of the group, as fetched by a client that is not a member."""
    probe = world.consumer(group_id=group)
    partitions = [
        tp(topic.name, index) for topic in world.broker.topics for index in range(len(topic.partitions))
    ]
    core = probe.engine.core
    probe.do(ev.Run("x", offset_plans.committed_offsets(core.view, group, partitions, core.clock), 5000))
    world.run(500)
    probe.alive = False
    value, error = probe.done["x"]
    assert error is None
    return {
        partition: committed_offset.offset
        for partition, committed_offset in value.items()
        if committed_offset is not None
    }


@pytest.mark.rule("I14", "M122")
def test_auto_commit_commits_what_earlier_polls_returned() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 30))
    a = world.consumer(**GROUP, auto_commit_interval_ms=100)
    a.limit = 10
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 20)
    a.pause_polling()  # The second ten records are still being processed, because no poll has followed.
    world.run(500)
    assert committed(world) == {tp("t", 0): 10}


def test_auto_commit_sends_nothing_without_new_records() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP, auto_commit_interval_ms=100)
    a.subscribe("t")
    world.run(2000)
    before = len(world.requests_of(a, OffsetCommitRequest))
    world.run(5000)
    assert len(world.requests_of(a, OffsetCommitRequest)) == before


@pytest.mark.thorough
@pytest.mark.parametrize("automatic", [True, False])
def test_the_commit_of_a_reader_without_a_group_does_not_expire_while_it_reads(automatic: bool) -> None:
    world = World({"t": 1}, settings={"offsets.retention.minutes": 65})
    world.write("t", 0, "x")
    options = {**GROUP, "enable_auto_commit": automatic, "auto_commit_interval_ms": 60_000}
    a = world.consumer(**options, fetch_max_wait_ms=29_000)
    a.assign({tp("t", 0): None})
    assert world.run(until=lambda: len(a.records) == 1)
    for _ in range(14):
        if not automatic:
            a.commit()
        world.run(600_000)
    assert len(world.requests_of(a, OffsetCommitRequest)) < 8
    assert committed(world) == {tp("t", 0): 1}


def test_close_commits_and_leaves_at_once() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 30))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 30)
    at = world.now
    a.close()
    assert world.run(until=lambda: not a.alive)
    assert world.now - at < 50
    assert committed(world) == {tp("t", 0): 30}
    assert len(world.requests_of(a, LeaveGroupRequest)) == 1


def test_close_without_leaving_keeps_the_membership() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)
    a.close(leave=False)
    assert world.run(until=lambda: not a.alive)
    assert world.requests_of(a, LeaveGroupRequest) == []


@pytest.mark.parametrize("moment", [0, 1, 2, 3, 5, 8, 12, 20, 50, 300])
def test_close_ends_in_time_at_every_moment_of_the_start(moment: int) -> None:
    """`close` ends within its timeout if the broker stops responding at any moment of the startup (I16)."""
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(moment)
    world.down = True
    world.tamper = lambda client, request, version: HeartbeatResponse(throttle_time_ms=0, error_code=0)
    world.cut(a)
    a.close(timeout_ms=2000)
    at = world.now
    assert world.run(10_000, until=lambda: not a.alive)
    assert world.now - at <= 2001


@pytest.mark.rule("M95")
def test_a_commit_of_retained_partitions_during_a_rebalance_waits_and_succeeds() -> None:
    world = World({"t": 4})
    for partition in range(4):
        world.write("t", partition, *numbers(0, 10))
    a, b = world.consumer(**GROUP), world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)
    b.subscribe("t")
    world.run(6)
    tokens: list[int] = []
    for at in range(60):
        if a.engine.partitions:
            retained = min(a.engine.partitions)
            a.do(ev.Commit(at, {retained: (at % 10, None, "")}, 5000))
            tokens.append(at)
        world.run(5)
    world.run(6000)
    assert settled(world, a, b)
    assert len(tokens) > 50
    assert {a.done[token][1] for token in tokens} == {None}
    assert a.changes_of("lost") == []


def refusal(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def test_a_commit_that_a_join_overtakes_is_sent_again_and_loses_nothing() -> None:
    """A commit fails and is sent again if the coordinator receives a later JoinGroup first.

    OffsetCommit and JoinGroup use different connections, so the coordinator may begin a new generation before
    it reads the commit.
    """
    world = World({"t": 2})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)
    codes = [22]
    world.tamper = lambda client, request, version: (
        refusal(request, codes.pop()) if isinstance(request, OffsetCommitRequest) and codes else None
    )
    a.do(ev.Commit("c", {tp("t", 0): (1, None, "")}, 5000))
    a.do(ev.Rejoin("the application asked for it"))
    world.run(3000)
    assert a.done["c"] == (None, None)
    assert a.changes_of("lost") == []
    assert len(a.owns()) == 2


def test_a_commit_tells_a_member_that_the_group_has_removed_it() -> None:
    """The member's commit fails with ILLEGAL_GENERATION, because the group has continued without the member.

    A member that the group has removed stops returning records, and rejoins immediately (I3).
    """
    world = World({"t": 2})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)
    codes = [22]
    world.tamper = lambda client, request, version: (
        refusal(request, codes.pop()) if isinstance(request, OffsetCommitRequest) and codes else None
    )
    a.do(ev.Commit("c", {tp("t", 0): (1, None, "")}, 5000))
    world.run(3000)
    assert isinstance(a.done["c"][1], CommitFailed)
    assert len(a.changes_of("lost")) == 1
    assert len(a.owns()) == 2


def test_a_commit_of_a_revoked_partition_fails() -> None:
    world = World({"t": 2})
    a, b = world.consumer(**GROUP), world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)
    b.subscribe("t")
    assert world.run(until=lambda: settled(world, a, b))
    [revoked] = b.owns()
    a.do(ev.Commit("c", {revoked: (1, None, "")}, 1000))
    world.run(2000)
    assert isinstance(a.done["c"][1], CommitFailed)


@pytest.mark.rule("M129")
def test_a_commit_without_a_coordinator_fails_after_its_timeout() -> None:
    world = World({"t": 1})
    a = world.consumer(group_id="g")
    a.assign({tp("t", 0): 0})
    world.run(500)
    world.down = True
    world.cut(a)
    at = world.now
    a.do(ev.Commit("c", {tp("t", 0): (1, None, "")}, 700))
    assert world.run(5000, until=lambda: "c" in a.done)
    assert isinstance(a.done["c"][1], RequestTimedOut)
    assert world.now - at <= 701


@pytest.mark.rule("I9")
def test_a_failed_commit_on_revoke_does_not_stop_the_rebalance() -> None:
    """A commit that fails on revocation does not stop the rebalance: the member joins (I9)."""
    world = World({"t": 2})
    world.write("t", 0, "x")
    world.write("t", 1, "x")
    a, b = world.consumer(**GROUP), world.consumer(**GROUP)
    a.subscribe("t")
    world.run(1000)
    world.write("t", 0, "y")
    world.write("t", 1, "y")
    world.run(100)
    world.tamper = lambda client, request, version: (
        OffsetCommitResponse(
            throttle_time_ms=0,
            topics=[
                OffsetCommitResponseTopic(
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=28)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )
        if isinstance(request, OffsetCommitRequest) and client is a
        else None
    )
    b.subscribe("t")
    assert world.run(5000, until=lambda: settled(world, a, b))


# ---- manual assignments, and misuse


def test_a_consumer_without_a_group_never_looks_up_a_coordinator() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(auto_offset_reset="earliest")
    a.assign({tp("t", 0): None})
    world.run(2000)
    assert a.values() == ["x"]
    assert world.requests_of(a, FindCoordinatorRequest) == []


def test_a_corrupt_batch_is_raised_at_each_poll_until_a_seek_passes_it() -> None:
    world = World({"t": 1})
    world.write("t", 0, "good 0", "good 1")
    world.write("t", 0, "bad")
    world.write("t", 0, "good 3")
    world.corrupt_batch("t", 0, batch=1)
    a = world.consumer()
    a.assign({tp("t", 0): 0})
    world.run(1000)
    assert a.values() == ["good 0", "good 1"]
    assert len(a.errors) > 2
    assert isinstance(a.errors[0], RecordError)
    a.do(ev.Seek(tp("t", 0), 3))
    world.run(1000)
    assert a.values()[2:] == ["good 3"]


def test_a_missing_topic_is_reported_once_and_read_when_it_exists() -> None:
    world = World({})
    a = world.consumer(**GROUP)
    a.subscribe("later")
    world.run(5000)
    assert len(a.changes_of("missing")) == 1
    world.create("later", 1)
    world.write("later", 0, "x")
    assert world.run(10_000, until=lambda: a.values() == ["x"])


def test_a_new_leader_epoch_loses_no_record() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    for at in range(50):
        world.write("t", 0, str(at))
        if at % 10 == 5:
            world.elect("t", 0)
        world.run(50)
    world.run(3000)
    assert a.values() == numbers(0, 50)


def test_a_fenced_member_raises_at_every_poll_and_can_be_closed() -> None:
    world = World({"t": 2})
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(**GROUP, group_instance_id="one")
    a.subscribe("t")
    assert world.run(until=lambda: settled(world, a))
    b = world.consumer(**GROUP, group_instance_id="one")
    b.subscribe("t")
    assert world.run(until=lambda: bool(a.errors))
    world.run(1000)
    assert len(a.errors) > 2
    assert all(isinstance(error, Fenced) for error in a.errors)
    assert not a.owns()
    a.close()
    assert world.run(1000, until=lambda: not a.alive)
    assert settled(world, b)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda a: a.do(ev.PollBegan()),
        lambda a: a.do(ev.Seek(tp("t", 0), 1)),
        lambda a: a.do(ev.Rejoin("x")),
        lambda a: a.do(ev.Pause(frozenset({tp("t", 0)}))),
        lambda a: (a.do(ev.Subscribe(frozenset({"t"}))), a.do(ev.Assign({tp("t", 0): None}))),
        lambda a: (a.do(ev.Assign({tp("t", 0): None})), a.do(ev.Subscribe(frozenset({"t"})))),
    ],
)
def test_calls_in_the_wrong_state_are_rejected(misuse: Any) -> None:
    world = World({"t": 1})
    with pytest.raises(IllegalState):
        misuse(world.consumer(group_id="g"))


@pytest.mark.rule("M133")
def test_a_commit_without_a_group_is_rejected() -> None:
    world = World({"t": 1})
    a = world.consumer()
    a.do(ev.Assign({tp("t", 0): None}))
    with pytest.raises(IllegalState, match="no group_id"):
        a.do(ev.Commit("mine", {tp("t", 0): (1, None, "")}, 1000))


@pytest.mark.rule("M133")
def test_a_subscription_without_a_group_is_rejected() -> None:
    world = World({"t": 1})
    with pytest.raises(IllegalState, match="no group_id"):
        world.consumer().do(ev.Subscribe(frozenset({"t"})))


@pytest.mark.parametrize("assignor", ["range", "sticky"])
def test_a_static_leader_that_returns_assigns_partitions_added_meanwhile(assignor: str) -> None:
    """When a static leader returns, it assigns the partitions that were added in the meantime.

    Regression (chaos seed 198): while the leader was absent, the group kept the leader's last assignment.
    When the leader returned, it wrongly took its current metadata as the basis of this assignment, and so
    did not notice the added partition.
    """
    world = World({"t": 1})
    mine = {"max_poll_interval_ms": 2000, "partition_assignment_strategy": assignor}
    a = world.consumer(**{**GROUP, **mine}, group_instance_id="i")
    a.subscribe("t")
    assert world.run(until=lambda: bool(a.owned))
    a.pause_polling()
    world.run(500)
    world.grow("t", 2)
    world.run(1_900)
    a.resume_polling()
    assert world.run(10_000, until=lambda: a.owned == {tp("t", 0), tp("t", 1)})


def test_a_member_that_unsubscribes_before_the_coordinator_is_found_can_subscribe_again() -> None:
    """A member that unsubscribes before the coordinator is found can subscribe again.

    Regression (chaos seed 37): the client dropped FindCoordinator's response, which it did not need at that
    moment, and never sent the request again.
    """
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    a.unsubscribe()
    world.run(2_000)
    a.subscribe("t")
    assert world.run(5_000, until=lambda: a.owned == {tp("t", 0)})
