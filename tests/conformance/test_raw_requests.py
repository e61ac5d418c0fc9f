"""kproto's coordinator, the embedded broker and a real Kafka answer as raw_requests.txt says."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance import judges
from tests.conformance.raw_requests import (
    BrokerScene,
    CoordinatorScene,
    Line,
    Script,
    ScriptRunner,
    Seen,
    fits,
    new_group,
    read,
)

SCRIPTS = read(Path(__file__).with_name("raw_requests.txt").read_text("utf-8"))

BROKERS = {
    "usual": {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "300"},
    "small": {
        "group.initial.rebalance.delay.ms": "1500",
        "group.min.session.timeout.ms": "300",
        "group.max.size": "2",
        "offset.metadata.max.bytes": "10",
    },
}

# A script with waits is run up to this many times. On a slow computer a session may expire too early.
TRIES = 3

every_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.title)


class RealBrokers:
    """One real Kafka for each named set of settings. Each is started when a script first needs it."""

    def __init__(self, usual: judges.RealKafka, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._scenes = {"usual": BrokerScene(usual.bootstrap, _run())}

    def scene(self, name: str) -> BrokerScene:
        if name not in self._scenes:
            broker = self._stack.enter_context(judges.real_kafka(BROKERS[name]))
            self._scenes[name] = BrokerScene(broker.bootstrap, _run())
        return self._scenes[name]


def _run() -> str:
    return str(time.time_ns())


@pytest.fixture(scope="module")
def real_brokers(real_kafka: judges.RealKafka) -> Iterator[RealBrokers]:
    with contextlib.ExitStack() as stack:
        yield RealBrokers(real_kafka, stack)


@contextlib.contextmanager
def embedded_scene(name: str) -> Iterator[BrokerScene]:
    from kproto.broker.server import running

    with running(topics={}, settings=BROKERS[name]) as server:
        yield BrokerScene(server.bootstrap, "t")


def describe_mismatch(line: Line, response: Seen, wanted: Seen) -> str:
    return f"line {line.number}: {line.text}\n  wanted {' '.join(wanted)}\n  seen   {' '.join(response)}"


@every_script
def test_the_coordinator_answers_as_in_the_script(script: Script) -> None:
    for line, response in ScriptRunner(CoordinatorScene(BROKERS[script.broker]), "g").run(script):
        assert fits(line.expected, response), describe_mismatch(line, response, line.expected)


@pytest.mark.kafka
@every_script
def test_kafka_and_the_embedded_broker_answer_as_in_the_script(
    script: Script, real_brokers: RealBrokers
) -> None:
    kafka = run_with_retries(script, lambda: on_kafka(script, real_brokers.scene(script.broker)))
    with embedded_scene(script.broker) as scene:
        run_with_retries(script, lambda: like_kafka(script, scene, kafka))


def run_with_retries(script: Script, run: Callable[[], list[Seen]]) -> list[Seen]:
    """Run a script. A script with waits runs again after a failure, because a session may have expired."""
    for _ in range(TRIES - 1 if any(line.verb == "wait" for line in script.lines) else 0):
        with contextlib.suppress(AssertionError):
            return run()
    return run()


def on_kafka(script: Script, scene: BrokerScene) -> list[Seen]:
    kafka = list(ScriptRunner(scene, new_group(script)).run(script))
    for line, response in kafka:
        wanted = line.on_kafka or line.expected
        assert fits(wanted, response), "Kafka, " + describe_mismatch(line, response, wanted)
    return [response for _, response in kafka]


def like_kafka(script: Script, scene: BrokerScene, kafka: list[Seen]) -> list[Seen]:
    for (line, ours), theirs in zip(ScriptRunner(scene, new_group(script)).run(script), kafka, strict=True):
        assert fits(line.expected, ours), "embedded, " + describe_mismatch(line, ours, line.expected)
        assert line.on_kafka or ours == theirs, "embedded, " + describe_mismatch(line, ours, theirs)
    return kafka


def test_a_wrong_response_fails_the_script() -> None:
    """A script fails if the error code or the generation of a response is not the expected one."""
    (script,) = read("== a lie\nA heartbeat id=ghost generation=1 -> NONE")
    ((line, response),) = ScriptRunner(CoordinatorScene(BROKERS["usual"]), "g").run(script)
    assert response == ("UNKNOWN_MEMBER_ID",)
    assert not fits(line.expected, response)
    assert not fits(("NONE", "generation=2"), ("NONE", "generation=1"))
