"""What turns inside of document 003's programs, with the releases of `programs`: broken connections, the loop
of fetches, what a commit says, what a rebalance stops, and what Kafka's own tools show of it.
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
    walked,
)
from tests.conformance.recording_proxy import Heard
from tests.conformance.test_kafka_tools import tool

pytestmark = pytest.mark.originals

GROUPS = "consumer.group.ConsumerGroupCommand"
HOUR_MS = 3_600_000  # With a retention, the older releases' commits are of a version that brokers know still.


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from walked(request.param)


@pytest.fixture(autouse=True)
def drawn(request: pytest.FixtureRequest) -> None:
    only_one_broker(request)


def results(story: str) -> dict[str, Any]:
    return find(story).run().results


def named(one: Heard) -> list[int]:
    return sorted(
        getattr(part, "partition", getattr(part, "partition_index", -1))
        for topic in one.request.topics
        for part in topic.partitions
    )


# -- newSession without an answer -------------------------------------------------------------------------


@pytest.mark.parametrize(("story", "api"), [("S3-19b", "JoinGroup"), ("S3-19i", "SyncGroup")])
def test_consume_returns_what_broke_and_the_next_call_joins(place: Place, story: str, api: str) -> None:
    """Not within newSession: none of its retries is used, and none of its backoffs waited for."""

    def breaks(release: str, version: str) -> tuple[list[str], list[str], str]:
        topic = f"breaks-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        walk = Walk(place, "auto", release, topic, version=version, again=True, session_ms=6_000)
        place.tap.cut(walk.name, api, after=int(version == "4.1.0" and api == "JoinGroup"))
        try:
            claims = walk.until("setup")[0].partition(" ")[2]
            letters: dict[str, str] = {"": "none"}
            asked = [one.request.member_id for one in walk.heard("JoinGroup")]
            ids = [letters.setdefault(request, f"id {len(letters)}") for request in asked]
            return ids, [one.split()[0] for one in walk.said("panic")], claims
        finally:
            walk.close()

    told = results(story)
    heard = [one.removeprefix("error ") for one in told["the application hears"]]
    old = ["none", "id 1"] if api == "SyncGroup" else ["none", "none"]
    expected = {(release, "2.0.0"): (old, heard, "[0 1]") for release in RELEASES}
    expected[OURS, "4.1.0"] = (told["member ids of the JoinGroups"], heard, "[0 1]")
    found = at_once({case: lambda one=case: breaks(*one) for case in expected})
    assert found == expected


# -- the fetch loop ---------------------------------------------------------------------------------------

PROCESSING_MS = 1_000


def test_a_fetch_waits_for_who_is_fed_and_a_broken_one_begins_anew(place: Place) -> None:
    """S3-10, with Fetches that name all they want: before sessions of them (V1_1_0_0)."""
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
            assert eventually(lambda: any(named(one) == [0, 1] for one in walk.heard("Fetch")))
            walk.write([0], 40)
            assert eventually(lambda: any(map(brought, walk.heard("Fetch"))))
            fed = next(at for at, one in enumerate(walk.heard("Fetch")) if brought(one))
            assert eventually(lambda: len(walk.heard("Fetch")) > fed + 1)
            now, following = walk.heard("Fetch")[fed : fed + 2]
            assert (following.at - now.answered_at) * 1_000 >= PROCESSING_MS / 2, "it waits for who is fed"
            walk.write([1], 40)
            walk.until("R", 80)

            assert eventually(lambda: walk.committed() == walk.ends(2)), "or commits would fail, too"
            assert walk.said("ERROR") == []
            place.tap.cut(walk.name, "Fetch")
            errors = walk.until("ERROR", 2)
            broken = next(one for one in walk.heard("Fetch") if one.answer is None)
            walk.write((0, 1), 10)
            walk.until("R", 100)
            again = next(one for one in walk.heard("Fetch") if one.at > broken.at)
            assert again.at - broken.at >= 1.9, "Consumer.Retry.Backoff is 2 s"
            assert all(walk.offsets(one) == list(range(50)) for one in (0, 1)), "nothing lost, nothing twice"
            assert len(walk.said("setup")) == 1, "the session lives on"
            return sorted(error.split()[0] for error in errors)
        finally:
            walk.close()

    assert at_once({one: lambda release=one: fetches(release) for one in RELEASES}) == dict.fromkeys(
        RELEASES, story["errors"]
    )


def ends_known(walk: Walk) -> set[int]:
    """The partitions whose newest offset it was told: what comes from now on, it reads."""
    return {
        part.partition_index
        for one in walk.heard("ListOffsets")
        if one.answer is not None
        for topic in one.request.topics
        for part in topic.partitions
        if part.timestamp == -1
    }


def brought(one: Heard) -> list[int]:
    """The partitions that came with records."""
    parts = [part for topic in one.answer.responses for part in topic.partitions] if one.answer else []
    return sorted(part.partition_index for part in parts if part.records)


# -- the offset manager -----------------------------------------------------------------------------------


def test_a_commit_has_what_is_dirty_and_says_how_long_to_keep_it(place: Place) -> None:
    """S3-17; version 1, which Retention 0 means to the older releases, no broker hears of any more."""

    def commits(release: str, version: str, retention: int) -> list[tuple[int, int, list[int]]]:
        topic = f"dirty-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        walk = Walk(place, "auto", release, topic, version=version, retention_ms=retention)
        try:
            walk.until("setup")
            walk.read_on((0, 1))
            assert eventually(lambda: walk.committed() == walk.ends(2))
            before = len(walk.heard("OffsetCommit"))
            walk.write([0])
            assert eventually(lambda: walk.committed() == walk.ends(2))
            eventually(lambda: False, 2.5)  # two ticks with nothing that is dirty
            sent = walk.heard("OffsetCommit")
            both = {part for request in sent[:before] for part in named(request)}
            assert both == {0, 1}
            return [
                (request.envelope.version, request.request.retention_time_ms, named(request))
                for request in sent[before:]
            ]
        finally:
            walk.close()

    def last(name: str) -> list[tuple[int, int, list[int]]]:
        (found,) = re.findall(r"v(\d+) retention (-?\d+) partitions \[(\d+)\]", results("S3-17")[name][-1])
        version, retention, partition = map(int, found)
        return [(version, retention, [partition])]

    expected = {
        (OURS, "2.0.0", 0): last("v4, Retention 0"),
        (OURS, "2.0.0", HOUR_MS): last("v4, Retention 1 h"),
        (OURS, "4.1.0", HOUR_MS): last("today's"),
        **{(release, "2.0.0", HOUR_MS): [(2, HOUR_MS, [0])] for release in RELEASES if release != OURS},
    }
    assert at_once({case: lambda one=case: commits(*one) for case in expected}) == expected


# Messages of each partition. A Commit waits behind the Fetch that is open on its broker's connection.
EACH = 5


def test_a_manual_commit_is_a_request_for_each_call_with_something_new(place: Place) -> None:
    """S3-5; of one partition: with several, the older releases' commits cross."""

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
            return [named(one) for one in walk.heard("OffsetCommit")]
        finally:
            walk.close()

    story = results("S3-5")
    together = [list(range(story["partitions in it"]))] * story["requests"]
    cases: dict[Any, Any] = {}
    for release in RELEASES:
        for version in ("2.0.0", "4.1.0") if release == OURS else ("2.0.0",):
            cases[release, version, 1] = lambda one=release, v=version: requests(one, v, {}, 1)
            cases[release, version, 2] = lambda one=release, v=version: requests(
                one, v, {"commit_at": 2 * EACH}, 2
            )
    found = at_once(cases)
    assert found == {case: [[0]] * EACH if case[2] == 1 else together for case in cases}


# -- a rebalance ------------------------------------------------------------------------------------------


def test_nobody_fetches_while_one_members_handlers_return(place: Place) -> None:
    """S3-7: from the old session's last claim to the next JoinGroup, in the whole group."""

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
            assert eventually(lambda: first.write((0, 1)) or len(first.said("drained")) >= 2)
            ended = first.when("drained")[1]
            assert eventually(lambda: first.write((0, 1)) or len(first.heard("JoinGroup")) >= 2)
            joined = first.heard("JoinGroup")[-1].at
            assert joined - ended >= 1, "it returns first, then it joins"
            between = [at for walk in walks for at in walk.heard("Fetch") if ended < at.at < joined]
            assert between == []
            last = {one: end - 1 for one, end in first.ends(2).items()}
            assert eventually(
                lambda: set(last.items()) <= {place for walk in walks for place in walk.read}
            ), "the lag is worked off"
            read = [place for walk in walks for place in walk.read]
            begun = {part: first.offsets(part)[0] for part in (0, 1)}
            return sorted(read) == [(p, at) for p in (0, 1) for at in range(begun[p], last[p] + 1)]
        finally:
            at_once({walk: walk.close for walk in walks})

    assert find("S3-7").run().holds
    assert at_once({one: lambda release=one: stops(release) for one in RELEASES}) == dict.fromkeys(
        RELEASES, True
    )


def test_close_leaves_and_the_other_one_has_everything(place: Place) -> None:
    """S3-22: its session would be two minutes longer."""

    def leaves(release: str) -> tuple[set[str], int, str]:
        topic = f"leaves-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        conf: dict[str, Any] = {"retention_ms": HOUR_MS, "session_ms": 120_000, "heartbeat_ms": 300}
        first = Walk(place, "auto", release, topic, **conf)
        other = Walk(place, "auto", release, topic, first.group, **conf)
        try:
            assert eventually(
                lambda: all(
                    re.search(r" \[[01]\]$", one)
                    for walk in (first, other)
                    for one in walk.said("setup")[-1:] or [""]
                )
            )
            sessions = len(other.said("setup"))
            first.close()
            owned = other.until("setup", sessions + 1)[-1].partition(" ")[2]
            said = {"closed", "errors closed"} & set(first.lines)
            return said, len(first.heard("LeaveGroup")), owned
        finally:
            at_once({one: one.close for one in (first, other)})

    assert find("S3-22").run().holds
    found = at_once({one: lambda release=one: leaves(release) for one in RELEASES})
    assert found == dict.fromkeys(RELEASES, ({"closed", "errors closed"}, 1, "[0 1]"))


# -- the shell --------------------------------------------------------------------------------------------


def test_kafkas_tools_show_of_a_sarama_group_what_the_story_shows(place: Place, kafka_jars: str) -> None:
    """S3-24: three partitions are made, lines are typed, and --describe tells how many are left."""
    run = next(RUNS)
    topic, left, group = f"test3-{run}", f"test-{run}", f"g1-{run}"
    server = ("--bootstrap-server", place.bootstrap)
    made = ("--create", "--replication-factor", "1", "--topic")
    tool(kafka_jars, "TopicCommand", *server, *made, topic, "--partitions", "3")
    place.cluster.create_topics({left: 1})
    tool(kafka_jars, "ConsoleProducer", *server, "--topic", left, lines="a\nb\nc\nd\n")
    place.cluster.commit_offsets(group, {TopicPartition(left, 0): 4})
    for number in range(3):
        place.cluster.commit_offsets(group, {TopicPartition(topic, number): 0})
    walk = Walk(place, "auto", OURS, topic, group, client_id="sarama", session_ms=60_000)
    try:
        walk.until("setup")
        for partition, lines in enumerate((4, 4, 3)):
            walk.write([partition], lines)
        walk.until("R", 11)
        assert eventually(lambda: walk.committed() == {0: 4, 1: 4, 2: 3})
        walk.process.send_signal(signal.SIGSTOP)  # it stands still
        for partition, lines in enumerate((2, 2, 1)):
            walk.write([partition], lines)
        shown = tool(kafka_jars, GROUPS, *server, "--describe", "--group", group)
    finally:
        walk.process.send_signal(signal.SIGCONT)
        walk.close()
    rows = [line.split() for line in shown.splitlines() if line.strip()]
    assert rows[0][: len(COLUMNS)] == list(COLUMNS)
    story = [one.split() for one in results("S3-24")["rows"]]
    for row, lag in zip(story, results("S3-24")["lag later"], strict=True):
        row[4:6] = str(int(row[3]) + lag), str(lag)
    assert sorted(map(_plain, rows[1:])) == sorted(map(_plain, story))


def _plain(row: list[str]) -> list[str]:
    """Without the run's names, and the address, which is the machine's."""
    found = [re.sub(r"^(g1|test3?)-\d+$", r"\1", one) for one in row]
    found[6] = re.sub(r"[0-9a-f-]{36}$", "UUID", found[6])
    found[7] = re.sub(r"^/.*", "/host", found[7])
    return found
