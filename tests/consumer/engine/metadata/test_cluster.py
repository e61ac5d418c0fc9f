"""What a client knows of the cluster, and when it believes otherwise."""

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
    made = ClusterView()
    for answer in answers:
        made.update(answer, 0, version=version, everything=everything)
    return made


def test_the_newest_leader_epoch_wins() -> None:
    """M198: brokers answer from metadata of different age."""
    assert (
        view(metadata_response(leader=1, epoch=5), metadata_response(leader=2, epoch=4)).leader(tp("t", 0))
        == 1
    )
    assert (
        view(metadata_response(leader=1, epoch=5), metadata_response(leader=2, epoch=6)).leader(tp("t", 0))
        == 2
    )


def test_an_older_epoch_is_believed_when_nobody_leads_and_all_answers_tell_it() -> None:
    behind = [metadata_response(leader=2, epoch=4)] * MAX_OLDER_RESPONSES
    assert view(metadata_response(leader=1, epoch=5), *behind, *behind).leader(tp("t", 0)) == 1
    known = view(metadata_response(leader=1, epoch=5), *behind[1:])
    known.forget_leader(tp("t", 0))
    for one in behind[1:]:
        known.update(one, 0, version=13, everything=False)
    assert known.leader(tp("t", 0)) is None
    known.update(metadata_response(leader=2, epoch=4), 0, version=13, everything=False)
    assert known.leader(tp("t", 0)) == 2


def test_an_older_epoch_is_believed_when_who_led_is_no_broker_any_more() -> None:
    """A cluster that was restored with other broker ids, or one answer with a leader that there isn't."""
    known = view(
        metadata_response(leader=9, epoch=5),
        *[metadata_response(leader=2, epoch=4)] * (MAX_OLDER_RESPONSES - 1),
    )
    assert known.leader(tp("t", 0)) is None
    known.update(metadata_response(leader=2, epoch=4), 0, version=13, everything=False)
    assert known.leader(tp("t", 0)) == 2


def test_epochs_of_another_topic_with_the_same_name_do_not_count() -> None:
    known = view(metadata_response(leader=1, epoch=5), metadata_response(leader=2, epoch=0, topic_id=B))
    assert known.leader(tp("t", 0)) == 2
    assert known.topic_name(A) is None
    assert known.topic_name(B) == "t"


def both(topic_id: UUID, other_id: UUID) -> MetadataResponse:
    """Of t and u."""
    made, other = metadata_response(topic_id=topic_id), metadata_response(topic_id=other_id)
    other.topics[0].name = "u"
    made.topics += other.topics
    return made


def test_of_an_id_that_two_topics_have_in_one_answer_nothing_is_believed() -> None:
    ids = [(both(A, A), None, None), (both(A, B), A, B), (both(A, A), A, B), (both(B, B), A, B)]
    known = view()
    for told, first, second in ids:
        known.update(told, 0, version=13, everything=True)
        assert (known.topic_id("t"), known.topic_id("u")) == (first, second)
        assert (known.topic_name(A), known.topic_name(B)) == (first and "t", second and "u")
    known.update(both(B, A), 0, version=13, everything=True)
    assert (known.topic_id("t"), known.topic_id("u")) == (B, A)
    made = both(A, B)
    made.topics *= 2
    assert view(made).topic_id("t") == A


def test_epochs_before_version_9_are_not_believed() -> None:
    known = view(metadata_response(leader=1, epoch=5), metadata_response(leader=2, epoch=4), version=8)
    assert known.leader(tp("t", 0)) == 2


def test_a_leader_that_the_cluster_does_not_list_is_none() -> None:
    assert view(metadata_response(leader=7)).leader(tp("t", 0)) is None
    assert view(metadata_response(leader=-1)).leader(tp("t", 0)) is None
    assert view(metadata_response()).leader(tp("t", 1)) is None


def test_a_topic_that_is_missing_from_a_full_answer_is_gone() -> None:
    nothing = metadata_response()
    nothing.topics = []
    assert view(metadata_response(), nothing, everything=True).topics == {}
    assert set(view(metadata_response(), nothing).topics) == {"t"}


def test_a_broker_that_denies_a_topic_for_a_moment_does_not_take_its_partitions_away() -> None:
    known = view(metadata_response(), metadata_response(code=3))
    assert known.topics["t"].error_code == 3
    assert known.counts(["t"]) == {"t": 1}


def test_asking_for_no_topic_asks_for_none_and_for_all_asks_for_all() -> None:
    def topics(wanted: list[str] | None, version: int) -> object:
        request = metadata_request(wanted).build(version)
        assert isinstance(request, MetadataRequest)
        return request.topics

    assert topics([], 13) == []
    assert topics(None, 13) is None
    assert topics(None, 0) == []


# ---- brokers that came back elsewhere


def test_where_a_broker_is_may_be_told_in_passing() -> None:
    known = view(metadata_response())
    known.set_address(1, "elsewhere", 99)
    known.set_address(7, "new", 9, "rack")
    known.set_address(8, "", -1)
    assert (known.brokers[1].host, known.brokers[1].port) == ("elsewhere", 99)
    assert known.brokers[7] == BrokerAddress(7, "new", 9, "rack")
    assert 8 not in known.brokers


def moved(world: World, node: int, client: Any) -> None:
    """What this client knows of a broker's place isn't so any more."""
    client.engine.core.view.brokers[node] = BrokerAddress(node, "where it was", 1)


def test_a_coordinator_that_came_back_elsewhere_is_found_there() -> None:
    """FindCoordinator says where it is; metadata is read five minutes later."""
    world = World({"t": 1}, brokers=2)
    a = world.consumer(group_id="g", session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    there = 3 - world.cluster.group_coordinator_of("g")
    world.move_coordinator("g", there)
    moved(world, there, a)
    world.run(20_000)
    assert a.is_stable()
    assert a.changes_of("lost") == []


def test_a_leader_that_came_back_elsewhere_is_asked_where_the_old_one_says() -> None:
    """KIP-951: whoever isn't the leader says who is, and where."""
    world = World({"t": 1}, brokers=2)
    a = world.consumer(auto_offset_reset="earliest")
    a.assign({tp("t", 0): None})
    world.write("t", 0, "x")
    assert world.run(until=lambda: a.values() == ["x"])
    world.elect("t", 0, 2)
    moved(world, 2, a)
    world.write("t", 0, "y")
    known = a.engine.core.view
    read_at = known.updated_at
    assert world.run(5_000, until=lambda: known.brokers[2].host == "broker2")
    assert known.updated_at == read_at
    assert world.run(5_000, until=lambda: a.values() == ["x", "y"])


@pytest.mark.parametrize("group", [None, "g"])
def test_a_topic_that_an_answer_leaves_out_is_told_and_asked_for_again(group: str | None) -> None:
    """A consumer had nothing of it, without a word, until the metadata were old: for five minutes."""
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
def test_a_topic_that_an_answer_leaves_out_is_asked_for_again_by_who_sends(
    transactional_id: str | None,
) -> None:
    world = World({"t": 1})
    producer = world.producer(transactional_id=transactional_id)
    if transactional_id is not None:
        machine = producer.engine.transactions
        assert machine is not None
        wish = machine.call("begin")
        producer.tick()
        assert world.run(until=lambda: wish.done)
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
