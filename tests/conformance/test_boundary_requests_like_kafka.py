"""Odd requests to a real Kafka and to the embedded broker: they answer alike, and the same becomes of them.

Each case is a few scenes, and in each some requests of its APIs, one after the other. A run draws some scenes
by KPROTO_SEED; KPROTO_ALL_PLAYS=1 draws many more (tox -e soak).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from tests.conformance import broker_pair, judges
from tests.conformance.broker_pair import Pair, pair
from tests.conformance.client_scenarios import SEED

SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
    "offsets.topic.num.partitions": "4",  # as the real one is made by `real_kafka`
}
ALL: Final = bool(os.environ.get("KPROTO_ALL_PLAYS"))
SCENES: Final = 25 if ALL else 2
REQUESTS: Final = 20
ODD: Final = (0.08, 0.25)  # how often a field is odd, from scene to scene

ALONE: Final = (
    "AlterUserScramCredentials", "ApiVersions", "CreateAcls", "CreatePartitions", "CreateTopics",
    "DeleteAcls",
    "DeleteGroups", "DeleteRecords", "DeleteTopics", "DescribeAcls", "DescribeCluster", "DescribeConfigs",
    "DescribeGroups", "DescribeLogDirs", "DescribeTopicPartitions", "DescribeUserScramCredentials",
    "ElectLeaders", "Fetch", "FindCoordinator", "Heartbeat", "IncrementalAlterConfigs", "InitProducerId",
    "JoinGroup", "LeaveGroup", "ListGroups", "ListOffsets", "ListPartitionReassignments", "Metadata",
    "OffsetCommit", "OffsetDelete", "OffsetFetch",
    "OffsetForLeaderEpoch", "Produce", "SaslHandshake", "SyncGroup",
)  # fmt: skip
TOGETHER: Final = (
    ("Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch", "DescribeProducers",
     "DescribeLogDirs"),
    ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions",
     "ListTransactions", "Produce", "Fetch", "DescribeProducers", "DescribeLogDirs"),
    ("OffsetCommit", "OffsetFetch", "TxnOffsetCommit", "OffsetDelete", "EndTxn", "DeleteGroups"),
    ("OffsetCommit", "DescribeGroups", "ListGroups", "Heartbeat", "SyncGroup", "LeaveGroup"),
    ("CreateTopics", "DeleteTopics", "CreatePartitions", "IncrementalAlterConfigs", "DescribeConfigs",
     "Metadata", "ElectLeaders"),
)  # fmt: skip
CASES: Final = (*((api,) for api in ALONE), *TOGETHER)
# Scenes in which a difference was found: they are played in every run.
FOUND: Final = ((411834, TOGETHER[3], 1),)


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with running(settings=SETTINGS) as server:
        yield server


def title(number: int) -> str:
    return f"odd-{time.time_ns()}-{number}"


def seed_of(seed: int, apis: tuple[str, ...], scene: int) -> str:
    return f"{seed}/{'+'.join(apis)}/{scene}"


def differences(two: Pair, apis: tuple[str, ...], seed: str, requests: int) -> Iterator[str]:
    """Where the two differ; the first difference ends it, as what follows may follow from it."""
    dice = Random(seed)
    odd = dice.choice(ODD)
    for number in range(requests):
        found = list(two.differences(dice.choice(apis), f"{seed}/{number}", odd))
        two.next_case()
        if found:
            yield from found
            return
    yield from two.what_became()


@pytest.mark.kafka
@pytest.mark.parametrize("apis", CASES, ids="+".join)
def test_odd_requests_are_answered_alike(
    apis: tuple[str, ...], real_kafka: judges.RealKafka, ours: Server
) -> None:
    for scene in range(SCENES):
        with pair(real_kafka.bootstrap, ours.bootstrap, title(scene)) as two:
            found = list(differences(two, apis, seed_of(SEED, apis, scene), REQUESTS))
            assert not found, f"scene {scene} of KPROTO_SEED={SEED}:\n{found[0]}"


@pytest.mark.kafka
@pytest.mark.parametrize(("seed", "apis", "scene"), FOUND)
def test_a_difference_that_was_found_is_gone(
    seed: int, apis: tuple[str, ...], scene: int, real_kafka: judges.RealKafka, ours: Server
) -> None:
    with pair(real_kafka.bootstrap, ours.bootstrap, title(scene)) as two:
        assert list(differences(two, apis, seed_of(seed, apis, scene), REQUESTS)) == []


def test_what_two_brokers_of_a_kind_are_asked_they_answer_alike() -> None:
    """The same dice throw the same for both, and nothing that is compared is random."""
    with running(settings=SETTINGS) as one, running(settings=SETTINGS) as other:
        for number, apis in enumerate(CASES):
            if apis == ("JoinGroup",):  # which waits
                continue
            with pair(one.bootstrap, other.bootstrap, title(number)) as two:
                assert list(differences(two, apis, f"alike/{number}", 10)) == []


def test_a_wrong_answer_is_noticed() -> None:
    with (
        running(settings=SETTINGS) as one,
        running(settings=SETTINGS) as other,
        pair(one.bootstrap, other.bootstrap, title(0)) as two,
    ):
        other.fail("Heartbeat", ErrorCode.NOT_COORDINATOR, 1)
        (found,) = differences(two, ("Heartbeat",), "wrong", 1)
        assert "NOT_COORDINATOR" in found


def test_what_became_of_a_scene_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_pair, "PATIENCE", 3.0)  # nothing is done behind an answer here
    with (
        running(settings=SETTINGS) as one,
        running(settings=SETTINGS) as other,
        pair(one.bootstrap, other.bootstrap, title(0)) as two,
    ):
        other.truncate(two.sides[1].scene.name("t"), 0, 2)
        assert "offset: kafka 3" in "".join(two.what_became())
