"""Sessions of the programs of docs/lessons/003, with the releases of sarama in `document_programs`.

The tests cover broken connections, the fetch loop, commits, rebalances, and the output of Kafka's own tools.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.scenarios import find
from kproto.scenarios.consumer_group_command import COLUMNS
from tests.conformance.document_programs import (
    OURS,
    RELEASES,
    RUNS,
    Place,
    Walk,
    at_once,
    eventually,
    only_one_broker,
    run_walk_place,
)
from tests.conformance.kafka_tools import tool
from tests.conformance.recording_proxy import RecordedRequest

pytestmark = pytest.mark.originals

GROUPS = "consumer.group.ConsumerGroupCommand"
# sarama's Offsets.Retention, in ms. With a retention, the older releases send OffsetCommit v2. Without it,
# they would send v1, which Kafka 4 rejects.
HOUR_MS = 3_600_000


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from run_walk_place(request.param)


@pytest.fixture(autouse=True)
def drawn(request: pytest.FixtureRequest) -> None:
    only_one_broker(request)


def results(story: str) -> dict[str, Any]:
    return find(story).run().results


def partitions_of(recorded: RecordedRequest) -> list[int]:
    return sorted(
        getattr(part, "partition", getattr(part, "partition_index", -1))
        for topic in recorded.request.topics
        for part in topic.partitions
    )


# -- newSession without a response ------------------------------------------------------------------------


@pytest.mark.parametrize(("story", "api"), [("S3-19b", "JoinGroup"), ("S3-19i", "SyncGroup")])
def test_consume_returns_the_network_error_and_the_next_call_joins(
    place: Place, story: str, api: str
) -> None:
    """Consume returns the error immediately: newSession does not retry a request that gets no response."""

    def breaks(release: str, version: str) -> tuple[list[str], list[str], str]:
        topic = f"breaks-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        walk = Walk(place, "auto", release, topic, version=version, again=True, session_ms=6_000)
        place.proxy.cut(walk.name, api, after=int(version == "4.1.0" and api == "JoinGroup"))
        try:
            claims = walk.until("setup")[0].partition(" ")[2]
            letters: dict[str, str] = {"": "none"}
            member_ids = [request.request.member_id for request in walk.requests("JoinGroup")]
            ids = [letters.setdefault(request, f"id {len(letters)}") for request in member_ids]
            return ids, [error.split()[0] for error in walk.printed("panic")], claims
        finally:
            walk.close()

    story_results = results(story)
    errors = [line.removeprefix("error ") for line in story_results["the application hears"]]
    old = ["none", "id 1"] if api == "SyncGroup" else ["none", "none"]
    expected = {(release, "2.0.0"): (old, errors, "[0 1]") for release in RELEASES}
    expected[OURS, "4.1.0"] = (story_results["member ids of the JoinGroups"], errors, "[0 1]")
    outcomes = at_once({case: lambda case_=case: breaks(*case_) for case in expected})
    assert outcomes == expected


# -- the fetch loop ---------------------------------------------------------------------------------------

PROCESSING_MS = 1_000


def test_a_fetch_waits_for_the_fed_claim_and_a_broken_one_is_retried(place: Place) -> None:
    """S3-10: the next Fetch waits until the claim that is receiving records has received all of them. A
    broken Fetch is retried.

    With Config.Version 1.0.0 sarama does not use fetch sessions, so each Fetch lists all fetched partitions.
    """
    story = results("S3-10")

    def fetches(release: str) -> list[str]:
        topic = f"fed-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        conf: dict[str, Any] = {
            "max_processing_ms": PROCESSING_MS,
            "channel": 8,
            "stand_ms": 6_000,
            "retention_ms": HOUR_MS,
        }
        walk = Walk(place, "auto", release, topic, version="1.0.0", **conf)
        try:
            walk.until("setup")
            assert eventually(
                lambda: any(partitions_of(request) == [0, 1] for request in walk.requests("Fetch"))
            )
            walk.write([0], 40)
            assert eventually(lambda: any(map(partitions_with_records, walk.requests("Fetch"))))
            fed = next(
                at for at, request in enumerate(walk.requests("Fetch")) if partitions_with_records(request)
            )
            assert eventually(lambda: len(walk.requests("Fetch")) > fed + 1)
            now, following = walk.requests("Fetch")[fed : fed + 2]
            assert (following.at - now.answered_at) * 1_000 >= PROCESSING_MS / 2, (
                "it waits for the claim that is being fed"
            )
            walk.write([1], 40)
            walk.until("R", 80)

            assert eventually(lambda: walk.committed() == walk.ends(2)), "otherwise commits would fail, too"
            assert walk.printed("ERROR") == []
            place.proxy.cut(walk.name, "Fetch")
            errors = walk.until("ERROR", 2)
            broken = next(request for request in walk.requests("Fetch") if request.answer is None)
            walk.write((0, 1), 10)
            walk.until("R", 100)
            retried = next(request for request in walk.requests("Fetch") if request.at > broken.at)
            assert retried.at - broken.at >= 1.9, "Consumer.Retry.Backoff is 2 s"
            assert all(walk.offsets(partition) == list(range(50)) for partition in (0, 1)), (
                "no record lost or repeated"
            )
            assert len(walk.printed("setup")) == 1, "the session continues"
            return sorted(error.split()[0] for error in errors)
        finally:
            walk.close()

    assert at_once(
        {release_: lambda release=release_: fetches(release) for release_ in RELEASES}
    ) == dict.fromkeys(RELEASES, story["errors"])


def ends_known(walk: Walk) -> set[int]:
    """Return the partitions whose end offset the program has looked up.

    The program starts at the end offset that it looks up, so it reads all records that are written after the
    lookup.
    """
    return {
        part.partition_index
        for lookup in walk.requests("ListOffsets")
        if lookup.answer is not None
        for topic in lookup.request.topics
        for part in topic.partitions
        if part.timestamp == -1
    }


def partitions_with_records(fetch: RecordedRequest) -> list[int]:
    """Return the partitions with records in the response."""
    parts = [part for topic in fetch.answer.responses for part in topic.partitions] if fetch.answer else []
    return sorted(part.partition_index for part in parts if part.records)


# -- the offset manager -----------------------------------------------------------------------------------


def test_a_commit_has_dirty_offsets_and_their_retention(place: Place) -> None:
    """S3-17: a commit contains only the dirty offsets. Up to version 4 of OffsetCommit it also contains
    Retention, if set.

    Without a Retention, the older releases of sarama send OffsetCommit v1, which brokers no longer support.
    The test runs these releases only with a Retention.
    """

    def commits(release: str, version: str, retention: int) -> list[tuple[int, int, list[int]]]:
        topic = f"dirty-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        walk = Walk(place, "auto", release, topic, version=version, retention_ms=retention)
        try:
            walk.until("setup")
            walk.read_on((0, 1))
            assert eventually(lambda: walk.committed() == walk.ends(2))
            before = len(walk.requests("OffsetCommit"))
            walk.write([0])
            assert eventually(lambda: walk.committed() == walk.ends(2))
            # Wait for two automatic commits (one per second). They send no request if no offset is dirty.
            eventually(lambda: False, 2.5)
            sent = walk.requests("OffsetCommit")
            partitions = {part for request in sent[:before] for part in partitions_of(request)}
            assert partitions == {0, 1}
            return [
                (request.envelope.version, request.request.retention_time_ms, partitions_of(request))
                for request in sent[before:]
            ]
        finally:
            walk.close()

    def last(name: str) -> list[tuple[int, int, list[int]]]:
        match = re.fullmatch(r"v(\d+)( retention \d+)? partitions \[(\d+)\]", results("S3-17")[name][-1])
        assert match is not None
        retention_ms = int(match[2].split()[1]) if match[2] else -1
        return [(int(match[1]), retention_ms, [int(match[3])])]

    expected = {
        (OURS, "2.0.0", 0): [(4, -1, [0])],
        (OURS, "2.0.0", HOUR_MS): last("1.61.1, up to v4"),
        (OURS, "4.1.0", HOUR_MS): last("1.61.1, today's"),
        **{
            (release, "2.0.0", HOUR_MS): last("1.38.1, Retention 1 h")
            for release in RELEASES
            if release != OURS
        },
    }
    assert at_once({case: lambda case_=case: commits(*case_) for case in expected}) == expected


# The number of messages per partition. It is small, because each commit waits for a Fetch on the same
# connection.
EACH = 5


def test_each_manual_commit_of_new_offsets_is_one_request(place: Place) -> None:
    """S3-5: each manual commit of new offsets is one request.

    Separate commits of older releases may overtake each other. So either the topic has one partition, or each
    commit covers all partitions.
    """

    def requests(release: str, version: str, conf: dict[str, int], partitions: int) -> list[list[int]]:
        topic = f"manual-{next(RUNS)}"
        place.cluster.create_topics({topic: partitions})
        walk = Walk(place, "manual", release, topic, version=version, retention_ms=HOUR_MS, **conf)
        try:
            walk.until("setup")
            assert eventually(lambda: ends_known(walk) == set(range(partitions)))
            walk.write(range(partitions), EACH)
            walk.until("R", EACH * partitions)
            eventually(lambda: False, 1.5)
            assert walk.committed() == walk.ends(partitions)
            return [partitions_of(request) for request in walk.requests("OffsetCommit")]
        finally:
            walk.close()

    story = results("S3-5")
    together = [list(range(story["partitions in it"]))] * story["requests"]
    cases: dict[Any, Any] = {}
    for release in RELEASES:
        for version in ("2.0.0", "4.1.0") if release == OURS else ("2.0.0",):
            cases[release, version, 1] = lambda r=release, v=version: requests(r, v, {}, 1)
            cases[release, version, 2] = lambda r=release, v=version: requests(
                r, v, {"commit_at": 2 * EACH}, 2
            )
    outcomes = at_once(cases)
    assert outcomes == {case: [[0]] * EACH if case[2] == 1 else together for case in cases}


# -- a rebalance ------------------------------------------------------------------------------------------


def test_the_group_stops_fetching_while_a_members_handlers_return(place: Place) -> None:
    """S3-7: between the end of the old session's claims and the next JoinGroup, no member fetches."""

    def stops(release: str) -> bool:
        topic = f"stops-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        conf: dict[str, Any] = {"retention_ms": HOUR_MS, "heartbeat_ms": 300, "return_ms": 2_000}
        first = Walk(place, "auto", release, topic, **conf)
        walks = [first]
        try:
            first.until("setup")
            first.read_on((0, 1))
            walks.append(Walk(place, "auto", release, topic, first.group, **conf))
            assert eventually(lambda: first.write((0, 1)) or len(first.printed("drained")) >= 2)
            ended = first.when("drained")[1]
            assert eventually(lambda: first.write((0, 1)) or len(first.requests("JoinGroup")) >= 2)
            joined = first.requests("JoinGroup")[-1].at
            assert joined - ended >= 1, "it returns before it rejoins"
            between = [at for walk in walks for at in walk.requests("Fetch") if ended < at.at < joined]
            assert between == []
            last = {partition: end - 1 for partition, end in first.ends(2).items()}
            assert eventually(
                lambda: set(last.items()) <= {place for walk in walks for place in walk.read}
            ), "the lag is consumed"
            read = [place for walk in walks for place in walk.read]
            begun = {part: first.offsets(part)[0] for part in (0, 1)}
            return sorted(read) == [(p, at) for p in (0, 1) for at in range(begun[p], last[p] + 1)]
        finally:
            at_once({walk: walk.close for walk in walks})

    assert find("S3-7").run().holds
    assert at_once({r: lambda release=r: stops(release) for r in RELEASES}) == dict.fromkeys(RELEASES, True)


def test_close_leaves_and_the_other_member_gets_all_partitions(place: Place) -> None:
    """S3-22: Close sends LeaveGroup. Without it the member's session would last two more minutes."""

    def leaves(release: str) -> tuple[set[str], int, str]:
        topic = f"leaves-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        conf: dict[str, Any] = {"retention_ms": HOUR_MS, "session_ms": 120_000, "heartbeat_ms": 300}
        first = Walk(place, "auto", release, topic, **conf)
        second = Walk(place, "auto", release, topic, first.group, **conf)
        try:
            assert eventually(
                lambda: all(
                    re.search(r" \[[01]\]$", line)
                    for walk in (first, second)
                    for line in walk.printed("setup")[-1:] or [""]
                )
            )
            sessions = len(second.printed("setup"))
            first.close()
            owned = second.until("setup", sessions + 1)[-1].partition(" ")[2]
            printed = {"closed", "errors closed"} & set(first.lines)
            return printed, len(first.requests("LeaveGroup")), owned
        finally:
            at_once({walk: walk.close for walk in (first, second)})

    assert find("S3-22").run().holds
    outcomes = at_once({r: lambda release=r: leaves(release) for r in RELEASES})
    assert outcomes == dict.fromkeys(RELEASES, ({"closed", "errors closed"}, 1, "[0 1]"))


# -- command-line tools -----------------------------------------------------------------------------------


def test_kafkas_tools_show_a_sarama_group_as_in_the_story(place: Place, kafka_jars: str) -> None:
    """S3-24: Kafka's tools create topics, write records, and show the lag of a group of sarama's members."""
    run = next(RUNS)
    topic, other_topic, group = f"test3-{run}", f"test-{run}", f"g1-{run}"
    server = ("--bootstrap-server", place.bootstrap)
    create = ("--create", "--replication-factor", "1", "--topic")
    tool(kafka_jars, "TopicCommand", *server, *create, topic, "--partitions", "3")
    place.cluster.create_topics({other_topic: 1})
    tool(kafka_jars, "ConsoleProducer", *server, "--topic", other_topic, lines="a\nb\nc\nd\n")
    place.cluster.commit_offsets(group, {TopicPartition(other_topic, 0): 4})
    for number in range(3):
        place.cluster.commit_offsets(group, {TopicPartition(topic, number): 0})
    walk = Walk(place, "auto", OURS, topic, group, client_id="sarama", session_ms=60_000)
    try:
        walk.until("setup")
        for partition, lines in enumerate((4, 4, 3)):
            walk.write([partition], lines)
        walk.until("R", 11)
        assert eventually(lambda: walk.committed() == {0: 4, 1: 4, 2: 3})
        walk.process.send_signal(signal.SIGSTOP)  # The member is frozen.
        for partition, lines in enumerate((2, 2, 1)):
            walk.write([partition], lines)
        shown = tool(kafka_jars, GROUPS, *server, "--describe", "--group", group)
    finally:
        walk.process.send_signal(signal.SIGCONT)
        walk.close()
    rows = [line.split() for line in shown.splitlines() if line.strip()]
    assert rows[0][: len(COLUMNS)] == list(COLUMNS)
    story = [row.split() for row in results("S3-24")["rows"]]
    for row, lag in zip(story, results("S3-24")["lag later"], strict=True):
        row[4:6] = str(int(row[3]) + lag), str(lag)
    assert sorted(map(_plain, rows[1:])) == sorted(map(_plain, story))


def _plain(row: list[str]) -> list[str]:
    """Replace the parts of a row that differ between runs: numbers in names, the UUID, and the host."""
    cells = [re.sub(r"^(g1|test3?)-\d+$", r"\1", cell) for cell in row]
    cells[6] = re.sub(r"[0-9a-f-]{36}$", "UUID", cells[6])
    cells[7] = re.sub(r"^/.*", "/host", cells[7])
    return cells
