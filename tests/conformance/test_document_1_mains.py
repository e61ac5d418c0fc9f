"""Document 001's programs from their first line to their last: what they do at errors, signals and growth.

The document's main() around sarama runs with its own release, 1.38.1, and with today's 1.61.1, whose machine
tells the stories; sarama-cluster's with sarama 1.29.1, which it compiles with, and which has the document's
Consumer.Group.Rebalance.Strategy; ReadMessage is confluent-kafka-go's. Each is behind a tap.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kproto.messages.join_group import JoinGroupRequest
from kproto.scenarios import find
from kproto.scenarios.sarama_new_session import refusal
from tests.conformance import judges, original_clients
from tests.conformance.document_programs import (
    LAST,
    OURS,
    RUNS,
    Place,
    Program,
    at_once,
    eventually,
    of_sarama,
    only_one_broker,
    tapped,
)

pytestmark = pytest.mark.originals

MAINS = (LAST, OURS)
HOUR_MS = 3_600_000  # With a retention 1.38.1's commits are of a version that brokers know still.


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    for release in MAINS:
        of_sarama("sarama_main", release)  # built once, before they all want it
    original_clients.with_modules("sarama_cluster_main")
    original_clients.with_modules("new_partitions")
    yield from tapped(request.param)


@pytest.fixture(autouse=True)
def drawn(request: pytest.FixtureRequest) -> None:
    only_one_broker(request)


def results(story: str) -> dict[str, Any]:
    told = find(story).run()
    assert told.holds
    return told.results


class Main(Program):
    """The document's main() around sarama."""

    def __init__(self, place: Place, release: str, topic: str, group: str = "", **conf: Any) -> None:
        name = f"main-{next(RUNS)}"
        group = group or f"g-{name}"
        said = {"client_id": name, "retention_ms": HOUR_MS, "refresh_ms": 1_000, **conf}
        words = [of_sarama("sarama_main", release), conf.pop("bootstrap", place.bootstrap), group, topic]
        super().__init__(place, name, topic, group, [*words, json.dumps(said)])

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    @property
    def sessions(self) -> list[str]:
        return self.said("session")

    def owns(self, claims: str) -> bool:
        return self.sessions[-1:] == [claims]


def topic_of(place: Place, name: str, partitions: int = 2) -> str:
    topic = f"{name}-{next(RUNS)}"
    place.cluster.create_topics({topic: partitions})
    return topic


# -- sarama: main() ---------------------------------------------------------------------------------------


def test_main_without_a_broker_logs_one_error_and_ends(place: Place) -> None:
    """S1-5: a port at which nobody listens."""
    nobody = f"127.0.0.1:{judges.free_port()}"
    story = results("S1-5")["without a broker"]
    for release in MAINS:
        main = Main(place, release, "t", bootstrap=nobody)
        main.ended()
        assert len(main.lines) == len(story) == 1
        assert main.lines[0].startswith(
            "logged Error creating consumer group client: kafka: client has run out"
        )


def test_main_panics_at_an_error_and_leaves_at_a_signal(place: Place) -> None:
    """S1-5: growth is another session and no error; a panic says nothing to the group, a signal does."""
    story = results("S1-5")

    def ends(release: str, way: str) -> tuple[list[str], int, bool]:
        topic = topic_of(place, "main")
        beats = {"session_ms": 6_000, "heartbeat_ms": 500}
        main = Main(place, release, topic, **beats)
        other: Main | None = None
        try:
            main.until("session")
            place.cluster.create_partitions({topic: 4})
            main.until("returned")
            assert eventually(lambda: main.owns("[0 1 2 3]"))
            other = Main(place, release, topic, main.group, **beats)
            assert eventually(lambda: other.sessions != [] and len((main.sessions[-1]).split()) == 2)
            if way == "signal":
                main.signal()
            else:
                refused = refusal(JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                place.tap.refuse(main.name, "JoinGroup", refused)
                place.tap.inject(main.name, "Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
            main.ended()
            ended = main.times[-1]
            assert eventually(lambda: other.owns("[0 1 2 3]"))
            waited = other.when("session")[-1] - ended > 3
            assert main.said("closed") == ([""] if way == "signal" else [])
            return main.said("panic"), len(main.heard("LeaveGroup")), waited
        finally:
            for one in (main, other):
                if one is not None:
                    one.kill()

    panic = re.sub(r"KError\(30\) ", "", story["error: panic"])
    expected = {"error": ([panic], 0, True), "signal": ([], 1, False)}
    found = at_once(
        {(main, way): lambda r=main, w=way: ends(r, w) for main in MAINS for way in ("error", "signal")}
    )
    assert {case: (_said(panics), left, waited) for case, (panics, left, waited) in found.items()} == {
        (main, way): (_said(panics), left, waited)
        for main in MAINS
        for way, (panics, left, waited) in expected.items()
    }


def _said(panics: list[str]) -> list[str]:
    """Without the sentence's end: 1.61.1 has a full stop more here and there."""
    return [panic.rstrip(".") for panic in panics]


def test_the_handler_has_each_message_once_over_a_growth(place: Place) -> None:
    """S1-6, S1-13: a session is Setup, claims that end, Cleanup; what was marked is committed behind it."""
    story = results("S1-6")

    def handles(release: str, stale: bool) -> Any:
        topic = topic_of(place, "handler")
        group = f"g-{topic}"
        place.cluster.commit_offsets(group, {TopicPartition(topic, one): 0 for one in (0, 1)})
        main = Main(place, release, topic, group, stale_ready=stale)
        try:
            main.until("session")
            main.write((0, 1), 100)
            place.cluster.create_partitions({topic: 4})
            assert eventually(lambda: main.write((0, 1)) or len(main.sessions) == 2)
            if stale:
                return main.until("panic")
            main.write((0, 1), 100)
            ends = main.ends(2)
            assert eventually(lambda: sorted(main.read[-1:]) and len(main.read) >= sum(ends.values()))
            main.signal()
            main.ended()
            assert [main.offsets(one) for one in (0, 1)] == [list(range(ends[one])) for one in (0, 1)]
            words = [line.split()[0] for line in main.lines]
            shape = [one for one, _ in groupby(words) if one in ("session", "R", "claim", "cleanup")]
            found = place.cluster.committed_offsets(group)
            notes = {one.metadata for tp, one in found.items() if one}
            committed = {tp.partition: one.offset for tp, one in found.items() if one}
            assert (committed, notes) == (ends, {""})
            assert words[words.index("cleanup") + 1] == "returned"
            return [one for one in shape if one in ("session", "cleanup")]
        finally:
            main.kill()

    told = {"assigned": "session", "revoked": "cleanup"}
    shape = [told[one] for one in story["ready made anew: Setup and Cleanup"]]
    expected = {(main, stale): [story["panic"]] if stale else shape for main in MAINS for stale in (0, 1)}
    found = at_once({case: lambda one=case: handles(one[0], bool(one[1])) for case in expected})
    assert found == expected


def test_sigusr1_pauses_and_the_session_lives_on(place: Place) -> None:
    """S1-8: no Fetch while paused, and everything afterwards, in one session."""
    story = results("S1-8")

    def pauses(release: str) -> tuple[int, int, int]:
        topic = topic_of(place, "pauses")
        group = f"g-{topic}"
        place.cluster.commit_offsets(group, {TopicPartition(topic, one): 0 for one in (0, 1)})
        main = Main(place, release, topic, group)
        try:
            main.write((0, 1), 10)
            main.until("R", 20)
            main.signal(signal.SIGUSR1)
            main.until("paused")
            eventually(lambda: False, 1.5)  # an open Fetch is answered, MaxWaitTime is half a second
            here, fetched = len(main.read), len(main.heard("Fetch"))
            main.write((0, 1), 10)
            beats = len(main.heard("Heartbeat"))
            assert eventually(lambda: len(main.heard("Heartbeat")) > beats)
            meanwhile = len(main.read) - here, len(main.heard("Fetch")) - fetched
            main.signal(signal.SIGUSR1)
            main.until("R", 40)
            assert [main.offsets(one) for one in (0, 1)] == [list(range(20))] * 2
            return (*meanwhile, len(main.sessions))
        finally:
            main.kill()

    expected = dict.fromkeys(MAINS, (story["read while paused"], 0, 1))
    assert at_once({main: lambda release=main: pauses(release) for main in MAINS}) == expected


# -- sarama-cluster ---------------------------------------------------------------------------------------


class Clustered(Program):
    """The document's program around sarama-cluster; of several topics the first one is written to."""

    def __init__(self, place: Place, topics: Sequence[str], group: str = "", **conf: Any) -> None:
        name = f"cluster-{next(RUNS)}"
        group = group or f"g-{name}"
        words = [
            original_clients.with_modules("sarama_cluster_main"),
            place.bootstrap,
            group,
            ",".join(topics),
        ]
        said = json.dumps({"client_id": name, "refresh_ms": 1_000, **conf})
        super().__init__(place, name, topics[0], group, [*words, said])

    @property
    def read(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for _, a, b in (one.split() for one in self.said("R"))]

    @property
    def owned(self) -> list[str]:
        """What the last notification calls current."""
        last = (self.said("notification") or ["current="])[-1]
        return [one for one in last.partition("current=")[2].split(",") if one]

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


def shared(members: Sequence[Clustered], partitions: int) -> bool:
    """Whether these members, and all of them, own so much in all."""
    names = [one for member in members for one in member.owned]
    return all(member.owned for member in members) and len(names) == len(set(names)) == partitions


def test_sarama_cluster_sees_growth_with_the_next_rebalance_only(place: Place) -> None:
    """S1-9; S1-13: at SIGTERM it commits and leaves."""
    story = results("S1-9")
    topic = topic_of(place, "blind")
    first = Clustered(place, [topic])
    others = [first]
    try:
        assert eventually(lambda: shared([first], 2))
        first.read_on((0, 1))
        place.cluster.create_partitions({topic: 4})
        first.write((2, 3), 10)
        refreshed = len(first.heard("Metadata"))
        assert eventually(lambda: len(first.heard("Metadata")) >= refreshed + 4)
        before = [one for one, _ in first.read if one > 1]
        assert len(before) == story["read of the new partitions in a minute"]
        assert len(first.heard("JoinGroup")) == 1
        others.append(Clustered(place, [topic], first.group))
        assert eventually(lambda: shared(others, 4))
        read = lambda: sorted(one for member in others for one in member.read if one[0] > 1)  # noqa: E731
        assert eventually(lambda: len(read()) >= 20)
        assert read() == [(part, at) for part in (2, 3) for at in range(10)], "late, and all"
        for one in others:
            one.process.send_signal(signal.SIGTERM)
            one.ended()
        assert [one.said("closed") for one in others] == [[""]] * 2
        assert [len(one.heard("LeaveGroup")) for one in others] == [1, 1]
        assert first.committed() == first.ends(4)
    finally:
        for one in others:
            one.kill()


def test_sarama_clusters_whitelist_finds_topics_and_no_partitions(place: Place) -> None:
    """S1-10."""
    story = results("S1-10")
    topic = topic_of(place, "white")
    member = Clustered(place, [topic], whitelist=f"^{topic}")
    try:
        assert eventually(lambda: shared([member], 2))
        place.cluster.create_partitions({topic: 4})
        refreshed = len(member.heard("Metadata"))
        assert eventually(lambda: len(member.heard("Metadata")) >= refreshed + 6)
        assert shared([member], 2)
        place.cluster.create_topics({f"{topic}-2": 1})
        assert eventually(lambda: shared([member], len(story["partitions in the end"])))
    finally:
        member.kill()


def test_sarama_cluster_doesnt_look_at_rebalance_strategy(place: Place) -> None:
    """S1-11: nor is it the member's protocols that choose, but Group.PartitionStrategy."""
    story = results("S1-11")

    def divided(name: str, conf: dict[str, Any]) -> tuple[list[str], set[tuple[str, ...]], set[int]]:
        topics = [topic_of(place, f"plan-{letter}", 3) for letter in "tu"]
        members = [Clustered(place, topics, f"g-{topics[0]}", **conf) for _ in range(2)]
        try:
            assert eventually(lambda: shared(members, 6))
            for one in members:
                one.write(range(3))
            assert eventually(lambda: all(member.heard("Fetch") for member in members))
            offered = {
                tuple(protocol.name for protocol in one.request.protocols)
                for member in members
                for one in member.heard("JoinGroup")
            }
            waits = {one.request.max_wait_ms for member in members for one in member.heard("Fetch")}
            found = [" ".join(member.owned) for member in members]
            for letter, topic in zip("tu", topics, strict=True):
                found = [one.replace(topic, letter) for one in found]
            return sorted(found), offered, waits
        finally:
            for one in members:
                one.kill()

    found = at_once(
        {
            name: lambda n=name, c=conf: divided(n, c)
            for name, conf in (("Rebalance.Strategy", {}), ("PartitionStrategy", {"round_robin": True}))
        }
    )
    for name, (plans, offered, waits) in found.items():
        assert plans == sorted(story[f"{name} round robin"])
        assert offered == {("range", "roundrobin")}
        assert sorted(waits) == story["a Fetch waits, ms"]


def test_a_blocked_sink_blocks_messages_and_nothing_else(place: Place) -> None:
    """S1-12: ticks, heartbeats and notifications go on in the other loop."""
    story = results("S1-12")
    topic = topic_of(place, "sink")
    first = Clustered(place, [topic], tick_ms=500)
    other: Clustered | None = None
    try:
        assert eventually(lambda: shared([first], 2))
        first.write((0, 1), 10)
        first.until("R", 20)
        first.tell()
        first.until("blocked")
        first.write((0, 1), 10)
        alive, beats = len(first.said("alive")), len(first.heard("Heartbeat"))
        other = Clustered(place, [topic], first.group)
        assert eventually(lambda: shared([first, other], 2))
        first.until("alive", alive + 4)
        assert len(first.read) == 20
        assert eventually(lambda: len(first.heard("Heartbeat")) > beats + 4)
        told = [_notification(one, topic) for one in first.said("notification")]
        assert told == [_same(one) for one in story["notifications"]]
        first.tell()
        both = lambda: {one for member in (first, other) for one in member.read}  # noqa: E731
        assert eventually(lambda: both() == {(part, at) for part in (0, 1) for at in range(20)})
    finally:
        for one in (first, other):
            if one is not None:
                one.kill()


def _notification(line: str, topic: str) -> str:
    return _same(line.replace(topic, "t").replace("=", ":").replace(",", " "))


def _same(line: str) -> str:
    """Which of both partitions moves is drawn by their member ids; start says nothing but what is current."""
    words = re.findall(
        r"t-\d|released|current", line.partition("current" if "start" in line else "claimed")[2]
    )
    kind = "start" if "start" in line else "OK"
    return " ".join([kind, *("p" if word.startswith("t-") else word for word in words)])


# -- confluent-kafka-go -----------------------------------------------------------------------------------


class Reading(Program):
    """ReadMessage(1 s) in the document's loop."""

    def __init__(self, place: Place, client: str, topic: str, group: str) -> None:
        words = [original_clients.with_modules("new_partitions"), client, place.bootstrap, group, topic]
        super().__init__(place, group, topic, group, words)

    @property
    def returned(self) -> list[str]:
        """What ReadMessage returned, as S1-18 calls it."""
        codes = {-150: "_FATAL", 82: "_FATAL"}
        found: list[str] = []
        for line in list(self.lines):
            word, *rest = line.split()
            if word == "error":
                code = int(rest[0])
                found.append(codes.get(code) or ErrorCode(code).name)
            else:
                found.append({"R": "message", "timeout": "_TIMED_OUT"}.get(word, word))
        return found


def _forbidden(topic: str) -> FetchResponse:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    part = PartitionData(
        partition_index=0, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
    return FetchResponse(
        throttle_time_ms=0, responses=[FetchableTopicResponse(topic=topic, partitions=[part])]
    )


def test_read_message_returns_what_the_story_says(place: Place) -> None:
    """S1-18, at first: the end of the partition is thrown away, an error is returned, and passes."""
    story = results("S1-18")
    topic = topic_of(place, "reads", 1)
    reading = Reading(place, "confluent-eof", topic, f"g-{topic}")
    try:
        reading.write([0], 5)
        assert eventually(lambda: reading.returned.count("message") == 5)
        reading.until("timeout")
        eventually(lambda: reading.returned[-2:] == ["_TIMED_OUT"] * 2)
        behind = [one for one, _ in groupby(reading.returned)]
        assert behind[-2:] == [_word(one) for one in story["at first"]]
        assert set(behind) == {"message", "_TIMED_OUT"}, "no _PARTITION_EOF"
        refused, before = 2, len(reading.returned)
        place.tap.refuse(reading.name, "Fetch", *[_forbidden(topic)] * refused)
        assert eventually(lambda: sum(one.injected for one in reading.heard("Fetch")) == refused)
        reading.write([0])
        assert eventually(lambda: "message" in reading.returned[before:])
        # Both wait before they ask again, and call after call is a timeout meanwhile.
        after = [one for one in reading.returned[before:] if one != "_TIMED_OUT"]
        told = map(_word, (*story["while reading is forbidden"], *story["afterwards"]))
        assert after == [one for one in told if one != "_TIMED_OUT"]
    finally:
        reading.kill()


def test_a_fenced_reader_says_fatal_once_and_each_later_call_again(place: Place) -> None:
    """S1-18, in the end."""
    story = results("S1-18")
    topic = topic_of(place, "fenced", 1)
    group = f"g-{topic}"
    reading = Reading(place, "confluent-static", topic, group)
    other: Reading | None = None
    try:
        reading.write([0])
        reading.until("R")
        other = Reading(place, "confluent-static", topic, group)
        reading.until("error")
        timeouts = len(reading.said("timeout"))
        reading.until("timeout", timeouts + 3)
        at = reading.returned.index("_FATAL")
        assert [one for one, _ in groupby(reading.returned[at:])] == [_word(one) for one in story["fenced"]]
        for _ in story["subscribe says"]:
            said = reading.returned.count("_FATAL")
            assert reading.process.stdin is not None
            reading.process.stdin.write("again\n")
            reading.process.stdin.flush()
            assert eventually(lambda said=said: reading.returned.count("_FATAL") > said)  # type: ignore[misc]
        assert "subscribed" not in reading.returned
    finally:
        for one in (reading, other):
            if one is not None:
                one.kill()


def _word(run: str) -> str:
    return run.rpartition(" x ")[2]
