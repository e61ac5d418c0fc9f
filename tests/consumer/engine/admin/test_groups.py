"""Groups in the admin API: list, describe with members and lag, commit, delete."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from consumer import Admin, AsyncAdmin, Consumer, ListedGroup, Producer, TopicPartition
from consumer.engine.admin import groups as group_plans
from consumer.engine.metadata.cluster import ClusterView
from kproto.broker.server import Server, running
from kproto.errors import (
    CommitFailed,
    ConfigError,
    NotAuthorized,
    PartialFailure,
    RequestTimedOut,
    UnsupportedVersion,
)
from kproto.group.subscription import Assignment
from kproto.messages import consumer_group_describe as newer
from kproto.messages import share_group_describe as share
from kproto.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from kproto.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kproto.messages.list_groups import ListedGroup as Listed
from kproto.messages.list_groups import ListGroupsResponse
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from tests.consumer.engine.admin.stage import CONNECTION_LOST, clock, play

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a broker with two records in P0 and one in P1."""
    with running(topics={"t": 2}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(3):
                producer.send("t", b"x", partition=number % 2)
        yield server


def member(server: Server, group: str) -> Consumer:
    """Return a member of the group that owns both partitions of `t`."""
    consumer = Consumer(server.bootstrap, group_id=group, client_id="reader", auto_offset_reset="earliest")
    consumer.subscribe(["t"])
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)
    return consumer


def test_a_group_has_members_with_their_partitions_and_a_lag(server: Server) -> None:
    with Admin(server.bootstrap) as cluster, member(server, "told"):
        group = cluster.group("told")
        assert group.state == "Stable"
        assert [(member.client_id, member.partitions) for member in group.members] == [("reader", (P0, P1))]
        assert group.total_lag == sum(group.lag.values())
        assert cluster.list_groups()["told"] == ListedGroup("told", "Stable", "consumer", "classic")


def test_lag_is_the_distance_from_the_commit_to_the_end(server: Server) -> None:
    with Admin(server.bootstrap) as cluster:
        cluster.commit_offsets("behind", {P0: 1})
        group = cluster.group("behind")
        assert (group.state, group.members, group.committed) == ("Empty", (), {P0: 1})
        assert group.lag == {P0: 1, P1: 1}


def wait_for_pending_offset(admin: Admin) -> None:
    """Raise RequestTimedOut as soon as the coordinator of "g" has a pending offset."""
    while True:
        admin.committed_offsets("g", require_stable=True, timeout=0.3)


def test_an_open_transaction_delays_offsets_only_with_require_stable(server: Server) -> None:
    """By default, the committed offsets before the transaction are returned, as by Java's Admin (KIP-447)."""
    with Admin(server.bootstrap) as admin, Producer(server.bootstrap, transactional_id="x") as producer:
        admin.commit_offsets("g", {P0: 1})
        with producer.transaction():
            producer.send_offsets("g", {P0: 2})
            with pytest.raises(RequestTimedOut, match="UNSTABLE_OFFSET_COMMIT"):
                wait_for_pending_offset(admin)
            assert admin.group("g").committed == {P0: 1}
            assert admin.group("g").lag == {P0: 1, P1: 1}
            for partitions in (None, [P0]):
                offset = admin.committed_offsets("g", partitions)[P0]
                assert offset is not None
                assert offset.offset == 1
            with pytest.raises(RequestTimedOut, match="UNSTABLE_OFFSET_COMMIT"):
                admin.group("g", timeout=0.3, require_stable=True)
        assert admin.group("g", require_stable=True).committed == {P0: 2}


def test_an_unknown_group_is_dead(server: Server) -> None:
    with Admin(server.bootstrap) as cluster:
        group = cluster.group("nobody")
        assert (group.state, group.members, group.total_lag) == ("Dead", (), None)


def test_groups_with_members_are_not_deleted(server: Server) -> None:
    with Admin(server.bootstrap) as cluster, member(server, "busy"):
        cluster.commit_offsets("over", {P0: 0})
        with pytest.raises(
            PartialFailure, match=r"NON_EMPTY_GROUP .*'busy': the group has members: stop them first"
        ) as caught:
            cluster.delete_groups(["busy", "over"])
        assert (caught.value.succeeded, set(caught.value.failed)) == ({"over": None}, {"busy"})
        assert cluster.group("over").state == "Dead"
        with pytest.raises(PartialFailure, match="GROUP_ID_NOT_FOUND"):
            cluster.delete_groups(["over"])


def test_a_commit_for_a_group_with_members_says_what_to_do(server: Server) -> None:
    message = "the group has members: stop them first"
    with (
        Admin(server.bootstrap) as cluster,
        member(server, "at work"),
        pytest.raises(CommitFailed, match=message),
    ):
        cluster.commit_offsets("at work", {P0: 0})


def test_asyncio_has_the_same_methods(server: Server) -> None:
    async def story() -> None:
        async with AsyncAdmin(server.bootstrap) as cluster:
            await cluster.commit_offsets("awaited", {P0: 0})
            assert (await cluster.list_groups())["awaited"].protocol_type == ""
            assert (await cluster.group("awaited")).committed == {P0: 0}
            await cluster.delete_groups(["awaited"])
            assert "awaited" not in await cluster.list_groups()

    asyncio.run(story())


# ---- the requests of admin calls, with prepared responses


def brokers(*nodes: int) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host="broker", port=9000 + node) for node in nodes],
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name="t",
                partitions=[
                    MetadataResponsePartition(
                        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                ],
            )
        ],
    )


def listed(*names: str, code: int = 0) -> ListGroupsResponse:
    groups = [Listed(group_id=name, protocol_type="consumer", group_state="Stable") for name in names]
    return ListGroupsResponse(error_code=code, groups=groups)


COORDINATOR = FindCoordinatorResponse(
    coordinators=[Coordinator(key="g", node_id=1, host="broker", port=9001, error_code=0, error_message=None)]
)
NOTHING = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=0)])


def known() -> ClusterView:
    view = ClusterView()
    view.update(brokers(1), 0, version=9, everything=True)
    return view


def test_every_broker_is_asked_for_its_groups() -> None:
    groups, requests = play(
        group_plans.list_groups(ClusterView(), clock), brokers(1, 2), listed("b"), listed("a")
    )
    assert (sorted(groups), requests) == (["a", "b"], ["Metadata", "ListGroups", "ListGroups"])


def test_a_broker_without_a_response_is_asked_again_unless_it_left_the_cluster() -> None:
    result = play(
        group_plans.list_groups(ClusterView(), clock),
        brokers(1, 2),
        listed("a"),
        CONNECTION_LOST,
        brokers(1, 2),
        listed("b"),
    )
    assert sorted(result[0]) == ["a", "b"]
    assert result[1][-2:] == ["Metadata", "ListGroups"]
    remaining, _ = play(
        group_plans.list_groups(ClusterView(), clock),
        brokers(1, 2),
        listed("a"),
        CONNECTION_LOST,
        brokers(1),
        brokers(1),
        listed("a", "b"),
    )
    assert sorted(remaining) == ["a", "b"], "broker 1 coordinates the groups of broker 2 now"


def test_a_loading_coordinator_is_asked_again() -> None:
    loading = listed(code=14)
    groups, requests = play(group_plans.list_groups(ClusterView(), clock), brokers(1), loading, listed("a"))
    assert sorted(groups) == ["a"]
    assert "COORDINATOR_LOAD_IN_PROGRESS" in requests[2]


def test_a_rejected_list_hides_no_groups_of_other_brokers() -> None:
    with pytest.raises(PartialFailure, match="CLUSTER_AUTHORIZATION_FAILED") as caught:
        play(group_plans.list_groups(ClusterView(), clock), brokers(1, 2), listed(code=31), listed("a"))
    assert isinstance(caught.value.failed[1], NotAuthorized)
    assert list(caught.value.succeeded[2]) == ["a"]


def test_groups_are_listed_by_state_type_and_protocol_type(server: Server) -> None:
    with Admin(server.bootstrap) as admin, member(server, "stable"):
        admin.commit_offsets("empty", {P0: 0})
        assert sorted(admin.list_groups()) == ["empty", "stable"]
        assert sorted(admin.list_groups(states=["Empty"])) == ["empty"]
        assert sorted(admin.list_groups(types=["classic"])) == ["empty", "stable"]
        assert sorted(admin.list_groups(types=["share"])) == []
        assert sorted(admin.list_groups(protocol_types=["consumer"])) == ["stable"]
        with pytest.raises(ConfigError, match="'classic', 'consumer', 'share', 'streams'"):
            admin.list_groups(types=["simple"])


DEAD = DescribeGroupsResponse(
    groups=[
        DescribedGroup(
            error_code=69, group_id="g", group_state="Dead", protocol_type="", protocol_data="", members=[]
        )
    ]
)


def at(offset: int) -> ListOffsetsResponse:
    entry = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[entry])])


def test_a_group_of_the_new_protocol_is_described() -> None:
    partitions = [newer.TopicPartitions(topic_id=uuid.UUID(int=1), topic_name="t", partitions=[0])]
    described = newer.DescribedGroup(
        error_code=0, group_id="g", group_state="Stable", group_epoch=1, assignment_epoch=1,
        assignor_name="uniform",
        members=[
            newer.Member(
                member_id="m", member_epoch=1, client_id="java", client_host="/h",
                subscribed_topic_names=["t"],
                assignment=newer.Assignment(topic_partitions=partitions),
                target_assignment=newer.Assignment(topic_partitions=[]),
            )
        ],
    )  # fmt: skip
    answer = newer.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[described])
    committed = (COORDINATOR, brokers(1), NOTHING)
    ends = (brokers(1), at(2), at(9))
    group, _ = play(
        group_plans.group(known(), "g", clock), COORDINATOR, DEAD, COORDINATOR, answer, *committed, *ends
    )
    assert (group.state, group.owners, group.lag) == ("Stable", {P0: "m"}, {P0: 7})


def test_a_broker_without_the_new_protocol_has_no_such_group() -> None:
    unknown = UnsupportedVersion("ConsumerGroupDescribe", -1, "none")
    answers = (COORDINATOR, DEAD, *(COORDINATOR, unknown) * 3, COORDINATOR, brokers(1), NOTHING)
    group, _ = play(group_plans.group(known(), "g", clock), *answers)
    assert (group.state, group.type, group.members) == ("Dead", None, ())


def test_a_share_group_is_described_without_offsets() -> None:
    partitions = [share.TopicPartitions(topic_id=uuid.UUID(int=1), topic_name="t", partitions=[1, 0])]
    reader = share.Member(
        member_id="m", member_epoch=1, client_id="java", client_host="/h", subscribed_topic_names=["t"],
        assignment=share.Assignment(topic_partitions=partitions),
    )  # fmt: skip
    described = share.DescribedGroup(
        error_code=0, group_id="g", group_state="Stable", group_epoch=1, assignment_epoch=1,
        assignor_name="simple", members=[reader],
    )  # fmt: skip
    other_type = newer.ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[
            newer.DescribedGroup(
                error_code=69, group_id="g", group_state="", group_epoch=0, assignment_epoch=0,
                assignor_name="", members=[],
            )
        ],
    )  # fmt: skip
    response = share.ShareGroupDescribeResponse(throttle_time_ms=0, groups=[described])
    answers = (COORDINATOR, DEAD, COORDINATOR, other_type, COORDINATOR, response)
    group, _ = play(group_plans.group(known(), "g", clock), *answers)
    assert (group.state, group.type, group.committed, group.total_lag) == ("Stable", "share", {}, None)
    assert group.members[0].partitions == (P0, P1)


def test_one_unreadable_assignment_leaves_the_other_members_readable() -> None:
    described = [
        DescribedGroupMember(
            member_id=member_id, client_id="c", client_host="/h", member_metadata=b"", member_assignment=data
        )
        for member_id, data in (("good", Assignment(partitions=(P0,)).encode()), ("bad", b"\xff\x00"))
    ]
    groups = [
        DescribedGroup(
            error_code=0, group_id="g", group_state="Stable", protocol_type="consumer",
            protocol_data="range", members=described,
        )
    ]  # fmt: skip
    answers = (COORDINATOR, DescribeGroupsResponse(groups=groups), COORDINATOR, brokers(1), NOTHING)
    group, _ = play(group_plans.group(known(), "g", clock), *answers, brokers(1), at(0), at(9))
    assert (group.type, group.owners) == ("classic", {P0: "good"})
    good, bad = group.members
    assert good.assignment_error is None
    assert bad.partitions == ()
    assert "Assignment" in (bad.assignment_error or "")
