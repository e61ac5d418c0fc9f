"""Descriptions of each type of group in the admin API, on the embedded broker and with prepared responses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from consumer import Admin, Consumer, StreamsSubtopology, StreamsTasks, TopicPartition
from consumer.engine.admin import group_descriptions as plans
from consumer.engine.admin.plan import Ask, DeadlinePassed, Rest
from consumer.engine.network.call import Call
from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from kproto.errors import NotAuthorized, PartialFailure, RequestTimedOut, UnsupportedVersion
from kproto.messages import consumer_group_describe as newer
from kproto.messages import streams_group_describe as streams
from kproto.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from kproto.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kproto.wire.message import Message
from tests.consumer.engine.admin.stage import COORDINATOR, VERSIONS, clock, known, play

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_FOUND, DENIED = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 2}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


@pytest.fixture
def member(server: Server) -> Iterator[Consumer]:
    """Return the only member of the group "g"."""
    with Consumer(server.bootstrap, group_id="g", client_id="reader") as consumer:
        consumer.subscribe(["t"])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
        yield consumer


def test_a_classic_group_is_described_by_both_calls(server: Server, member: Consumer) -> None:
    with Admin(server.bootstrap) as admin:
        group = admin.describe_consumer_groups(["g"], include_authorized_operations=True)["g"]
        assert (group.type, group.state, group.protocol_type) == ("classic", "Stable", "consumer")
        assert [(entry.client_id, entry.partitions) for entry in group.members] == [("reader", (P0, P1))]
        assert (group.group_epoch, group.members[0].member_epoch) == (None, None)
        assert group.assignor
        assert group.coordinator == admin.coordinator("g")
        assert "read" in (group.authorized_operations or ())
        plain = admin.describe_classic_groups(["g"])["g"]
        assert plain.authorized_operations is None
        assert plain.members == group.members


def test_a_missing_group_does_not_hide_the_others(server: Server, member: Consumer) -> None:
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure, match=r"GROUP_ID_NOT_FOUND.*'missing'") as caught:
            admin.describe_consumer_groups(["missing", "g"])
        assert list(caught.value.succeeded) == ["g"]
        with pytest.raises(PartialFailure):
            admin.describe_share_groups(["g"])
        with pytest.raises(PartialFailure):
            admin.describe_streams_groups(["g"])


def coordinator_of(name: str) -> FindCoordinatorResponse:
    row = Coordinator(key=name, node_id=1, host="broker", port=9092, error_code=0, error_message=None)
    return FindCoordinatorResponse(coordinators=[row])


def consumers(name: str, code: int = 0) -> newer.DescribedGroup:
    def assigned(*numbers: int) -> newer.Assignment:
        topic = newer.TopicPartitions(topic_id=uuid.UUID(int=1), topic_name="t", partitions=list(numbers))
        return newer.Assignment(topic_partitions=[topic])

    members = [
        newer.Member(
            member_id="m", member_epoch=4, client_id="c", client_host="/h", subscribed_topic_names=["t"],
            assignment=assigned(1), target_assignment=assigned(1, 0),
        )
    ]  # fmt: skip
    return newer.DescribedGroup(
        error_code=code, group_id=name, group_state="Stable", group_epoch=5, assignment_epoch=4,
        assignor_name="uniform", members=members,
    )  # fmt: skip


def described(*groups: newer.DescribedGroup) -> newer.ConsumerGroupDescribeResponse:
    return newer.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=list(groups))


def classic(name: str, code: int = 0, state: str = "Empty") -> DescribeGroupsResponse:
    group = DescribedGroup(
        error_code=code, group_id=name, group_state=state, protocol_type="", protocol_data="", members=[]
    )
    return DescribeGroupsResponse(groups=[group])


def describe(*names: str) -> plans.Plan[dict[str, plans.GroupDescription]]:
    return plans.describe_consumer_groups(known(), names, clock, include_authorized_operations=False)


def test_a_group_of_the_new_protocol_has_epochs_and_target_partitions() -> None:
    groups, log = play(describe("g"), COORDINATOR, described(consumers("g")))
    group = groups["g"]
    assert (group.type, group.assignor) == ("consumer", "uniform")
    assert (group.group_epoch, group.target_assignment_epoch) == (5, 4)
    [member] = group.members
    assert (member.member_epoch, member.partitions, member.target_partitions) == (4, (P1,), (P0, P1))
    assert log == ["FindCoordinator", "ConsumerGroupDescribe"]


def test_a_group_of_another_type_is_described_as_a_classic_group() -> None:
    missing = described(consumers("g", NOT_FOUND))
    groups, log = play(describe("g"), COORDINATOR, missing, COORDINATOR, classic("g"))
    assert (groups["g"].type, groups["g"].state) == ("classic", "Empty")
    assert log == ["FindCoordinator", "ConsumerGroupDescribe", "FindCoordinator", "DescribeGroups"]


def test_a_broker_without_the_new_protocol_describes_classic_groups() -> None:
    unknown = UnsupportedVersion("ConsumerGroupDescribe", -1, "none")
    groups, _ = play(describe("g"), COORDINATOR, unknown, COORDINATOR, classic("g"))
    assert groups["g"].type == "classic"


@pytest.mark.parametrize("response", [classic("g", NOT_FOUND, "Dead"), classic("g", 0, "Dead")])
def test_a_dead_group_does_not_exist(response: DescribeGroupsResponse) -> None:
    with pytest.raises(PartialFailure, match="GROUP_ID_NOT_FOUND"):
        play(describe("g"), COORDINATOR, described(consumers("g", NOT_FOUND)), COORDINATOR, response)


def test_a_denied_group_is_not_described_again_as_a_classic_group() -> None:
    with pytest.raises(PartialFailure) as caught:
        play(describe("g"), COORDINATOR, described(consumers("g", DENIED)))
    assert isinstance(caught.value.failed["g"], NotAuthorized)


def test_a_denied_group_does_not_hide_classic_groups() -> None:
    with pytest.raises(PartialFailure, match="1 of 3") as caught:
        play(
            describe("denied", "older", "newer"),
            *(coordinator_of(name) for name in ("denied", "older", "newer")),
            described(consumers("denied", DENIED), consumers("older", NOT_FOUND), consumers("newer")),
            coordinator_of("older"),
            classic("older"),
        )
    assert isinstance(caught.value.failed["denied"], NotAuthorized)
    types = {name: group.type for name, group in caught.value.succeeded.items()}
    assert list(types.items()) == [("older", "classic"), ("newer", "consumer")]


def test_described_groups_are_kept_if_the_deadline_passes_before_the_classic_groups() -> None:
    names = ("newer", "older", "slow")
    plan = describe(*names)

    def respond(asks: list[Ask] | Rest, *responses: Message) -> list[Call]:
        assert isinstance(asks, list)
        calls = [Call(ask.request, node=ask.node, lane=ask.lane, deadline=9, timeout_ms=9) for ask in asks]
        for call, response in zip(calls, responses, strict=True):
            call.version, call.response = VERSIONS[call.name], response
        return calls

    lookups = respond(next(plan), *(coordinator_of(name) for name in names))
    calls = respond(plan.send(lookups), described(consumers("newer"), consumers("older", NOT_FOUND)))
    timeout = RequestTimedOut("ConsumerGroupDescribe", 10)
    with pytest.raises(PartialFailure, match="2 of 3") as caught:
        plan.throw(DeadlinePassed(timeout, calls))
    assert list(caught.value.succeeded) == ["newer"]
    assert caught.value.failed == {"older": timeout, "slow": timeout}


def test_a_streams_group_has_tasks_and_a_topology() -> None:
    def tasks(*numbers: int) -> list[streams.TaskIds]:
        return [streams.TaskIds(subtopology_id="s", partitions=list(numbers))] if numbers else []

    assigned = streams.Assignment(active_tasks=tasks(0, 1), standby_tasks=tasks(2), warmup_tasks=tasks())
    member = streams.Member(
        member_id="m", member_epoch=2, client_id="c", client_host="/h", topology_epoch=1, process_id="p",
        client_tags=[], task_offsets=[], task_end_offsets=[], assignment=assigned,
        target_assignment=assigned, is_classic=False,
    )  # fmt: skip
    changelog = streams.TopicInfo(name="log", partitions=2, replication_factor=1, topic_configs=[])
    subtopology = streams.Subtopology(
        subtopology_id="s", source_topics=["t"], repartition_sink_topics=[],
        state_changelog_topics=[changelog], repartition_source_topics=[],
    )  # fmt: skip
    group = streams.DescribedGroup(
        error_code=0, group_id="g", group_state="Stable", group_epoch=2, assignment_epoch=2,
        topology=streams.Topology(epoch=1, subtopologies=[subtopology]), members=[member],
    )  # fmt: skip
    response = streams.StreamsGroupDescribeResponse(throttle_time_ms=0, groups=[group])
    plan = plans.describe_groups(known(), "streams", ["g"], clock, include_authorized_operations=False)
    description = play(plan, COORDINATOR, response)[0]["g"]
    assert description.subtopologies == (StreamsSubtopology("s", ("t",), (), ("log",), ()),)
    [reader] = description.members
    assert reader.tasks == StreamsTasks({"s": (0, 1)}, {"s": (2,)}, {})
    assert reader.partitions == ()
