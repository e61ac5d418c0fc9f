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
from .cgrp_rebalance import new_assignment, rejoin, revoke_all_rejoin
from .constants import UNKNOWN_PROTOCOL, name_of_error
from .request import TRANSPORT, Do, err_action, retry, send
from .state import CoordState, JoinState, Open, Out, State, Todo, Trouble, move, set_fatal

J = JoinState
JOIN_INTERVAL_MS = 1_000
JOIN_BACKOFF_MS = 1_000
JOIN_GRACE_MS = 3_000


def join(state: State, out: Out) -> None:
    """rd_kafka_cgrp_join."""
    if state.coord is not CoordState.up or state.join is not J.init or state.waits_for is not None:
        return
    away = state.polling is None and state.now - state.last_poll >= state.max_poll_ms
    if state.max_poll_exceeded and away:
        return
    state.max_poll_exceeded = False
    if metadata.refresh_for_join(state, out):
        move(state, J.wait_metadata)
        return
    if not state.subscribed:
        metadata.update_check(state, False, out)
    if not state.subscribed:
        return
    _send_join(state, out)
    move(state, J.wait_join)


def _send_join(state: State, out: Out) -> None:
    assert state.coordinator is not None
    request = JoinGroupRequest(
        group_id=state.config.group_id,
        session_timeout_ms=state.session_ms,
        rebalance_timeout_ms=state.max_poll_ms,
        member_id=state.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=one.name, metadata=subscription(state, one))
            for one in state.assignors
        ],
    )
    state.waits_for = request
    send(state, state.coordinator, request, out, timeout_ms=state.max_poll_ms + JOIN_GRACE_MS)


def subscription(state: State, assignor: Assignor) -> bytes:
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


def join_answered(state: State, entry: Open, answer: JoinGroupResponse | None, out: Out) -> None:
    """rd_kafka_cgrp_handle_JoinGroup; no answer is a broken connection."""
    state.waits_for = None
    if state.terminating or state.join is not J.wait_join:
        return
    code = TRANSPORT if answer is None else answer.error_code
    if answer is None or code:
        state.join_interval.backoff = JOIN_BACKOFF_MS
        _join_refused(state, code, answer, out)
        return
    chosen = next((one for one in state.assignors if one.name == answer.protocol_name), None)
    if chosen is None:
        state.join_interval.backoff = JOIN_BACKOFF_MS
        state.queue.append(Trouble(UNKNOWN_PROTOCOL, "JoinGroup failed: Local: Unknown protocol"))
        rejoin(state, out)
        return
    state.member_id, state.generation, state.assignor = answer.member_id, answer.generation_id, chosen
    if answer.leader == answer.member_id:
        _lead(state, entry, answer, out)
    else:
        sync(state, [], out)


def _join_refused(state: State, code: int, answer: JoinGroupResponse | None, out: Out) -> None:
    do = Do.nothing if code in _NO_ACTION else err_action(code)
    if Do.refresh in do:
        state.todo.append(Todo.query_coordinator)
    if code == E.FENCED_INSTANCE_ID:
        set_fatal(state, code)
    elif Do.permanent in do:
        name = name_of_error(code)
        state.queue.append(Trouble(name, f"JoinGroup failed: Broker: {name}"))
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


def _lead(state: State, entry: Open, answer: JoinGroupResponse, out: Out) -> None:
    state.leader = leadership.decode_subscriptions(
        (m.member_id, m.group_instance_id, m.metadata) for m in answer.members
    )
    move(state, J.wait_metadata)
    topics = sorted(leadership.topics_of(state.leader))
    metadata.plan_topics(state, topics, entry.send.to, out)


def plan(state: State, out: Out) -> None:
    """rd_kafka_cgrp_assignor_run, once metadata of all members' topics has come."""
    if state.join is not J.wait_metadata or not state.leader or state.assignor is None:
        return
    topics = leadership.topics_of(state.leader)
    racks = {topic: tuple(sets) for topic, sets in state.cluster.rack_sets(topics).items()}
    known = Metadata(state.cluster.counts(topics), racks=racks)
    try:
        assignments = leadership.assign(state.assignor, state.leader, known, {})
    except KprotoError:
        rejoin(state, out)
        return
    sync(state, assignments, out)


def sync(state: State, assignments: list[SyncGroupRequestAssignment], out: Out) -> None:
    """rd_kafka_SyncGroupRequest."""
    assert state.coordinator is not None
    move(state, J.wait_sync)
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
    send(state, state.coordinator, request, out, timeout_ms=state.session_ms)


def sync_answered(state: State, entry: Open, answer: SyncGroupResponse | None, out: Out) -> None:
    """rd_kafka_cgrp_handle_SyncGroup and _memberstate."""
    if state.join is not J.wait_sync:
        state.waits_for = None
        return
    code = TRANSPORT if answer is None else answer.error_code
    do = err_action(code)
    if Do.refresh in do:
        state.todo.append(Todo.query_coordinator)
    if Do.retry in do and retry(state, entry):
        return
    state.waits_for = None
    if answer is None or code or state.terminating:
        _sync_refused(state, code, out)
        return
    partitions = Assignment.decode(answer.assignment).partitions
    state.session_at = state.now + state.session_ms
    if state.assignor is not None and state.assignor.cooperative:
        state.previous, state.previous_generation = tuple(sorted(partitions)), state.generation
    new_assignment(state, tuple(sorted(partitions)), out)


def _sync_refused(state: State, code: int, out: Out) -> None:
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


def beat(state: State, out: Out) -> None:
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
    send(state, state.coordinator, request, out, timeout_ms=state.session_ms)


def owned_before(state: State) -> tuple[TopicPartition, ...]:
    """What the group gave this member last (rkcg_group_assignment)."""
    return state.group_assignment or ()
