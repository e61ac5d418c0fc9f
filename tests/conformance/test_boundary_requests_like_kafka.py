"""Boundary requests to a real Kafka and to the embedded broker have the same responses and effects.

A case is a set of APIs. It runs several scenes: sequences of random requests of these APIs.

`KPROTO_SEED` is the seed of the random scenes. `KPROTO_ALL_PLAYS=1` runs many more scenes (tox -e soak).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from tests.conformance import broker_pair, judges
from tests.conformance.broker_pair import SETTINGS, Pair, pair
from tests.conformance.client_scenarios import RUN_ALL, SEED

SCENES: Final = 25 if RUN_ALL else 2
REQUESTS: Final = 20
# The probabilities that a field gets an unusual value. Each scene (a sequence of requests) draws one of them.
ODD: Final = (0.08, 0.25)

ALONE: Final = (
    "AlterClientQuotas", "AlterPartitionReassignments", "AlterUserScramCredentials", "ApiVersions",
    "CreateAcls", "CreatePartitions", "CreateTopics", "DeleteAcls", "DeleteGroups", "DeleteRecords",
    "DeleteTopics", "DescribeAcls", "DescribeCluster", "DescribeConfigs", "DescribeClientQuotas",
    "DescribeGroups", "DescribeLogDirs", "DescribeTopicPartitions", "DescribeUserScramCredentials",
    "ElectLeaders", "Fetch", "FindCoordinator", "Heartbeat", "IncrementalAlterConfigs", "InitProducerId",
    "JoinGroup", "LeaveGroup", "ListGroups", "ListOffsets", "ListPartitionReassignments", "Metadata",
    "OffsetCommit", "OffsetDelete", "OffsetFetch", "OffsetForLeaderEpoch", "Produce", "SaslHandshake",
    "SyncGroup",
)  # fmt: skip
TOGETHER: Final = (
    ("Produce", "Fetch", "ListOffsets", "DeleteRecords", "OffsetForLeaderEpoch", "DescribeProducers",
     "DescribeLogDirs"),
    ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "DescribeTransactions",
     "ListTransactions", "Produce", "Fetch", "DescribeProducers", "DescribeLogDirs"),
    ("OffsetCommit", "OffsetFetch", "TxnOffsetCommit", "OffsetDelete", "EndTxn", "DeleteGroups"),
    ("AlterClientQuotas", "DescribeClientQuotas"),
    ("OffsetCommit", "DescribeGroups", "ListGroups", "Heartbeat", "SyncGroup", "LeaveGroup"),
    ("CreateTopics", "DeleteTopics", "CreatePartitions", "IncrementalAlterConfigs", "DescribeConfigs",
     "Metadata", "ElectLeaders"),
)  # fmt: skip
CASES: Final = (*((api,) for api in ALONE), *TOGETHER)
# Sequences of requests to which the two brokers once responded differently. Every run includes them.
FOUND: Final = ((411834, TOGETHER[4], 1),)


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with running(settings=SETTINGS, highest=judges.HIGHEST_OF_KAFKA) as server:
        yield server


def title(number: int) -> str:
    return f"odd-{time.time_ns()}-{number}"


def seed_of(seed: int, apis: tuple[str, ...], scene: int) -> str:
    return f"{seed}/{'+'.join(apis)}/{scene}"


def differences(two: Pair, apis: tuple[str, ...], seed: str, requests: int) -> Iterator[str]:
    """Yield the differences between the responses to the first request that is answered differently.

    The scene ends with this request, because later differences may follow from the first. If all requests are
    answered alike, yield the differences between their effects.
    """
    dice = Random(seed)
    odd = dice.choice(ODD)
    for number in range(requests):
        request_differences = list(two.differences(dice.choice(apis), f"{seed}/{number}", odd))
        two.next_case()
        if request_differences:
            yield from request_differences
            return
    yield from two.effect_differences()


@pytest.mark.kafka
@pytest.mark.parametrize("apis", CASES, ids="+".join)
def test_boundary_requests_are_answered_alike(
    apis: tuple[str, ...], real_kafka: judges.RealKafka, ours: Server
) -> None:
    for scene in range(SCENES):
        with pair(real_kafka.bootstrap, ours.bootstrap, title(scene)) as two:
            all_differences = list(differences(two, apis, seed_of(SEED, apis, scene), REQUESTS))
            assert not all_differences, f"scene {scene} of KPROTO_SEED={SEED}:\n{all_differences[0]}"


@pytest.mark.kafka
@pytest.mark.parametrize(("seed", "apis", "scene"), FOUND)
def test_an_earlier_difference_does_not_return(
    seed: int, apis: tuple[str, ...], scene: int, real_kafka: judges.RealKafka, ours: Server
) -> None:
    with pair(real_kafka.bootstrap, ours.bootstrap, title(scene)) as two:
        assert list(differences(two, apis, seed_of(seed, apis, scene), REQUESTS)) == []


def test_two_embedded_brokers_do_not_differ() -> None:
    """Two embedded brokers respond alike to the same requests, because no compared value is random."""
    with running(settings=SETTINGS) as first, running(settings=SETTINGS) as second:
        for number, apis in enumerate(CASES):
            if apis == ("JoinGroup",):  # Skipped: each JoinGroup request waits for the rebalance delay.
                continue
            with pair(first.bootstrap, second.bootstrap, title(number)) as two:
                assert list(differences(two, apis, f"alike/{number}", 10)) == []


def test_a_wrong_response_fails_the_script() -> None:
    with (
        running(settings=SETTINGS) as first,
        running(settings=SETTINGS) as second,
        pair(first.bootstrap, second.bootstrap, title(0)) as two,
    ):
        second.fail("Heartbeat", ErrorCode.NOT_COORDINATOR, 1)
        (difference,) = differences(two, ("Heartbeat",), "wrong", 1)
        assert "NOT_COORDINATOR" in difference


def test_a_different_effect_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    # The default PATIENCE is for a real Kafka. The embedded broker applies changes before it responds, so 3 s
    # are enough.
    monkeypatch.setattr(broker_pair, "PATIENCE", 3.0)
    with (
        running(settings=SETTINGS) as first,
        running(settings=SETTINGS) as second,
        pair(first.bootstrap, second.bootstrap, title(0)) as two,
    ):
        second.truncate(two.sides[1].scene.name("t"), 0, 2)
        assert "offset: kafka 3" in "".join(two.effect_differences())
