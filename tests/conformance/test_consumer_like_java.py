"""`Consumer(policy="java")` sends a real Kafka the same requests as Java's consumer, in the same order.

Each scenario runs twice on one broker: with Java's consumer and with kproto's. Each run has its own group and
topic.

A run draws a quarter of the scenarios. `KPROTO_ALL_PLAYS=1` runs all (tox -e soak).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping

import pytest

from consumer import Admin, Producer
from tests.conformance import original_clients
from tests.conformance.client_scenarios import SCENARIOS, skip_unless_drawn
from tests.conformance.error_scenarios import ERROR_SCENARIOS
from tests.conformance.java_scenarios import JAVA_SCENARIOS
from tests.conformance.recording_proxy import RecordedRequest, RecordingProxy, lookup_lines
from tests.conformance.scenario_runs import TRIES, run_scenario, save_recordings

pytestmark = [pytest.mark.kafka, pytest.mark.originals]

OF_APPLICATIONS = {**JAVA_SCENARIOS, **ERROR_SCENARIOS}
AS_JAVA = {"policy": "java"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_consumer_with_javas_policy_sends_javas_requests(
    scenario: str, proxied_kafka: RecordingProxy, operators: tuple[Admin, Producer]
) -> None:
    skip_unless_drawn(scenario, SCENARIOS)
    for _ in range(TRIES):
        theirs = run_scenario("java", original_clients.program("java"), scenario, proxied_kafka, operators)
        ours = run_scenario("java", OURS, scenario, proxied_kafka, operators)
        save_recordings("consumer", scenario, theirs=theirs, ours=ours)
        if requests_of(ours) == requests_of(theirs):
            return
    assert requests_of(ours) == requests_of(theirs)


@pytest.mark.parametrize("scenario", OF_APPLICATIONS)
def test_an_application_with_javas_policy_gets_javas_events(
    scenario: str, proxied_kafka: RecordingProxy, operators: tuple[Admin, Producer]
) -> None:
    skip_unless_drawn(scenario, OF_APPLICATIONS)
    acts = OF_APPLICATIONS[scenario]
    for _ in range(TRIES):
        start = len(proxied_kafka.all)
        theirs = run_scenario(
            "java", original_clients.program("java"), scenario, proxied_kafka, operators, acts
        )
        middle = len(proxied_kafka.all)
        ours = run_scenario("java", OURS, scenario, proxied_kafka, operators, acts)
        save_recordings("consumer", scenario, theirs=theirs, ours=ours)
        javas = lookups_by_member(proxied_kafka.all[start:middle])
        # The lookups of a member and API are compared only if Java's consumer sent at least one. Java's
        # consumer may close before its first lookup. kproto's consumer sends lookups as soon as it has
        # partitions.
        lookups = {
            key: lines for key, lines in lookups_by_member(proxied_kafka.all[middle:]).items() if key in javas
        }
        if (requests_of(ours), events_of(ours, scenario), lookups) == (
            requests_of(theirs),
            events_of(theirs, scenario),
            javas,
        ):
            return
    assert (requests_of(ours), events_of(ours, scenario)) == (
        requests_of(theirs),
        events_of(theirs, scenario),
    )
    assert lookups == javas


def lookups_by_member(everything: list[RecordedRequest]) -> dict[str, set[str]]:
    """Return each member's lookups of offsets and epochs, and its metadata requests."""
    lookups: dict[str, set[str]] = {}
    for client in {request.client for request in everything if "-" in request.client}:
        name, _, run = client.partition("-")
        for api, lines in lookup_lines(request for request in everything if request.client == client).items():
            lookups[f"{name} {api}"] = {line.replace(f"-{run}", "") for line in lines}
    return lookups


# Maps a scenario to an event that only kproto reports. Java's close() waits for the pending commit, but does
# not call its callback.
FORGOTTEN = {"close-with-a-pending-commit": "commit ok"}


def events_of(members: Mapping[str, Mapping[str, list[str]]], scenario: str) -> dict[str, list[list[str]]]:
    """Return each member's events and errors.

    Equal errors are listed once, because the number of polls decides how often an error is raised.
    """
    out = {"answer poll-once ok", FORGOTTEN.get(scenario)}
    return {
        name: [[line for line in member["heard"] if line not in out], sorted(set(member["errors"]))]
        for name, member in members.items()
    }


MEMBER_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


def requests_of(members: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """Return each member's requests, with the random ids replaced.

    Commits of offset 0 and repeated equal requests are left out, because they depend on the commit interval.
    """
    requests: dict[str, list[str]] = {}
    for name, member in members.items():
        lines = [MEMBER_ID.sub("ID", line) for line in member["said"]]
        lines = [line for line in lines if not (line.startswith("OffsetCommit") and "@0/e-1" in line)]
        requests[name] = [line for line, before in zip(lines, ["", *lines], strict=False) if line != before]
    return requests


# A program that runs `kproto member` with the scenario's options and, in addition, the options AS_JAVA.
WRAPPER = """
import json, sys
from kproto.cli import main
conf = {**json.loads(sys.argv[1]), **json.loads(sys.argv.pop())}
sys.exit(main(["member", "--as", "kproto", *sys.argv[2:], json.dumps(conf)]))
"""
OURS = [sys.executable, "-c", WRAPPER, json.dumps(AS_JAVA)]
