"""ClusterView rejects outdated metadata, and clients use the newest leaders and addresses."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from consumer.engine.metadata.cluster import MAX_OLDER_RESPONSES, BrokerAddress, ClusterView
from consumer.engine.requests import metadata_request
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.consumer.engine.metadata.stage import TOPIC_ID, metadata_response
from tests.consumer.stage import World, tp

A, B = TOPIC_ID, UUID(int=2)


def view(*answers: MetadataResponse, version: int = 13, everything: bool = False) -> ClusterView:
    cluster_view = ClusterView()
    for answer in answers:
        cluster_view.update(answer, 0, version=version, everything=everything)
    return cluster_view


@pytest.mark.rule("M198")
def test_the_newest_leader_epoch_wins() -> None:
    """A leader with an older epoch is ignored (M198).

    A metadata response may be older than the previous one, because brokers update their metadata at different
    times.
    """
    assert (
        view(metadata_response(leader=1, epoch=5), metadata_response(leader=2, epoch=4)).leader(tp("t", 0))
        == 1
    )
    assert (
        view(metadata_response(leader=1, epoch=5), metadata_response(leader=2, epoch=6)).leader(tp("t", 0))
        == 2
    )


@pytest.mark.rule("M198")
def test_an_older_epoch_is_accepted_without_a_leader_after_enough_responses() -> None:
    behind = [metadata_response(leader=2, epoch=4)] * 10
    assert view(metadata_response(leader=1, epoch=5), *behind, *behind).leader(tp("t", 0)) == 1
    known = view(metadata_response(leader=1, epoch=5), *behind[1:])
    known.forget_leader(tp("t", 0))
    for response in behind[1:]:
        known.update(response, 0, version=13, everything=False)
    assert known.leader(tp("t", 0)) is None
    known.update(metadata_response(leader=2, epoch=4), 0, version=13, everything=False)
    assert known.leader(tp("t", 0)) == 2


def test_an_older_epoch_is_accepted_immediately_after_the_known_epoch_was_forgotten() -> None:
    known = view(metadata_response(leader=1, epoch=5))
    known.forget_epoch(tp("t", 0))
    assert known.leader(tp("t", 0)) is None
    known.update(metadata_response(leader=2, epoch=4), 0, version=13, everything=False)
    assert known.leader(tp("t", 0)) == 2


def test_an_older_epoch_is_accepted_if_the_leader_is_no_longer_a_broker() -> None:
    """If MAX_OLDER_RESPONSES responses lack the known leader, their older epoch is accepted.

    The cluster may have been restored with other broker ids, or an earlier response may have been wrong.
    """
    known = view(
        metadata_response(leader=9, epoch=5),
        *[metadata_response(leader=2, epoch=4)] * (MAX_OLDER_RESPONSES - 1),
    )
    assert known.leader(tp("t", 0)) is None
    known.update(metadata_response(leader=2, epoch=4), 0, version=13, everything=False)
    assert known.leader(tp("t", 0)) == 2


def test_epochs_of_another_topic_with_the_same_name_are_not_compared() -> None:
    known = view(metadata_response(leader=1, epoch=5), metadata_response(leader=2, epoch=0, topic_id=B))
    assert known.leader(tp("t", 0)) == 2
    assert known.topic_name(A) is None
    assert known.topic_name(B) == "t"


def two_topics(topic_id: UUID, other_id: UUID) -> MetadataResponse:
    """Return a response with the topics t and u."""
    response, second = metadata_response(topic_id=topic_id), metadata_response(topic_id=other_id)
    second.topics[0].name = "u"
    response.topics += second.topics
    return response


def test_an_id_of_two_topics_in_one_response_is_ignored() -> None:
    ids = [
        (two_topics(A, A), None, None),
        (two_topics(A, B), A, B),
        (two_topics(A, A), A, B),
        (two_topics(B, B), A, B),
    ]
    known = view()
    for response, first, second in ids:
        known.update(response, 0, version=13, everything=True)
        assert (known.topic_id("t"), known.topic_id("u")) == (first, second)
        assert (known.topic_name(A), known.topic_name(B)) == (first and "t", second and "u")
    known.update(two_topics(B, A), 0, version=13, everything=True)
    assert (known.topic_id("t"), known.topic_id("u")) == (B, A)
    repeated = two_topics(A, B)
    repeated.topics *= 2
    assert view(repeated).topic_id("t") == A


def test_epochs_before_version_9_are_ignored() -> None:
    known = view(metadata_response(leader=1, epoch=5), metadata_response(leader=2, epoch=4), version=8)
    assert known.leader(tp("t", 0)) == 2


def test_a_leader_that_is_not_a_listed_broker_is_none() -> None:
    assert view(metadata_response(leader=7)).leader(tp("t", 0)) is None
    assert view(metadata_response(leader=-1)).leader(tp("t", 0)) is None
    assert view(metadata_response()).leader(tp("t", 1)) is None


def test_a_topic_that_is_missing_from_a_full_response_is_removed() -> None:
    nothing = metadata_response()
    nothing.topics = []
    assert view(metadata_response(), nothing, everything=True).topics == {}
    assert set(view(metadata_response(), nothing).topics) == {"t"}


def test_a_topic_with_a_temporary_error_keeps_its_partitions() -> None:
    known = view(metadata_response(), metadata_response(code=3))
    assert known.topics["t"].error_code == 3
    assert known.counts(["t"]) == {"t": 1}


def test_a_request_for_no_topic_lists_none_and_for_all_topics_lists_all() -> None:
    def topics(names: list[str] | None, version: int) -> object:
        request = metadata_request(names).build(version)
        assert isinstance(request, MetadataRequest)
        return request.topics

    assert topics([], 13) == []
    assert topics(None, 13) is None
    assert topics(None, 0) == []


# ---- brokers that restart with another address


def test_addresses_in_other_responses_are_accepted() -> None:
    known = view(metadata_response())
    known.set_address(1, "elsewhere", 99)
    known.set_address(7, "new", 9, "rack")
    known.set_address(8, "", -1)
    assert (known.brokers[1].host, known.brokers[1].port) == ("elsewhere", 99)
    assert known.brokers[7] == BrokerAddress(7, "new", 9, "rack")
    assert 8 not in known.brokers


def make_address_stale(world: World, node: int, client: Any) -> None:
    """Replace the address of a broker in the client's metadata with a stale one."""
    client.engine.core.view.brokers[node] = BrokerAddress(node, "where it was", 1)


def test_a_coordinator_with_a_new_address_is_found() -> None:
    """The client connects to a coordinator at the address in FindCoordinator's response.

    The address in the client's metadata may be up to five minutes old.
    """
    world = World({"t": 1}, brokers=2)
    a = world.consumer(group_id="g", session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    node = 3 - world.cluster.group_coordinator_of("g")
    world.move_coordinator("g", node)
    make_address_stale(world, node, a)
    world.run(20_000)
    assert a.is_stable()
    assert a.changes_of("lost") == []


@pytest.mark.rule("I1")
def test_a_leader_with_a_new_address_is_found_by_the_old_leaders_response() -> None:
    """The old leader's error response contains the new leader and its address (KIP-951)."""
    world = World({"t": 1}, brokers=2)
    a = world.consumer(auto_offset_reset="earliest")
    a.assign({tp("t", 0): None})
    world.write("t", 0, "x")
    assert world.run(until=lambda: a.values() == ["x"])
    world.elect("t", 0, 2)
    make_address_stale(world, 2, a)
    world.write("t", 0, "y")
    known = a.engine.core.view
    read_at = known.updated_at
    assert world.run(5_000, until=lambda: known.brokers[2].host == "broker2")
    assert known.updated_at == read_at
    assert world.run(5_000, until=lambda: a.values() == ["x", "y"])


@pytest.mark.parametrize("group", [None, "g"])
def test_a_topic_missing_from_a_metadata_response_is_reported_and_requested_again(group: str | None) -> None:
    """A topic that a metadata response lacks is reported and requested again.

    Regression: the consumer read no record of the topic for five minutes, until metadata expired, and
    reported nothing.
    """
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(group_id=group, auto_offset_reset="earliest")

    brokers = [
        MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port)
        for node in world.nodes.values()
    ]

    def leave_out(client: Any, request: Any, version: int) -> MetadataResponse | None:
        if not isinstance(request, MetadataRequest):
            return None
        return MetadataResponse(brokers=brokers, controller_id=1, topics=[])

    world.tamper = leave_out
    a.subscribe("t") if group else a.assign({tp("t", 0): None})
    world.run(20_000)
    assert "topic 't': missing from the response" in a.changes_of("refused")[0].reason
    assert len(world.requests_of(a, MetadataRequest)) <= 40
    world.tamper = None
    assert world.run(5_000, until=lambda: a.values() == ["x"])


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_a_topic_missing_from_a_metadata_response_is_requested_again_by_a_producer(
    transactional_id: str | None,
) -> None:
    world = World({"t": 1})
    producer = world.producer(transactional_id=transactional_id)
    if transactional_id is not None:
        machine = producer.engine.transactions
        assert machine is not None
        call = machine.call("begin")
        producer.tick()
        assert world.run(until=lambda: call.done)
    brokers = [
        MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port)
        for node in world.nodes.values()
    ]
    world.tamper = lambda client, request, version: (
        MetadataResponse(brokers=brokers, controller_id=1, topics=[])
        if isinstance(request, MetadataRequest)
        else None
    )
    assert producer.send("t", "x", partition=0) is None
    producer.tick()
    world.run(20_000)
    assert 3 <= len(world.requests_of(producer, MetadataRequest)) <= 40
    world.tamper = None
    assert producer.deliver("t", "x", partition=0) is not None
