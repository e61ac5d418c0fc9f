"""Traces of the models: every request and every event of the application, with its time in ms.

Each file in `traces` contains the traces of one client, with one section per scenario. Successful heartbeats
are omitted.

In a line, `-> 16!` is an error code that the stage puts into the response, and `*` marks an event of the
application. The application sleeps for 300 ms after an error.

The traces show what follows from each error code, and when. tests/conformance/test_clients_like_originals.py
compares the models with the original clients, by their requests and events.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models import contract as c
from kproto.models import java, kafka_go, librdkafka, sarama, sarama_cluster
from kproto.models.java import java_2_6
from tests.models.stage import START, Stage, StageMember

TRACES = Path(__file__).with_name("traces")
CLIENTS = {
    "java-4.3": java,
    "java-2.6": java_2_6,
    "librdkafka": librdkafka,
    "kafka-go": kafka_go,
    "sarama": sarama,
    "sarama-cluster": sarama_cluster,
}
# Parts of a request that are the same in every scenario.
CONSTANT = re.compile(r" v\d+\b|\bsess=\d+ reb=\d+ |stable=True |iso=0 ")
SUBSCRIPTION = re.compile(r"\(v\d[^()]*\)")


def start(client: str, **conf: Any) -> tuple[Stage, StageMember]:
    """Start a member that has not subscribed yet. Each partition of the topic has ten records."""
    partitions = conf.pop("partitions", 2)
    stage = Stage({"t": partitions})
    stage.produce("t", range(partitions), 10)
    options: dict[str, Any] = {"reset": "earliest", "assignors": ["range"], "session_ms": 6_000, **conf}
    options = {"heartbeat_ms": 300, "auto_commit": False, "metadata_ms": 60_000, **options}
    return stage, stage.add_member("A", CLIENTS[client], **options)


def start_joined(client: str, **conf: Any) -> tuple[Stage, StageMember]:
    stage, a = start(client, **conf)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    stage.run(400)
    return stage, a


def join_with_errors(client: str, api: str, *codes: int, partitions: int = 2) -> list[StageMember]:
    stage, a = start(client, partitions=partitions)
    a.inject(api, *codes)
    a.run_command("subscribe t")
    # After an error in a join, sarama waits for 2 s, librdkafka for up to 3 s, and kafka-go for 5 s.
    is_lookup = api in ("OffsetFetch", "ListOffsets")
    waits = {"sarama": 2_100, "sarama-cluster": 2_100, "librdkafka": 3_500, "kafka-go": 5_100}
    wait = 400 if is_lookup else waits.get(client, 400)
    stage.run(wait * len(codes) + 1_000)
    return [a]


def run_until_sent(stage: Stage, member: StageMember, api: str, ms: int) -> None:
    """Let time pass until the member sends a request of this API, but for at most `ms`."""
    earlier = len(member.lines)
    stage.run(ms, until=lambda: any(line.api == api for line in member.lines[earlier:]))


def heartbeat_errors(client: str) -> list[StageMember]:
    stage, a = start_joined(client)
    for code in (14, 15, 16, 27, 22, 25, 30):
        a.inject("Heartbeat", code)
        stage.run(700)
    return [a]


def fetch_errors(client: str) -> list[StageMember]:
    """For each error code, write records, and put the code into the response to the Fetch that reads them."""
    stage, a = start_joined(client)
    for code in (70, 71, 1, 3, 6, 7, 74, 29, 2):
        a.inject("Fetch", code)
        stage.produce("t", range(2), 1)
        stage.run(1_200)
    return [a]


def commit_errors(client: str, command: str) -> list[StageMember]:
    stage, a = start_joined(client)
    for code in (3, 7, 12, 14, 15, 16, 28, 29, 30, 27, 22, 25):
        a.inject("Commit", code)
        a.run_command(command)
        stage.run(400)
    a.run_command(command)
    stage.run(400)
    return [a]


def broken_connections(client: str) -> list[StageMember]:
    """Break the connection once for each kind of request, while this request is in flight."""
    stage, a = start(client)
    a.run_command("subscribe t")
    for api in ("Find", "Join", "Sync", "OffsetFetch", "ListOffsets", "Heartbeat", "Commit"):
        a.hold(api, 40)
        if api == "Commit":
            a.run_command("commit")
        run_until_sent(stage, a, api, 9_000)
        stage.run(20)
        a.drop_connections()
    stage.run(2_000)
    return [a]


def repeated_breaks(client: str) -> list[StageMember]:
    """Break the connection three times in a row. kafka-go reports a group's third consecutive error."""
    stage, a = start(client)
    a.run_command("subscribe t")
    for api in ("Find", "Join", "Sync", "OffsetFetch"):
        for _ in range(3):
            a.hold(api, 40)
            run_until_sent(stage, a, api, 7_000)
            stage.run(20)
            a.drop_connections()
    stage.run(6_000)
    return [a]


def a_failed_leave(client: str) -> list[StageMember]:
    """Let the member close after a SyncGroup error. Its coordinator lookup then fails, and its connections
    break.
    """
    stage, a = start(client)
    a.inject("Sync", 14, 0, 0)
    a.inject("Find", 0, 15)
    a.run_command("subscribe t")
    stage.run(12_000)
    a.run_command("close")
    a.hold("Find", 40)
    stage.run(25)
    a.drop_connections()
    stage.run(6_000)
    return [a]


def late_responses(client: str) -> list[StageMember]:
    """Delay the response of each kind of request by 700 ms."""
    stage, a = start(client)
    a.run_command("subscribe t")
    for api in ("Find", "Join", "Sync", "OffsetFetch", "ListOffsets", "Heartbeat"):
        a.hold(api, 700)
        stage.run(900)
    return [a]


def two_members(client: str, **conf: Any) -> list[StageMember]:
    stage, a = start_joined(client, auto_commit=True, auto_commit_ms=700, **conf)
    b = stage.add_member("B", CLIENTS[client], **a.conf)
    b.run_command("subscribe t")
    stage.run(1_500)
    a.run_command("close")
    stage.run(1_500)
    return [a, b]


def a_growing_topic(client: str) -> list[StageMember]:
    stage, a = start_joined(client, metadata_ms=500, watch=True)
    stage.grow("t", 3)
    stage.run(2_000)
    return [a]


def a_pattern(client: str) -> list[StageMember]:
    stage, a = start(client, metadata_ms=500)
    a.run_command("pattern ^t.*")
    stage.run(500)
    stage.topic("tb", 1)
    stage.run(1_500)
    return [a]


def a_pattern_of_two_members(client: str) -> list[StageMember]:
    stage, a = start(client, metadata_ms=500)
    b = stage.add_member("B", CLIENTS[client], **a.conf)
    for member in (a, b):
        member.run_command("pattern ^t.*")
    stage.run(2_000)
    stage.topic("tb", 1)
    stage.run(2_000)
    return [a, b]


def no_polls(client: str) -> list[StageMember]:
    stage, a = start_joined(client, max_poll_ms=6_000)
    a.run_command("sleep 8000")
    stage.run(9_500)
    return [a]


def an_expired_session(client: str) -> list[StageMember]:
    stage, a = start_joined(client, session_ms=1_000)
    a.hold("Heartbeat", 1_500)
    stage.run(2_500)
    return [a]


def subscribe_and_assign(client: str) -> list[StageMember]:
    stage, a = start_joined(client, auto_commit=True, auto_commit_ms=700)
    for command in ("subscribe t u", "unsubscribe", "assign t:0:3 t:1", "seek t:0:5", "commit"):
        a.run_command(command)
        stage.run(600)
    a.run_command("close")
    stage.run(500)
    return [a]


def a_static_member(client: str) -> list[StageMember]:
    stage, a = start_joined(client, instance="ia")
    a.inject("Heartbeat", 82)
    stage.run(1_500)
    a.run_command("close")
    stage.run(500)
    return [a]


def an_assigned_member(client: str) -> list[StageMember]:
    stage, a = start(client)
    a.inject("OffsetFetch", 14, 16)
    a.inject("ListOffsets", 6)
    for command in ("assign t:0 t:1", "commit", "seek t:1:4", "commit-async"):
        a.run_command(command)
        stage.run(1_500)
    a.drop_connections()
    a.run_command("commit")
    stage.run(1_000)
    a.run_command("close")
    stage.run(500)
    return [a]


def a_fenced_commit(client: str) -> list[StageMember]:
    stage, a = start_joined(client, instance="ia", auto_commit=True, auto_commit_ms=500)
    a.inject("Commit", 82)
    stage.run(1_500)
    a.run_command("close")
    stage.run(1_000)
    return [a]


def a_failing_commit_at_the_end(client: str) -> list[StageMember]:
    stage, a = start_joined(client, auto_commit=True, auto_commit_ms=60_000)
    a.inject("Commit", 14, 16, 14, 14, 14)
    a.run_command("close")
    stage.run(3_000)
    return [a]


def a_close_during_a_join(client: str) -> list[StageMember]:
    stage, a = start_joined(client, auto_commit=True, auto_commit_ms=60_000)
    b = stage.add_member("B", CLIENTS[client], **a.conf)
    b.hold("Join", 500)
    b.run_command("subscribe t")
    stage.run(300)
    for member in (b, a):
        member.run_command("close")
    stage.run(3_000)
    return [a, b]


def commits_without_positions(client: str) -> list[StageMember]:
    """Commit before the member has joined, while it joins, and when it has read no record."""
    stage, a = start(client)
    for command in ("subscribe t", "commit", "commit-async"):
        a.run_command(command)
    a.hold("Join", 300)
    stage.run(200)
    for command in ("commit", "commit-async"):
        a.run_command(command)
    stage.run(1_500)
    stage.run(3_000, until=lambda: a.has_printed("assigned"))
    a.polling = False
    a.run_command("commit")
    stage.run(1_000)
    return [a]


def unsubscribe_with_open_requests(client: str) -> list[StageMember]:
    """Unsubscribe while each kind of request is in flight, and subscribe again."""
    stage, a = start(client)
    for api in ("Find", "Join", "Sync", "OffsetFetch", "ListOffsets", "EpochEnd"):
        a.hold(api, 60)
        a.run_command("subscribe t")
        run_until_sent(stage, a, api, 1_000)
        stage.run(20)
        a.run_command("unsubscribe")
        a.run_command("poll off")
        stage.run(300)
        if api == "ListOffsets":
            a.run_command("subscribe t")
            stage.run(1_000)
            a.run_command("commit")
            stage.run(200)
            a.run_command("unsubscribe")
            stage.run(300)
    return [a]


def closes_in_a_backoff(client: str) -> list[StageMember]:
    """Close three members while they back off after errors of FindCoordinator, JoinGroup and SyncGroup,
    respectively.
    """
    stage = Stage({"t": 2})
    members: list[StageMember] = []
    for name, api in (("A", "Find"), ("B", "Join"), ("C", "Sync")):
        member = stage.add_member(name, CLIENTS[client], reset="earliest", assignors=["range"])
        members.append(member)
        member.inject(api, *[15] * 20)
        member.run_command("subscribe t")
        stage.run(60)
        member.run_command("close")
        stage.run(4_000)
    return members


def a_close_of_a_removed_member(client: str) -> list[StageMember]:
    """Let the member close without another poll after a heartbeat has failed with UNKNOWN_MEMBER_ID."""
    stage, a = start_joined(client, auto_commit=True, auto_commit_ms=60_000)
    a.run_command("poll off")
    a.inject("Heartbeat", 25)
    stage.run(700)
    a.run_command("close")
    stage.run(2_000)
    return [a]


def small_polls(client: str) -> list[StageMember]:
    """Read two records per poll. Between the polls, seek, stop polling for 700 ms, and rebalance."""
    stage, a = start(client, auto_commit=True, auto_commit_ms=500)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    a.polling = False
    stage.run(100)
    for number in range(14):
        a.poll(60, 2)
        if number == 3 and client not in ("kafka-go", "sarama", "sarama-cluster"):
            a.do(c.SeekCalled(TopicPartition("t", 0), 7))
        if number == 6:
            stage.produce("t", range(2), 3)
            stage.run(700)
        if number == 9:
            a.run_command("rebalance again")
        stage.run(20)
    a.run_command("close")
    stage.run(1_000)
    return [a]


Scenario = Callable[[str], list[StageMember]]
SCENARIOS: dict[str, Scenario] = {
    "join errors": lambda client: join_with_errors(client, "Join", 14, 15, 16, 27, 25, 22, 23, 30, 81),
    "sync errors": lambda client: join_with_errors(client, "Sync", 14, 15, 16, 27, 25, 22, 30),
    "find errors": lambda client: join_with_errors(client, "Find", 14, 15, 30),
    "offset fetch errors": lambda client: join_with_errors(client, "OffsetFetch", 14, 16, 88, 30),
    "list offsets errors": lambda client: join_with_errors(client, "ListOffsets", 3, 6, 78),
    "heartbeat errors": heartbeat_errors,
    "fetch errors": fetch_errors,
    "commit errors": lambda client: commit_errors(client, "commit"),
    "asynchronous commit errors": lambda client: commit_errors(client, "commit-async"),
    "metadata errors": lambda client: join_with_errors(client, "Metadata", 5, 3, 29, 17),
    "failing partitions": lambda client: join_with_errors(
        client, "ListOffsets", 78, 0, 0, 78, 0, 78, *[78] * 20, partitions=3
    ),
    "a failed leave": a_failed_leave,
    "broken connections": broken_connections,
    "repeated breaks": repeated_breaks,
    "late responses": late_responses,
    "two members": two_members,
    "two cooperative members": lambda client: two_members(client, assignors=["cooperative-sticky"]),
    "a growing topic": a_growing_topic,
    "a pattern": a_pattern,
    "a pattern of two members": a_pattern_of_two_members,
    "no polls": no_polls,
    "an expired session": an_expired_session,
    "subscribe and assign": subscribe_and_assign,
    "a static member": a_static_member,
    "an assigned member": an_assigned_member,
    "a fenced commit": a_fenced_commit,
    "a failing commit at the end": a_failing_commit_at_the_end,
    "a close during a join": a_close_during_a_join,
    "commits without positions": commits_without_positions,
    "unsubscribe with open requests": unsubscribe_with_open_requests,
    "closes in a backoff": closes_in_a_backoff,
    "two sticky members": lambda client: two_members(client, assignors=["sticky"]),
    "a close of a removed member": a_close_of_a_removed_member,
    "small polls": small_polls,
}
# The scenarios whose traces show complete subscriptions, and list the Fetch requests at the end.
DETAILED = {
    "fetch errors",
    "two members",
    "two cooperative members",
    "two sticky members",
    "a growing topic",
    "subscribe and assign",
    "an assigned member",
    "small polls",
}
# The scenarios that a client does not support. kafka-go has no patterns, no static members and no assign.
LACKS = {
    "kafka-go": {
        "two cooperative members",
        "two sticky members",
        "a pattern",
        "a pattern of two members",
        "a static member",
        "subscribe and assign",
        "an assigned member",
        "a fenced commit",
        "unsubscribe with open requests",
    },
    "librdkafka": {"two sticky members"},
    "sarama": {"a pattern", "a pattern of two members"},
    "sarama-cluster": {"two sticky members", "two cooperative members", "a static member", "a fenced commit"},
}
CASES = [(client, name) for client in CLIENTS for name in SCENARIOS if name not in LACKS.get(client, ())]


def trace(members: list[StageMember], *, detailed: bool) -> list[str]:
    """Return the members' requests and events as lines, sorted by time."""
    events = [
        (line.now, line.number, f"{member.name} {_shorten(str(line), detailed=detailed)}")
        for member in members
        for line in member.lines
        if line.is_shown and not (line.api == "Heartbeat" and str(line).endswith("-> 0"))
    ]
    for member in members:
        for at, number, text in (*member.printed, *member.logged):
            word, _, details = text.partition(" ")
            # Only the name of an exception is shown, because its message is long and copied from the original
            # client.
            details = details.split(" ")[0] if word in ("error", "commit", "log") else details
            events.append((at, number, f"{member.name} * {word} {details}".rstrip()))
    lines = [f"{at - START:6} {text}" for at, _, text in sorted(events)]
    for member in members:
        beats = sum(line.api == "Heartbeat" for line in member.lines)
        lines.append(f"     . {member.name} sent {beats} heartbeats, read {_read(member)}".rstrip())
        if detailed:
            lines += [f"     . {member.name} {text}" for text in _fetches(member)]
    return lines


def _shorten(line: str, *, detailed: bool) -> str:
    text = CONSTANT.sub("", line)
    return text if detailed else SUBSCRIPTION.sub("", text)


def _fetches(member: StageMember) -> Iterator[str]:
    """Describe the distinct Fetch requests in the order of their first use, and how often each was sent."""
    texts = Counter(_fetch(member, line.request) for line in member.lines if line.api == "Fetch")
    for text, count in texts.items():
        yield f"{text} x{count}"


def _fetch(member: StageMember, request: Any) -> str:
    names = member.stage.topic_ids
    partitions = [
        f"{topic.topic or names[topic.topic_id]}:{p.partition}@{p.fetch_offset}/e{p.current_leader_epoch}"
        for topic in request.topics
        for p in topic.partitions
    ]
    forgotten = [
        f"{topic.topic or names[topic.topic_id]}:{number}"
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    session = "-" if not request.session_id else "new" if request.session_epoch < 1 else "next"
    limits = f"wait={request.max_wait_ms} bytes={request.min_bytes}-{request.max_bytes}"
    forgets = f" forget {' '.join(forgotten)}" if forgotten else ""
    return f"Fetch session={session} {limits} {' '.join(partitions)}{forgets}"


def _read(member: StageMember) -> str:
    offsets: dict[TopicPartition, list[str]] = {}
    for record in member.records:
        offsets.setdefault(record.partition, []).append(str(record.offset))
    return " ".join(f"{partition}@{','.join(offsets[partition])}" for partition in sorted(offsets))


@cache
def recorded(client: str) -> dict[str, list[str]]:
    sections = (TRACES / f"{client}.txt").read_text(encoding="utf-8").split("## ")[1:]
    return {name: text.splitlines() for name, _, text in (s.strip().partition("\n") for s in sections)}


@pytest.mark.parametrize(("client", "scenario"), CASES)
def test_requests_and_events_follow_from_each_error_and_each_fault(client: str, scenario: str) -> None:
    members = SCENARIOS[scenario](client)
    actual = trace(members, detailed=scenario in DETAILED)
    assert actual == recorded(client)[scenario], f"if this is intended, edit traces/{client}.txt by hand"
