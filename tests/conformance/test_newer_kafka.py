"""The test warns, and does not fail, if Maven has a newer Kafka than the one that kproto declares."""

from __future__ import annotations

import warnings

import pytest

from kproto.messages.index import KAFKA_RELEASE
from tests.conformance import judges


class NewerKafka(UserWarning):
    """Warns if Maven has a newer Kafka, whose messages kproto does not declare yet."""


def report(newest: str) -> None:
    if judges.is_newer(newest, KAFKA_RELEASE):
        warnings.warn(
            f"Kafka {newest} is available, and kproto has the messages of {KAFKA_RELEASE}; "
            "see 'Update to a new Kafka' in CONTRIBUTING.md",
            NewerKafka,
            stacklevel=2,
        )


@pytest.mark.java
def test_maven_has_no_newer_kafka() -> None:
    newest = judges.newest_kafka(KAFKA_RELEASE)
    if newest is None:
        pytest.skip("Maven lists no version of Kafka")
    report(newest)


def test_a_newer_kafka_is_reported_as_a_warning() -> None:
    with pytest.warns(NewerKafka, match=r"Kafka 99\.0\.0 is available"):
        report("99.0.0")


@pytest.mark.parametrize("version", [KAFKA_RELEASE, "4.3.1", "99.0.0-rc1"])
def test_an_older_kafka_and_a_release_candidate_are_not_reported(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report(version)


def test_versions_are_compared_by_their_numbers() -> None:
    assert judges.is_newer("4.10.0", "4.9.1")
    assert not judges.is_newer("4.4.0", "4.4.0")
