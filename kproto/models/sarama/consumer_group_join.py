"""joinSync and retryJoinSync: one way into a generation (sarama consumer_group.go, v1.61.1).

Every branch of newSession, as S3-19 letters them, and its retries (Group.Rebalance.Retry.Max, 4):

* a: the coordinator can't be found: wait, look it up, one retry less; the error where none is left.
* b, i: no answer to JoinGroup or SyncGroup: the connection is closed, the error returned.
* c: JoinGroup is good: the member id is kept, and the reason forgotten (KIP-800).
* d: UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION: the id is forgotten and JoinGroup sent again at once, for ever,
  no retry used (M38, M39); but who holds claims gets the error.
* MEMBER_ID_REQUIRED: the id is kept, and JoinGroup sent again at once with the same reason (M40).
* e, f: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, REBALANCE_IN_PROGRESS, COORDINATOR_LOAD_IN_PROGRESS: wait
  Rebalance.Retry.Backoff (2 s), look the coordinator up, join again with the same id; one retry less, and one
  more for every lookup that failed (M35..M37, M41). Without a retry left: the error.
* g: FENCED_INSTANCE_ID and everything else is returned; the id stays (M42, M43).
* h: the leader refreshes the metadata of all topics of the group, and plans. Errors are returned.
* j: SyncGroup's errors are JoinGroup's (M47..M53). A cooperative member that has to join again reports what
  it owns with the generation it had just joined.
* k, l: an empty assignment is one. Its user data is what the next subscription says.

A context that is done ends the waiting, and the next JoinGroup; what is open is answered first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from ...error_codes import ErrorCode
from ...errors import DecodeError
from ...group.subscription import Assignment, Subscription, TopicPartition, read_subscription
from ...messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from . import balance_strategy, errors
from .broker import Answer, Broker
from .consumer_group_session import reason
from .consumer_group_state import Group, Joined
from .errors import Trouble
from .routines import Routine, States, Table, only
from .versions import SUBSCRIPTION_SINCE, highest

_FORGET = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
_BACK_OFF = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass(slots=True)
class Held:
    """What a cooperative member owns while it joins again, and since which generation."""

    claims: tuple[TopicPartition, ...]
    generation: int


class JoinState(States):
    finding = "finding"
    backing_off = "backing_off"
    rediscovering = "rediscovering"
    joining = "joining"
    planning = "planning"  # the leader: metadata of all topics of the group
    counting = "counting"  # the same for a topic of which nothing is known
    syncing = "syncing"
    done = "done"


S = JoinState


class Join(Routine):
    """One joinSync with its repetitions; the group goes on with "joined" and the result, or the trouble."""

    __slots__ = ("answer", "broker", "counts", "group", "held", "members", "retries", "topics")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.finding: {S.joining, S.backing_off, S.done},
        S.backing_off: {S.rediscovering, S.done},
        S.rediscovering: {S.finding, S.backing_off, S.done},
        S.joining: {S.finding, S.backing_off, S.planning, S.syncing, S.done},
        S.planning: {S.counting, S.syncing, S.done},
        S.counting: {S.syncing, S.done},
        S.syncing: {S.finding, S.backing_off, S.done},
        S.done: set(),
    }

    def __init__(self, group: Group, topics: tuple[str, ...], held: Held | None) -> None:
        super().__init__(S.finding)
        self.group, self.topics, self.held = group, topics, held
        self.retries = group.client.settings.group_rebalance_retry_max
        self.broker: Broker | None = None
        self.answer: JoinGroupResponse | None = None
        self.members: dict[str, Subscription] = {}
        self.counts: dict[str, int] | None = None

    def start(self) -> None:
        """The caller goes on into it."""
        _join_sync(self)


def _join_sync(join: Join) -> None:
    if join.group.canceled:
        _finish(join, errors.CANCELED)
        return
    join.counts = None
    join.broker = join.group.client.coordinator.cached()
    if join.broker is None:
        join.group.client.coordinator.look_up(join)
    else:
        _send_join(join)


def _found(join: Join, trouble: Trouble | None) -> None:
    join.broker = join.group.client.coordinator.cached()
    if trouble is None and join.broker is not None:
        _send_join(join)
    elif join.retries <= 0:
        _finish(join, trouble or errors.COORDINATOR_NOT_AVAILABLE)
    else:
        _back_off(join)


def _back_off(join: Join) -> None:
    client = join.group.client
    join.move(S.backing_off)
    client.sleep(join, client.now + client.settings.group_rebalance_retry_backoff)
    _look(join, None)


def _look(join: Join, what: object) -> None:
    if join.group.canceled:
        _finish(join, errors.CANCELED)
    elif join.group.closed:
        _finish(join, errors.CLOSED_GROUP)


def _backed_off(join: Join, what: object) -> None:
    join.move(S.rediscovering)
    join.group.client.coordinator.look_up(join)


def _rediscovered(join: Join, trouble: Trouble | None) -> None:
    if trouble is not None and join.retries <= 0:
        _finish(join, trouble)
        return
    join.retries -= 1
    if trouble is not None:
        _back_off(join)
    else:
        join.move(S.finding)
        _join_sync(join)


# JoinGroup


def _send_join(join: Join) -> None:
    group, settings = join.group, join.group.client.settings
    owned, generation = (join.held.claims, join.held.generation) if join.held else ((), -1)
    version = highest(SUBSCRIPTION_SINCE, settings.version)
    request = JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.group_session_timeout,
        rebalance_timeout_ms=settings.group_rebalance_timeout,
        member_id=group.member_id,
        group_instance_id=settings.instance_id,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(
                name=name,
                metadata=balance_strategy.subscription(
                    name, join.topics, group.user_data, owned, generation, group.last_generation, version
                ),
            )
            for name in settings.strategies
        ],
        reason=None if group.last_cause is None else reason(group.last_cause),
    )
    join.move(S.joining)
    assert join.broker is not None
    join.broker.call(join, request)


def _join_answered(join: Join, answer: Answer) -> None:
    response = answer.response
    if not isinstance(response, JoinGroupResponse):
        answer.broker.close()
        _finish(join, answer.error or errors.INCOMPLETE)
        return
    group, code = join.group, response.error_code
    if code == ErrorCode.NONE:
        group.member_id, group.last_cause = response.member_id, None
        join.answer = response
        _joined(join, response)
    elif code == ErrorCode.MEMBER_ID_REQUIRED:
        group.member_id = response.member_id
        join.move(S.finding)
        _join_sync(join)
    else:
        _refused(join, code)


def _refused(join: Join, code: int) -> None:
    """JoinGroup and SyncGroup alike."""
    if code in _FORGET:
        join.group.member_id = ""
        if join.held is not None and join.held.claims:
            _finish(join, errors.kafka(code))
        else:
            join.move(S.finding)
            _join_sync(join)
    elif code in _BACK_OFF and join.retries > 0:
        _back_off(join)
    else:
        _finish(join, errors.kafka(code))


# The leader's plan


def _joined(join: Join, response: JoinGroupResponse) -> None:
    if response.protocol_name not in join.group.client.settings.strategies:
        text = f"unable to find selected strategy: {response.protocol_name}"
        _finish(join, Trouble("errors.errorString", text))
    elif response.leader != response.member_id:
        _send_sync(join, {})
    else:
        join.members = {
            member.member_id: read_subscription(member.metadata, member.group_instance_id)
            for member in response.members
        }
        join.move(S.planning)
        topics = sorted({topic for member in join.members.values() for topic in member.topics})
        join.counts = dict.fromkeys(topics, 0)
        join.group.client.metadata.want(join, topics)


def _refreshed(join: Join, trouble: Trouble | None) -> None:
    metadata = join.group.client.metadata
    assert join.counts is not None
    unseen = [topic for topic in join.counts if not metadata.partitions(topic)]
    if trouble is not None:
        _finish(join, trouble)
    elif unseen and join.state is S.planning:
        join.move(S.counting)
        metadata.want(join, unseen[:1])
    elif unseen:
        _finish(join, errors.UNKNOWN_TOPIC)
    else:
        _plan(join)


def _plan(join: Join) -> None:
    response, metadata = join.answer, join.group.client.metadata
    assert response is not None
    assert response.protocol_name is not None
    assert join.counts is not None
    for topic in join.counts:
        join.counts[topic] = len(metadata.partitions(topic))
    name = response.protocol_name
    plan = balance_strategy.divide(name, join.members, join.counts)
    _send_sync(join, balance_strategy.assignments(name, plan, response.generation_id))


# SyncGroup


def _send_sync(join: Join, assignments: dict[str, bytes]) -> None:
    group, response, settings = join.group, join.answer, join.group.client.settings
    assert response is not None
    assert join.broker is not None
    join.move(S.syncing)
    request = SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=response.generation_id,
        member_id=group.member_id,
        group_instance_id=settings.instance_id,
        protocol_type="consumer",
        protocol_name=response.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=one)
            for member_id, one in assignments.items()
        ],
    )
    join.broker.call(join, request)


def _sync_answered(join: Join, answer: Answer) -> None:
    response, joined = answer.response, join.answer
    assert joined is not None
    if not isinstance(response, SyncGroupResponse):
        answer.broker.close()
        _finish(join, answer.error or errors.INCOMPLETE)
    elif response.error_code == ErrorCode.NONE:
        _synced(join, joined, response.assignment)
    else:
        if join.held is not None and response.error_code in _BACK_OFF and join.retries > 0:
            join.held.generation = joined.generation_id
        _refused(join, response.error_code)


def _synced(join: Join, joined: JoinGroupResponse, data: bytes) -> None:
    claims: Iterable[TopicPartition] = ()
    group = join.group
    if data:
        try:
            assignment = Assignment.decode(data)
        except DecodeError as error:
            _finish(join, Trouble("sarama.PacketDecodingError", str(error)))
            return
        claims = assignment.partitions
        group.user_data = assignment.user_data
        if joined.protocol_name == "cooperative-sticky":
            group.last_generation = joined.generation_id
    result = Joined(joined.member_id, joined.generation_id, tuple(sorted(claims)), join.counts)
    _finish(join, result)


def _finish(join: Join, result: Joined | Trouble) -> None:
    join.move(S.done)
    join.group.client.resume(join.group, "joined", result)


Join.TABLE = {
    "found": only(S, finding=_found, rediscovering=_rediscovered),
    "elapsed": only(S, backing_off=_backed_off),
    "look": only(S, backing_off=_look),
    "answered": only(S, joining=_join_answered, syncing=_sync_answered),
    "refreshed": only(S, planning=_refreshed, counting=_refreshed),
}
