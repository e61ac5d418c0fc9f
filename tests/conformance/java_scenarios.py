"""Scenarios that only two consumers run, Java's and kproto's (policy="java"): seek, pause, commit and assign.

With `manual_poll` a member polls only on the command `poll-once MS`, so that every run is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kproto.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.conformance.client_scenarios import DrivenMember, Scenario, Stage

# Long timeouts, so that none expires before the scenario has ended on a slow computer.
LONG = {"session_ms": 30_000, "max_poll_ms": 120_000}
BY_HAND = {"manual_poll": True, "auto_commit": False, **LONG}


def by_hand(stage: Stage, name: str = "A", *, count: int = 20, **conf: object) -> DrivenMember:
    """Start a member that owns all partitions and has read no record."""
    if count:
        stage.produce(count)
    a = stage.member(name, **{**BY_HAND, **conf})
    a.send(f"subscribe {stage.topic}")
    poll_until(a, "assigned")
    return a


def poll_until(
    a: DrivenMember, start: str, *, new_only: bool = False, times: int = 1, tries: int = 200
) -> None:
    """Poll until the member has printed `times` lines that begin with `start`.

    With `new_only`, ignore the lines that the member printed before this call.
    """
    before = len(a.lines) if new_only else 0
    for _ in range(tries):
        a.send("poll-once 50")
        a.until("done poll-once")
        if sum(line.startswith(start) for line in a.lines[before:]) >= times:
            return
    raise AssertionError(f"{a.name} did not print {start!r} in any poll; its last lines: {a.lines[-12:]}")


def ask(a: DrivenMember, *commands: str) -> None:
    for command in commands:
        a.send(command)
        a.until(f"done {command}")


def seek_after_assignment(stage: Stage) -> None:
    a = by_hand(stage)
    t = stage.topic
    poll_until(a, f"R {t}:0 9")
    poll_until(a, f"R {t}:1 9")
    ask(a, f"seek {t}:0:5", f"position {t}:0", f"seek {t}:0:7", f"position {t}:0")
    ask(a, f"seek-to-end {t}:1", f"position {t}:1", f"seek-to-beginning {t}:1", f"position {t}:1")
    ask(a, f"position {t}:5", "commit", f"committed {t}:0 {t}:1")
    a.close()


def seek_before_assignment(stage: Stage) -> None:
    a = stage.member("A", **BY_HAND)
    ask(a, f"seek {stage.topic}:0:5", f"position {stage.topic}:0")
    a.close()


def seek_back_and_commit(stage: Stage) -> None:
    """After a seek back, a commit sends the new position, even if a higher offset was committed before."""
    a = by_hand(stage)
    t = stage.topic
    poll_until(a, f"R {t}:0 9")
    poll_until(a, f"R {t}:1 9")
    ask(a, "commit", f"seek {t}:0:3", f"seek {t}:1:3", "commit", f"committed {t}:0 {t}:1")
    a.close()


def pause_over_an_eager_rebalance(stage: Stage) -> None:
    a = stage.start_subscribed("A")
    ask(a, "pause", "paused")
    b = stage.start_subscribed("B")
    a.until("assigned")
    ask(a, "paused")
    stage.pause(0.3)
    b.close()
    a.until("assigned")
    a.close()


def pause_over_a_cooperative_rebalance(stage: Stage) -> None:
    a = stage.start_subscribed("A", assignors=["cooperative-sticky"])
    ask(a, "pause")
    b = stage.member("B", assignors=["cooperative-sticky"])
    b.send(f"subscribe {stage.topic}")
    b.until("assigned " + stage.topic)
    stage.pause(0.5)
    ask(a, "paused")
    b.close()
    a.until("assigned " + stage.topic)
    a.close()


def commits_in_order(stage: Stage) -> None:
    a = by_hand(stage)
    t = stage.topic
    poll_until(a, f"R {t}:0 9")
    poll_until(a, f"R {t}:1 9")
    for offset in (1, 3, 2):
        ask(a, f"commit-at {t}:0:{offset}")
    ask(a, f"seek {t}:0:6", f"seek {t}:1:6", "commit-async")
    ask(a, f"seek {t}:0:8", f"seek {t}:1:8", "commit", f"committed {t}:0 {t}:1")
    a.close()


def close_with_a_pending_commit(stage: Stage) -> None:
    a = by_hand(stage)
    ask(a, f"seek {stage.topic}:0:6", f"seek {stage.topic}:1:6", "commit-async")
    a.close()
    b = by_hand(stage, "B", count=0)
    ask(b, f"committed {stage.topic}:0 {stage.topic}:1")
    b.close()


def exceeds_max_poll_interval(stage: Stage) -> None:
    """A member that exceeds max.poll.interval.ms loses its partitions.

    In its next poll the member reports the loss and rejoins the group.
    """
    a = by_hand(stage, max_poll_ms=8_000)
    ask(a, "sleep 10000")
    poll_until(a, "assigned", times=2)
    a.close()


def a_static_member_closes_without_leaving(stage: Stage) -> None:
    a = stage.start_subscribed("A", instance="one", session_ms=20_000)
    a.send("close stay")
    a.until("closed")
    b = stage.start_subscribed("A", instance="one", session_ms=20_000)
    b.close()


def a_member_closes_without_leaving(stage: Stage) -> None:
    """A member closes without leaving the group.

    The next member receives the partitions when the session of the closed member expires.
    """
    a = stage.start_subscribed("A", auto_commit=False)
    a.send("close stay")
    a.until("closed")
    b = stage.start_subscribed("B", auto_commit=False)
    stage.wait_for_request("B", "ListOffsets")
    b.close()


def assign_by_hand(stage: Stage) -> None:
    stage.produce(20)
    t = stage.topic
    a = stage.member("A", **BY_HAND)
    ask(a, f"assign {t}:0:4", f"position {t}:0")
    poll_until(a, f"R {t}:0 9")
    ask(a, f"position {t}:0", "commit", f"committed {t}:0 {t}:1", f"position {t}:1")
    ask(a, f"assign {t}:1", f"position {t}:1", f"position {t}:0")
    poll_until(a, f"R {t}:1 9")
    ask(a, "commit", "unsubscribe", f"assign {t}:0", f"position {t}:0")
    a.close()


def commits_by_hand_and_by_time(stage: Stage) -> None:
    stage.produce(20)
    a = stage.member("A")
    ask(a, f"assign {stage.topic}:0 {stage.topic}:1")
    a.until("R ", 20)
    stage.pause(1.0)
    ask(a, f"committed {stage.topic}:0 {stage.topic}:1")
    a.close()


def a_pattern(stage: Stage) -> None:
    stage.produce(4)
    a = stage.member("A")
    a.send(f"pattern {stage.topic}.*")
    a.until(f"assigned {stage.topic}:0 {stage.topic}:1")
    stage.cluster.create_topics({f"{stage.topic}.more": 1})
    a.until(f"assigned {stage.topic}.more:0 {stage.topic}:0")
    stage.pause(0.5)
    a.close()


def another_subscription(stage: Stage) -> None:
    stage.produce(4)
    more = f"{stage.topic}.more"
    stage.cluster.create_topics({more: 1})
    a = stage.start_subscribed("A")
    # All records are read before the second `subscribe`. This call causes a rebalance, and the offsets that
    # the member commits before the rebalance would otherwise depend on timing.
    a.until("R ", 4)
    ask(a, f"subscribe {stage.topic} {more}")
    a.until(f"assigned {more}:0")
    ask(a, f"subscribe {more}")
    a.until(f"assigned {more}:0")
    stage.pause(0.5)
    a.close()


def offsets_and_times(stage: Stage) -> None:
    stage.produce(20)
    t = stage.topic
    a = stage.member("A", isolation="read_committed", **BY_HAND)
    ask(a, f"begins {t}:0 {t}:1", f"ends {t}:0 {t}:1", f"times {t}:0:0 {t}:1:99999999999999")
    ask(a, f"committed {t}:0 {t}:1", f"commit-at {t}:0:7", f"committed {t}:0 {t}:1")
    a.close()


def unsubscribe_by_hand(stage: Stage) -> None:
    a = by_hand(stage)
    ask(a, "unsubscribe", "poll-once 50", f"position {stage.topic}:0", "commit", f"subscribe {stage.topic}")
    poll_until(a, "assigned", new_only=True)
    a.close()


def a_subscribed_topic_is_deleted(stage: Stage) -> None:
    stage.produce(4)
    more = f"{stage.topic}.more"
    stage.cluster.create_topics({more: 1})
    # Automatic commits are off, because the response to a commit that arrives while the broker deletes the
    # topic would vary between runs.
    a = stage.member("A", auto_commit=False)
    ask(a, f"subscribe {stage.topic} {more}")
    a.until("assigned")
    stage.pause(0.5)
    stage.cluster.delete_topics([more])
    a.until(f"assigned {stage.topic}:0 {stage.topic}:1")
    stage.pause(0.5)
    a.close()


def no_offset_to_start_at(stage: Stage) -> None:
    a = stage.member("A", **{**BY_HAND, "reset": "none"})
    ask(
        a,
        f"subscribe {stage.topic}",
        # One long poll fails exactly once. The number of failing short polls would depend on their timeout.
        "poll-once 9000",
        f"position {stage.topic}:0",
        f"seek {stage.topic}:0:2",
        f"position {stage.topic}:0",
    )
    a.close()


def out_of_range(stage: Stage, reset: str) -> DrivenMember:
    stage.produce(20)
    t = stage.topic
    topics = [
        DeleteRecordsTopic(
            name=t, partitions=[DeleteRecordsPartition(partition_index=n, offset=4) for n in range(2)]
        )
    ]
    stage.cluster.request(DeleteRecordsRequest(topics=topics, timeout_ms=5_000), ("leader", t, 0))
    a = stage.member("A", reset=reset, **BY_HAND)
    ask(a, f"assign {t}:0:1")
    return a


def out_of_range_earliest(stage: Stage) -> None:
    a = out_of_range(stage, "earliest")
    poll_until(a, f"R {stage.topic}:0 9")
    ask(a, f"position {stage.topic}:0", f"seek {stage.topic}:0:500")
    poll_until(a, f"R {stage.topic}:0 9", new_only=True)
    a.close()


def out_of_range_latest(stage: Stage) -> None:
    a = out_of_range(stage, "latest")
    for _ in range(6):
        ask(a, "poll-once 100")
    ask(a, f"position {stage.topic}:0")
    a.close()


def out_of_range_none(stage: Stage) -> None:
    a = out_of_range(stage, "none")
    poll_until(a, "answer poll-once OffsetOutOfRangeException")
    ask(a, f"seek {stage.topic}:0:6", f"position {stage.topic}:0")
    poll_until(a, f"R {stage.topic}:0 9")
    a.close()


def enforced_rebalance(stage: Stage) -> None:
    a = stage.start_subscribed("A")
    ask(a, "rebalance because of me")
    a.until("assigned")
    stage.pause(0.3)
    a.close()


def a_commit_for_a_partition_of_another_member(stage: Stage) -> None:
    stage.produce(20)
    a = stage.start_subscribed("A", auto_commit=False)
    b = stage.start_subscribed("B", auto_commit=False)
    a.until("assigned")
    stage.pause(0.3)
    ask(a, f"commit-at {stage.topic}:1:3", f"committed {stage.topic}:1")
    b.close()
    a.until("assigned")
    a.close()


def commits_of_callbacks(stage: Stage, assignors: str) -> None:
    stage.produce(20)
    conf = {"auto_commit": False, "commit_in_revoke": True, "assignors": [assignors]}
    a = stage.start_subscribed("A", **conf)
    a.until_read(20)
    b = stage.member("B", **conf)
    b.send(f"subscribe {stage.topic}")
    b.until(f"assigned {stage.topic}")
    stage.pause(0.6)
    b.close()
    a.until(f"assigned {stage.topic}")
    stage.pause(0.3)
    a.close()


def commits_of_eager_callbacks(stage: Stage) -> None:
    commits_of_callbacks(stage, "range")


def commits_of_cooperative_callbacks(stage: Stage) -> None:
    commits_of_callbacks(stage, "cooperative-sticky")


def close_in_a_rebalance(stage: Stage) -> None:
    """A member stops polling. Another member joins, and then the first one closes."""
    stage.produce(10)
    conf = {**LONG, "auto_commit": False}
    a = stage.start_subscribed("A", **conf)
    a.until_read(10)
    ask(a, "poll off")
    b = stage.member("B", **conf)
    b.send(f"subscribe {stage.topic}")
    stage.wait_for_request("B", "JoinGroup")
    stage.pause(1.0)
    a.close()
    b.until("assigned")
    b.close()


def another_assignment_by_hand(stage: Stage) -> None:
    """assign() removes partitions before the automatic commit interval has passed. Their offsets are not
    committed.
    """
    stage.produce(20)
    t = stage.topic
    a = stage.member("A", manual_poll=True, auto_commit_ms=60_000, **LONG)
    ask(a, f"assign {t}:0")
    poll_until(a, f"R {t}:0 9")
    ask(a, f"assign {t}:0 {t}:1")
    poll_until(a, f"R {t}:1 9")
    ask(a, f"position {t}:0", "assign")
    a.close()


def a_partition_created_after_assign(stage: Stage) -> None:
    """Assign a partition before it is created. The consumer reads the partition once it exists."""
    t = stage.topic
    a = stage.member("A", **BY_HAND)
    ask(a, f"assign {t}:3", "poll-once 300")
    stage.grow(4)
    for _ in range(4):
        stage.producer.send(t, b"x", partition=3)
    stage.producer.flush()
    poll_until(a, f"R {t}:3 3")
    ask(a, "commit")
    a.close()


def topics_or_a_pattern(stage: Stage) -> None:
    """A pattern cannot replace a list of topics, and a list cannot replace a pattern."""
    a = stage.start_subscribed("A", auto_commit=False)
    a.send(f"pattern {stage.topic}.*")
    a.until("error")
    ask(a, "unsubscribe")
    a.send(f"pattern {stage.topic}.*")
    a.until("assigned")
    a.send(f"subscribe {stage.topic}")
    a.until("error")
    stage.pause(0.3)
    a.close()


def subscribe_after_assign(stage: Stage) -> None:
    stage.produce(6)
    t = stage.topic
    a = stage.member("A", **BY_HAND)
    ask(a, f"assign {t}:0")
    poll_until(a, f"R {t}:0 2")
    ask(a, "commit", "unsubscribe", f"subscribe {t}")
    poll_until(a, "assigned")
    ask(a, "unsubscribe", f"assign {t}:1", "poll-once 200", "commit")
    a.close()


JAVA_SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.__name__.replace("_", "-"): scenario
    for scenario in (
        seek_after_assignment,
        seek_before_assignment,
        seek_back_and_commit,
        pause_over_an_eager_rebalance,
        pause_over_a_cooperative_rebalance,
        commits_in_order,
        close_with_a_pending_commit,
        exceeds_max_poll_interval,
        a_static_member_closes_without_leaving,
        a_member_closes_without_leaving,
        assign_by_hand,
        commits_by_hand_and_by_time,
        a_pattern,
        another_subscription,
        offsets_and_times,
        unsubscribe_by_hand,
        a_subscribed_topic_is_deleted,
        no_offset_to_start_at,
        out_of_range_earliest,
        out_of_range_latest,
        out_of_range_none,
        enforced_rebalance,
        a_commit_for_a_partition_of_another_member,
        commits_of_eager_callbacks,
        commits_of_cooperative_callbacks,
        close_in_a_rebalance,
        another_assignment_by_hand,
        a_partition_created_after_assign,
        topics_or_a_pattern,
        subscribe_after_assign,
    )
}
