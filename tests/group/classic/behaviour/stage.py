"""Members and a coordinator in one process, in virtual time. All messages are encoded and decoded.

Each member has a normal connection and another one for urgent requests. On each connection, the coordinator
answers a request before it reads the next.

Nothing happens automatically. A test delivers messages, releases partitions and advances the time, or calls
`settle`, which does all three.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kproto.group.classic import coordinator as broker
from kproto.group.classic.member import (
    AdoptAssignment,
    CloseRequested,
    CoordinatorFound,
    FindCoordinator,
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
    Send,
    SubscriptionChanged,
    Tick,
    WantMetadata,
    next_deadline,
    step,
)
from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

VERSIONS = {"JoinGroupRequest": 9, "SyncGroupRequest": 5, "HeartbeatRequest": 4, "LeaveGroupRequest": 5}

Step = Callable[[Member, MemberEvent, int], list[MemberAction]]


@dataclass
class Connection:
    """A connection to the coordinator.

    The coordinator has not read the requests in `unread` yet. It has read the request `read`, but has not
    answered it.
    """

    unread: deque[Message] = field(default_factory=deque)
    read: Message | None = None


class Actor:
    """A member, its connections and its application."""

    def __init__(self, name: str, member: Member) -> None:
        self.name = name
        self.member = member
        self.alive = True
        # Whether the application is frozen: it then neither polls nor releases partitions.
        self.asleep = False
        self.normal, self.urgent = Connection(), Connection()
        # Responses and metadata that have not been delivered to the member.
        self.events: deque[MemberEvent] = deque()
        self.actions: list[MemberAction] = []
        self.in_use: set[TopicPartition] = set()  # The partitions whose records the application processes.
        self.ever_asked: frozenset[str] = frozenset()

    @property
    def state(self) -> MemberState:
        return self.member.state

    @property
    def must_release(self) -> bool:
        return self.member.unreleased is not None

    def of(self, kind: type[Any]) -> list[Any]:
        return [action for action in self.actions if isinstance(action, kind)]

    @property
    def reasons(self) -> list[str]:
        return [action.reason for action in self.of(Rejoining)]


class GroupStage:
    """The coordinator of one group, its members and the topics of the cluster."""

    def __init__(self, topics: dict[str, int] | None = None, *, step: Step = step, **settings: int) -> None:
        self.topics = dict(topics or {"t": 4})
        self.coordinator = broker.ClassicCoordinator(broker.GroupSettings(**settings))
        self.now = 1_000_000
        self.actors: dict[str, Actor] = {}
        self.step_member = step
        self.tokens: dict[int, tuple[Actor, Connection, int]] = {}
        self.last_token = 0
        self.check: Callable[[GroupStage], None] = no_partition_has_two_owners

    # Members

    def add(self, name: str, topics: Iterable[str] = ("t",), **options: Any) -> Actor:
        config = MemberConfig(**{"group_id": "g", "session_timeout_ms": 10_000, **options})
        actor = self.actors[name] = Actor(name, Member(config))
        self.apply(actor, MetadataUpdated(dict(self.topics)))
        self.apply(actor, SubscriptionChanged(frozenset(topics)))
        return actor

    def kill(self, name: str) -> None:
        """Kill the member's process: it no longer sends or reads messages."""
        actor = self.actors.pop(name)
        actor.alive = False
        actor.in_use.clear()

    def close(self, name: str) -> None:
        self.apply(self.actors[name], CloseRequested())

    def grow(self, topic: str, count: int) -> None:
        """Grow the topic to `count` partitions, and queue the new metadata for each member."""
        self.topics[topic] = count
        for actor in self.actors.values():
            actor.events.append(MetadataUpdated(dict(self.topics)))

    # Steps

    def apply(self, actor: Actor, event: MemberEvent) -> list[MemberAction]:
        actions = self.step_member(actor.member, event, self.now)
        for action in actions:
            actor.actions.append(action)
            self._do(actor, action)
        self.check(self)
        return actions

    def _do(self, actor: Actor, action: MemberAction) -> None:
        match action:
            case FindCoordinator():
                actor.normal, actor.urgent = Connection(), Connection()
                actor.events.append(CoordinatorFound("node"))
            case Send(request, _, urgent):
                (actor.urgent if urgent else actor.normal).unread.append(request)
            case WantMetadata(topics):
                known = {topic: n for topic, n in self.topics.items() if topic in topics}
                actor.events.append(MetadataUpdated(known, requested=topics))
            case AdoptAssignment(_, owned):
                actor.in_use = set(owned)
            case Lose(partitions):
                actor.in_use.difference_update(partitions)
            case _:
                pass

    def release(self, actor: Actor) -> None:
        """Let the application release the partitions of the member's pending Revoke or Lose."""
        assert actor.member.unreleased is not None
        actor.in_use.difference_update(actor.member.unreleased)
        self.poll(actor)
        if actor.must_release:
            self.apply(actor, Released())

    def poll(self, actor: Actor) -> None:
        self.apply(actor, PollEntered())
        self.apply(actor, PollLeft())

    def deliver_request(self, actor: Actor) -> bool:
        """Let the coordinator read the next readable request. Return False if no request is readable."""
        for connection in (actor.urgent, actor.normal):
            if connection.read is None and connection.unread:
                request = connection.read = connection.unread.popleft()
                self.last_token += 1
                version = VERSIONS[type(request).__name__]
                self.tokens[self.last_token] = (actor, connection, version)
                actions = type(request).decode(request.encode(version), version)
                token = self.last_token
                self._step_broker(
                    broker.RequestReceived(token, actions, version, actor.name, "/127.0.0.1", f"id{token:04}")
                )
                return True
        return False

    def deliver_event(self, actor: Actor) -> bool:
        """Let the member read the next response. Return False if no response is waiting."""
        if not actor.events:
            return False
        self.apply(actor, actor.events.popleft())
        return True

    def _step_broker(self, event: broker.Event) -> None:
        for action in broker.step(self.coordinator, event, self.now):
            if not isinstance(action, broker.SendResponse):
                continue
            assert isinstance(action.token, int)
            actor, connection, version = self.tokens.pop(action.token)
            if connection is not actor.normal and connection is not actor.urgent:
                continue  # That connection is closed.
            request, connection.read = connection.read, None
            assert request is not None
            answer = type(action.response).decode(action.response.encode(version), version)
            actor.events.append(Received(request, answer))

    def run(self) -> None:
        """Deliver all messages and release all pending partitions, without advancing the time."""
        for _ in range(10_000):
            busy = False
            for actor in list(self.actors.values()):
                busy |= self.deliver_request(actor)
                busy |= self.deliver_event(actor)
                if actor.alive and not actor.asleep and actor.must_release:
                    self.release(actor)
                    busy = True
            if not busy:
                return
        raise AssertionError("messages are still pending after 10,000 rounds")

    def wait(self, ms: int) -> None:
        """Let `ms` milliseconds pass.

        Deliver messages, release partitions and send Ticks at every deadline.
        """
        end = self.now + ms
        while True:
            self.run()
            deadlines = [broker.next_deadline(self.coordinator)]
            deadlines += [next_deadline(actor.member) for actor in self.actors.values()]
            at = min((d for d in deadlines if d is not None), default=end)
            if at > end:
                break
            self.now = max(self.now, at)
            self._step_broker(broker.Tick())
            for actor in list(self.actors.values()):
                if not actor.asleep:
                    self.poll(actor)
                deadline = next_deadline(actor.member)
                if deadline is not None and deadline <= self.now:
                    self.apply(actor, Tick())
            if at == end:
                self.run()
                break
        self.now = end

    def settle(self) -> None:
        """Wait until all members are stable and own all subscribed partitions."""
        for _ in range(40):
            if converged(self):
                return
            self.wait(1_000)
        states = {actor.name: actor.state.value for actor in self.actors.values()}
        raise AssertionError(f"no stable group after 40 s: states {states}, owners {owners(self)}")


# Invariants


def owners(stage: GroupStage) -> dict[TopicPartition, list[str]]:
    owners_by_partition: dict[TopicPartition, list[str]] = {}
    for actor in stage.actors.values():
        for tp in actor.in_use:
            owners_by_partition.setdefault(tp, []).append(actor.name)
    return owners_by_partition


def no_partition_has_two_owners(stage: GroupStage) -> None:
    for tp, names in owners(stage).items():
        assert len(names) == 1, f"{tp} is with {names}"


def converged(stage: GroupStage) -> bool:
    """Return whether all members are stable, and every subscribed partition has exactly one owner."""
    able = [a for a in stage.actors.values() if a.state not in (MemberState.CLOSED, MemberState.FENCED)]
    wanted = {t for a in able for t in a.member.topics}
    everything = {TopicPartition(t, p) for t in wanted for p in range(stage.topics.get(t, 0))}
    return (
        all(a.state is (MemberState.STABLE if a.member.topics else MemberState.IDLE) for a in able)
        and all(not a.member.rejoin_needed for a in able if a.member.topics)
        and owners(stage).keys() == everything
        and all(set(a.member.owned) == a.in_use for a in able)
        and len({a.member.generation for a in able if a.member.topics}) <= 1
        and not any(a.events or a.normal.unread for a in able)
    )
