"""Long conversations of two members with one group, drawn by chance: a real Kafka and ours say the same.

Each has its turn with something that it may say or may not, in any version; what waits, waits at both. Who
leads, and who is in, is not compared: of several members Kafka's hash map chooses.
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
from tests.conformance.broker_pair import RANDOM
from tests.conformance.client_scenarios import SEED
from tests.conformance.raw_requests import FOREVER, Actor, BrokerScene, ScriptRunner, Seen
from tests.conformance.test_boundary_requests_like_kafka import ALL, SETTINGS

TALKS: Final = 120 if ALL else 6
LINES: Final = 30
# What is taken for "waits"; a real one is asked again as often as ours has answered.
SOON: Final = 0.3
NOT_COMPARED: Final = ("leader=", "members=", "skip=")

# What is said, how often, and in which versions.
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


def drawn(dice: Random, actor: Actor, company: ScriptRunner) -> tuple[str, dict[str, str]]:
    """What the member says next."""
    verb, _, (low, high) = dice.choices(VERBS, [often for _, often, _ in VERBS])[0]
    if verb == "leave" and any(actor.member_id and actor.generation < 0 for actor in company.actors.values()):
        # An id that was handed out and is given back: Kafka begins a rebalance for it, and ours doesn't.
        verb, low, high = "heartbeat", 0, 4
    version = dice.randint(low, high)
    said = {"v": str(version)}
    odd = dice.random() < 0.2
    if verb in ("join", "sync", "heartbeat", "leave", "commit") and odd:
        said["id"] = dice.choice(["ghost", "none"]) if verb != "join" else "ghost"
    if verb in ("sync", "heartbeat", "commit") and dice.random() < 0.2:
        said["generation"] = str(dice.choice([-1, 0, actor.generation + 1]))
    if verb == "join":
        said |= {"says": dice.choice(["", "", "more"])}
        if dice.random() < 0.1:
            said |= dice.choice([{"protocols": "sticky"}, {"type": "connect"}, {"protocols": "none"}])
    elif verb == "sync":
        said["plan"] = "A:a,B:b"
        if version >= 5 and dice.random() < 0.15:
            said |= dice.choice([{"name": "sticky"}, {"type": "connect"}, {"type": "null"}])
    elif verb == "leave" and version >= 3 and dice.random() < 0.4:
        said["members"] = dice.choice(["A,B", "ghost", "ghost,A", "A,A", "none/one", "A/two,ghost"])
    elif verb == "commit":
        said["offsets"] = dice.choice(OFFSETS)
        if odd and dice.random() < 0.5:
            said |= {"id": "none", "generation": "-1", "instance": "null"}
    elif verb in ("fetch", "delete-offsets"):
        said["what"] = dice.choice(PARTITIONS if verb != "fetch" or version < 2 else (*PARTITIONS, "all"))
    elif verb == "list":
        said |= {"states": dice.choice(["", "Stable", "empty,Stable", "none"])} if version >= 4 else {}
        said |= {"types": dice.choice(["", "classic", "Consumer", "none"])} if version >= 5 else {}
    return verb, said


def told(verb: str, seen: Seen) -> Seen:
    kept = [word for word in seen if verb == "leave" or not word.startswith(NOT_COMPARED)]
    return tuple(RANDOM.sub("random", word) for word in kept)


class Talk:
    """The same conversation with two brokers."""

    def __init__(self, ours: ScriptRunner, kafka: ScriptRunner, seed: str) -> None:
        self.both = ours, kafka
        self.dice = Random(seed)
        self.lines: list[str] = []
        for company in self.both:
            company.stack = contextlib.ExitStack()
        static = self.dice.random() < 0.5
        for company in self.both:
            company.actor("B")
            company.actor("A").options.update({"instance": "one"} if static else {})

    def differences(self) -> Iterator[str]:
        """The first line that is not answered alike, with all before it."""
        try:
            for _ in range(LINES):
                for name in "AB":
                    if self.both[0].actor(name).waits_for and self.said(name, "answered", {}):
                        yield "\n".join(self.lines)
                        return
                name = self.dice.choice("AB")
                if self.said(name, *drawn(self.dice, self.both[0].actor(name), self.both[0])):
                    yield "\n".join(self.lines)
                    return
        finally:
            for company in self.both:
                company.stack.close()

    def said(self, name: str, verb: str, options: dict[str, str]) -> bool:
        """Let both hear it. True if they don't answer alike."""
        actors = [company.actor(name) for company in self.both]
        if "generation" in options and int(options["generation"]) > 0:
            options = {**options, "generation": str(actors[0].generation + 1)}
        heard: list[Seen] = []
        asked = actors[0].waits_for if verb == "answered" else verb
        for company, actor in zip(self.both, actors, strict=True):
            ours_waits = bool(heard) and heard[0] == ("waits",)
            patience = FOREVER
            if not heard or ours_waits:
                patience = SOON if verb != "answered" else SOON / 10
            if verb in ("join", "sync") and actor.waits_for:
                return False  # one thing at a time
            heard.append(told(asked, company.act(actor, verb, options, patience)))
        if heard[0] == ("waits",) != heard[1]:  # perhaps it was only slower
            heard[0] = told(asked, self.both[0].act(actors[0], "answered", {}, FOREVER))
        words = " ".join(f"{key}={value}" for key, value in options.items())
        self.lines.append(f"{name} {verb} {words}: ours {heard[0]}, kafka {heard[1]}")
        out = heard[0][0] in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID") and "id" not in options
        left = asked == "leave" and "members" not in options
        if left or (asked in ("join", "sync", "heartbeat") and out):
            for actor in actors:
                if not actor.waits_for:
                    actor.member_id, actor.generation = "", -1
        return heard[0] != heard[1]


def group(number: int) -> str:
    return f"talk-{time.time_ns()}-{number}"


@pytest.mark.kafka
def test_two_members_hear_the_same_of_kafka_and_of_ours(real_kafka: judges.RealKafka) -> None:
    with running(settings=SETTINGS) as server:
        scenes = [BrokerScene(one, str(time.time_ns())) for one in (server.bootstrap, real_kafka.bootstrap)]
        for number in range(TALKS):
            name = group(number)
            ours, kafka = (ScriptRunner(scene, name) for scene in scenes)
            found = list(Talk(ours, kafka, f"{SEED}/{number}").differences())
            assert not found, f"talk {number} of KPROTO_SEED={SEED}:\n{found[0]}"


def test_a_wrong_answer_is_noticed() -> None:
    with running(settings=SETTINGS) as one, running(settings=SETTINGS) as other:
        scenes = [BrokerScene(server.bootstrap, "t") for server in (one, other)]
        for number in range(3):
            ours, kafka = (ScriptRunner(scene, f"g{number}") for scene in scenes)
            assert list(Talk(ours, kafka, f"alike/{number}").differences()) == []
        ours, kafka = (ScriptRunner(scene, "wrong") for scene in scenes)
        other.fail("JoinGroup", ErrorCode.NOT_COORDINATOR, 1)
        (found,) = Talk(ours, kafka, "wrong").differences()
        assert "NOT_COORDINATOR" in found
