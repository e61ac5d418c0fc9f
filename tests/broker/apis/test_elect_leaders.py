"""ElectLeaders: preferred and unclean elections, and requests that are rejected.

tests/conformance/test_boundary_requests_like_kafka.py compares the responses to random ElectLeaders
requests with a real Kafka's responses.
"""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.broker.stage import Stage, TwoBrokers

PREFERRED, UNCLEAN = 0, 1


def election_request(
    *partitions: int, topic: str = "t", how: int = PREFERRED, **fields: Any
) -> ElectLeadersRequest:
    topics = [TopicPartitions(topic=topic, partitions=list(partitions))]
    return ElectLeadersRequest(election_type=how, topic_partitions=topics, **fields)


def results_of(response: Any) -> list[tuple[int, str | None]]:
    return [
        (result.error_code, result.error_message)
        for topic in response.replica_election_results
        for result in topic.partition_result
    ]


@pytest.mark.parametrize("how", [PREFERRED, UNCLEAN])
def test_the_only_broker_needs_no_election(how: int) -> None:
    response = Stage({"t": 1}).client().ask(election_request(0, 1, how=how))
    assert results_of(response) == [
        (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-1"),
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_election_type_fails_the_whole_request(version: int) -> None:
    response = Stage({"t": 1}).client().ask(election_request(0, how=2), version)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert results_of(response) == [(ErrorCode.INVALID_REQUEST, "Unknown election type 2")]


def test_a_zero_timeout_is_refused_also_in_v0() -> None:
    response = Stage({"t": 1}).client().ask(election_request(0, timeout_ms=0), 0)
    assert results_of(response) == [(ErrorCode.REQUEST_TIMED_OUT, None)]


@pytest.mark.parametrize("fields", [{"election_type": 2}, {"timeout_ms": 0}])
def test_an_empty_request_is_not_validated(fields: dict[str, int]) -> None:
    response = Stage({"t": 1}).client().ask(ElectLeadersRequest(topic_partitions=[], **fields))
    assert (response.error_code, response.replica_election_results) == (0, [])


def leader(two: TwoBrokers) -> tuple[int, int]:
    topic = two.cluster.topics.named("r")
    assert topic is not None
    partition = topic.partitions[0]
    return two.cluster.leader(partition, 0), partition.log.leader_epoch


def test_the_preferred_replica_leads_again_in_a_new_epoch(led_by_second_broker: TwoBrokers) -> None:
    assert leader(led_by_second_broker) == (2, 1)
    response = led_by_second_broker.ask(2, ElectLeadersRequest(topic_partitions=None), 2)
    assert results_of(response) == [(0, None)]
    assert leader(led_by_second_broker) == (1, 2)


def test_a_preferred_replica_that_is_down_is_not_elected(led_by_second_broker: TwoBrokers) -> None:
    del led_by_second_broker.cluster.nodes[1]
    response = led_by_second_broker.ask(2, election_request(0, topic="r"), 2)
    assert results_of(response) == [(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None)]
    assert leader(led_by_second_broker) == (2, 1)


def test_an_unclean_election_takes_a_live_replica_if_there_is_no_leader(
    led_by_second_broker: TwoBrokers,
) -> None:
    two = led_by_second_broker
    assert (
        results_of(two.ask(1, election_request(0, topic="r", how=UNCLEAN), 2))[0][0]
        == ErrorCode.ELECTION_NOT_NEEDED
    )
    del two.cluster.nodes[2]
    assert results_of(two.ask(1, election_request(0, topic="r", how=UNCLEAN), 2)) == [(0, None)]
    assert leader(two) == (1, 2)
