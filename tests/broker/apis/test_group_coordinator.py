"""A single broker passes group requests to its coordinator, and acts on the results."""

from __future__ import annotations

import pytest

from kproto.broker.broker import GroupCoordinatorStep
from kproto.error_codes import ErrorCode
from kproto.group.classic import coordinator
from kproto.messages.delete_topics import DeleteTopicsRequest
from kproto.messages.list_groups import ListGroupsRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.apis.stage import join_alone
from tests.broker.stage import Client, Stage, join_request


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 1}, group_initial_rebalance_delay_ms=0)


def commit_request(
    offset: int, topic: str = "t", member: str = "", generation: int = -1
) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def committed_offsets(client: Client) -> dict[str, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    [group] = client.ask(request, 9).groups
    return {
        topic.name: partition.committed_offset for topic in group.topics for partition in topic.partitions
    }


def test_a_group_is_served_by_the_coordinator(stage: Stage, client: Client) -> None:
    member = join_alone(client)
    assert (
        client.ask(commit_request(5, member=member, generation=1), 9).topics[0].partitions[0].error_code == 0
    )
    assert committed_offsets(client) == {"t": 5}
    listed = client.ask(ListGroupsRequest()).groups
    assert [(group.group_id, group.group_state) for group in listed] == [("g", "Stable")]


def test_a_member_without_heartbeats_is_removed(stage: Stage, client: Client) -> None:
    join_alone(client)
    stage.wait(10_000)
    [group] = client.ask(ListGroupsRequest()).groups
    assert group.group_state == "Empty"


def test_an_offset_of_an_unknown_topic_is_not_stored(client: Client) -> None:
    response = client.ask(commit_request(5, "none"), 9)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_a_topic_deletes_its_offsets(client: Client) -> None:
    client.ask(commit_request(5), 9)
    client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
    assert committed_offsets(client) == {}


def test_a_member_that_disconnects_during_a_join_does_not_affect_others(stage: Stage, client: Client) -> None:
    member = join_alone(client)
    second_client = stage.client()
    other_id = second_client.ask(join_request()).member_id
    second_client.send(join_request(other_id))
    second_client.leave()
    client.send(join_request(member))
    assert client.answer().generation_id == 2
    assert second_client.answers == []


def test_steps_of_the_coordinator_are_reported(stage: Stage, client: Client) -> None:
    join_alone(client)
    settled = [
        action
        for report in stage.reports
        for action in report.actions
        if isinstance(action, coordinator.RebalanceCompleted)
    ]
    assert [(step.group_id, step.generation) for step in settled] == [("g", 1)]
    assert all(isinstance(report, GroupCoordinatorStep) for report in stage.reports)


def test_clients_are_described_as_kafka_does(stage: Stage, client: Client) -> None:
    join_alone(client)
    from kproto.messages.describe_groups import DescribeGroupsRequest

    [group] = client.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=False)).groups
    assert [(member.client_id, member.client_host) for member in group.members] == [("a client", "/10.0.0.7")]
