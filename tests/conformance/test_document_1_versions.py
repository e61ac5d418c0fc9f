"""sarama in docs/lessons/001-new-partitions.md: its default options and its request versions.

The request versions depend on sarama's release and on Config.Version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kproto.scenarios import find
from tests.conformance.document_programs import (
    LAST,
    MAINS,
    OURS,
    Main,
    Place,
    eventually,
    of_sarama,
    run_place,
    topic_of,
)

pytestmark = pytest.mark.originals


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    for release in MAINS:
        of_sarama("sarama_main", release)
    yield from run_place("embedded")


def results(story: str) -> dict[str, Any]:
    outcome = find(story).run()
    assert outcome.holds
    return outcome.results


def test_the_version_of_a_config_selects_the_request_versions_of_the_story(place: Place) -> None:
    """S1-7: with V0_10_2_1 sarama sends Fetch v3. Kafka 4 rejects it, so nothing is read or committed.

    The first client never sends OffsetCommit. So the test observes its version on a second client, whose
    newer Config.Version allows commits. This version depends only on Offsets.Retention, which is equal in
    both.
    """
    story: dict[str, int] = results("S1-7")["versions"]
    topic = topic_of(place, "versions", 1)
    old = Main(place, LAST, topic, version="0.10.2.1", retention_ms=0, heartbeat_ms=500)
    newer = Main(place, LAST, topic, retention_ms=0)
    try:
        newer.read_on([0])
        assert eventually(lambda: "OffsetCommit" in place.proxy.versions(newer.name))
        assert eventually(lambda: {"Fetch", "Heartbeat"} <= place.proxy.versions(old.name).keys())
        versions = place.proxy.versions(old.name)
        versions.pop("ApiVersions", None)
        assert "OffsetCommit" not in versions
        assert versions | {"OffsetCommit": place.proxy.versions(newer.name)["OffsetCommit"]} == story
    finally:
        for main in (old, newer):
            main.kill()


@pytest.mark.parametrize("release", MAINS)
def test_a_fetch_waits_for_the_default_time(place: Place, release: str) -> None:
    """S3-9: MaxWaitTime is 500 ms by default, and MinBytes is 1."""
    main = Main(place, release, topic_of(place, "waits", 1))
    try:
        assert eventually(lambda: main.requests("Fetch") != [])
        request = main.requests("Fetch")[0].request
        assert [request.min_bytes, f"{request.max_wait_ms} ms"] == results("S3-9")["MinBytes, MaxWaitTime"]
    finally:
        main.kill()


@pytest.mark.parametrize(("release", "follower_checks"), [(LAST, True), (OURS, False)])
def test_since_1_41_only_the_leader_checks_the_partitions(
    place: Place, release: str, follower_checks: bool
) -> None:
    """S1-4: partitions are added, but only the follower refreshes its metadata. Before sarama 1.41
    the follower then rejoins; from 1.41 on, it does not.
    """
    topic = topic_of(place, "checks")
    leader = Main(place, release, topic, refresh_ms=600_000, heartbeat_ms=500)
    follower: Main | None = None
    try:
        leader.until("session")
        follower = Main(place, release, topic, leader.group, refresh_ms=1_000, heartbeat_ms=500)
        follower.until("session")
        assert eventually(lambda: len(leader.sessions[-1].split()) == 1)
        place.cluster.create_partitions({topic: 4})
        sessions, refreshed = len(follower.sessions), len(follower.requests("Metadata"))
        if follower_checks:
            assert eventually(lambda: len(follower.sessions) > sessions)
        else:
            assert eventually(lambda: len(follower.requests("Metadata")) >= refreshed + 4)
            assert len(follower.sessions) == sessions
    finally:
        for member in (leader, follower):
            if member is not None:
                member.kill()
