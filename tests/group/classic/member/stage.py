"""One member; the test plays its coordinator and its application.

Every step checks that the deadline after a tick is in the future, and that no action follows `Left`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from kproto.error_codes import ErrorCode
from kproto.group.classic.member import (
    JAVA,
    AdoptAssignment,
    CommitAnswered,
    CoordinatorFound,
    Fatal,
    Left,
    Lose,
    Member,
    MemberAction,
    MemberConfig,
    MemberEvent,
    MemberState,
    MetadataUpdated,
    PollEntered,
    PollLeft,
    Received,
    Rejoining,
    Released,
    Revoke,
    Send,
    SubscriptionChanged,
    Tick,
    next_deadline,
    step,
)
from kproto.group.subscription import Assignment, Subscription, TopicPartition
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kproto.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.wire.message import Message

EAGER = ("range",)
COOPERATIVE = ("cooperative-sticky",)
SESSION = 10_000
INTERVAL = 3_000
POLL = 60_000
BACKOFF = 100

A = TypeVar("A")
M = TypeVar("M", bound=Message)


def parts(topic: str, *indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, index) for index in indexes)


class Solo:
    """A member, and its actions that the test has not consumed yet."""

    def __init__(
        self, assignors: tuple[str, ...] = EAGER, topics: Mapping[str, int] | None = None, **options: Any
    ) -> None:
        defaults: dict[str, Any] = {
            "group_id": "g",
            "session_timeout_ms": SESSION,
            "heartbeat_interval_ms": INTERVAL,
            "rebalance_timeout_ms": POLL,
            "retry_backoff_ms": BACKOFF,
            "assignors": assignors,
        }
        policy = options.pop("policy", JAVA)
        self.member = Member(MemberConfig(**{**defaults, **options}), policy)
        self.now = 1_000_000
        self.actions: list[MemberAction] = []
        self.all_actions: list[MemberAction] = []
        self.apply(MetadataUpdated({"t": 3} if topics is None else dict(topics)))

    @property
    def state(self) -> MemberState:
        return self.member.state

    def apply(self, event: MemberEvent) -> list[MemberAction]:
        done = self.state is MemberState.CLOSED
        actions = step(self.member, event, self.now)
        assert not (done and actions), f"{actions} after Left"
        if isinstance(event, Tick):
            deadline = next_deadline(self.member)
            assert deadline is None or deadline > self.now, "a tick that does not help"
        self.actions += actions
        self.all_actions += actions
        return actions

    def pop_action(self, kind: type[A]) -> A:
        """Remove and return the only action of this kind."""
        matching = [action for action in self.actions if isinstance(action, kind)]
        assert len(matching) == 1, f"{kind.__name__}: {matching} in {self.actions}"
        self.actions.remove(matching[0])
        return matching[0]

    def pop_request(self, kind: type[M]) -> M:
        """Remove and return the only request of this kind."""
        matching = [a for a in self.actions if isinstance(a, Send) and isinstance(a.request, kind)]
        assert len(matching) == 1, f"{kind.__name__}: {matching} in {self.actions}"
        self.actions.remove(matching[0])
        request = matching[0].request
        assert isinstance(request, kind)
        return request

    def has_request(self, kind: type[Message]) -> bool:
        return any(isinstance(action, Send) and isinstance(action.request, kind) for action in self.actions)

    def has_action(self, kind: type[Any]) -> bool:
        return any(isinstance(action, kind) for action in self.actions)

    @property
    def reasons(self) -> list[str]:
        return [action.reason for action in self.all_actions if isinstance(action, Rejoining)]

    def wait(self, ms: int) -> None:
        """Let time pass, and send a Tick whenever one is due."""
        end = self.now + ms
        while (deadline := next_deadline(self.member)) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.apply(Tick())
        self.now = end

    # The coordinator

    def find_coordinator(self) -> None:
        self.apply(CoordinatorFound("node"))

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        self.apply(SubscriptionChanged(frozenset(topics or ("t",)), pattern))

    def answer_join(
        self,
        code: int = 0,
        *,
        generation: int = 1,
        member_id: str = "me",
        leader: str | None = None,
        members: Mapping[str, Subscription] | None = None,
        protocol: str | None = None,
        protocol_type: str | None = "consumer",
        skip: bool = False,
        request: JoinGroupRequest | None = None,
    ) -> list[MemberAction]:
        """Answer the JoinGroup in flight. With `members` this member becomes the leader."""
        request = request or self.pop_request(JoinGroupRequest)
        listed = [
            JoinGroupResponseMember(member_id=m, group_instance_id=s.instance_id, metadata=s.encode())
            for m, s in (members or {}).items()
        ]
        answer = JoinGroupResponse(
            error_code=code,
            generation_id=generation if not code else -1,
            protocol_type=protocol_type,
            protocol_name=protocol or self.member.assignors[0].name,
            leader=leader or (member_id if members is not None else "other"),
            skip_assignment=skip,
            member_id=member_id,
            members=listed,
        )
        return self.apply(Received(request, answer))

    def answer_sync(
        self,
        *partitions: TopicPartition,
        code: int = 0,
        protocol: str | None = None,
        protocol_type: str | None = "consumer",
        user_data: bytes | None = None,
        request: SyncGroupRequest | None = None,
    ) -> list[MemberAction]:
        request = request or self.pop_request(SyncGroupRequest)
        answer = SyncGroupResponse(
            error_code=code,
            protocol_type=protocol_type,
            protocol_name=protocol or self.member.protocol,
            assignment=Assignment(partitions=partitions, user_data=user_data).encode(),
        )
        return self.apply(Received(request, answer))

    def next_heartbeat(self) -> HeartbeatRequest:
        """Wait for the next Heartbeat request, and return it."""
        self.wait(INTERVAL)
        return self.pop_request(HeartbeatRequest)

    def answer_heartbeat(self, code: int = 0, request: HeartbeatRequest | None = None) -> list[MemberAction]:
        return self.apply(Received(request or self.next_heartbeat(), HeartbeatResponse(error_code=code)))

    def answer_leave(self, code: int = 0) -> list[MemberAction]:
        request = self.pop_request(LeaveGroupRequest)
        return self.apply(Received(request, LeaveGroupResponse(error_code=code)))

    def answer_commit(self, code: int, generation: int = 1, member_id: str = "me") -> list[MemberAction]:
        return self.apply(CommitAnswered(code, generation, member_id))

    # The application

    def release(self) -> list[MemberAction]:
        return self.apply(Released())

    def poll(self) -> None:
        """Poll once without waiting."""
        self.apply(PollEntered())
        self.apply(PollLeft())

    # Steps that bring the member into a state

    def joining(self, *topics: str, pattern: str | None = None) -> Solo:
        """Subscribe, find the coordinator, and send the first JoinGroup."""
        self.subscribe(*topics, pattern=pattern)
        self.find_coordinator()
        assert self.state is MemberState.JOINING
        return self

    def syncing(self, generation: int = 1) -> Solo:
        self.joining()
        self.answer_join(generation=generation)
        assert self.state is MemberState.SYNCING
        return self

    def stable(self, *partitions: TopicPartition, generation: int = 1) -> Solo:
        """Become a follower that owns `partitions`, by default t-0 and t-1."""
        self.syncing(generation)
        self.answer_sync(*(partitions or parts("t", 0, 1)))
        assert self.state is MemberState.STABLE
        self.actions.clear()
        return self

    def leading(self, *topics: str, generation: int = 1, **followers: Subscription) -> Solo:
        """Become the leader of a stable group with the assignment that the member's assignor computes."""
        self.joining(*topics)
        self.become_leader(generation, **followers)
        self.actions.clear()
        return self

    def become_leader(self, generation: int = 1, **followers: Subscription) -> dict[str, Assignment]:
        """Make the member the leader, and answer SyncGroup with the member's own assignment."""
        request = self.pop_request(JoinGroupRequest)
        mine = Subscription.decode(request.protocols[0].metadata)
        self.answer_join(generation=generation, members={"me": mine, **followers}, request=request)
        return self.sync_own_plan()

    def sync_own_plan(self) -> dict[str, Assignment]:
        request = self.pop_request(SyncGroupRequest)
        plan = {
            assignment.member_id: Assignment.decode(assignment.assignment)
            for assignment in request.assignments
        }
        own = plan.get("me", Assignment())
        self.answer_sync(*own.partitions, user_data=own.user_data, request=request)
        return plan


__all__ = [
    "BACKOFF",
    "COOPERATIVE",
    "EAGER",
    "INTERVAL",
    "POLL",
    "SESSION",
    "AdoptAssignment",
    "ErrorCode",
    "Fatal",
    "Left",
    "Lose",
    "MemberState",
    "Revoke",
    "Solo",
    "Subscription",
    "parts",
]
