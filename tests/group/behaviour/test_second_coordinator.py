"""The broker runs groups of a second type through the same interface as classic groups.

`LeaseCoordinator` implements the second type. It shares no code with the coordinator of classic groups.

`Driver` stands for the part of a broker that uses a coordinator. `Driver` runs both types of groups through
the interface `GroupCoordinator`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.group import coordinators
from kproto.group.classic.coordinator import ClassicCoordinator, GroupSettings
from kproto.group.coordinators import COORDINATORS
from kproto.group.protocol import (
    CoordinatorAction,
    CoordinatorEvent,
    GroupCoordinator,
    GroupDescription,
    GroupNotice,
    MemberDescription,
    TopicCatalog,
)
from kproto.group.subscription import TopicPartition
from kproto.machine import RequestReceived, SendResponse, Tick
from kproto.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kproto.messages.describe_groups import DescribeGroupsRequest
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kproto.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kproto.wire.message import Message
from tests.broker.stage import Client, Stage
from tests.rules import rule

SESSION = 10_000


class LeaseExpired(GroupNotice, frozen=True):
    """The notice that a lease has expired, because its holder sent nothing for a session timeout."""


@dataclass
class Lease:
    """A group with at most one member, the holder of the lease.

    The JoinGroup requests of other members wait until the lease expires.
    """

    holder: str
    epoch: int
    deadline: int
    waiting: list[RequestReceived[Any]] = field(default_factory=list[RequestReceived[Any]])


@dataclass
class LeaseCoordinator:
    """The coordinator of a minimal group type.

    The first member of a group holds the group's lease, and the other members wait for it.
    """

    leases: dict[str, Lease] = field(default_factory=dict[str, Lease])

    @property
    def requests(self) -> Collection[type[Message]]:
        return {JoinGroupRequest, HeartbeatRequest, ListGroupsRequest, DeleteGroupsRequest}

    def step(self, event: CoordinatorEvent, now: int) -> list[CoordinatorAction]:
        actions: list[CoordinatorAction] = []
        for group_id, lease in self.leases.items():
            if lease.deadline <= now and lease.holder:
                actions.append(LeaseExpired(group_id))
                lease.holder = ""
                if lease.waiting:
                    actions.append(self._grant(lease, lease.waiting.pop(0), now))
        if isinstance(event, RequestReceived) and isinstance(event.request, ListGroupsRequest):
            groups = [ListedGroup(group_id=group_id, protocol_type="") for group_id in self.leases]
            actions.append(SendResponse(event.token, ListGroupsResponse(error_code=0, groups=groups)))
        elif isinstance(event, RequestReceived) and isinstance(event.request, DeleteGroupsRequest):
            results = [self._delete(group_id) for group_id in event.request.groups_names]
            actions.append(
                SendResponse(event.token, DeleteGroupsResponse(throttle_time_ms=0, results=results))
            )
        elif isinstance(event, RequestReceived):
            lease = self.leases.setdefault(event.request.group_id, Lease("", 0, now))  # type: ignore[attr-defined]
            if isinstance(event.request, HeartbeatRequest):
                known = event.request.member_id == lease.holder
                code = ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
                actions.append(SendResponse(event.token, HeartbeatResponse(error_code=code)))
            elif lease.holder:
                lease.waiting.append(event)
            else:
                actions.append(self._grant(lease, event, now))
        return actions

    def _grant(self, lease: Lease, call: RequestReceived[Any], now: int) -> SendResponse:
        lease.holder, lease.epoch = f"{call.client_id}-{call.random_id}", lease.epoch + 1
        lease.deadline = now + SESSION
        return SendResponse(
            call.token,
            JoinGroupResponse(
                error_code=ErrorCode.NONE,
                generation_id=lease.epoch,
                protocol_name="lease",
                leader=lease.holder,
                member_id=lease.holder,
                members=[],
            ),
        )

    def _delete(self, group_id: str) -> DeletableGroupResult:
        if group_id not in self.leases:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif self.leases[group_id].holder:
            code = ErrorCode.NON_EMPTY_GROUP
        else:
            del self.leases[group_id]
            code = ErrorCode.NONE
        return DeletableGroupResult(group_id=group_id, error_code=code)

    def next_deadline(self) -> int | None:
        return min((lease.deadline for lease in self.leases.values() if lease.holder), default=None)

    def group_ids(self) -> Collection[str]:
        return self.leases.keys()

    def describe(self, group_id: str) -> GroupDescription | None:
        lease = self.leases.get(group_id)
        if lease is None:
            return None
        members = (MemberDescription(lease.holder, None, "", "", b""),) if lease.holder else ()
        state = "Held" if lease.holder else "Free"
        return GroupDescription(group_id, "lease", "", state, lease.epoch, members)

    def committed_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        return None

    def has_pending_offsets(self, group_id: str, producer_id: int) -> bool:
        return False

    def hand_over(self, group_id: str, ready_at: int) -> list[SendResponse]:
        lease = self.leases[group_id]
        lease.deadline = ready_at + SESSION
        calls, lease.waiting = lease.waiting, []
        return [
            SendResponse(
                call.token, self.error_response(call.request, ErrorCode.NOT_COORDINATOR, call.version)
            )
            for call in calls
        ]

    def error_response(self, request: Message, code: ErrorCode, version: int) -> Message:
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(error_code=code)
        return JoinGroupResponse(error_code=code, protocol_name="", leader="", member_id="", members=[])


class Driver:
    """A broker without connections: it passes requests to a coordinator and keeps the responses."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self.coordinator = coordinator
        self.now = 0
        self.responses: dict[object, Any] = {}
        self.notices: list[GroupNotice] = []

    def send(self, token: str, request: Message, version: int) -> None:
        if type(request) not in self.coordinator.requests:
            self.responses[token] = "rejected by the broker"
            return
        self._perform(
            self.coordinator.step(
                RequestReceived(token, request, version, "app", "/127.0.0.1", f"id-{token}"), self.now
            )
        )

    def wait(self, ms: int) -> None:
        end = self.now + ms
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self._perform(self.coordinator.step(Tick(), self.now))
        self.now = end

    def hand_over(self, group_id: str) -> None:
        self._perform(self.coordinator.hand_over(group_id, self.now))

    def _perform(self, actions: Collection[CoordinatorAction]) -> None:
        for action in actions:
            if isinstance(action, SendResponse):
                assert action.token not in self.responses, "answered twice"
                self.responses[action.token] = action.response
            else:
                self.notices.append(action)


def join(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def heartbeat(member_id: str, generation: int = 1) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)


@pytest.fixture(params=[ClassicCoordinator, LeaseCoordinator])
def driver(request: pytest.FixtureRequest) -> Driver:
    return Driver(request.param())


def test_a_driver_joins_a_group_of_either_type(driver: Driver) -> None:
    driver.send("join", join(), 3)  # v3: no MEMBER_ID_REQUIRED
    driver.wait(3_000)
    response = driver.responses["join"]
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    driver.send("heartbeat", heartbeat(response.member_id), 4)
    assert driver.responses["heartbeat"].error_code == ErrorCode.NONE
    described = driver.coordinator.describe("g")
    assert described is not None
    assert [member.member_id for member in described.members] == [response.member_id]
    assert [*driver.coordinator.group_ids()] == ["g"]


def test_a_silent_member_expires_in_a_group_of_either_type(driver: Driver) -> None:
    driver.send("join", join(), 3)
    driver.wait(3_000)
    driver.wait(200_000)
    described = driver.coordinator.describe("g")
    assert described is not None
    assert described.members == ()
    assert driver.notices


def test_a_request_that_no_coordinator_serves_is_rejected_by_the_broker(driver: Driver) -> None:
    driver.send("metadata", MetadataRequest(topics=[]), 1)
    assert driver.responses == {"metadata": "rejected by the broker"}


@rule("R179")
def test_delayed_requests_are_answered_when_the_group_moves(driver: Driver) -> None:
    driver.send("first", join(), 3)
    driver.send("second", join(), 3)
    assert "second" not in driver.responses
    driver.hand_over("g")
    assert driver.responses["second"].error_code == ErrorCode.NOT_COORDINATOR


def test_the_classic_coordinator_describes_its_members() -> None:
    driver = Driver(ClassicCoordinator(GroupSettings(group_initial_rebalance_delay_ms=0)))
    driver.send("join", join(), 3)
    driver.wait(0)
    assert driver.coordinator.describe("g") == GroupDescription(
        group_id="g",
        group_type="classic",
        protocol_type="consumer",
        state="CompletingRebalance",
        epoch=1,
        members=(MemberDescription("app-id-join", None, "app", "/127.0.0.1", b""),),
        leader="app-id-join",
    )
    assert driver.coordinator.describe("other") is None
    assert not driver.coordinator.has_pending_offsets("g", 7)


def commit(group_id: str, index: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="flights", partitions=[partition])
    return OffsetCommitRequest(group_id=group_id, member_id="", topics=[topic])


def test_the_classic_coordinator_reports_committed_offsets() -> None:
    driver = Driver(ClassicCoordinator())
    driver.send("commit", commit("g", 1), 8)
    assert driver.coordinator.committed_offset("g", TopicPartition("flights", 1)) == 7
    assert driver.coordinator.committed_offset("g", TopicPartition("flights", 0)) is None
    assert driver.coordinator.committed_offset("other", TopicPartition("flights", 1)) is None


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """A broker with another type of group: leases. This type is the first in the table of coordinators, so it
    receives the JoinGroup requests.
    """

    def create(settings: GroupSettings, topics: TopicCatalog) -> LeaseCoordinator:
        return LeaseCoordinator()

    monkeypatch.setattr(coordinators, "COORDINATORS", {"lease": create, **COORDINATORS})
    return Stage({"flights": 1})


def test_the_embedded_broker_runs_with_a_second_type_of_group(stage: Stage) -> None:
    holder, waiting = stage.client(), stage.client()
    lease = holder.ask(join(), 3)
    waiting.send(join(), 3)
    assert not waiting.answers
    assert holder.ask(heartbeat(lease.member_id), 0).error_code == ErrorCode.NONE
    stage.wait(SESSION)
    assert waiting.answer().generation_id == 2
    assert holder.ask(heartbeat(lease.member_id), 0).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    actions = [action for report in stage.reports for action in report.actions]
    notices = [action for action in actions if isinstance(action, GroupNotice)]
    assert notices == [LeaseExpired("g")]


@pytest.fixture
def mixed(stage: Stage) -> Client:
    """A client. Its broker has the lease "g" and the classic group "offsets"."""
    client = stage.client()
    client.ask(join(), 3)
    assert client.ask(commit("offsets", 0), 8).topics[0].partitions[0].error_code == ErrorCode.NONE
    return client


def test_list_groups_returns_the_groups_of_all_types(mixed: Client) -> None:
    listed = mixed.ask(ListGroupsRequest(), 3).groups
    assert [group.group_id for group in listed] == ["g", "offsets"]
    assert [*mixed.stage.broker.coordinator.group_ids()] == ["g", "offsets"]


def test_a_request_for_groups_of_two_types_is_divided(mixed: Client) -> None:
    response = mixed.ask(DeleteGroupsRequest(groups_names=["offsets", "g", "missing"]), 2)
    assert [(result.group_id, result.error_code) for result in response.results] == [
        ("offsets", ErrorCode.NONE),
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_a_group_whose_coordinator_does_not_serve_the_request_is_reported_as_missing(mixed: Client) -> None:
    described = mixed.ask(DescribeGroupsRequest(groups=["g", "offsets"]), 5).groups
    assert [(group.group_id, group.group_state) for group in described] == [
        ("g", "Dead"),
        ("offsets", "Empty"),
    ]
    topics = [OffsetFetchRequestTopics(name="flights", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in ("g", "offsets")]
    fetched = mixed.ask(OffsetFetchRequest(groups=groups), 8).groups
    assert [group.topics[0].partitions[0].committed_offset for group in fetched] == [-1, 7]


def test_a_group_has_one_type(mixed: Client) -> None:
    response = mixed.ask(commit("g", 0), 8)
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    coordinator = mixed.stage.broker.coordinator
    described = coordinator.describe("g")
    assert described is not None
    assert described.group_type == "lease"
    assert coordinator.committed_offset("g", TopicPartition("flights", 0)) is None
    assert coordinator.committed_offset("offsets", TopicPartition("flights", 0)) == 7
    assert coordinator.describe("missing") is None
