"""Plays in which the broker refuses, for Java's consumer and ours as it: what each sends next, and raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.conformance.client_scenarios import Play, Stage
from tests.conformance.java_scenarios import BY_HAND, ask, by_hand, polled


def refused_commits(stage: Stage, *codes: int) -> None:
    """Each code twice: for a commit that is waited for, and for one that isn't, which is not sent again."""
    a = by_hand(stage)
    polled(a, f"R {stage.topic}:0 9")  # else it depends on the moment what is looked up before the seeks
    polled(a, f"R {stage.topic}:1 9")
    ask(a, "pause", f"seek {stage.topic}:0:3", f"seek {stage.topic}:1:3")
    for number, code in enumerate(codes, 1):
        stage.inject("A", "OffsetCommit", code)
        ask(a, "commit")
        stage.inject("A", "OffsetCommit", code)
        ask(a, "commit-async")
        polled(a, "commit ", times=2 * number)
    ask(a, "commit")
    a.close()


def commits_whose_coordinator_moves(stage: Stage) -> None:
    refused_commits(stage, 15, 16)


def commits_that_may_pass_later(stage: Stage) -> None:
    refused_commits(stage, 3, 7, 14)


def commits_that_are_refused_for_good(stage: Stage) -> None:
    refused_commits(stage, 28, 29, 30)


def a_commit_for_no_partition_of_the_topic(stage: Stage) -> None:
    """It may be there soon."""
    a = by_hand(stage)
    ask(a, f"commit-at {stage.topic}:9:5")
    a.close()


def a_join_that_is_refused(stage: Stage) -> None:
    """Each refusal is raised by one poll, and the next one joins again."""
    stage.inject("A", "JoinGroup", 23, 24, 30, 81)
    a = stage.member("A", **BY_HAND)
    ask(a, f"subscribe {stage.topic}")
    polled(a, "assigned")
    a.close()


def a_fenced_commit(stage: Stage) -> None:
    """It is raised, and the member stays."""
    a = by_hand(stage, instance="one")
    polled(a, f"R {stage.topic}:0 9")
    polled(a, f"R {stage.topic}:1 9")
    stage.inject("A", "OffsetCommit", 82)
    ask(a, "commit", *4 * ["poll-once 200"], "commit", "assignment")
    a.close()


def offsets_that_may_not_be_read(stage: Stage) -> None:
    """One exception for all partitions of the answer."""
    stage.produce(4)
    t = stage.topic
    stage.inject("A", "ListOffsets", 29)
    a = stage.member("A", **BY_HAND)
    ask(a, f"assign {t}:0 {t}:1")
    polled(a, "answer poll-once TopicAuthorizationException")
    polled(a, f"R {t}:0 1")
    polled(a, f"R {t}:1 1")
    a.close()


def a_coordinator_that_moves_at_each_step(stage: Stage) -> None:
    stage.inject("A", "FindCoordinator", 15)
    for api in ("SyncGroup", "OffsetFetch"):
        stage.inject("A", api, 16)
    a = by_hand(stage, heartbeat_ms=200)
    polled(a, f"R {stage.topic}:0 9")
    stage.inject("A", "Heartbeat", 16)
    ask(a, *6 * ["poll-once 100"])
    stage.inject("A", "OffsetFetch", 14)
    ask(a, f"committed {stage.topic}:0", "commit")
    stage.inject("A", "LeaveGroup", 16)
    a.close()


PLAYS_OF_REFUSALS: Final[Mapping[str, Play]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        commits_whose_coordinator_moves,
        commits_that_may_pass_later,
        commits_that_are_refused_for_good,
        a_commit_for_no_partition_of_the_topic,
        a_join_that_is_refused,
        a_fenced_commit,
        offsets_that_may_not_be_read,
        a_coordinator_that_moves_at_each_step,
    )
}
