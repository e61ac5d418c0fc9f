"""The complete programs of docs/lessons/001: their reaction to errors, signals and new partitions.

The document's program for sarama runs with sarama 1.38.1, the document's release, and with 1.61.1, which
kproto's model follows.

The program for sarama-cluster runs with sarama 1.29.1, the last release with which sarama-cluster compiles.
This release already has the option Consumer.Group.Rebalance.Strategy, which the document uses.

The third program calls ReadMessage of confluent-kafka-go. A proxy records the requests of each program.
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
    MAINS,
    RUNS,
    Main,
    Place,
    Program,
    at_once,
    eventually,
    of_sarama,
    only_one_broker,
    run_place,
    topic_of,
)

pytestmark = pytest.mark.originals


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    for release in MAINS:
        of_sarama("sarama_main", release)  # The program is built once, before several threads need it.
    original_clients.with_modules("sarama_cluster_main")
    original_clients.with_modules("new_partitions")
    yield from run_place(request.param)


@pytest.fixture(autouse=True)
def drawn(request: pytest.FixtureRequest) -> None:
    only_one_broker(request)


def results(story: str) -> dict[str, Any]:
    outcome = find(story).run()
    assert outcome.holds
    return outcome.results


# -- sarama: main() ---------------------------------------------------------------------------------------


def test_main_without_a_broker_logs_one_error_and_ends(place: Place) -> None:
    """S1-5: if no broker listens on the port, the program logs one error and ends."""
    address = f"127.0.0.1:{judges.free_port()}"
    story = results("S1-5")["without a broker"]
    for release in MAINS:
        main = Main(place, release, "t", bootstrap=address)
        main.ended()
        assert [line.removeprefix("logged ") for line in main.lines] == [
            line.replace("broker:9092", address) for line in story
        ]


def test_main_panics_on_an_error_and_leaves_on_a_signal(place: Place) -> None:
    """S1-5: the program starts a new session when partitions are added.

    The program leaves the group on a signal, but not on a panic.
    """
    story = results("S1-5")

    def ends(release: str, way: str) -> tuple[list[str], int, bool]:
        topic = topic_of(place, "main")
        beats = {"session_ms": 6_000, "heartbeat_ms": 500}
        main = Main(place, release, topic, **beats)
        second: Main | None = None
        try:
            main.until("session")
            place.cluster.create_partitions({topic: 4})
            main.until("returned")
            assert eventually(lambda: main.owns("[0 1 2 3]"))
            second = Main(place, release, topic, main.group, **beats)
            assert eventually(lambda: second.sessions != [] and len((main.sessions[-1]).split()) == 2)
            if way == "signal":
                main.signal()
            else:
                refused = refusal(JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
                place.proxy.refuse(main.name, "JoinGroup", refused)
                place.proxy.inject(main.name, "Heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
            main.ended()
            ended = main.times[-1]
            assert eventually(lambda: second.owns("[0 1 2 3]"))
            waited = second.when("session")[-1] - ended > 3
            assert main.printed("closed") == ([""] if way == "signal" else [])
            return main.printed("panic"), len(main.requests("LeaveGroup")), waited
        finally:
            for member in (main, second):
                if member is not None:
                    member.kill()

    expected = {"error": ([story["error: panic"]], 0, True), "signal": ([], 1, False)}
    outcomes = at_once(
        {(main, way): lambda r=main, w=way: ends(r, w) for main in MAINS for way in ("error", "signal")}
    )
    assert outcomes == {(main, way): expected[way] for main in MAINS for way in ("error", "signal")}


def test_the_handler_gets_each_message_once_when_partitions_are_added(place: Place) -> None:
    """S1-6, S1-13: a session runs Setup, ConsumeClaim and Cleanup. Then marked offsets are committed."""
    story = results("S1-6")

    def handles(release: str, stale: bool) -> Any:
        topic = topic_of(place, "handler")
        group = f"g-{topic}"
        place.cluster.commit_offsets(group, {TopicPartition(topic, partition): 0 for partition in (0, 1)})
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
            assert [main.offsets(partition) for partition in (0, 1)] == [
                list(range(ends[partition])) for partition in (0, 1)
            ]
            words = [line.split()[0] for line in main.lines]
            shape = [word for word, _ in groupby(words) if word in ("session", "R", "claim", "cleanup")]
            offsets = place.cluster.committed_offsets(group)
            notes = {offset.metadata for tp, offset in offsets.items() if offset}
            committed = {tp.partition: offset.offset for tp, offset in offsets.items() if offset}
            assert (committed, notes) == (ends, {""})
            assert words[words.index("cleanup") + 1] == "returned"
            return [word for word in shape if word in ("session", "cleanup")]
        finally:
            main.kill()

    callbacks = {"assigned": "session", "revoked": "cleanup"}
    shape = [callbacks[event] for event in story["ready made anew: Setup and Cleanup"]]
    expected = {(main, stale): [story["panic"]] if stale else shape for main in MAINS for stale in (0, 1)}
    outcomes = at_once({case: lambda case_=case: handles(case_[0], bool(case_[1])) for case in expected})
    assert outcomes == expected


def test_sigusr1_pauses_within_the_session(place: Place) -> None:
    """S1-8: a paused program sends no Fetch. After it resumes, it reads all records without a rebalance."""
    story = results("S1-8")

    def pauses(release: str) -> tuple[int, int, int]:
        topic = topic_of(place, "pauses")
        group = f"g-{topic}"
        place.cluster.commit_offsets(group, {TopicPartition(topic, partition): 0 for partition in (0, 1)})
        main = Main(place, release, topic, group)
        try:
            main.write((0, 1), 10)
            main.until("R", 20)
            main.signal(signal.SIGUSR1)
            main.until("paused")
            # The Fetch in flight completes first, after at most MaxWaitTime, 500 ms.
            eventually(lambda: False, 1.5)
            read_before, fetched = len(main.read), len(main.requests("Fetch"))
            main.write((0, 1), 10)
            beats = len(main.requests("Heartbeat"))
            assert eventually(lambda: len(main.requests("Heartbeat")) > beats)
            meanwhile = len(main.read) - read_before, len(main.requests("Fetch")) - fetched
            main.signal(signal.SIGUSR1)
            main.until("R", 40)
            assert [main.offsets(partition) for partition in (0, 1)] == [list(range(20))] * 2
            return (*meanwhile, len(main.sessions))
        finally:
            main.kill()

    expected = dict.fromkeys(MAINS, (story["read while paused"], 0, 1))
    assert at_once({main: lambda release=main: pauses(release) for main in MAINS}) == expected


# -- sarama-cluster ---------------------------------------------------------------------------------------


class Clustered(Program):
    """A running copy of the document's program for sarama-cluster. `write` writes to the first topic."""

    def __init__(self, place: Place, topics: Sequence[str], group: str = "", **conf: Any) -> None:
        name = f"cluster-{next(RUNS)}"
        group = group or f"g-{name}"
        words = [
            original_clients.with_modules("sarama_cluster_main"),
            place.bootstrap,
            group,
            ",".join(topics),
        ]
        config = json.dumps({"client_id": name, "refresh_ms": 1_000, **conf})
        super().__init__(place, name, topics[0], group, [*words, config])

    @property
    def read(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for _, a, b in (line.split() for line in self.printed("R"))]

    @property
    def owned(self) -> list[str]:
        """Return the partitions under "current" in the last notification."""
        last = (self.printed("notification") or ["current="])[-1]
        return [partition for partition in last.partition("current=")[2].split(",") if partition]

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


def shared(members: Sequence[Clustered], partitions: int) -> bool:
    """Return whether each member owns a partition, and all together own `partitions` different partitions."""
    names = [partition for member in members for partition in member.owned]
    return all(member.owned for member in members) and len(names) == len(set(names)) == partitions


def test_sarama_cluster_sees_new_partitions_at_the_next_rebalance_only(place: Place) -> None:
    """S1-9, S1-13: a rebalance assigns added partitions. On SIGTERM the program commits and leaves."""
    story = results("S1-9")
    topic = topic_of(place, "blind")
    first = Clustered(place, [topic])
    members = [first]
    try:
        assert eventually(lambda: shared([first], 2))
        first.read_on((0, 1))
        place.cluster.create_partitions({topic: 4})
        first.write((2, 3), 10)
        refreshed = len(first.requests("Metadata"))
        assert eventually(lambda: len(first.requests("Metadata")) >= refreshed + 4)
        before = [partition for partition, _ in first.read if partition > 1]
        assert len(before) == story["read of the new partitions in a minute"]
        assert len(first.requests("JoinGroup")) == 1
        members.append(Clustered(place, [topic], first.group))
        assert eventually(lambda: shared(members, 4))
        read = lambda: sorted(record for member in members for record in member.read if record[0] > 1)  # noqa: E731
        assert eventually(lambda: len(read()) >= 20)
        assert read() == [(part, at) for part in (2, 3) for at in range(10)], "all arrive, although late"
        for member in members:
            member.process.send_signal(signal.SIGTERM)
            member.ended()
        assert [member.printed("closed") for member in members] == [[""]] * 2
        assert [len(member.requests("LeaveGroup")) for member in members] == [1, 1]
        assert first.committed() == first.ends(4)
    finally:
        for member in members:
            member.kill()


def test_sarama_clusters_whitelist_finds_topics_but_no_partitions(place: Place) -> None:
    """S1-10: a pattern of topics finds new topics, but no new partitions of known topics."""
    story = results("S1-10")
    topic = topic_of(place, "white")
    member = Clustered(place, [topic], whitelist=f"^{topic}")
    try:
        assert eventually(lambda: shared([member], 2))
        place.cluster.create_partitions({topic: 4})
        refreshed = len(member.requests("Metadata"))
        assert eventually(lambda: len(member.requests("Metadata")) >= refreshed + 6)
        assert shared([member], 2)
        place.cluster.create_topics({f"{topic}-2": 1})
        assert eventually(lambda: shared([member], len(story["partitions in the end"])))
    finally:
        member.kill()


def test_sarama_cluster_ignores_rebalance_strategy(place: Place) -> None:
    """S1-11: Group.PartitionStrategy selects the strategy, whichever protocols a JoinGroup request lists."""
    story = results("S1-11")

    def divided(name: str, conf: dict[str, Any]) -> tuple[list[str], set[tuple[str, ...]], set[int]]:
        topics = [topic_of(place, f"plan-{letter}", 3) for letter in "tu"]
        members = [Clustered(place, topics, f"g-{topics[0]}", **conf) for _ in range(2)]
        try:
            assert eventually(lambda: shared(members, 6))
            for plan in members:
                plan.write(range(3))
            assert eventually(lambda: all(member.requests("Fetch") for member in members))
            offered = {
                tuple(protocol.name for protocol in request.request.protocols)
                for member in members
                for request in member.requests("JoinGroup")
            }
            waits = {
                request.request.max_wait_ms for member in members for request in member.requests("Fetch")
            }
            plans = [" ".join(member.owned) for member in members]
            for letter, topic in zip("tu", topics, strict=True):
                plans = [plan.replace(topic, letter) for plan in plans]
            return sorted(plans), offered, waits
        finally:
            for member in members:
                member.kill()

    outcomes = at_once(
        {
            name: lambda n=name, c=conf: divided(n, c)
            for name, conf in (("Rebalance.Strategy", {}), ("PartitionStrategy", {"round_robin": True}))
        }
    )
    for name, (plans, offered, waits) in outcomes.items():
        assert plans == sorted(story[f"{name} round robin"])
        assert offered == {("range", "roundrobin")}
        assert sorted(waits) == story["a Fetch waits, ms"]


def test_a_blocked_sink_blocks_only_messages(place: Place) -> None:
    """S1-12: a blocking sink blocks only the message loop.

    Meanwhile ticks, heartbeats and notifications continue: the program handles ticks and notifications in a
    second loop.
    """
    story = results("S1-12")
    topic = topic_of(place, "sink")
    first = Clustered(place, [topic], tick_ms=500)
    second: Clustered | None = None
    try:
        assert eventually(lambda: shared([first], 2))
        first.write((0, 1), 10)
        first.until("R", 20)
        first.tell()
        first.until("blocked")
        first.write((0, 1), 10)
        alive, beats = len(first.printed("alive")), len(first.requests("Heartbeat"))
        second = Clustered(place, [topic], first.group)
        assert eventually(lambda: shared([first, second], 2))
        first.until("alive", alive + 4)
        assert len(first.read) == 20
        assert eventually(lambda: len(first.requests("Heartbeat")) > beats + 4)
        printed = [line.replace(topic, "t") for line in first.printed("printed")]
        assert [*map(_moved, printed)] == [*map(_moved, story["notifications"])]
        first.tell()
        all_read = lambda: {record for member in (first, second) for record in member.read}  # noqa: E731
        assert eventually(lambda: all_read() == {(part, at) for part in (0, 1) for at in range(20)})
    finally:
        for member in (first, second):
            if member is not None:
                member.kill()


def _moved(line: str) -> str:
    """Replace lists of a single partition with [p]: random member ids decide which partition moves."""
    return re.sub(r"\[\d\]", "[p]", line)


# -- confluent-kafka-go -----------------------------------------------------------------------------------


class Reading(Program):
    """A program that calls ReadMessage(1 s) in the document's loop."""

    def __init__(self, place: Place, client: str, topic: str, group: str) -> None:
        words = [original_clients.with_modules("new_partitions"), client, place.bootstrap, group, topic]
        super().__init__(place, group, topic, group, words)

    @property
    def returned(self) -> list[str]:
        """Return the results of ReadMessage by the names that scenario S1-18 gives them."""
        codes = {-150: "_FATAL", 82: "_FATAL"}
        results: list[str] = []
        for line in list(self.lines):
            word, *details = line.split()
            if word == "error":
                code = int(details[0])
                results.append(codes.get(code) or ErrorCode(code).name)
            else:
                results.append({"R": "message", "timeout": "_TIMED_OUT"}.get(word, word))
        return results


def _forbidden(topic: str) -> FetchResponse:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    part = PartitionData(
        partition_index=0, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )
    return FetchResponse(
        throttle_time_ms=0, responses=[FetchableTopicResponse(topic=topic, partitions=[part])]
    )


def test_read_message_returns_as_in_the_story(place: Place) -> None:
    """S1-18, first part: ReadMessage does not report the end of the partition, and returns a temporary error
    only once.
    """
    story = results("S1-18")
    topic = topic_of(place, "reads", 1)
    reading = Reading(place, "confluent-eof", topic, f"g-{topic}")
    try:
        reading.write([0], 5)
        assert eventually(lambda: reading.returned.count("message") == 5)
        reading.until("timeout")
        eventually(lambda: reading.returned[-2:] == ["_TIMED_OUT"] * 2)
        behind = [result for result, _ in groupby(reading.returned)]
        assert behind[-2:] == [_word(run) for run in story["at first"]]
        assert set(behind) == {"message", "_TIMED_OUT"}, "no _PARTITION_EOF"
        refused, before = 2, len(reading.returned)
        place.proxy.refuse(reading.name, "Fetch", *[_forbidden(topic)] * refused)
        assert eventually(lambda: sum(request.injected for request in reading.requests("Fetch")) == refused)
        reading.write([0])
        assert eventually(lambda: "message" in reading.returned[before:])
        # After errors, fetches back off, and ReadMessage times out during the backoff.
        after = [result for result in reading.returned[before:] if result != "_TIMED_OUT"]
        expected = map(_word, (*story["while reading is denied"], *story["afterwards"]))
        assert after == [word for word in expected if word != "_TIMED_OUT"]
    finally:
        reading.kill()


def test_every_call_of_a_fenced_reader_returns_the_fatal_error(place: Place) -> None:
    """S1-18, second part: after another process fenced it, each ReadMessage returns the fatal error."""
    story = results("S1-18")
    topic = topic_of(place, "fenced", 1)
    group = f"g-{topic}"
    reading = Reading(place, "confluent-static", topic, group)
    second: Reading | None = None
    try:
        reading.write([0])
        reading.until("R")
        second = Reading(place, "confluent-static", topic, group)
        reading.until("error")
        timeouts = len(reading.printed("timeout"))
        reading.until("timeout", timeouts + 3)
        at = reading.returned.index("_FATAL")
        assert [result for result, _ in groupby(reading.returned[at:])] == [
            _word(result) for result in story["fenced"]
        ]
        for _ in story["subscribe says"]:
            fatal_before = reading.returned.count("_FATAL")
            assert reading.process.stdin is not None
            reading.process.stdin.write("again\n")
            reading.process.stdin.flush()
            assert eventually(
                lambda fatal_before=fatal_before: reading.returned.count("_FATAL") > fatal_before
            )  # type: ignore[misc]
        assert "subscribed" not in reading.returned
    finally:
        for reader in (reading, second):
            if reader is not None:
                reader.kill()


def _word(run: str) -> str:
    return run.rpartition(" x ")[2]
