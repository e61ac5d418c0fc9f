"""Cluster metadata: the effects of a response, and the refreshes that several routines share."""

from __future__ import annotations

from uuid import UUID

from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.models import sarama
from kproto.models.contract import ModelConfig, Started
from kproto.models.sarama import errors
from kproto.models.sarama.metadata import Metadata
from tests.models.sarama.stage import requests_of, stage_with_client, stage_with_member, time_of_request


def metadata_of_client() -> Metadata:
    """Return the metadata of a client that has two bootstrap addresses and no response yet."""
    state = sarama.start(ModelConfig(client_id="a", group_id="g", random=lambda: 0.0))
    sarama.step(state, Started((("one", 9092), ("two", 9092)), {}), 0)
    return state.metadata


def response(*partitions: tuple[int, int], code: int = 0, brokers: int = 2) -> MetadataResponse:
    """Return a response with one topic t, and the leader and leader epoch of each partition."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"broker{node}", port=9092)
            for node in range(1, brokers + 1)
        ],
        topics=[
            MetadataResponseTopic(
                name="t",
                topic_id=UUID(int=7),
                error_code=code,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=[],
                        isr_nodes=[],
                        offline_replicas=[],
                    )
                    for index, (leader, epoch) in enumerate(partitions)
                ],
            )
        ],
    )


def test_a_response_names_brokers_partitions_and_leaders() -> None:
    metadata = metadata_of_client()
    assert metadata.update(response((1, 0), (2, 0)), everything=True) == (False, {})
    assert metadata.partitions("t") == [0, 1]
    leader = metadata.leader("t", 1)
    assert not isinstance(leader, errors.GoError)
    assert (leader[0].id, leader[0].address.host) == (2, "broker2")


def test_an_older_leader_epoch_is_ignored() -> None:
    metadata = metadata_of_client()
    metadata.update(response((2, 5)), everything=True)
    metadata.update(response((1, 4)), everything=True)
    leader = metadata.leader("t", 0)
    assert not isinstance(leader, errors.GoError)
    assert (leader[0].id, leader[1]) == (2, 5)


def test_an_unknown_topic_is_removed_and_the_refresh_repeated() -> None:
    metadata = metadata_of_client()
    metadata.update(response((1, 0)), everything=True)
    assert metadata.update(response(code=3), everything=False) == (True, {"t": errors.UNKNOWN_TOPIC})
    assert metadata.partitions("t") == []
    assert metadata.leader("t", 0) == errors.UNKNOWN_TOPIC


def test_a_broker_that_a_response_does_not_list_is_removed() -> None:
    metadata = metadata_of_client()
    metadata.update(response((1, 0), (2, 0)), everything=True)
    metadata.update(response((1, 0), (2, 0), brokers=1), everything=True)
    assert list(metadata.brokers) == [1]
    assert metadata.leader("t", 1) == errors.LEADER_NOT_AVAILABLE


def test_bootstrap_addresses_that_failed_are_restored_when_none_is_left() -> None:
    metadata = metadata_of_client()
    first, second = metadata.seeds
    metadata.deregister(first)
    assert [seed.address.host for seed in metadata.seeds] == ["two"]
    metadata.deregister(second)
    assert metadata.candidates() == []
    metadata.resurrect()
    assert [seed.address.host for seed in metadata.seeds] == ["one", "two"]


def test_the_updater_requests_all_topics_at_each_interval() -> None:
    stage, a = stage_with_member(metadata_ms=1_000)
    count = len(requests_of(a, "Metadata"))
    stage.run(3_000)
    assert requests_of(a, "Metadata")[count:] == ["Metadata v11 all"] * 3


def test_no_metadata_is_requested_while_a_join_is_open() -> None:
    stage, a = stage_with_client(metadata_ms=500)
    a.hold("Join", 3_000)
    a.run_command("subscribe t")
    stage.run(6_000)
    start = time_of_request(a, "Join", 0)
    times = [line.now for line in a.lines if line.api == "Metadata"]
    assert not [time for time in times if start < time < start + 3_000]
    assert [time for time in times if time >= start + 3_000]
