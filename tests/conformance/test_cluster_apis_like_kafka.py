"""UpdateFeatures and DescribeQuorum: a real Kafka and the embedded broker respond alike.

The module test_boundary_requests_like_kafka tests all other APIs that change a cluster. UpdateFeatures is
tested here instead, because a lower feature level changes the responses to later requests.
"""

from __future__ import annotations

import pytest

from kproto.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from kproto.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.socket_pair import Pair, ask

pytestmark = pytest.mark.kafka

UP, SAFE, UNSAFE = 1, 2, 3
TRANSACTIONS = "transaction.version"
METADATA_LOG = "__cluster_metadata"


def updating(*updates: tuple[str, int, int]) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=how)
            for name, level, how in updates
        ],
        validate_only=True,
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "updates",
    [
        [],
        [(TRANSACTIONS, 2, UP)],
        [(TRANSACTIONS, 2, SAFE)],
        [(TRANSACTIONS, 1, SAFE)],
        [(TRANSACTIONS, 0, UNSAFE)],
        [(TRANSACTIONS, 1, UP)],
        [(TRANSACTIONS, 3, UP)],
        [(TRANSACTIONS, -1, SAFE)],
        [(TRANSACTIONS, 2, 0)],
        [(TRANSACTIONS, 2, 9)],
        [("unknown.version", 1, UP)],
        [("unknown.version", 0, SAFE)],
        [(TRANSACTIONS, 1, SAFE), ("unknown.version", 1, UP)],
        [(TRANSACTIONS, 1, SAFE), (TRANSACTIONS, 1, UP)],
    ],
    ids=str,
)
def test_updates_of_features_are_checked_alike(
    pair: Pair, updates: list[tuple[str, int, int]], version: int
) -> None:
    kafka, ours = ask(pair, updating(*updates), version)
    assert ours.error_code == kafka.error_code
    assert ours.error_message == kafka.error_message
    assert [(r.feature, r.error_code) for r in ours.results] == [
        (r.feature, r.error_code) for r in kafka.results
    ]


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_that_has_passed_is_answered_alike(pair: Pair, timeout: int) -> None:
    request = updating((TRANSACTIONS, 2, UP))
    request.timeout_ms = timeout
    kafka, ours = ask(pair, request, 2)
    assert ours.error_code == kafka.error_code


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "topics",
    [[(METADATA_LOG, [0])], [(METADATA_LOG, [0, 1])], [(METADATA_LOG, [])], [("t", [0])], []],
    ids=str,
)
def test_quorums_are_described_alike(pair: Pair, topics: list[tuple[str, list[int]]], version: int) -> None:
    """Both brokers describe the quorum alike, except for values that differ between clusters.

    These are the offsets and epochs of the metadata log, the controllers' addresses, and times.
    """
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name=name,
                partitions=[DescribeQuorumRequestPartitionData(partition_index=index) for index in indexes],
            )
            for name, indexes in topics
        ]
    )
    kafka, ours = (
        (
            response.error_code,
            response.error_message,
            [
                (
                    topic.topic_name,
                    entry.partition_index,
                    entry.error_code,
                    entry.error_message,
                    entry.leader_id,
                    [(voter.replica_id, voter.last_fetch_timestamp > 0) for voter in entry.current_voters],
                    [observer.replica_id for observer in entry.observers],
                )
                for topic in response.topics
                for entry in topic.partitions
            ],
        )
        for response in ask(pair, request, version)
    )
    assert ours == kafka
