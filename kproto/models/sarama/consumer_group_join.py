"""joinSync and retryJoinSync: how a member joins a generation (sarama consumer_group.go, v1.61.1).

The branches of newSession, with the retries that they use (Group.Rebalance.Retry.Max, by default 4):

* The coordinator is unknown: look it up. If the lookup fails, wait for Rebalance.Retry.Backoff (2 s) and look
  it up again.

* No response to JoinGroup or SyncGroup: close the connection, and return the error.

* JoinGroup succeeds: keep the member id, and clear the reason (KIP-800).

* UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION: reset the member id and send JoinGroup again immediately, any
  number of times and without using a retry (M38, M39). If the member owns claims, return the error instead.

* MEMBER_ID_REQUIRED: keep the id, and send JoinGroup again immediately with the same reason (M40).

* NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, REBALANCE_IN_PROGRESS, COORDINATOR_LOAD_IN_PROGRESS: wait for
  Rebalance.Retry.Backoff, look the coordinator up, and join again with the same id (M35, M36, M37, M41).

* Each lookup after a wait for Rebalance.Retry.Backoff uses one retry, even if the lookup succeeds. If no
  retry is left, return the error instead of waiting.

* FENCED_INSTANCE_ID and all other errors: return the error, and keep the member id (M42, M43).

* The member is the leader: refresh the metadata of all topics of the group, then assign the partitions. If a
  topic has no partitions after the refresh, refresh it once more, in a separate request. Return an error if a
  refresh fails, or if a topic still has no partitions. Release 1.38.1 refreshes only the topics that are not
  cached, one after the other.

* Errors of SyncGroup are handled like errors of JoinGroup (M47, M48, M49, M50, M51, M52, M53). A
  cooperative member that must join again reports its partitions with the generation that it has just joined.

* An empty assignment is valid. The next subscription contains the user data of the last assignment that was
  not empty.

A canceled context ends a backoff, and prevents the next JoinGroup. A request in flight completes first.
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
from .broker import BrokerResponse, SaramaBroker
from .consumer_group_session import rebalance_reason
from .consumer_group_state import Joined, SaramaGroup
from .errors import GoError
from .routines import Routine, States, Table, row
from .versions import RELEASES, SUBSCRIPTION_SINCE, newest_version

_RESETS_MEMBER_ID = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
_RETRIED_AFTER_BACKOFF = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass(slots=True)
class OwnedClaims:
    """The claims that a cooperative member reports when it joins again, and their generation."""

    claims: tuple[TopicPartition, ...]
    generation: int


class JoinState(States):
    FINDING_COORDINATOR = "finding_coordinator"
    BACKING_OFF = "backing_off"
    REDISCOVERING = "rediscovering"
    JOINING = "joining"
    # The leader refreshes the metadata of all topics of the group.
    REFRESHING_METADATA = "refreshing_metadata"
    REFRESHING_TOPIC = "refreshing_topic"  # The leader refreshes the metadata of a topic that is not cached.
    SYNCING = "syncing"
    DONE = "done"


S = JoinState


class Join(Routine):
    """One joinSync, including its retries.

    The group then resumes with "group_joined" and either the result or the error.
    """

    __slots__ = (
        "broker",
        "group",
        "join_response",
        "members",
        "owned",
        "partition_counts",
        "refreshed_topic",
        "retries",
        "topics",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.FINDING_COORDINATOR: {S.JOINING, S.BACKING_OFF, S.DONE},
        S.BACKING_OFF: {S.REDISCOVERING, S.DONE},
        S.REDISCOVERING: {S.FINDING_COORDINATOR, S.BACKING_OFF, S.DONE},
        S.JOINING: {
            S.FINDING_COORDINATOR,
            S.BACKING_OFF,
            S.REFRESHING_METADATA,
            S.REFRESHING_TOPIC,
            S.SYNCING,
            S.DONE,
        },
        S.REFRESHING_METADATA: {S.REFRESHING_TOPIC, S.SYNCING, S.DONE},
        S.REFRESHING_TOPIC: {S.REFRESHING_TOPIC, S.SYNCING, S.DONE},
        S.SYNCING: {S.FINDING_COORDINATOR, S.BACKING_OFF, S.DONE},
        S.DONE: set(),
    }

    def __init__(self, group: SaramaGroup, topics: tuple[str, ...], owned: OwnedClaims | None) -> None:
        super().__init__(S.FINDING_COORDINATOR)
        self.group, self.topics, self.owned = group, topics, owned
        self.retries = group.client.settings.group_rebalance_retry_max
        self.broker: SaramaBroker | None = None
        self.join_response: JoinGroupResponse | None = None
        # The subscriptions of all members; empty in a follower.
        self.members: dict[str, Subscription] = {}
        # The number of partitions of each topic of the group; None in a follower.
        self.partition_counts: dict[str, int] | None = None
        # The topic of the last separate refresh that the leader requested.
        self.refreshed_topic: str | None = None

    def start(self) -> None:
        """Start the join, which runs in the caller's goroutine."""
        _join_sync(self)


def _join_sync(join: Join) -> None:
    """Begin one attempt: look the coordinator up unless it is cached, and send JoinGroup."""
    if join.group.canceled:
        _finish(join, errors.CANCELED)
        return
    join.partition_counts = join.refreshed_topic = None
    join.broker = join.group.client.coordinator.cached()
    if join.broker is None:
        join.group.client.coordinator.look_up(join)
    else:
        _send_join(join)


def _on_coordinator_found(join: Join, error: GoError | None) -> None:
    join.broker = join.group.client.coordinator.cached()
    if error is None and join.broker is not None:
        _send_join(join)
    elif join.retries <= 0:
        _finish(join, error or errors.COORDINATOR_NOT_AVAILABLE)
    else:
        _back_off(join)


def _back_off(join: Join) -> None:
    client = join.group.client
    join.move(S.BACKING_OFF)
    client.sleep(join, client.now + client.settings.group_rebalance_retry_backoff)
    _check_canceled(join, None)


def _check_canceled(join: Join, payload: object) -> None:
    if join.group.canceled:
        _finish(join, errors.CANCELED)
    elif join.group.closed:
        _finish(join, errors.CLOSED_GROUP)


def _on_backoff_elapsed(join: Join, payload: object) -> None:
    join.move(S.REDISCOVERING)
    join.group.client.coordinator.look_up(join)


def _on_rediscovered(join: Join, error: GoError | None) -> None:
    """Join if the lookup after a backoff succeeded. Otherwise back off or finish.

    Each such lookup counts as a retry. After an error, the join finishes only if no retry is left.
    """
    if error is not None and join.retries <= 0:
        _finish(join, error)
        return
    join.retries -= 1
    if error is not None:
        _back_off(join)
    else:
        join.move(S.FINDING_COORDINATOR)
        _join_sync(join)


# JoinGroup


def _send_join(join: Join) -> None:
    group, settings = join.group, join.group.client.settings
    owned, generation = (join.owned.claims, join.owned.generation) if join.owned else ((), -1)
    version = newest_version(SUBSCRIPTION_SINCE, settings.version)
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
                    name,
                    join.topics,
                    group.user_data,
                    owned=owned,
                    generation=generation,
                    last_generation=group.last_generation,
                    version=version,
                ),
            )
            for name in settings.strategies
        ],
        reason=None if group.last_cause is None else rebalance_reason(group.last_cause),
    )
    join.move(S.JOINING)
    assert join.broker is not None
    join.broker.call(join, request)


def _on_join_response(join: Join, broker_response: BrokerResponse) -> None:
    response = broker_response.response
    if not isinstance(response, JoinGroupResponse):
        broker_response.broker.close()
        _finish(join, broker_response.error or errors.INCOMPLETE)
        return
    group, code = join.group, response.error_code
    if code == ErrorCode.NONE:
        group.member_id, group.last_cause = response.member_id, None
        join.join_response = response
        _on_joined(join, response)
    elif code == ErrorCode.MEMBER_ID_REQUIRED:
        group.member_id = response.member_id
        join.move(S.FINDING_COORDINATOR)
        _join_sync(join)
    else:
        _on_error_code(join, code)


def _on_error_code(join: Join, code: int) -> None:
    """Handle an error code of JoinGroup or SyncGroup."""
    if code in _RESETS_MEMBER_ID:
        join.group.member_id = ""
        if join.owned is not None and join.owned.claims:
            _finish(join, errors.kafka(code))
        else:
            join.move(S.FINDING_COORDINATOR)
            _join_sync(join)
    elif code in _RETRIED_AFTER_BACKOFF and join.retries > 0:
        _back_off(join)
    else:
        _finish(join, errors.kafka(code))


# The leader's plan


def _on_joined(join: Join, response: JoinGroupResponse) -> None:
    """Send SyncGroup without assignments as a follower, or prepare the plan as the leader."""
    if response.protocol_name not in join.group.client.settings.strategies:
        text = f"unable to find selected strategy: {response.protocol_name}"
        _finish(join, GoError("errors.errorString", text))
    elif response.leader != response.member_id:
        _send_sync(join, {})
    else:
        join.members = {
            member.member_id: read_subscription(member.metadata, member.group_instance_id)
            for member in response.members
        }
        topics = sorted({topic for member in join.members.values() for topic in member.topics})
        join.partition_counts = dict.fromkeys(topics, 0)
        if join.group.client.settings.release == RELEASES[-1]:
            join.move(S.REFRESHING_METADATA)
            join.group.client.metadata.request_refresh(join, topics)
        else:
            _count_partitions(join)


def _on_refreshed(join: Join, error: GoError | None) -> None:
    if error is not None:
        _finish(join, error)
    else:
        _count_partitions(join)


def _count_partitions(join: Join) -> None:
    """Call Client.Partitions for each topic, and make the plan.

    A topic without cached partitions is refreshed first. If it still has none, the join fails.
    """
    metadata = join.group.client.metadata
    assert join.partition_counts is not None
    for topic in join.partition_counts:
        join.partition_counts[topic] = len(metadata.partitions(topic))
        if not join.partition_counts[topic]:
            break
    else:
        _make_plan(join)
        return
    if join.refreshed_topic == topic:
        _finish(join, errors.UNKNOWN_TOPIC)
    else:
        join.refreshed_topic = topic
        join.move(S.REFRESHING_TOPIC)
        metadata.request_refresh(join, [topic])


def _make_plan(join: Join) -> None:
    response = join.join_response
    assert response is not None
    assert response.protocol_name is not None
    assert join.partition_counts is not None
    name = response.protocol_name
    plan = balance_strategy.assign_partitions(name, join.members, join.partition_counts)
    _send_sync(join, balance_strategy.assignments(name, plan, response.generation_id))


# SyncGroup


def _send_sync(join: Join, assignments: dict[str, bytes]) -> None:
    group, response, settings = join.group, join.join_response, join.group.client.settings
    assert response is not None
    assert join.broker is not None
    join.move(S.SYNCING)
    request = SyncGroupRequest(
        group_id=settings.group_id,
        generation_id=response.generation_id,
        member_id=group.member_id,
        group_instance_id=settings.instance_id,
        protocol_type="consumer",
        protocol_name=response.protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )
    join.broker.call(join, request)


def _on_sync_response(join: Join, broker_response: BrokerResponse) -> None:
    response, join_response = broker_response.response, join.join_response
    assert join_response is not None
    if not isinstance(response, SyncGroupResponse):
        broker_response.broker.close()
        _finish(join, broker_response.error or errors.INCOMPLETE)
    elif response.error_code == ErrorCode.NONE:
        _on_synced(join, join_response, response.assignment)
    else:
        if join.owned is not None and response.error_code in _RETRIED_AFTER_BACKOFF and join.retries > 0:
            join.owned.generation = join_response.generation_id
        _on_error_code(join, response.error_code)


def _on_synced(join: Join, join_response: JoinGroupResponse, encoded_assignment: bytes) -> None:
    """Finish the join with the claims of the assignment, and keep its user data for the next subscription."""
    claims: Iterable[TopicPartition] = ()
    group = join.group
    if encoded_assignment:
        try:
            assignment = Assignment.decode(encoded_assignment)
        except DecodeError as error:
            _finish(join, GoError("sarama.PacketDecodingError", str(error)))
            return
        claims = assignment.partitions
        group.user_data = assignment.user_data
        if join_response.protocol_name == "cooperative-sticky":
            group.last_generation = join_response.generation_id
    result = Joined(
        join_response.member_id, join_response.generation_id, tuple(sorted(claims)), join.partition_counts
    )
    _finish(join, result)


def _finish(join: Join, result: Joined | GoError) -> None:
    join.move(S.DONE)
    join.group.client.resume(join.group, "group_joined", result)


Join.TABLE = {
    "coordinator_found": row(S, FINDING_COORDINATOR=_on_coordinator_found, REDISCOVERING=_on_rediscovered),
    "timer_elapsed": row(S, BACKING_OFF=_on_backoff_elapsed),
    "check": row(S, BACKING_OFF=_check_canceled),
    "response": row(S, JOINING=_on_join_response, SYNCING=_on_sync_response),
    "metadata_refreshed": row(S, REFRESHING_METADATA=_on_refreshed, REFRESHING_TOPIC=_on_refreshed),
}
