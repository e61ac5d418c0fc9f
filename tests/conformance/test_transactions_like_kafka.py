"""A real Kafka and the embedded broker respond alike to the same requests of transactional producers.

A scenario is a generator: it sends requests, and yields the parts of the responses that do not depend on the
broker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from kproto.broker.server import Server, running
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from tests.conformance import judges
from tests.conformance.transaction_client import Side

pytestmark = pytest.mark.kafka

SOON = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.topic.num.partitions": "50",
}
NOW = int(time.time() * 1000)
_NUMBERS = count(1)

Scenario = Callable[[Side], Iterator[Any]]
SCENARIOS: list[Scenario] = []


def scenario(scenario: Scenario) -> Scenario:
    SCENARIOS.append(scenario)
    return scenario


@scenario
def names_and_epochs(side: Side) -> Iterator[Any]:
    yield side.init("p")
    yield side.init("p")
    yield side.init("q", claimed="p")
    yield side.init("q", claimed="p")
    yield side.init("r", claimed="q")
    yield side.init("z", claimed="p")
    for version in range(6):
        yield side.init("p", version=version)
    yield side.init("z", claimed="stranger")
    yield side.init("y", claimed="stranger", name="y")
    side.add_fake("half", "p", epoch=-1)
    yield side.init("z", claimed="half")
    yield side.init("z", name="")
    yield side.init("i", name=None)
    for timeout in (0, -1, 1, 900_000, 900_001):
        yield side.init("z", name="timeouts", timeout=timeout)
    yield side.describe()
    yield side.describe("none")
    yield side.describe("")


@scenario
def adding(side: Side) -> Iterator[Any]:
    side.init("p")
    side.add_fake("future", "p", more=1)
    for version in range(4):
        yield side.add("future", version=version)
        yield side.add("stranger", version=version)
        yield side.add("p", name="none", version=version)
        yield side.add("p", name="", version=version)
        yield side.add("p", 0, 7, version=version)
        yield side.add("p", 0, topic="none-such", version=version)
    yield side.describe()
    yield side.add("p", 0)
    yield side.add("p", 1, 0)
    yield side.describe()
    for version in range(5):
        yield side.add_offsets("future", version=version)
        yield side.add_offsets("p", version=version)
        yield side.add_offsets("stranger", version=version)
    yield side.add_offsets("p", name="none")
    yield side.add_offsets("p", name="")
    yield side.describe()
    for version in (4, 5):
        for verify in (True, False):
            yield side.add("p", 0, 1, version=version, verify=verify)
            yield side.add("p", 7, version=version, verify=verify)
            yield side.add("future", 0, version=version, verify=verify)
            yield side.add("stranger", 0, version=version, verify=verify)
            yield side.add("p", 0, name="none", version=version, verify=verify)
            yield side.add("p", 0, name="", version=version, verify=verify)


@scenario
def verification_in_every_state(side: Side) -> Iterator[Any]:
    side.init("p")
    yield side.add("p", 0, version=5, verify=True)
    side.add("p", 0, version=5)
    yield side.add("p", 0, 1, version=5, verify=True)
    yield side.end("p")
    yield side.add("p", 0, version=5, verify=True)
    yield side.add("p'", 0, version=5, verify=True)


@scenario
def ends_from_v5_on(side: Side) -> Iterator[Any]:
    side.init("p")
    yield side.end("p")
    yield side.end("p", committed=False)
    yield side.describe()
    yield side.end("p", committed=False)
    for committed in (True, False):
        side.add("p", 0, 1)
        side.add_fake("same", "p")
        yield side.end("stranger", committed=committed)
        yield side.end("p", committed=committed)
        yield side.describe()
        yield side.end("same", committed=committed)
        side.add_fake("same", "p", more=-1)
        yield side.end("same", committed=not committed)
        side.add_fake("future", "p", more=3)
        yield side.end("future", committed=committed)
        yield side.end("p", committed=True)
        yield side.describe()
    yield side.end("p", name="none")
    yield side.end("p", name="")


@scenario
def ends_up_to_v4(side: Side) -> Iterator[Any]:
    for version in range(5):
        side.init("p")
        yield side.end("p", version=version)
        yield side.end("p", committed=False, version=version)
        for committed in (True, False):
            yield side.add("p", 0)
            side.add_fake("future", "p", more=1)
            yield side.end("future", committed=committed, version=version)
            yield side.end("stranger", committed=committed, version=version)
            yield side.end("p", committed=committed, version=version)
            yield side.end("p", committed=committed, version=version)
            yield side.end("p", committed=not committed, version=version)
            yield side.describe()
        yield side.end("p", name="none", version=version)
        yield side.end("p", name="", version=version)
    yield side.fetch(committed=False)


@scenario
def init_during_an_open_transaction(side: Side) -> Iterator[Any]:
    side.init("p")
    yield side.write("p", b"1")
    yield side.init("z", claimed="stranger")
    yield side.init("q", until_named=True)
    yield side.describe()
    yield side.fetch()
    yield side.fetch(committed=False)
    yield side.write("p", b"late", seq=1)
    yield side.write("p", b"late", seq=1, version=9)
    yield side.end("p")
    yield side.end("p", version=4)
    yield side.end("p", committed=False)
    yield side.init("z", claimed="p")
    yield side.write("q", b"2")
    yield side.init("z", claimed="q", until_named=True)
    yield side.describe()
    yield side.fetch()
    yield side.producers()


@scenario
def writes_add_partitions_to_the_transaction(side: Side) -> Iterator[Any]:
    side.init("p")
    yield side.write("p", b"a", seq=5)
    yield side.write("p", b"a", b"b")
    yield side.describe()
    yield side.write("p", b"a", b"b")
    yield side.write("p", b"c", seq=2)
    yield side.write("p", b"x", seq=9)
    yield side.write("p", b"d", partition=1)
    yield side.fetch()
    yield side.fetch(committed=False)
    yield side.ends()
    yield side.ends(committed=False)
    yield side.producers()
    yield side.end("p")
    yield side.fetch()
    yield side.fetch(1)
    yield side.producers()
    yield side.write("p'", b"late", seq=3)
    yield side.write("p'", b"late", seq=3, version=9)
    yield side.write("p", b"e", seq=3)
    yield side.write("p", b"e")
    yield side.end("p", committed=False)
    yield side.write("p", b"f")
    yield side.fetch()
    yield side.ends()
    yield side.end("p")
    yield side.fetch()
    yield side.fetch(offset=5)
    yield side.producers()


@scenario
def older_clients_add_partitions_before_writing(side: Side) -> Iterator[Any]:
    for version in (3, 9, 11):
        side.init("p")
        yield side.write("p", b"early", version=version)
        yield side.add("p", 0)
        yield side.write("p", b"a", version=version)
        yield side.write("p", b"b", version=version, partition=1)
        yield side.write("p", b"b", version=version, seq=1)
        yield side.write("p", b"b", version=version, seq=1)
        yield side.end("p", version=4)
        yield side.write("p", b"late", seq=2, version=version)
        yield side.add("p", 0)
        yield side.write("p", b"c", seq=2, version=version)
        yield side.fetch()
        yield side.end("p", version=4, committed=False)
        yield side.fetch()
    yield side.producers()
    yield side.fetch(1, committed=False)


@scenario
def strange_writes(side: Side) -> Iterator[Any]:
    side.init("p")
    for version in (9, 11, 12):
        yield side.write("p", b"a", name=None, version=version)
        yield side.write("p", b"a", name="none", version=version)
        yield side.write("p", b"a", name="", version=version)
        yield side.write("stranger", b"a", version=version)
        side.add_fake("future", "p", more=1)
        yield side.write("future", b"a", version=version)
        yield side.write("p", b"a", control=True, version=version)
    yield side.write("p", b"a")
    yield side.write("p", b"b", seq=1, transactional=False)
    yield side.write("p", b"b", seq=1, name=None)
    yield side.write("p", b"b", seq=1, transactional=False, partition=1)
    side.add_fake("future", "p", more=1)
    yield side.write("future", b"a", seq=0)
    yield side.end("p")
    yield side.write("p", b"c", transactional=False)
    yield side.write("p", b"c", seq=0)
    yield side.fetch(committed=False)


@scenario
def readers_see_committed_records_only(side: Side) -> Iterator[Any]:
    for name in "abc":
        side.init(name, name=name)
    yield side.write("a", b"a1", name="a")
    yield side.write("b", b"b1", name="b")
    yield side.write("nobody", b"plain", name=None, transactional=False, seq=-1)
    yield side.fetch()
    yield side.end("b", committed=False, name="b")
    yield side.fetch()
    yield side.ends()
    yield side.write("c", b"c1", name="c")
    yield side.end("a", name="a")
    yield side.fetch()
    yield side.fetch(offset=2)
    yield side.fetch(offset=4)
    yield side.fetch(offset=5)
    yield side.fetch(offset=6)
    yield side.fetch(offset=7)
    # The next marker gets a later timestamp. If the timestamps were equal, ListOffsets would return the first
    # marker for timestamp -3 (maximum timestamp).
    time.sleep(0.005)
    yield side.end("c", committed=False, name="c")
    for offset in range(8):
        yield side.fetch(offset=offset)
        yield side.fetch(offset=offset, committed=False)
    for at in range(1, 12):
        yield side.ends(version=at if at >= 7 else 7)
    yield side.ends((NOW - 10**6, NOW + 10**6))


@scenario
def records_are_deleted_below_open_transactions(side: Side) -> Iterator[Any]:
    side.init("a", name="a")
    side.init("b", name="b")
    side.write("a", b"a1", name="a")
    side.write("a", b"a2", name="a", seq=1)
    side.write("b", b"b1", name="b")
    yield side.delete_before(1)
    yield side.fetch(offset=1)
    yield side.ends()
    yield side.end("a", name="a", committed=False)
    yield side.fetch(offset=1)
    yield side.delete_before(-1)
    yield side.ends((-1, -2))
    yield side.producers()
    yield side.write("b", b"b2", name="b", seq=1)
    # The second marker gets a later timestamp. If the timestamps were equal, ListOffsets would return the
    # first record for timestamp -3 (maximum timestamp).
    time.sleep(0.005)
    yield side.end("b", name="b")
    yield side.fetch(offset=4)
    yield side.ends()


@scenario
def offsets_are_committed_with_the_transaction(side: Side) -> Iterator[Any]:
    side.init("p")
    yield side.commit("p", 5, version=3)
    yield side.commit("p", 5, version=4)
    yield side.commit("p", 5)
    yield side.describe()
    yield side.committed()
    yield side.committed(stable=True)
    yield side.commit("p", 6, partition=1)
    yield side.commit("p", 6, partition=9)
    yield side.commit("p", 6, topic="none-such")
    yield side.end("p")
    yield side.committed(stable=True)
    yield side.commit("p'", 9)
    yield side.commit("p'", 9, version=3)
    yield side.commit("p", 7)
    yield side.end("p", committed=False)
    yield side.committed(stable=True)
    for version in range(5):
        yield side.add_offsets("p")
        side.add_fake("future", "p", more=1)
        yield side.commit("future", 99, version=version)
        yield side.commit("stranger", 99, version=version)
        yield side.commit("p", 99, version=version, name="none")
        yield side.commit("p", 99, version=version, name="")
        yield side.commit("p", 99, version=version, group="")
        yield side.commit("p", 10 + version, version=version)
        yield side.commit("future", 99, version=version)
        yield side.commit("stranger", 99, version=version)
        yield side.commit("p", 99, version=version, group="another")
        yield side.end("p", version=4)
        yield side.committed()
    yield side.commit("p", 20, generation=3, member="ghost")
    yield side.commit("p", 20, generation=3)
    yield side.commit("p", 20, group="new", generation=3)
    yield side.describe()


@scenario
def transactions_time_out(side: Side) -> Iterator[Any]:
    side.init("p", timeout=300)
    yield side.write("p", b"a")
    yield side.commit("p", 3)
    yield side.wait_for_abort()
    yield side.fetch()
    yield side.committed()
    yield side.write("p", b"late", seq=1)
    yield side.end("p")
    side.add_fake("old", "p")
    yield side.end("old", version=4)
    yield side.end("p", committed=False)
    yield side.write("p", b"next")
    yield side.end("p")
    yield side.fetch()
    yield side.write("p", b"again")
    yield side.wait_for_abort()
    yield side.init("q", claimed="p")
    yield side.init("r")
    yield side.fetch()


@scenario
def transactions_are_listed(side: Side) -> Iterator[Any]:
    for name in "abc":
        side.init(name, name=name)
    side.add("a", name="a")
    side.add("b", name="b")
    side.end("b", name="b")
    yield side.list_transactions()
    for version in range(3):
        yield side.list_transactions("Ongoing", version=version)
        yield side.list_transactions(
            "Ongoing", "none such", "Empty", "Dead", "PrepareEpochFence", version=version
        )
        yield side.list_transactions("ongoing", version=version)
        yield side.list_transactions(producers=["c"], version=version)
    yield side.list_transactions(duration_filter=10**7)
    yield side.list_transactions(duration_filter=0)
    yield side.list_transactions(pattern=f"{side.topic}-[ab]")
    yield side.list_transactions(pattern="")
    yield side.list_transactions(pattern="(")
    yield side.producers(7)
    yield side.producers(0, "none-such")
    yield side.producers(0, "not a topic")


@pytest.fixture(scope="module")
def quick_kafka() -> Iterator[judges.RealKafka]:
    """A real Kafka that checks for expired transactions every 100 ms."""
    with judges.real_kafka(SOON) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with running(settings={"auto.create.topics.enable": "false"}) as server:
        yield server


@pytest.fixture
def sides(quick_kafka: judges.RealKafka, ours: Server) -> Iterator[list[Side]]:
    topic = f"played-{NOW}-{next(_NUMBERS)}"
    pair = [Side(where, topic, NOW) for where in (quick_kafka.bootstrap, ours.bootstrap)]
    with contextlib.ExitStack() as stack:
        for side in pair:
            stack.callback(side.close)
        yield pair


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_both_brokers_answer_a_scenario_alike(scenario: Scenario, sides: list[Side]) -> None:
    kafka, ours = ([*scenario(side)] for side in sides)
    for number, (theirs, our) in enumerate(zip(kafka, ours, strict=True)):
        assert our == theirs, f"{scenario.__name__}, yield {number}\n  Kafka {theirs}\n  ours  {our}"


def test_the_feature_and_the_versions_are_advertised_alike(sides: list[Side]) -> None:
    hello = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    kafka, ours = (side.ask(hello, 4) for side in sides)
    features = []
    for answer in (kafka, ours):
        supported = {
            feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features
        }
        levels = {
            feature.name: (feature.min_version_level, feature.max_version_level)
            for feature in answer.finalized_features
        }
        keys = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        of_transactions = {key: keys[key] for key in (22, 24, 25, 26, 61, 65, 66)}
        features.append((supported["transaction.version"], levels["transaction.version"], of_transactions))
    assert features[0] == features[1]


def test_coordinators_of_transactions_are_found_alike(sides: list[Side]) -> None:
    for side in sides:
        for version in range(1, 7):
            request = FindCoordinatorRequest(key_type=1, key="x", coordinator_keys=["x", "y"])
            if version < 4:
                request.coordinator_keys = []
                assert side.ask(request, version).error_code == 0
            else:
                request.key = ""
                answer = side.ask(request, version)
                assert [
                    (coordinator.key, coordinator.error_code, coordinator.node_id)
                    for coordinator in answer.coordinators
                ] == [
                    ("x", 0, 1),
                    ("y", 0, 1),
                ]
