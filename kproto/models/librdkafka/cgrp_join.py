"""Joining: metadata first, JoinGroup, the leader's plan, SyncGroup (rdkafka_cgrp.c).

* A join needs all topics of the subscription answered for by metadata, and one that exists.
* JoinGroups are at least a second apart, two after an error; not after MEMBER_ID_REQUIRED, after an unassign,
  nor after any metadata answer, which all reset that interval.
* JoinGroup: UNKNOWN_MEMBER_ID forgets the id, ILLEGAL_GENERATION the generation; MEMBER_ID_REQUIRED has one.
  Cooperative members lose everything with the last two. Other errors that don't pass are told to the
  application, and it joins again all the same; FENCED_INSTANCE_ID is fatal for a static member.
* SyncGroup: COORDINATOR_LOAD_IN_PROGRESS sends the same again; all others join again. UNKNOWN_MEMBER_ID and
  ILLEGAL_GENERATION lose everything where it is cooperative.
* An answer that comes in another state than the one that waits for it is dropped.
* Heartbeats go out in STEADY and while the application is waited for, when the loop comes round; not while
  JoinGroup or SyncGroup is open.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...errors import KprotoError
from ...group.assignors import Assignor
from ...group.classic.member import leadership
from ...group.protocol import Metadata
from ...group.subscription import Assignment, Subscription, TopicPartition, sticky_user_data
from ...messages.heartbeat import HeartbeatRequest
from ...messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from . import metadata
from .cgrp_rebalance import handle_assignment, rejoin, revoke_all_rejoin
from .constants import UNKNOWN_PROTOCOL, err2name
from .request import TRANSPORT, ErrAction, err_action, retry_request, send_request
from .state import (
    CgrpJoinState,
    CgrpState,
    ErrorOp,
    InternalOp,
    LibrdkafkaState,
    Out,
    RequestBuf,
    move,
    set_fatal,
)

J = CgrpJoinState
JOIN_INTERVAL_MS = 1_000
JOIN_BACKOFF_MS = 1_000
JOIN_GRACE_MS = 3_000


def join(state: LibrdkafkaState, out: Out) -> None:
    """rd_kafka_cgrp_join."""
    if state.coord is not CgrpState.UP or state.state is not J.INIT or state.waits_for is not None:
        return
    away = state.polling is None and state.now - state.last_poll >= state.max_poll_ms
    if state.max_poll_exceeded and away:
        return
    state.max_poll_exceeded = False
    if metadata.refresh_for_join(state, out):
        move(state, J.WAIT_METADATA)
        return
    if not state.subscribed:
        metadata.update_check(state, False, out)
    if not state.subscribed:
        return
    _send_join(state, out)
    move(state, J.WAIT_JOIN)


def _send_join(state: LibrdkafkaState, out: Out) -> None:
    assert state.coordinator is not None
    request = JoinGroupRequest(
        group_id=state.config.group_id,
        session_timeout_ms=state.session_ms,
        rebalance_timeout_ms=state.max_poll_ms,
        member_id=state.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=one.name, metadata=encode_subscription(state, one))
            for one in state.assignors
        ],
    )
    state.waits_for = request
    send_request(state, state.coordinator, request, out, timeout_ms=state.max_poll_ms + JOIN_GRACE_MS)


def encode_subscription(state: LibrdkafkaState, assignor: Assignor) -> bytes:
    """rkas_get_metadata_cb: only the cooperative assignor has a memory."""
    remembers = assignor.cooperative and state.previous is not None
    claim = Subscription(
        topics=tuple(state.subscribed),
        user_data=sticky_user_data(state.previous or (), state.previous_generation) if remembers else b"",
        owned=(state.group_assignment or ()) if assignor.cooperative else (),
        generation=state.previous_generation if remembers else None,
        rack_id=state.config.rack or (None if state.old else ""),
    )
    return claim.encode(1 if state.old else 3)


def on_join_group_response(
    state: LibrdkafkaState, entry: RequestBuf, answer: JoinGroupResponse | None, out: Out
) -> None:
    """rd_kafka_cgrp_handle_JoinGroup; no answer is a broken connection."""
    state.waits_for = None
    if state.terminating or state.state is not J.WAIT_JOIN:
        return
    code = TRANSPORT if answer is None else answer.error_code
    if answer is None or code:
        state.join_interval.backoff = JOIN_BACKOFF_MS
        _handle_join_error(state, code, answer, out)
        return
    chosen = next((one for one in state.assignors if one.name == answer.protocol_name), None)
    if chosen is None:
        state.join_interval.backoff = JOIN_BACKOFF_MS
        state.queue.append(ErrorOp(UNKNOWN_PROTOCOL, "JoinGroup failed: Local: Unknown protocol"))
        rejoin(state, out)
        return
    state.member_id, state.generation, state.assignor = answer.member_id, answer.generation_id, chosen
    if answer.leader == answer.member_id:
        _request_assignor_metadata(state, entry, answer, out)
    else:
        send_sync_group(state, [], out)


def _handle_join_error(state: LibrdkafkaState, code: int, answer: JoinGroupResponse | None, out: Out) -> None:
    do = ErrAction.NONE if code in _NO_ACTION else err_action(code)
    if ErrAction.REFRESH in do:
        state.todo.append(InternalOp.QUERY_COORDINATOR)
    if code == E.FENCED_INSTANCE_ID:
        set_fatal(state, code)
    elif ErrAction.PERMANENT in do:
        name = err2name(code)
        state.queue.append(ErrorOp(name, f"JoinGroup failed: Broker: {name}"))
    if code == E.UNKNOWN_MEMBER_ID:
        state.member_id = ""
    elif code == E.ILLEGAL_GENERATION:
        state.generation = -1
    elif code == E.MEMBER_ID_REQUIRED and answer is not None:
        state.member_id = answer.member_id
        state.join_interval.reset()
    if state.cooperative and code in (E.ILLEGAL_GENERATION, E.MEMBER_ID_REQUIRED):
        revoke_all_rejoin(state, True, out)
    else:
        rejoin(state, out)


_NO_ACTION = {E.UNKNOWN_MEMBER_ID, E.MEMBER_ID_REQUIRED, E.ILLEGAL_GENERATION}


# -- the leader


def _request_assignor_metadata(
    state: LibrdkafkaState, entry: RequestBuf, answer: JoinGroupResponse, out: Out
) -> None:
    state.leader = leadership.decode_subscriptions(
        (m.member_id, m.group_instance_id, m.metadata) for m in answer.members
    )
    move(state, J.WAIT_METADATA)
    topics = sorted(leadership.topics_of(state.leader))
    metadata.request_assignor_metadata(state, topics, entry.send.to, out)


def assignor_run(state: LibrdkafkaState, out: Out) -> None:
    """rd_kafka_cgrp_assignor_run, once metadata of all members' topics has come."""
    if state.state is not J.WAIT_METADATA or not state.leader or state.assignor is None:
        return
    topics = leadership.topics_of(state.leader)
    racks = {topic: tuple(sets) for topic, sets in state.cluster.rack_sets(topics).items()}
    known = Metadata(state.cluster.partition_counts(topics), racks=racks)
    try:
        assignments = leadership.assign(state.assignor, state.leader, known, {})
    except KprotoError:
        rejoin(state, out)
        return
    send_sync_group(state, assignments, out)


def send_sync_group(state: LibrdkafkaState, assignments: list[SyncGroupRequestAssignment], out: Out) -> None:
    """rd_kafka_SyncGroupRequest."""
    assert state.coordinator is not None
    move(state, J.WAIT_SYNC)
    request = SyncGroupRequest(
        group_id=state.config.group_id,
        generation_id=state.generation,
        member_id=state.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocol_name=state.assignor.name if state.assignor is not None else None,
        assignments=assignments,
    )
    state.waits_for = request
    send_request(state, state.coordinator, request, out, timeout_ms=state.session_ms)


def on_sync_group_response(
    state: LibrdkafkaState, entry: RequestBuf, answer: SyncGroupResponse | None, out: Out
) -> None:
    """rd_kafka_cgrp_handle_SyncGroup and _memberstate."""
    if state.state is not J.WAIT_SYNC:
        state.waits_for = None
        return
    code = TRANSPORT if answer is None else answer.error_code
    do = err_action(code)
    if ErrAction.REFRESH in do:
        state.todo.append(InternalOp.QUERY_COORDINATOR)
    if ErrAction.RETRY in do and retry_request(state, entry):
        return
    state.waits_for = None
    if answer is None or code or state.terminating:
        _handle_sync_error(state, code, out)
        return
    partitions = Assignment.decode(answer.assignment).partitions
    state.session_at = state.now + state.session_ms
    if state.assignor is not None and state.assignor.cooperative:
        state.previous, state.previous_generation = tuple(sorted(partitions)), state.generation
    handle_assignment(state, tuple(sorted(partitions)), out)


def _handle_sync_error(state: LibrdkafkaState, code: int, out: Out) -> None:
    if code == E.FENCED_INSTANCE_ID:
        set_fatal(state, code)
    elif code == E.ILLEGAL_GENERATION:
        state.generation = -1
    elif code == E.UNKNOWN_MEMBER_ID:
        state.member_id = ""
    if state.cooperative and code in (E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID):
        revoke_all_rejoin(state, True, out)
    else:
        rejoin(state, out)


# -- staying


def send_heartbeat(state: LibrdkafkaState, out: Out) -> None:
    """rd_kafka_cgrp_heartbeat, when the interval is over."""
    if state.subscription is None or not state.heartbeat_interval.due(state.heartbeat_ms, state.now):
        return
    if state.max_poll_exceeded or state.heartbeat_open or state.coordinator is None:
        return
    state.heartbeat_open = True
    request = HeartbeatRequest(
        group_id=state.config.group_id,
        generation_id=state.generation,
        member_id=state.member_id,
        group_instance_id=state.config.instance,
    )
    send_request(state, state.coordinator, request, out, timeout_ms=state.session_ms)


def owned_before(state: LibrdkafkaState) -> tuple[TopicPartition, ...]:
    """What the group gave this member last (rkcg_group_assignment)."""
    return state.group_assignment or ()
