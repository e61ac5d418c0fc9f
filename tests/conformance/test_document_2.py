"""What document 002 reads in Java's source, tried with Java: the words that its stories show are Java's.

A program makes consumers of 2.6.2 and of 4.3.1 do what the stories tell, on a broker whose groups wait a
second for members. Compared is what poll throws, word by word, and what is assigned in the end.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Cluster
from kproto.broker.server import running
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.messages.sync_group import SyncGroupResponse
from kproto.scenarios import find
from kproto.scenarios.java_join_complete import ONE_PARTITION, chose_best
from tests.conformance import judges, original_clients
from tests.conformance.client_scenarios import Member
from tests.conformance.document_programs import RUNS, Place, eventually, tapped

pytestmark = pytest.mark.originals

DELAY_MS = 1_000
LONG_MS = 900  # What it is called with.
SETTINGS = {"group.initial.rebalance.delay.ms": str(DELAY_MS)}


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "kafka":
        with judges.real_kafka(SETTINGS) as kafka:
            yield kafka.bootstrap
    else:
        with running(settings=SETTINGS) as server:
            yield server.bootstrap


@pytest.fixture(scope="module", params=["java-2.6", "java"])
def said(broker: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """What came out, by scene; "release" is whose it is."""
    topics = {f"t-{request.param}": 4, f"empty-{request.param}": 1}
    with Cluster(broker) as cluster:
        cluster.create_topics(topics)
    words = [*original_clients.with_java("Document2", request.param), broker, *topics]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-1_000:]
    lines = [line.partition(" | ") for line in done.stdout.splitlines()]
    return {"release": request.param, **{scene: what for scene, _, what in lines}}


def told(story: str, result: str) -> str:
    """A result of a story, as Java's program says such a thing: NAME: TEXT."""
    found: Any = find(story).run().results[result]
    if isinstance(found, list):
        (found,) = found
    return found if isinstance(found, str) else ": ".join(filter(None, found))


def test_what_poll_throws_in_a_callbacks_name_is_what_the_stories_say(said: dict[str, str]) -> None:
    for kind in ("RuntimeException", "CommitFailedException"):
        assert said[f"S2-45 {kind}"] == told("S2-45", f"{kind} in revoked: poll throws")
        assert said[f"S2-45 {kind} in the end"] == "2 2"
    assert said["S2-30"] == told("S2-30", f"{said['release']}: poll throws")
    assert said["S2-30 in the end"] == "2 2"
    assert said["S2-41"] == told("S2-41", "poll throws")
    assert said["S2-41 callbacks"] == "[assigned 4, assigned 0]"


def test_what_a_wrong_call_throws_is_what_the_stories_say(said: dict[str, str]) -> None:
    assert said["S2-8"] == told("S2-8", "poll raises")
    assert said["S2-7 second"].startswith(told("S2-7", "the second thread"))  # 4.3 names both threads
    assert said["S2-7 closed"] == told("S2-7", "after close")
    assert (said["S2-9"], said["S2-9 next"]) == ("WakeupException", "0")


def test_a_consumer_without_a_group_that_shall_commit_is_refused(said: dict[str, str]) -> None:
    wrapped = "KafkaException: Failed to construct kafka consumer; caused by "
    assert said["S2-4"].startswith(
        (wrapped if said["release"] == "java-2.6" else "") + "InvalidConfiguration"
    )
    assert said["S2-6"].startswith(
        "ConfigException: Invalid value -1 for configuration auto.commit.interval.ms"
    )


def test_poll_of_a_long_doesnt_begin_its_time_anew_behind_the_join(said: dict[str, str]) -> None:
    if said["release"] == "java":
        assert said["S2-11"] == "gone"
        return
    assert said["S2-11 assigned"] == "1"
    assert DELAY_MS <= int(said["S2-11"]) < DELAY_MS + LONG_MS  # a time of its own for records would be later


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    yield from tapped("embedded")


@pytest.mark.parametrize("release", ["java-2.6", "java"])
def test_an_assignor_that_nobody_has_is_thrown_by_each_poll_of_a_member_that_looks_well(
    release: str, place: Place
) -> None:
    """S2-32: the tap answers all about the group, so that one broker is enough."""
    name = f"best-{next(RUNS)}"
    place.cluster.create_topics({name: 1})
    for api, answer in (
        ("JoinGroup", chose_best()),
        ("SyncGroup", SyncGroupResponse(error_code=0, assignment=ONE_PARTITION)),
        ("Heartbeat", HeartbeatResponse(error_code=0)),
    ):
        place.tap.refuse(name, api, *[answer] * 500)

    def asked(api: str) -> int:
        return sum(one.api == api for one in place.tap.requests(name))

    conf = json.dumps({"assignors": ["range"], "session_ms": 4_000, "heartbeat_ms": 200})
    member = Member(name, [*original_clients.program(release), place.bootstrap, name, name, conf])
    try:
        member.say(f"subscribe {name}")
        member.until("error", 4)
        assert eventually(lambda: asked("Heartbeat") >= 3)
        story: Any = find("S2-32").run().results
        ((error, text),) = story["polls that threw, and what"][1]
        errors = {line for line in member.lines if line.startswith("error")}
        assert errors == {f"error {error} {text}"}
        assert [asked("JoinGroup"), asked("SyncGroup")] == story["JoinGroups, SyncGroups"]
        assert member.events() == []
    finally:
        member.kill()
