"""`Consumer(policy="java")` says to a real Kafka what Java's consumer says, in the same order.

Each play runs twice on one broker, with Java's consumer and with ours, each with a group and a topic of its
own. A run draws a quarter of them; KPROTO_ALL_PLAYS=1 plays all (tox -e soak).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping

import pytest

from consumer import Cluster, Producer
from tests.conformance import original_clients
from tests.conformance.client_scenarios import PLAYS, only_some
from tests.conformance.error_scenarios import PLAYS_OF_REFUSALS
from tests.conformance.java_scenarios import PLAYS_OF_JAVA
from tests.conformance.recording_proxy import Heard, Tap, looked_up
from tests.conformance.test_clients_like_originals import TRIES, keep, played

pytestmark = [pytest.mark.kafka, pytest.mark.originals]

OF_APPLICATIONS = {**PLAYS_OF_JAVA, **PLAYS_OF_REFUSALS}
AS_JAVA = {"policy": "java", "assignors": ["range", "cooperative-sticky"]}


@pytest.mark.parametrize("play", PLAYS)
def test_a_consumer_as_java_says_what_java_says(
    play: str, tapped: Tap, operators: tuple[Cluster, Producer]
) -> None:
    only_some(play, PLAYS)
    for _ in range(TRIES):
        theirs = played("java", original_clients.program("java"), play, tapped, operators)
        ours = played("java", OURS, play, tapped, operators)
        keep("consumer", play, theirs=theirs, ours=ours)
        if said(ours) == said(theirs):
            return
    assert said(ours) == said(theirs)


@pytest.mark.parametrize("play", OF_APPLICATIONS)
def test_an_application_of_a_consumer_as_java_is_told_what_java_tells(
    play: str, tapped: Tap, operators: tuple[Cluster, Producer]
) -> None:
    only_some(play, OF_APPLICATIONS)
    acts = OF_APPLICATIONS[play]
    for _ in range(TRIES):
        start = len(tapped.all)
        theirs = played("java", original_clients.program("java"), play, tapped, operators, acts)
        middle = len(tapped.all)
        ours = played("java", OURS, play, tapped, operators, acts)
        keep("consumer", play, theirs=theirs, ours=ours)
        javas = sought(tapped.all[start:middle])
        # Java's closes before it has asked; ours asks as soon as something is assigned.
        found = {key: asked for key, asked in sought(tapped.all[middle:]).items() if key in javas}
        if (said(ours), heard(ours, play), found) == (said(theirs), heard(theirs, play), javas):
            return
    assert (said(ours), heard(ours, play)) == (said(theirs), heard(theirs, play))
    assert found == javas


def sought(everything: list[Heard]) -> dict[str, set[str]]:
    """What each member asked of leaders, and which topics of any broker."""
    found: dict[str, set[str]] = {}
    for client in {one.client for one in everything if "-" in one.client}:
        name, _, run = client.partition("-")
        for api, asked in looked_up(one for one in everything if one.client == client).items():
            found[f"{name} {api}"] = {line.replace(f"-{run}", "") for line in asked}
    return found


# What Java's application isn't told: close() waits for the commit, and drops its callback. Ours is told.
FORGOTTEN = {"close-with-a-pending-commit": "commit ok"}


def heard(members: Mapping[str, Mapping[str, list[str]]], play: str) -> dict[str, list[list[str]]]:
    """Answers, callbacks, and which errors there were; how often one came depends on how often it polled."""
    out = {"answer poll-once ok", FORGOTTEN.get(play)}
    return {
        name: [[line for line in one["heard"] if line not in out], sorted(set(one["errors"]))]
        for name, one in members.items()
    }


MEMBER_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


def said(members: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
    """Without the ids that a broker draws, and without commits that depend on when an interval ended."""
    found: dict[str, list[str]] = {}
    for name, one in members.items():
        lines = [MEMBER_ID.sub("ID", line) for line in one["said"]]
        lines = [line for line in lines if not (line.startswith("OffsetCommit") and "@0/e-1" in line)]
        found[name] = [line for line, before in zip(lines, ["", *lines], strict=False) if line != before]
    return found


# The play says what every client is told; this says what ours is told besides.
WRAPPER = """
import json, sys
from kproto.cli import main
conf = {**json.loads(sys.argv[1]), **json.loads(sys.argv.pop())}
sys.exit(main(["member", "--as", "kproto", *sys.argv[2:], json.dumps(conf)]))
"""
OURS = [sys.executable, "-c", WRAPPER, json.dumps(AS_JAVA)]
