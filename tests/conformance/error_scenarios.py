"""Error scenarios for Java's consumer and kproto's: the requests after each error, and the exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kproto.error_codes import ErrorCode
from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.sync_group import SyncGroupResponse
from tests.conformance.client_scenarios import DrivenMember, Scenario, Stage
from tests.conformance.java_scenarios import BY_HAND, ask, by_hand, poll_until


def commits_with_errors(stage: Stage, *codes: int) -> None:
    """Answer one commitSync and one commitAsync with each error code. commitAsync does not retry."""
    a = by_hand(stage)
    # All records are read before the seeks, because the number of offset lookups before a seek depends on
    # timing.
    poll_until(a, f"R {stage.topic}:0 9")
    poll_until(a, f"R {stage.topic}:1 9")
    ask(a, "pause", f"seek {stage.topic}:0:3", f"seek {stage.topic}:1:3")
    for number, code in enumerate(codes, 1):
        stage.inject("A", "OffsetCommit", code)
        ask(a, "commit")
        stage.inject("A", "OffsetCommit", code)
        ask(a, "commit-async")
        poll_until(a, "commit ", times=2 * number)
    ask(a, "commit")
    a.close()


def commits_when_the_coordinator_moves(stage: Stage) -> None:
    commits_with_errors(stage, 15, 16)


def commits_with_retriable_errors(stage: Stage) -> None:
    commits_with_errors(stage, 3, 7, 14)


def commits_with_fatal_errors(stage: Stage) -> None:
    commits_with_errors(stage, 28, 29, 30)


def a_commit_for_a_missing_partition(stage: Stage) -> None:
    """A commit to a partition that does not exist is retried, because the partition may be created soon."""
    a = by_hand(stage)
    ask(a, f"commit-at {stage.topic}:9:5")
    a.close()


def join_errors_are_raised(stage: Stage) -> None:
    """One poll raises the error of a JoinGroup response, and the next poll joins again.

    The scenario injects each error code into one JoinGroup response.
    """
    stage.inject("A", "JoinGroup", 23, 24, 30, 81)
    a = stage.member("A", **BY_HAND)
    ask(a, f"subscribe {stage.topic}")
    poll_until(a, "assigned")
    a.close()


def a_fenced_commit(stage: Stage) -> None:
    """A commit that fails with FENCED_INSTANCE_ID raises the error, and the member stays in the group."""
    a = by_hand(stage, instance="one")
    poll_until(a, f"R {stage.topic}:0 9")
    poll_until(a, f"R {stage.topic}:1 9")
    stage.inject("A", "OffsetCommit", 82)
    ask(a, "commit", *4 * ["poll-once 200"], "commit", "assignment")
    a.close()


def commits_after_a_lost_membership(stage: Stage, code: int, **conf: Any) -> None:
    """After a fatal heartbeat error, commits fail until the member rejoins in a later poll."""
    a = by_hand(stage, heartbeat_ms=200, **conf)
    poll_until(a, f"R {stage.topic}:0 9")
    poll_until(a, f"R {stage.topic}:1 9")
    stage.inject("A", "Heartbeat", code)
    ask(a, "sleep 1000", "commit", f"commit-at {stage.topic}:0:5")
    if code != ErrorCode.FENCED_INSTANCE_ID:
        ask(a, "commit-async")
        poll_until(a, "assigned", new_only=True)
        ask(a, f"commit-at {stage.topic}:0:5")
    # A fenced member does not poll again, because kproto and Java then differ: kproto calls the rebalance
    # callback before poll raises the error, and Java calls it in the poll after the error.
    a.close()


def commits_after_a_heartbeat_of_another_generation(stage: Stage) -> None:
    commits_after_a_lost_membership(stage, 22)


def commits_after_a_heartbeat_of_an_unknown_member(stage: Stage) -> None:
    commits_after_a_lost_membership(stage, 25, max_poll_ms=6_000)


def commits_after_a_fenced_heartbeat(stage: Stage) -> None:
    commits_after_a_lost_membership(stage, 82, instance="one")


def commits_that_end_the_membership(stage: Stage) -> None:
    """A commit fails with ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID. The next commit sends no request."""
    a = by_hand(stage, max_poll_ms=6_000)
    poll_until(a, f"R {stage.topic}:0 9")
    poll_until(a, f"R {stage.topic}:1 9")
    for code in (22, 25):
        stage.inject("A", "OffsetCommit", code)
        ask(a, "commit", f"commit-at {stage.topic}:0:5")
        poll_until(a, "assigned", new_only=True)
        ask(a, f"commit-at {stage.topic}:0:5")
    a.close()


def wrong_assignment(stage: Stage, data: bytes) -> DrivenMember:
    """Start a member whose first SyncGroup is answered with this assignment."""
    answer = SyncGroupResponse(error_code=0, protocol_type="consumer", protocol_name="range", assignment=data)
    stage.proxy.refuse(stage.name("A"), "SyncGroup", answer)
    a = stage.member("A", **{**BY_HAND, "heartbeat_ms": 200, "max_poll_ms": 6_000})
    ask(a, f"subscribe {stage.topic}")
    return a


def an_assignment_of_another_topic(stage: Stage) -> None:
    wrong = Assignment(partitions=(TopicPartition(stage.topic, 0), TopicPartition("other", 0)))
    a = wrong_assignment(stage, wrong.encode())
    poll_until(a, "assigned")
    a.close()


def unreadable_assignment(stage: Stage, data: bytes, error: str) -> None:
    """Each poll raises `error` for an invalid assignment, until a heartbeat error makes the member rejoin."""
    a = wrong_assignment(stage, data)
    poll_until(a, f"answer poll-once {error}")
    ask(a, *4 * ["poll-once 200"])
    stage.inject("A", "Heartbeat", 25)
    # A poll that raises an error does not wait, so the member sends its heartbeats during the sleep.
    ask(a, "sleep 1000")
    poll_until(a, "assigned", tries=400)
    a.close()


def an_assignment_that_is_missing(stage: Stage) -> None:
    unreadable_assignment(stage, b"", "IllegalStateException")


def an_assignment_that_is_cut(stage: Stage) -> None:
    unreadable_assignment(stage, b"\0\1\0", "SchemaException")


def unauthorized_offset_lookups(stage: Stage) -> None:
    """An offset lookup whose partitions all fail raises one exception for all of them."""
    stage.produce(4)
    t = stage.topic
    stage.inject("A", "ListOffsets", 29)
    a = stage.member("A", **BY_HAND)
    ask(a, f"assign {t}:0 {t}:1")
    poll_until(a, "answer poll-once TopicAuthorizationException")
    poll_until(a, f"R {t}:0 1")
    poll_until(a, f"R {t}:1 1")
    a.close()


def a_coordinator_that_moves_at_each_step(stage: Stage) -> None:
    stage.inject("A", "FindCoordinator", 15)
    for api in ("SyncGroup", "OffsetFetch"):
        stage.inject("A", api, 16)
    a = by_hand(stage, heartbeat_ms=200)
    poll_until(a, f"R {stage.topic}:0 9")
    stage.inject("A", "Heartbeat", 16)
    ask(a, *6 * ["poll-once 100"])
    stage.inject("A", "OffsetFetch", 14)
    ask(a, f"committed {stage.topic}:0", "commit")
    stage.inject("A", "LeaveGroup", 16)
    a.close()


def unexpected_errors_of_a_rebalance_are_raised(stage: Stage) -> None:
    """An error code that Java does not expect in a response is raised by exactly one poll.

    Java expects neither COORDINATOR_LOAD_IN_PROGRESS in response to SyncGroup nor ILLEGAL_GENERATION in
    response to JoinGroup.
    """
    stage.inject("A", "SyncGroup", 14)
    a = by_hand(stage)
    poll_until(a, f"R {stage.topic}:0 9")
    poll_until(a, f"R {stage.topic}:1 9")
    stage.inject("A", "JoinGroup", 22)
    ask(a, "rebalance again")
    poll_until(a, "assigned", new_only=True)
    a.close()


def asynchronous_commits_with_errors(stage: Stage) -> None:
    """An error of an asynchronous commit is passed to the commit's callback, and no call raises it."""
    a = by_hand(stage)
    poll_until(a, f"R {stage.topic}:0 9")
    poll_until(a, f"R {stage.topic}:1 9")
    ask(a, "pause", f"seek {stage.topic}:0:3", f"seek {stage.topic}:1:3")
    for number, code in enumerate((3, 28, 29, 30), 1):
        stage.inject("A", "OffsetCommit", code)
        ask(a, "commit-async")
        poll_until(a, "commit ", times=number)
        ask(a, *4 * ["poll-once 100"])
    a.close()


def automatic_commits_with_errors(stage: Stage) -> None:
    """An error of an automatic commit is logged, and no call raises it."""
    stage.produce(20)
    a = stage.start_subscribed("A")
    a.until_read(20)
    stage.wait_for_request("A", "OffsetCommit", repeated=True)
    for code in (3, 28, 29, 30):
        stage.inject("A", "OffsetCommit", code)
        stage.wait_for_request("A", "OffsetCommit", repeated=True)
    stage.pause(0.6)
    a.close()


def commits_during_a_rebalance(stage: Stage, assignor: str) -> None:
    a = by_hand(stage, assignors=[assignor])
    poll_until(a, f"R {stage.topic}:0 9")
    poll_until(a, f"R {stage.topic}:1 9")
    stage.proxy.hold(stage.name("A"), "JoinGroup", 4.0)
    ask(a, "rebalance again", "poll-once 300", "commit", "commit-async", f"commit-at {stage.topic}:0:5")
    poll_until(a, "assigned", new_only=True)
    ask(a, "poll-once 100", "commit")
    a.close()


def commits_during_an_eager_rebalance(stage: Stage) -> None:
    commits_during_a_rebalance(stage, "range")


def commits_during_a_cooperative_rebalance(stage: Stage) -> None:
    commits_during_a_rebalance(stage, "cooperative-sticky")


def the_coordinators_connection_breaks(stage: Stage) -> None:
    """The idle connection to the coordinator breaks, and the member looks the coordinator up again."""
    a = by_hand(stage, heartbeat_ms=3_000)
    poll_until(a, f"R {stage.topic}:0 9")
    poll_until(a, f"R {stage.topic}:1 9")
    ask(a, "commit", "poll-once 100")
    stage.proxy.close_connection(stage.name("A"), "JoinGroup")
    ask(a, *10 * ["poll-once 100"], "commit", "poll-once 100")
    a.close()


def the_default_assignors(stage: Stage) -> None:
    a = by_hand(stage, assignors=None)
    a.close()


ERROR_SCENARIOS: Final[Mapping[str, Scenario]] = {
    scenario.__name__.replace("_", "-"): scenario
    for scenario in (
        commits_when_the_coordinator_moves,
        commits_with_retriable_errors,
        commits_with_fatal_errors,
        a_commit_for_a_missing_partition,
        join_errors_are_raised,
        a_fenced_commit,
        commits_after_a_heartbeat_of_another_generation,
        commits_after_a_heartbeat_of_an_unknown_member,
        commits_after_a_fenced_heartbeat,
        commits_that_end_the_membership,
        an_assignment_of_another_topic,
        an_assignment_that_is_missing,
        an_assignment_that_is_cut,
        unauthorized_offset_lookups,
        a_coordinator_that_moves_at_each_step,
        unexpected_errors_of_a_rebalance_are_raised,
        asynchronous_commits_with_errors,
        automatic_commits_with_errors,
        commits_during_an_eager_rebalance,
        commits_during_a_cooperative_rebalance,
        the_coordinators_connection_breaks,
        the_default_assignors,
    )
}
