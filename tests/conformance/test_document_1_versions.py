"""sarama in docs/lessons/001: its request versions by release and Config.Version, and its default options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kproto.scenarios import find
from tests.conformance.document_programs import (
    LAST,
    MAINS,
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

    The version of OffsetCommit depends only on Retention. The test records it with V2_0_0_0.
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
