"""AbstractCoordinator's half of a join: requests and what their answers do (M6 to M55).

* M3: an answer counts for the triple that its request was sent with.
* M7: with JoinGroup answered the heartbeats begin, before the SyncGroup is.
* M8, M10: an answer that finds the member reset fails the join, which is tried again.
* M14, M15: REBALANCE_IN_PROGRESS for a heartbeat counts only in STABLE.
* What is forgotten by which error is a matter of the release (`release.forgetful`).
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...group.assignors import Assignor
from ...group.classic.member import leadership
from ...group.classic.member.reasons import ENCOUNTERED, FAILED_WITH, GET_MEMBER_ID, MAX_REASON
from ...group.subscription import Assignment, Subscription
from ...messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ...messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from . import consumer_metadata, coordinator_lookup
from .hash_order import by_topic, hash_order
from .release import exception
from .state import DISCONNECTED, NO_GENERATION, Generation, MemberState, Open, Out, State, move, send

M = MemberState
JOIN_GRACE_MS = 5_000
UNEXPECTED = -3
"""A code that no handler expects: KafkaException."""
EXPECTED = {
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.UNKNOWN_MEMBER_ID,
    E.MEMBER_ID_REQUIRED,
    E.REBALANCE_IN_PROGRESS,
    E.FENCED_INSTANCE_ID,
    E.INCONSISTENT_GROUP_PROTOCOL,
    E.INVALID_SESSION_TIMEOUT,
    E.INVALID_GROUP_ID,
    E.GROUP_AUTHORIZATION_FAILED,
    E.GROUP_MAX_SIZE_REACHED,
    E.UNSUPPORTED_VERSION,
}
_SYNC_EXPECTED = EXPECTED - {E.COORDINATOR_LOAD_IN_PROGRESS} | {E.ILLEGAL_GENERATION}


def want_rejoin(state: State, reason: str) -> None:
    state.rejoin_needed, state.reason = True, reason


def reset(state: State, reason: str, *, keep_id: bool = False) -> None:
    """resetStateAndRejoin."""
    member_id = state.generation.member_id if keep_id and not state.rules.forgetful else ""
    move(state, M.unjoined)
    state.generation = Generation(-1, member_id) if member_id else NO_GENERATION
    state.beats = False
    state.needs_prepare = True if not state.rules.forgetful else state.needs_prepare
    want_rejoin(state, reason)


def encountered(state: State, code: int, api: str) -> None:
    reset(state, ENCOUNTERED.format(E(code).name, api), keep_id=code == E.ILLEGAL_GENERATION)


# -- JoinGroup


def join(state: State, out: Out) -> None:
    """sendJoinGroupRequest."""
    assert state.coordinator is not None
    move(state, M.preparing)
    state.joined_topics, state.join_open = state.topics, True
    state.join_done = state.join_failed = None
    state.beats = False
    request = JoinGroupRequest(
        group_id=state.config.group_id,
        session_timeout_ms=state.session_ms,
        rebalance_timeout_ms=state.max_poll_ms,
        member_id=state.generation.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=one.name, metadata=subscription(state, one))
            for one in state.assignors
        ],
        reason=state.reason[:MAX_REASON] if state.rules.reasons else None,
    )
    send(state, state.coordinator, request, out, timeout_ms=state.max_poll_ms + JOIN_GRACE_MS)


def subscription(state: State, assignor: Assignor) -> bytes:
    """ConsumerCoordinator.metadata; 2.6 knows version 1, and writes topics as its set has them."""
    user_data = assignor.user_data(*state.previous.get(assignor.name, (None, -1)))
    if state.rules.subscription_version < 2:
        body = ConsumerProtocolSubscription(
            topics=hash_order(state.topics),
            user_data=None if assignor.cooperative else user_data,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in by_topic(state.assigned).items()
            ],
        )
        return b"\0\1" + body.encode(1)
    return Subscription(
        topics=tuple(state.topics),
        user_data=user_data,
        owned=tuple(sorted(state.assigned)),
        generation=state.generation.number if state.generation.number >= 0 else None,
        rack_id=state.config.rack or None,
    ).encode(state.rules.subscription_version)


def join_answered(state: State, entry: Open, answer: JoinGroupResponse | None, out: Out) -> None:
    """JoinGroupResponseHandler."""
    if not state.join_open:
        return
    if answer is None:
        coordinator_lookup.unknown(state, out, disconnected=True)
        _fail(state, DISCONNECTED)
    elif answer.error_code:
        _join_refused(state, entry, answer, out)
    elif state.state is not M.preparing:
        _fail(state, DISCONNECTED)
    else:
        _joined(state, answer, out)


def _fail(state: State, code: int) -> None:
    state.join_open, state.join_failed = False, code


def _join_refused(state: State, entry: Open, answer: JoinGroupResponse, out: Out) -> None:
    code = answer.error_code
    if code == E.UNKNOWN_MEMBER_ID:
        if entry.generation == state.generation:
            reset(state, FAILED_WITH.format(exception(code)))
    elif code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
        coordinator_lookup.unknown(state, out)
    elif code == E.MEMBER_ID_REQUIRED:
        state.generation = Generation(-1, answer.member_id)
        move(state, M.unjoined)
        want_rejoin(state, GET_MEMBER_ID.format(answer.member_id))
    unexpected = code == E.REBALANCE_IN_PROGRESS and not state.rules.join_27_passes
    _fail(state, UNEXPECTED if unexpected or code not in EXPECTED else code)


def _joined(state: State, answer: JoinGroupResponse, out: Out) -> None:
    move(state, M.completing)
    state.generation = Generation(answer.generation_id, answer.member_id, answer.protocol_name)
    state.beats, state.beat_open, state.beat_failures = True, None, 0
    state.beat_at = state.now + state.heartbeat_ms
    state.session_at = state.now + state.session_ms
    state.poll_at = state.now + state.max_poll_ms
    if answer.leader != answer.member_id:
        sync(state, [], out)
        return
    if chosen_assignor(state) is None:
        state.join_open, state.thrown = False, unknown_assignor(state)
        return
    state.leads, state.skip_assignment = True, answer.skip_assignment
    state.members = leadership.decode_subscriptions(
        (m.member_id, m.group_instance_id, m.metadata) for m in answer.members
    )
    state.group_topics = leadership.topics_of(state.members)
    state.planning = True
    if not state.group_topics <= state.cluster.topics.keys():
        consumer_metadata.new_topics(state)
    else:
        plan(state, out)


def chosen_assignor(state: State) -> Assignor | None:
    """lookupAssignor: the one that the coordinator chose, if it is one of ours."""
    return next((one for one in state.assignors if one.name == state.generation.protocol), None)


def unknown_assignor(state: State) -> tuple[str, str]:
    name = state.generation.protocol
    return "IllegalStateException", f"Coordinator selected invalid assignment protocol: {name}"


# -- the leader's plan, and SyncGroup


def plan(state: State, out: Out) -> None:
    """performAssignment (onLeaderElected), and the snapshot that the leader watches from now on."""
    state.planning = False
    if state.state is not M.completing:
        return
    assignor = chosen_assignor(state)
    assert assignor is not None
    known = consumer_metadata.known(state, state.group_topics)
    state.snapshot = consumer_metadata.counts(state, state.topics | state.group_topics)
    state.planned = state.snapshot
    assignments: list[SyncGroupRequestAssignment] = []
    if not state.skip_assignment:
        assignments = leadership.assign(
            assignor, state.members, known, {}, Assignment.encode if state.rules.sorts else as_planned
        )
    sync(state, assignments, out)


def as_planned(given: Assignment) -> bytes:
    """An assignment as 2.6 writes it: topics as its hash map has them, and partitions as they were given."""
    topics = by_topic(given.partitions)
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
        user_data=given.user_data,
    )
    return b"\0\1" + body.encode(1)


def sync(state: State, assignments: list[SyncGroupRequestAssignment], out: Out) -> None:
    if state.coordinator is None:
        _fail(state, E.COORDINATOR_NOT_AVAILABLE)
        return
    request = SyncGroupRequest(
        group_id=state.config.group_id,
        generation_id=state.generation.number,
        member_id=state.generation.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocol_name=state.generation.protocol,
        assignments=assignments,
    )
    send(state, state.coordinator, request, out)


def sync_answered(state: State, entry: Open, answer: SyncGroupResponse | None, out: Out) -> None:
    """SyncGroupResponseHandler."""
    if not state.join_open:
        return
    if answer is None:
        coordinator_lookup.unknown(state, out, disconnected=True)
        want_rejoin(state, FAILED_WITH.format("DisconnectException"))
        _fail(state, DISCONNECTED)
        return
    code = answer.error_code
    if code == E.NONE:
        if state.state is M.completing and state.generation != NO_GENERATION:
            move(state, M.stable)
            state.rejoin_needed, state.reason = False, ""
            state.join_open, state.join_done = False, answer.assignment
        else:
            _fail(state, E.ILLEGAL_GENERATION)
        return
    want_rejoin(state, FAILED_WITH.format(exception(code)))
    if code in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION):
        if entry.generation == state.generation:
            reset(state, FAILED_WITH.format(exception(code)), keep_id=code == E.ILLEGAL_GENERATION)
    elif code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
        coordinator_lookup.unknown(state, out)
    _fail(state, code if code in _SYNC_EXPECTED else UNEXPECTED)
