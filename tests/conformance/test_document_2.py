"""Java's consumer behaves as docs/lessons/002 concludes from its source.

A Java program runs the document's scenarios with the consumers of kafka-clients 2.6.2 and 4.3.1. The tests
compare its output, such as the exceptions that `poll` throws, with the results of the scenarios. The broker's
initial rebalance delay is 1 s.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin
from kproto.broker.server import running
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.messages.sync_group import SyncGroupResponse
from kproto.scenarios import find
from kproto.scenarios.java_join_complete import ONE_PARTITION, chose_best
from tests.conformance import judges, original_clients
from tests.conformance.client_scenarios import DrivenMember
from tests.conformance.document_programs import RUNS, Place, eventually, run_place

pytestmark = pytest.mark.originals

DELAY_MS = 1_000
LONG_MS = 900  # The timeout passed to poll(long), in ms.
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
def results(broker: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Run the Java program. Return each scenario's result, and the client's release ("java-2.6" or "java")
    under "release".
    """
    topics = {f"t-{request.param}": 4, f"empty-{request.param}": 1}
    with Admin(broker) as cluster:
        cluster.create_topics(topics)
    words = [*original_clients.with_java("Document2", request.param), broker, *topics]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr[-1_000:]
    lines = [line.partition(" | ") for line in done.stdout.splitlines()]
    return {"release": request.param, **{scene: result for scene, _, result in lines}}


def story_result(story: str, result: str) -> str:
    """Return a scenario's result in the form NAME: TEXT, as the Java program prints it."""
    result_: Any = find(story).run().results[result]
    if isinstance(result_, list):
        (result_,) = result_
    return result_ if isinstance(result_, str) else ": ".join(filter(None, result_))


def test_exceptions_of_callbacks_are_those_of_the_stories(results: dict[str, str]) -> None:
    for kind in ("RuntimeException", "CommitFailedException"):
        assert results[f"S2-45 {kind}"] == story_result("S2-45", f"{kind} in revoked: poll throws")
        assert results[f"S2-45 {kind} callbacks"] == _listed("S2-45", f"{kind}: callbacks")
        assert results[f"S2-45 {kind} in the end"] == "2 2"
    assert results["S2-30"] == story_result("S2-30", f"{results['release']}: poll throws")
    assert results["S2-30 in the end"] == "2 2"
    assert results["S2-41"] == story_result("S2-41", "poll throws")
    assert results["S2-41 callbacks"] == _listed("S2-41", "callbacks").replace(
        "2", "4"
    )  # Of four partitions.


def test_exceptions_of_invalid_calls_are_those_of_the_stories(results: dict[str, str]) -> None:
    assert results["S2-8"] == story_result("S2-8", "poll raises")
    # Only kafka-clients 4.3.1 appends the calling thread and the id of the other thread to the message.
    message, _, threads = results["S2-7 second"].partition(". currentThread(")
    assert message == story_result("S2-7", "the second thread")
    assert bool(threads) == (results["release"] == "java")
    assert results["S2-7 closed"] == story_result("S2-7", "after close")
    assert (results["S2-9"], results["S2-9 next"]) == ("WakeupException", "0")


def test_a_consumer_that_commits_without_a_group_is_rejected(results: dict[str, str]) -> None:
    release = {"java-2.6": "2.6.2", "java": "4.3.1"}[results["release"]]
    assert results["S2-4"] == story_result("S2-4", f"kafka-clients {release} throws")
    assert results["S2-6"] == story_result("S2-6", "-1, Java throws")


def test_callbacks_see_the_generations_of_the_stories(results: dict[str, str]) -> None:
    assert results["S2-33"] == f"[assigned:1, {_listed('S2-33', 'groupMetadata in callbacks')[1:]}"
    assert results["S2-44"] == _listed("S2-44", "callbacks of the idle one")


def test_an_interceptor_decides_what_poll_returns_but_not_what_is_committed(results: dict[str, str]) -> None:
    read, committed = find("S2-13").run().results["records, committed"]  # type: ignore[misc]
    assert results["S2-13"] == f"{read} {committed}"


def _listed(story: str, result: str) -> str:
    """Format a list in a scenario's results as Java's List.toString does."""
    items: Any = find(story).run().results[result]
    texts = [item if isinstance(item, str) else ":".join(map(str, item)) for item in items]
    return f"[{', '.join(texts)}]"


def test_poll_of_a_long_does_not_restart_its_timeout_after_the_join(results: dict[str, str]) -> None:
    if results["release"] == "java":
        assert results["S2-11"] == "gone"
        return
    assert results["S2-11 assigned"] == "1"
    # The timeout of poll(long) includes the join. If the timeout restarted after the join, poll would take
    # at least as long as the join and the timeout together.
    assert DELAY_MS <= int(results["S2-11"]) < DELAY_MS + LONG_MS


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    yield from run_place("embedded")


@pytest.mark.parametrize("release", ["java-2.6", "java"])
def test_an_unknown_assignor_is_thrown_by_each_poll_while_heartbeats_succeed(
    release: str, place: Place
) -> None:
    """S2-32: a response from the proxy selects an assignor that the member does not have."""
    name = f"best-{next(RUNS)}"
    place.cluster.create_topics({name: 1})
    for api, answer in (
        ("JoinGroup", chose_best()),
        ("SyncGroup", SyncGroupResponse(error_code=0, assignment=ONE_PARTITION)),
        ("Heartbeat", HeartbeatResponse(error_code=0)),
    ):
        place.proxy.refuse(name, api, *[answer] * 500)

    def asked(api: str) -> int:
        return sum(request.api == api for request in place.proxy.requests(name))

    conf = json.dumps({"assignors": ["range"], "session_ms": 4_000, "heartbeat_ms": 200})
    member = DrivenMember(name, [*original_clients.program(release), place.bootstrap, name, name, conf])
    try:
        member.send(f"subscribe {name}")
        member.until("error", 4)
        assert eventually(lambda: asked("Heartbeat") >= 3)
        story: Any = find("S2-32").run().results
        ((error, text),) = story["polls that threw, and the exceptions"][1]
        errors = {line for line in member.lines if line.startswith("error")}
        assert errors == {f"error {error} {text}"}
        assert [asked("JoinGroup"), asked("SyncGroup")] == story["JoinGroups, SyncGroups"]
        assert member.events() == []
    finally:
        member.kill()


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("release", ["java-2.6", "java"])
def test_an_assignment_without_its_version_is_thrown_by_each_poll(
    release: str, size: int, place: Place
) -> None:
    """S2-34: an assignment of 0 or 1 bytes lacks its version, and each poll throws the same exception."""
    name = f"short-{next(RUNS)}"
    place.cluster.create_topics({name: 1})
    place.proxy.refuse(name, "SyncGroup", *[SyncGroupResponse(error_code=0, assignment=bytes(size))] * 500)
    conf = json.dumps({"assignors": ["range"], "session_ms": 6_000, "heartbeat_ms": 200})
    member = DrivenMember(name, [*original_clients.program(release), place.bootstrap, name, name, conf])
    try:
        member.send(f"subscribe {name}")
        member.until("error", 3)
        errors = {line for line in member.lines if line.startswith("error")}
        story = story_result("S2-34", f"{size} bytes: poll throws")
        assert errors == {f"error {story.replace(': ', ' ', 1)}"}
        assert member.events() == []
    finally:
        member.kill()
