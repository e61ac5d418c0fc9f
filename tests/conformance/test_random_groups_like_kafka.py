"""A real Kafka and the embedded broker respond alike to random sequences of requests of two members.

The members send requests in turn, in any version. Some requests are invalid. If one broker delays its
response to a request, the other broker must delay its response, too.

The leader and the list of members are not compared, because Kafka takes them from a hash map, in no defined
order.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from tests.conformance import judges
from tests.conformance.broker_pair import RANDOM, SETTINGS
from tests.conformance.client_scenarios import RUN_ALL, SEED
from tests.conformance.raw_requests import FOREVER, Actor, BrokerScene, ScriptRunner, Seen

TALKS: Final = 120 if RUN_ALL else 6
LINES: Final = 30
# A request counts as delayed if no response arrives within this time in seconds. If the embedded broker has
# responded, the test waits for Kafka's response for up to `FOREVER`.
SOON: Final = 0.3
NOT_COMPARED: Final = ("leader=", "members=", "skip=")

# Requests, each with its weight in the draw and its (lowest, highest) version.
VERBS: Final = (
    ("join", 6, (2, 9)), ("sync", 5, (0, 5)), ("heartbeat", 3, (0, 4)), ("leave", 2, (0, 5)),
    ("commit", 3, (2, 9)), ("fetch", 2, (1, 9)), ("delete-offsets", 1, (0, 0)), ("describe", 2, (0, 6)),
    ("list", 1, (0, 5)), ("delete", 1, (0, 2)),
)  # fmt: skip
OFFSETS: Final = (
    "flights-0:7",
    "flights-1:-1",
    "flights-0:1,flights-1:2",
    "ghost-0:1",
    "flights-0:3,old-0:4",
)
PARTITIONS: Final = ("flights-0", "flights-0,flights-1", "ghost-0", "flights-9", "old-0")


def drawn(dice: Random, actor: Actor, runner: ScriptRunner) -> tuple[str, dict[str, str]]:
    """Draw the member's next request."""
    verb, _, (low, high) = dice.choices(VERBS, [often for _, often, _ in VERBS])[0]
    if verb == "leave" and any(actor.member_id and actor.generation < 0 for actor in runner.actors.values()):
        # No LeaveGroup is drawn while a member has an id but has not joined. Kafka would start a rebalance,
        # and the embedded broker would not.
        verb, low, high = "heartbeat", 0, 4
    version = dice.randint(low, high)
    options = {"v": str(version)}
    odd = dice.random() < 0.2
    if verb in ("join", "sync", "heartbeat", "leave", "commit") and odd:
        options["id"] = dice.choice(["ghost", "none"]) if verb != "join" else "ghost"
    if verb in ("sync", "heartbeat", "commit") and dice.random() < 0.2:
        options["generation"] = str(dice.choice([-1, 0, actor.generation + 1]))
    if verb == "join":
        options |= {"says": dice.choice(["", "", "more"])}
        if dice.random() < 0.1:
            options |= dice.choice([{"protocols": "sticky"}, {"type": "connect"}, {"protocols": "none"}])
    elif verb == "sync":
        options["plan"] = "A:a,B:b"
        if version >= 5 and dice.random() < 0.15:
            options |= dice.choice([{"name": "sticky"}, {"type": "connect"}, {"type": "null"}])
    elif verb == "leave" and version >= 3 and dice.random() < 0.4:
        options["members"] = dice.choice(["A,B", "ghost", "ghost,A", "A,A", "none/one", "A/two,ghost"])
    elif verb == "commit":
        options["offsets"] = dice.choice(OFFSETS)
        if odd and dice.random() < 0.5:
            options |= {"id": "none", "generation": "-1", "instance": "null"}
    elif verb in ("fetch", "delete-offsets"):
        options["what"] = dice.choice(PARTITIONS if verb != "fetch" or version < 2 else (*PARTITIONS, "all"))
    elif verb == "list":
        options |= {"states": dice.choice(["", "Stable", "empty,Stable", "none"])} if version >= 4 else {}
        options |= {"types": dice.choice(["", "classic", "Consumer", "none"])} if version >= 5 else {}
    return verb, options


def comparable(verb: str, response: Seen) -> Seen:
    compared = [word for word in response if verb == "leave" or not word.startswith(NOT_COMPARED)]
    return tuple(RANDOM.sub("random", word) for word in compared)


class Conversation:
    """One sequence of requests, sent to two brokers."""

    def __init__(self, ours: ScriptRunner, kafka: ScriptRunner, seed: str) -> None:
        self.runners = ours, kafka
        self.dice = Random(seed)
        self.lines: list[str] = []
        for runner in self.runners:
            runner.stack = contextlib.ExitStack()
        static = self.dice.random() < 0.5
        for runner in self.runners:
            runner.actor("B")
            runner.actor("A").options.update({"instance": "one"} if static else {})

    def differences(self) -> Iterator[str]:
        """At the first difference between the brokers' responses, yield all lines so far, as one string."""
        try:
            for _ in range(LINES):
                for name in "AB":
                    if self.runners[0].actor(name).waits_for and self.send(name, "answered", {}):
                        yield "\n".join(self.lines)
                        return
                name = self.dice.choice("AB")
                if self.send(name, *drawn(self.dice, self.runners[0].actor(name), self.runners[0])):
                    yield "\n".join(self.lines)
                    return
        finally:
            for runner in self.runners:
                runner.stack.close()

    def send(self, name: str, verb: str, options: dict[str, str]) -> bool:
        """Send a request to both brokers; return whether the responses differ."""
        actors = [runner.actor(name) for runner in self.runners]
        if "generation" in options and int(options["generation"]) > 0:
            options = {**options, "generation": str(actors[0].generation + 1)}
        responses: list[Seen] = []
        request = actors[0].waits_for if verb == "answered" else verb
        for runner, actor in zip(self.runners, actors, strict=True):
            ours_waits = bool(responses) and responses[0] == ("waits",)
            patience = FOREVER
            if not responses or ours_waits:
                patience = SOON if verb != "answered" else SOON / 10
            if verb in ("join", "sync") and actor.waits_for:
                return False  # A member has one request in flight at a time.
            responses.append(comparable(request, runner.act(actor, verb, options, patience)))
        # Kafka has responded. The embedded broker may be slower, so its response is awaited.
        if responses[0] == ("waits",) != responses[1]:
            responses[0] = comparable(request, self.runners[0].act(actors[0], "answered", {}, FOREVER))
        words = " ".join(f"{key}={value}" for key, value in options.items())
        self.lines.append(f"{name} {verb} {words}: ours {responses[0]}, kafka {responses[1]}")
        out = responses[0][0] in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID") and "id" not in options
        has_left = request == "leave" and "members" not in options
        if has_left or (request in ("join", "sync", "heartbeat") and out):
            for actor in actors:
                if not actor.waits_for:
                    actor.member_id, actor.generation = "", -1
        return responses[0] != responses[1]


def group(number: int) -> str:
    return f"talk-{time.time_ns()}-{number}"


@pytest.mark.kafka
def test_both_brokers_answer_random_members_alike(real_kafka: judges.RealKafka) -> None:
    with running(settings=SETTINGS) as server:
        scenes = [
            BrokerScene(bootstrap, str(time.time_ns()))
            for bootstrap in (server.bootstrap, real_kafka.bootstrap)
        ]
        for number in range(TALKS):
            name = group(number)
            ours, kafka = (ScriptRunner(scene, name) for scene in scenes)
            differences = list(Conversation(ours, kafka, f"{SEED}/{number}").differences())
            assert not differences, f"talk {number} of KPROTO_SEED={SEED}:\n{differences[0]}"


def test_a_wrong_response_fails_the_script() -> None:
    with running(settings=SETTINGS) as first, running(settings=SETTINGS) as second:
        scenes = [BrokerScene(server.bootstrap, "t") for server in (first, second)]
        for number in range(3):
            ours, kafka = (ScriptRunner(scene, f"g{number}") for scene in scenes)
            assert list(Conversation(ours, kafka, f"alike/{number}").differences()) == []
        ours, kafka = (ScriptRunner(scene, "wrong") for scene in scenes)
        second.fail("JoinGroup", ErrorCode.NOT_COORDINATOR, 1)
        (difference,) = Conversation(ours, kafka, "wrong").differences()
        assert "NOT_COORDINATOR" in difference
