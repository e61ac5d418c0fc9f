"""DescribeQuorum (KIP-595) returns the controller as the only voter of the metadata log."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from tests.broker.stage import Stage, TwoBrokers


def quorum_request(*partitions: int, topic: str = "__cluster_metadata") -> DescribeQuorumRequest:
    wanted = [DescribeQuorumRequestPartitionData(partition_index=index) for index in partitions]
    return DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name=topic, partitions=wanted)])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_controller_is_the_only_voter(version: int) -> None:
    response = TwoBrokers().ask(2, quorum_request(0), version)
    assert isinstance(response, DescribeQuorumResponse)
    assert response.error_code == 0
    [partition] = response.topics[0].partitions
    assert (partition.leader_id, partition.high_watermark) == (1, 0)
    assert [voter.replica_id for voter in partition.current_voters] == [1]
    assert [observer.replica_id for observer in partition.observers] == [2]


@pytest.mark.parametrize(
    "request_message",
    [quorum_request(1), quorum_request(0, 0), quorum_request(0, topic="t"), DescribeQuorumRequest(topics=[])],
    ids=["partition 1", "two partitions", "another topic", "no topic"],
)
def test_only_the_metadata_log_is_described(request_message: DescribeQuorumRequest) -> None:
    response = Stage({"t": 1}).client().ask(request_message)
    assert response.error_code == 0
    assert {partition.error_code for topic in response.topics for partition in topic.partitions} <= {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
