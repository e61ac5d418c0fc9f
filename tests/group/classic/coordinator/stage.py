"""A stage for the coordinator, with virtual time, default arguments, and checked responses.

The stage checks that each response belongs to a pending request, and can be encoded in the request's version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import (
    ClassicCoordinator,
    ClassicGroup,
    ClassicGroupState,
    CoordinatorAction,
    CoordinatorEvent,
    GroupSettings,
    RequestReceived,
    SendResponse,
    Tick,
    TopicCatalog,
    next_deadline,
    step,
)
from kproto.messages.consumer_protocol import ConsumerProtocolSubscription
from kproto.messages.delete_groups import DeleteGroupsRequest
from kproto.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kproto.messages.list_groups import ListedGroup, ListGroupsRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproto.wire.message import Message

DELAY = 3_000  # Kafka's default of group.initial.rebalance.delay.ms
SESSION = 10_000
REBALANCE = 60_000
RANGE = (("range", b"r"),)
BOTH = (("range", b"r"), ("roundrobin", b"rr"))
FLIGHTS = UUID(int=7)
NO_ID = UUID(int=0)


class PendingResponse:
    """The response to a request. `waits` is true until the coordinator has answered."""

    def __init__(self, request: Message, version: int) -> None:
        self.request = request
        self.version = version
        self.response: Any = None

    @property
    def waits(self) -> bool:
        return self.response is None

    @property
    def code(self) -> ErrorCode:
        assert self.response is not None, "not answered yet"
        return ErrorCode(self.response.error_code)

    @property
    def member_id(self) -> str:
        member_id: str = self.response.member_id
        return member_id

    @property
    def codes(self) -> list[ErrorCode]:
        """Return the error codes of all partitions or, in a LeaveGroup response, of all members."""
        if hasattr(self.response, "members"):
            return [ErrorCode(member.error_code) for member in self.response.members]
        return [ErrorCode(p.error_code) for topic in self.response.topics for p in topic.partitions]


class KnownTopics:
    """The topics of a broker: `flights` with two partitions, and the topics that a test adds."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts = dict(counts or {"flights": 2})

    def partitions(self, name: str) -> int | None:
        return self.counts.get(name)

    def name(self, topic_id: UUID) -> str | None:
        return "flights" if topic_id == FLIGHTS else None

    def id(self, name: str) -> UUID | None:
        return FLIGHTS if name == "flights" else None


class Stage:
    """One coordinator and its virtual clock. `notices` are the coordinator's actions except responses."""

    def __init__(self, topics: TopicCatalog | None = None, **settings: int) -> None:
        self.coordinator = ClassicCoordinator(GroupSettings(**settings), topics)
        self.now = 1_000_000
        self.notices: list[CoordinatorAction] = []
        self.open: dict[int, PendingResponse] = {}
        self._sent = 0

    # Events.

    def step(self, event: CoordinatorEvent) -> None:
        for action in step(self.coordinator, event, self.now):
            if isinstance(action, SendResponse):
                assert isinstance(action.token, int)
                answer = self.open.pop(action.token)
                action.response.encode(answer.version)
                answer.response = action.response
            else:
                self.notices.append(action)

    def send(self, request: Message, version: int, client: str = "app") -> PendingResponse:
        self._sent += 1
        self.open[self._sent] = answer = PendingResponse(request, version)
        self.step(RequestReceived(self._sent, request, version, client, "/127.0.0.1", f"id{self._sent}"))
        return answer

    def wait(self, ms: int) -> None:
        """Let `ms` of virtual time pass, with a Tick at every deadline."""
        end, ticks = self.now + ms, 0
        while (deadline := next_deadline(self.coordinator)) is not None and deadline <= end:
            # A tick may set a deadline that is already due. For example, if a tick begins the join phase of a
            # group without members, the phase's deadline is now, so the next tick ends the phase.
            ticks = ticks + 1 if deadline <= self.now else 0
            assert ticks < 10, "the coordinator sets deadlines without end, and no time passes"
            self.now = max(self.now, deadline)
            self.step(Tick())
        self.now = end

    # Requests.

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: Iterable[tuple[str, bytes]] = RANGE,
        protocol_type: str = "consumer",
        session: int = SESSION,
        rebalance: int = REBALANCE,
        version: int = 9,
        reason: str | None = None,
        client: str = "app",
    ) -> PendingResponse:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols
            ],
            reason=reason,
        )
        return self.send(request, version, client)

    def add_member(self, **options: Any) -> tuple[str, PendingResponse]:
        """Join as a new member; return the member id and the pending response.

        A dynamic member sends two JoinGroup requests.
        """
        first = self.join(**options)
        if first.waits or first.code is not ErrorCode.MEMBER_ID_REQUIRED:
            assert first.waits, f"not taken in: {first.response}"
            return list(self.group(options.get("group", "g")).members)[-1], first
        return first.member_id, self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> PendingResponse:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self.generation(group) if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in (assignments or {}).items()
            ],
        )
        return self.send(request, version)

    def heartbeat(
        self, member_id: str, generation: int | None = None, *, group: str = "g", instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=self.generation(group) if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.send(request, 4).code

    def leave(
        self, *members: str | tuple[str, str | None], group: str = "g", reason: str | None = None
    ) -> PendingResponse:
        pairs = [(member, None) if isinstance(member, str) else member for member in members]
        identities = [
            MemberIdentity(member_id=member_id, group_instance_id=instance, reason=reason)
            for member_id, instance in pairs
        ]
        return self.send(LeaveGroupRequest(group_id=group, members=identities), 5)

    def leave_v2(self, member_id: str, *, group: str = "g", version: int = 2) -> ErrorCode:
        return self.send(LeaveGroupRequest(group_id=group, member_id=member_id), version).code

    def commit(
        self,
        member_id: str = "",
        generation: int = -1,
        offsets: Mapping[tuple[str, int], int] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        metadata: str | None = None,
        leader_epoch: int = -1,
        retention: int = -1,
        topic_id: UUID = NO_ID,
        version: int = 9,
    ) -> PendingResponse:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), offset in ({("flights", 0): 42} if offsets is None else offsets).items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        return self.send(request, version)

    def commit_in_transaction(
        self,
        producer_id: int = 1,
        offsets: Mapping[tuple[str, int], int] | None = None,
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        group: str = "g",
        metadata: str | None = None,
    ) -> PendingResponse:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, index), offset in ({("flights", 0): 42} if offsets is None else offsets).items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=metadata
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=p) for name, p in topics.items()],
        )
        return self.send(request, 3)

    def fetch(
        self,
        *partitions: tuple[str, int],
        group: str = "g",
        everything: bool = False,
        stable: bool = False,
        version: int = 9,
    ) -> PendingResponse:
        """Send OffsetFetch for these partitions, or for all partitions if `everything` is True."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        if version < 8:
            fetch_topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=p) for name, p in topics.items()
            ]
            request = OffsetFetchRequest(
                group_id=group, topics=None if everything else fetch_topics, require_stable=stable
            )
        else:
            fetch_topics_of_group = [
                OffsetFetchRequestTopics(name=name, topic_id=FLIGHTS, partition_indexes=p)
                for name, p in topics.items()
            ]
            fetch_group = OffsetFetchRequestGroup(
                group_id=group, topics=None if everything else fetch_topics_of_group
            )
            request = OffsetFetchRequest(groups=[fetch_group], require_stable=stable)
        return self.send(request, version)

    def committed_offsets(
        self, *partitions: tuple[str, int], group: str = "g", stable: bool = False
    ) -> list[int]:
        """Return the committed offsets of `partitions`, or of all partitions if none is passed.

        -1 stands for a partition without a committed offset.
        """
        answer = self.fetch(*partitions, group=group, everything=not partitions, stable=stable)
        return [p.committed_offset for topic in answer.response.groups[0].topics for p in topic.partitions]

    def delete_offsets(self, *partitions: tuple[str, int], group: str = "g") -> PendingResponse:
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=index))
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=name, partitions=p) for name, p in topics.items()],
        )
        return self.send(request, 0)

    def delete(self, *groups: str) -> list[ErrorCode]:
        response = self.send(DeleteGroupsRequest(groups_names=list(groups)), 2).response
        return [ErrorCode(result.error_code) for result in response.results]

    def describe(self, group: str = "g", *, version: int = 6, operations: bool = False) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group], include_authorized_operations=operations)
        described: DescribedGroup = self.send(request, version).response.groups[0]
        return described

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        request = ListGroupsRequest(states_filter=[*states], types_filter=[*types])
        listed: list[ListedGroup] = self.send(request, 5).response.groups
        return listed

    # Sequences of requests that bring a group into a state.

    def await_generation(self) -> None:
        """Wait until the initial delay has expired, including its extensions."""
        while self.state is ClassicGroupState.PREPARING_REBALANCE:
            self.wait(self.coordinator.settings.group_initial_rebalance_delay_ms)

    def create_generation(self, *newcomers: Mapping[str, Any]) -> list[str]:
        """Create a group, and start its first generation. Each argument has the options of `join` for one
        member.
        """
        added = [self.add_member(**options) for options in (newcomers or ({},))]
        self.await_generation()
        assert all(answer.code is ErrorCode.NONE for _, answer in added)
        return [member_id for member_id, _ in added]

    def create_stable_group(self, *newcomers: Mapping[str, Any]) -> list[str]:
        """Create a Stable group, in which the bytes of each member's assignment are its member id."""
        members = self.create_generation(*newcomers)
        self.sync_all(members)
        return members

    def sync_all(self, members: Sequence[str], **options: Any) -> None:
        """Let every member send SyncGroup, the leader with assignments."""
        leader = self.group().leader
        for member_id in members:
            assignments = {member: member.encode() for member in members} if member_id == leader else None
            self.sync(
                member_id, assignments=assignments, **{"protocol_name": self.group().protocol_name, **options}
            )
        assert self.state is ClassicGroupState.STABLE

    # ---- the state of the coordinator

    def group(self, group: str = "g") -> ClassicGroup:
        return self.coordinator.find(group)

    @property
    def state(self) -> ClassicGroupState:
        return self.group().state

    def generation(self, group: str = "g") -> int:
        return self.group(group).generation


def subscription(*topics: str, version: int = 0) -> bytes:
    """Return the protocol metadata of JoinGroup with a subscription to these topics."""
    body = ConsumerProtocolSubscription(topics=list(topics))
    return version.to_bytes(2, "big") + body.encode(version)
