"""The Go programs of lesson 003: sarama behaves as kproto's scenarios of this lesson say.

The document (the author's description, which the lesson replays) is about sarama 1.27 to 1.29. The test runs
1.27.2, 1.38.1 (the last one under github.com/Shopify/sarama) and IBM's 1.61.1, which kproto's model follows.
Each release runs with the document's Config.Version, V2_0_0_0.

A proxy returns the errors that newConsumerGroupSession handles. With the document's own release, commits to
Kafka 4 fail, because Kafka 4 removed the old versions of OffsetCommit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.sync_group import SyncGroupRequest
from kproto.scenarios import Parameters, ScenarioRun, find
from kproto.scenarios.sarama_new_session import Branch, refusal
from kproto.wire.message import Message
from tests.conformance.document_programs import (
    OURS,
    PATIENCE,
    RELEASES,
    RUNS,
    Place,
    Walk,
    at_once,
    eventually,
    run_walk_place,
)
from tests.conformance.recording_proxy import RecordedRequest

pytestmark = pytest.mark.originals


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    yield from run_walk_place(request.param)


# -- newSession -------------------------------------------------------------------------------------------

BRANCHES: dict[str, tuple[type[Message], tuple[int, ...]]] = {
    "S3-19a": (FindCoordinatorRequest, (15,) * 6),
    "S3-19c": (JoinGroupRequest, ()),
    "S3-19d": (JoinGroupRequest, (25, 22)),
    "S3-19e": (JoinGroupRequest, (16,) * 100),
    "S3-19f": (JoinGroupRequest, (27,)),
    "S3-19g": (JoinGroupRequest, (30,)),
    "S3-19j": (SyncGroupRequest, (25, 22, 27)),
}
WAITS = {"S3-19a", "S3-19f"}  # Scenarios in which the member rejoins after the backoff of 2 s.


def _branched(place: Place, release: str, story: str, version: str) -> tuple[list[str], list[str], str]:
    """Run a scenario in which the proxy answers requests of one API with errors.

    Return the member ids in the member's JoinGroups, the errors of Consume, and the last assignment.
    """
    kind, codes = BRANCHES[story]
    api = kind.__name__.removesuffix("Request")
    topic = f"t-{release.replace(' ', '-')}-{story}-{version}-{next(RUNS)}"
    place.cluster.create_topics({topic: 2})
    walk = Walk(place, "auto", release, topic, version=version, session_ms=6_000)
    place.proxy.refuse(walk.name, api, *[refusal(kind, code) for code in codes])
    try:
        walk.until("panic" if story in ("S3-19e", "S3-19g") else "setup")
        elapsed = time.monotonic() - walk.started
        panics = [f"error {error.split()[0]}" for error in walk.printed("panic")]
    finally:
        walk.close()
    assert elapsed > 2 or story not in WAITS
    letters: dict[str, str] = {"": "none"}
    member_ids = [request.request.member_id for request in walk.requests("JoinGroup")]
    ids = [letters.setdefault(request, f"id {len(letters)}") for request in member_ids]
    return ids, panics, " ".join(walk.printed("setup")[:1]).partition(" ")[2]


def _in_the_story(story: str, version: str) -> tuple[list[str], list[str], str]:
    kind, codes = BRANCHES[story]
    branch = Branch(ScenarioRun(Parameters()), kind, *codes, Version=version)
    returned = [error for error in branch.errors if error.startswith("error ")]
    return branch.ids, returned, "[0 1]" if branch.joined else ""


def test_newsession_takes_the_branches_of_the_stories(place: Place) -> None:
    cases = [(release, "2.0.0") for release in RELEASES] + [(OURS, "4.1.0")]
    outcomes = at_once(
        {
            (release, version, story): lambda r=release, v=version, s=story: _branched(place, r, s, v)
            for release, version in cases
            for story in BRANCHES
        }
    )
    assert outcomes == {
        (release, version, story): _in_the_story(story, version)
        for release, version in cases
        for story in BRANCHES
    }
    for story in BRANCHES:
        ids: Any = find(story).run().results["member ids of the JoinGroups"]
        assert outcomes[OURS, "4.1.0", story][0] == ids


@pytest.mark.parametrize("release", RELEASES)
def test_assignments_are_those_of_the_stories(place: Place, release: str) -> None:
    topics = [f"{name}-{next(RUNS)}" for name in ("five", "two")]
    place.cluster.create_topics(dict(zip(topics, (5, 2), strict=True)))
    walks = [
        Walk(place, "auto", release, topic, f"g-{topic}") for topic in topics for _ in range(3)
    ]  # S3-1 and S3-19k.
    try:
        owned: dict[str, list[str]] = {}
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            owned = {
                topic: sorted((walk.printed("setup") or ["? ?"])[-1].partition(" ")[2] for walk in trio)
                for topic, trio in zip(topics, (walks[:3], walks[3:]), strict=True)
            }
            shared = [sorted(re.findall(r"\d", " ".join(owned[topic]))) for topic in topics]
            # Without this wait, the first member could still own all partitions when the test continues.
            all_assigned = all("?" not in owned[topic] for topic in topics)
            if all_assigned and shared == [list("01234"), list("01")]:
                break
            time.sleep(0.1)
        story: Any = find("S3-1").run().results["owners"]
        sizes = sorted(
            list(story.values()).count(owner) for owner in map(list, {tuple(v) for v in story.values()})
        )
        assert sorted(len(claims.strip("[]").split()) for claims in owned[topics[0]]) == sizes == [1, 2, 2]
        assert owned[topics[1]] == ["[0]", "[1]", "[]"], "S3-19k: a session without claims"
        last = [walk.requests("SyncGroup")[-1].request for walk in walks[:3]]
        assert sorted(len(request.assignments) for request in last) == [0, 0, 3], (
            "S3-2: the leader has the plan"
        )
        member_id = walks[0].printed("setup")[-1].split()[0]
        assert re.fullmatch(f"{walks[0].name}-[0-9a-f-]{{36}}", member_id), "S3-25"
    finally:
        at_once({walk: walk.close for walk in walks})


# -- the document's two examples: automatic and manual commits -----------------------------------------------


def _example(place: Place, release: str, example: str, retention_ms: int) -> tuple[bool, bool, bool]:
    """Return whether all read records were committed, whether any were, and whether Errors() had an error.

    In the manual example, the handlers of all claims commit. In releases up to 1.38.1, an older commit may
    overtake a newer one. For these releases the first result is always True, and the test checks only that no
    committed offset exceeds the end offset.
    """
    topic = f"t-{release.replace(' ', '-')}-{example}-{retention_ms}-{next(RUNS)}"
    place.cluster.create_topics({topic: 3})
    walk = Walk(place, example, release, topic, retention_ms=retention_ms)
    try:
        walk.until("setup")
        walk.read_on((0, 1, 2))
        ends = walk.ends(3)
        end = time.monotonic() + 20
        while time.monotonic() < end and {p: o + 1 for p, o in walk.read} != ends:
            time.sleep(0.1)
        time.sleep(2.5)  # Two intervals of the automatic commit.
    finally:
        walk.close()
    committed = walk.committed()
    crosses = example == "manual" and release != OURS
    if crosses and committed:
        assert all(offset <= ends[partition] for partition, offset in committed.items())
    return crosses or committed == ends, bool(committed), bool(walk.printed("ERROR"))


def test_the_documents_release_commits_nothing_on_kafka_4(place: Place) -> None:
    """sarama 1.27.2 cannot commit to Kafka 4 with the default Retention 0.

    With Retention 0, sarama's constructRequest builds version 1 of OffsetCommit, which Kafka 4 no longer
    supports.
    """
    works = (True, True, False)
    expected = {
        (release, example, retention): (
            works if release == OURS or retention else (example == "manual", False, True)
        )
        for release in RELEASES
        for example in ("auto", "manual")
        for retention in (0, 3_600_000)
    }
    outcomes = at_once({case: lambda case_=case: _example(place, *case_) for case in expected})
    assert outcomes == expected


def test_a_slow_handler_stays_a_member(place: Place) -> None:
    """S3-20: a member whose handler sleeps longer than the session timeout stays in the group.

    The handler sleeps 10 s, as in a comment of the document, and the session timeout is 6 s.
    """

    def slow(release: str) -> tuple[int, int]:
        topic = f"slow-{next(RUNS)}"
        place.cluster.create_topics({topic: 1})
        walk = Walk(place, "auto", release, topic, session_ms=6_000, work_ms=10_000)
        try:
            walk.until("setup")
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end and len(walk.read) < 1:
                walk.write([0])
                time.sleep(0.5)
            return len(walk.printed("setup")), len(walk.requests("JoinGroup"))
        finally:
            walk.process.kill()
            walk.close()

    assert at_once({r: lambda release=r: slow(release) for r in RELEASES}) == dict.fromkeys(RELEASES, (1, 1))


# -- the fetch loop ---------------------------------------------------------------------------------------


def _partitions(fetch: RecordedRequest) -> list[int]:
    return sorted(part.partition for topic in fetch.request.topics for part in topic.partitions)


def test_a_partition_with_a_blocked_handler_is_not_fetched(place: Place) -> None:
    """S3-9, S3-12: while the handler of a partition is blocked, no Fetch contains this partition.

    With Config.Version 1.0.0 sarama does not use fetch sessions, so each Fetch lists all fetched partitions.
    """
    story: Any = find("S3-12").run().results

    def stands(release: str) -> tuple[list[int], list[int], list[int]]:
        topic = f"stands-{next(RUNS)}"
        place.cluster.create_topics({topic: 2})
        conf: dict[str, Any] = {"max_processing_ms": 100, "channel": 16, "stand_ms": 5_000}
        walk = Walk(place, "auto", release, topic, version="1.0.0", **conf)
        try:
            walk.until("setup")
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end and not any(
                _partitions(request) == [0, 1] for request in walk.requests("Fetch")
            ):
                time.sleep(0.05)
            first = next(
                _partitions(request) for request in walk.requests("Fetch") if len(_partitions(request)) > 1
            )
            written = time.monotonic()
            walk.write([0], 300)
            walk.write([1], 2)
            walk.until("R", 302)
            meanwhile = [request for request in walk.requests("Fetch") if request.at > written]
            alike = [[*some] for _, some in groupby(meanwhile, _partitions)]
            longest = max(alike, key=lambda some: some[-1].at - some[0].at)
            assert longest[-1].at - longest[0].at > 2
            still = _partitions(longest[0])
            walk.write([1])
            walk.until("R", 303)
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end and _partitions(walk.requests("Fetch")[-1]) != [0, 1]:
                time.sleep(0.05)
            for partition, most in ((0, 300), (1, 3)):
                assert [at for part, at in walk.read if part == partition] == list(range(most))
            return first, still, _partitions(walk.requests("Fetch")[-1])
        finally:
            walk.close()

    expected = (
        find("S3-9").run().results["partitions in one Fetch"],
        story["fetched while the handlers are blocked"],
        story["fetched afterwards"],
    )
    assert expected == ([0, 1, 2, 3], [1], [0, 1])
    assert at_once({r: lambda release=r: stands(release) for r in RELEASES}) == dict.fromkeys(
        RELEASES, ([0, 1], [1], [0, 1])
    )


@pytest.mark.parametrize("release", RELEASES)
def test_consume_partition_fails_as_in_the_story(place: Place, release: str) -> None:
    topic = f"parts-{next(RUNS)}"
    place.cluster.create_topics({topic: 3})
    story: Any = find("S3-13").run().results
    # These records are written first, because the program also consumes partition 0 from offset 3, and
    # ConsumePartition rejects an offset beyond the end.
    for partition in (0, 1):
        for _ in range(10):
            place.producer.send(topic, b"x", partition=partition)
    place.producer.flush()
    walk = Walk(place, "partitions", release, topic)
    try:
        walk.until("started")
        assert walk.printed("refused") == story["refused"]
        looked_up = [
            f"t-{part.partition_index} {'newest' if part.timestamp == -1 else 'oldest'}"
            for request in walk.requests("ListOffsets")
            for topic_ in request.request.topics
            for part in topic_.partitions
        ]
        assert looked_up[:4] == story["ListOffsets"]
        walk.write([0, 1])
        walk.until("R", 1)
    finally:
        walk.close()


# -- the producer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_the_sync_producer_returns_as_in_the_story(place: Place, release: str) -> None:
    topic = f"made-{next(RUNS)}"
    place.cluster.create_topics({topic: 3})
    walk = Walk(place, "produce", release, topic)
    walk.close()
    results: Any = find("S3-23").run().results
    assert "Producer.Return.Successes must be true" in walk.lines[0]
    results_by_acks = [line.split()[1:] for line in walk.lines[1:]]
    assert [(acks, offset) for acks, _, offset in results_by_acks] == [
        ("-1", "0"), ("-1", "1"), ("1", "2"), ("1", "3"), ("0", "0"), ("0", "0")
    ]  # fmt: skip
    assert {partition for _, partition, _ in results_by_acks} == {str(results["sarama's own hash of k1"])}
    known = [place_.partition("/")[2] for acks in ("all", 1) for place_ in results[f"acks {acks}"]]
    assert known == [offset for acks, _, offset in results_by_acks if acks != "0"]
    assert eventually(lambda: walk.ends(3) == {0: 0, 1: 6, 2: 0}), "including those with acks=0"
