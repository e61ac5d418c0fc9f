"""Rebalance events and the application's answers to them: its calls of assign() and unassign().

The module follows rdkafka_cgrp.c: rd_kafka_rebalance_op, rd_kafka_rebalance_op_incr, and
rd_kafka_cgrp_revoke_all_rejoin, _assign, _unassign, _incremental_assign, _incremental_unassign and
_assignment_done.

* A SyncGroup response only queues a rebalance event with the assignment. When the application polls, its
  rebalance callback answers with an assign(). Without a callback, the language binding answers.

* The answer to a rebalance event assigns the partitions *without offsets*. So the partitions start at the
  committed offsets: STORED (-1000).

* While a rebalance event waits for its answer, any assign() of the application counts as the answer. At other
  times, assign() replaces the assignment. The new assignment lasts until the next assign().

* While a rebalance event waits for its answer, all assigned partitions are paused.

* An EAGER event is answered by assign or unassign, and a COOPERATIVE event by incremental calls. A call that
  does not fit the protocol of the event fails with _STATE.

* After a revoke the revoked partitions are stopped and their stored offsets are committed. If a new
  assignment caused the revoke, a COOPERATIVE member then adds the new partitions. The member then rejoins, if
  the revoke or a new subscription requires this. A member without a subscription leaves instead.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...group.subscription import TopicPartition
from . import assignment
from .cgrp_leave import leave_maybe
from .constants import INVALID, STATE
from .state import CgrpJoinState, InternalOp, LibrdkafkaState, Out, RebalanceOp, move

J = CgrpJoinState
MAX_POLL_CHECK_MS = 500
_WRONG_PROTOCOL = "Changes to the current assignment must be made using {} when rebalance protocol type is {}"


# -- events for the application


def enqueue_assign(state: LibrdkafkaState, partitions: tuple[TopicPartition, ...], out: Out) -> None:
    """Queue an ASSIGN_PARTITIONS event (rd_kafka_rebalance_op)."""
    _enqueue_rebalance(state, RebalanceOp(True, partitions), out)
    state.group_assignment = tuple(sorted(partitions))


def enqueue_revoke(state: LibrdkafkaState, partitions: tuple[TopicPartition, ...], out: Out) -> None:
    """Queue a REVOKE_PARTITIONS event for the whole assignment (rd_kafka_rebalance_op)."""
    _enqueue_rebalance(state, RebalanceOp(False, partitions), out)
    state.group_assignment = None


def enqueue_incremental(
    state: LibrdkafkaState, assign: bool, partitions: tuple[TopicPartition, ...], rejoin: bool, out: Out
) -> None:
    """Queue an incremental event. With `rejoin`, the member rejoins after the application's answer.

    Follows rd_kafka_rebalance_op_incr.
    """
    state.rebalance_rejoin = rejoin
    _enqueue_rebalance(state, RebalanceOp(assign, partitions), out)
    owned = set(state.group_assignment or ())
    owned = owned.union(partitions) if assign else owned.difference(partitions)
    state.group_assignment = tuple(sorted(owned)) if owned or assign else None


def _enqueue_rebalance(state: LibrdkafkaState, event: RebalanceOp, out: Out) -> None:
    """Queue a rebalance event, and pause all partitions until the application answers it.

    After a fatal error, a static member queues no event: it unassigns all partitions.
    """
    if state.fatal is not None and state.is_static:
        unassign(state)
        assignment.serve(state, out)
        return
    move(state, J.WAIT_ASSIGN_CALL if event.assign else J.WAIT_UNASSIGN_CALL)
    assignment.pause(state)
    state.queue.append(event)


# -- answers


def handle_assign_op(
    state: LibrdkafkaState, partitions: Mapping[TopicPartition, int] | None, change: str, out: Out
) -> tuple[str, str] | None:
    """Apply assign(), unassign() or an incremental variant. Return the error of a rejected call, else None.

    Follows rd_kafka_cgrp_handle_assign_op.

    `change` is "all", "add" or "remove". If it is "all" and `partitions` is None, the call is an unassign.
    """
    error = _change_assignment(state, partitions, change, out)
    if error is None:
        assignment.serve(state, out)
        # `assignment_lost` must be true during `serve`, which does not commit the offsets of a lost
        # assignment.
        state.assignment_lost = False
    return error


def _change_assignment(
    state: LibrdkafkaState, partitions: Mapping[TopicPartition, int] | None, change: str, out: Out
) -> tuple[str, str] | None:
    """Replace, extend or reduce the assignment. Return the error of a rejected call, else None.

    The arguments are the same as for `handle_assign_op`.

    A terminating member, and a static member after a fatal error, unassigns everything instead.
    """
    if (state.fatal is not None and state.is_static) or state.terminating:
        state.incr_assignment = None
        if state.state is J.WAIT_ASSIGN_CALL:
            move(state, J.WAIT_UNASSIGN_CALL)
        unassign(state)
        return None
    if state.cooperative and change == "all":
        text = _WRONG_PROTOCOL.format("incremental_assign() or incremental_unassign()", "COOPERATIVE")
        return (STATE[0], text)
    if state.assignor is not None and not state.cooperative and change != "all":
        return (STATE[0], _WRONG_PROTOCOL.format("assign()", "EAGER"))
    if change == "add":
        return incremental_assign(state, partitions or {})
    if change == "remove":
        return incremental_unassign(state, tuple(partitions or ()))
    if partitions is None:
        unassign(state)
        return None
    return assign(state, partitions, out)


def answer_by_default(state: LibrdkafkaState, event: RebalanceOp, out: Out) -> None:
    """Answer an event as a binding does: assign or unassign the event's partitions, without offsets."""
    offsets = dict.fromkeys(event.partitions, INVALID)
    if state.cooperative:
        handle_assign_op(state, offsets, "add" if event.assign else "remove", out)
    else:
        handle_assign_op(state, offsets if event.assign else None, "all", out)


def assign(
    state: LibrdkafkaState, partitions: Mapping[TopicPartition, int], out: Out
) -> tuple[str, str] | None:
    """Replace the assignment; return None on success, else the error (rd_kafka_cgrp_assign).

    If `partitions` is rejected with an error, the old assignment has nevertheless been removed.
    """
    if assignment.clear(state):
        assignment.serve(state, out)
    error = assignment.add(state, partitions)
    if error is None:
        _finish_assign(state)
    return error


def unassign(state: LibrdkafkaState) -> None:
    """Remove the whole assignment (rd_kafka_cgrp_unassign)."""
    assignment.clear(state)
    if state.state is J.WAIT_UNASSIGN_CALL:
        assignment.resume(state)
        move(state, J.WAIT_UNASSIGN_TO_COMPLETE)


def incremental_assign(
    state: LibrdkafkaState, partitions: Mapping[TopicPartition, int]
) -> tuple[str, str] | None:
    error = assignment.add(state, partitions)
    if error is None:
        _finish_assign(state)
    return error


def incremental_unassign(
    state: LibrdkafkaState, partitions: tuple[TopicPartition, ...]
) -> tuple[str, str] | None:
    error = assignment.subtract(state, partitions)
    if error is None and state.state is J.WAIT_UNASSIGN_CALL:
        assignment.resume(state)
        move(state, J.WAIT_INCR_UNASSIGN_TO_COMPLETE)
    return error


def _finish_assign(state: LibrdkafkaState) -> None:
    """Resume the partitions and move to STEADY, if the group is waiting for assign(); else do nothing."""
    if state.state is J.WAIT_ASSIGN_CALL:
        assignment.resume(state)
        move(state, J.STEADY)
        if state.subscription is not None:
            state.max_poll_at = state.now + MAX_POLL_CHECK_MS


# -- after an assign() or unassign() is complete


def assignment_done(state: LibrdkafkaState, out: Out) -> None:
    """Continue the rebalance when all starts, stops and commits are done (rd_kafka_cgrp_assignment_done)."""
    if state.state is J.WAIT_UNASSIGN_TO_COMPLETE:
        _unassign_done(state, out)
    elif state.state is J.WAIT_INCR_UNASSIGN_TO_COMPLETE:
        _incr_unassign_done(state, out)
    elif state.state is J.STEADY and (state.next_subscription is not None or state.next_unsubscribe):
        rejoin_now(state, out)
    elif state.state is J.STEADY and state.rebalance_rejoin:
        state.rebalance_rejoin = False
        rejoin_now(state, out)


def _unassign_done(state: LibrdkafkaState, out: Out) -> None:
    """Leave the group if the assignment was removed for this purpose, then return to INIT.

    In INIT, a subscribed member joins again.
    """
    leave_maybe(state, out)
    rejoin_now(state, out)


def _incr_unassign_done(state: LibrdkafkaState, out: Out) -> None:
    """Continue after the partitions of an incremental revoke were removed.

    A terminating member leaves. Any other member adds its new partitions. If there are no new partitions, the
    member rejoins if the revocation or a new subscription requires a rejoin, and is STEADY otherwise.
    """
    if state.terminating:
        unassign(state)
        state.internal_ops.append(InternalOp.SERVE_ASSIGNMENT)
        move(state, J.INIT)
        leave_maybe(state, out)
    elif state.incr_assignment is not None:
        added, state.incr_assignment = state.incr_assignment, None
        enqueue_incremental(state, assign=True, partitions=added, rejoin=True, out=out)
    elif state.rebalance_rejoin:
        state.rebalance_rejoin = False
        rejoin_now(state, out)
    elif state.next_subscription is not None or state.next_unsubscribe:
        rejoin_now(state, out)
    else:
        move(state, J.STEADY)


def rejoin_now(state: LibrdkafkaState, out: Out) -> None:
    """Rejoin without waiting for the interval between joins."""
    state.join_interval.reset()
    rejoin(state, out)


def rejoin(state: LibrdkafkaState, out: Out) -> None:
    """Return to INIT, in which the member joins the group. Without a subscription, leave the group first.

    Follows rd_kafka_cgrp_rejoin.
    """
    if state.subscription is None and state.next_subscription is None:
        leave_maybe(state, out)
    move(state, J.INIT)


# -- reasons to revoke the whole assignment


def revoke_all_rejoin_maybe(state: LibrdkafkaState, lost: bool, out: Out) -> None:
    """Revoke the whole assignment and rejoin, unless a rebalance is in progress.

    rd_kafka_cgrp_revoke_all_rejoin_maybe.
    """
    if not state.is_rebalancing:
        revoke_all_rejoin(state, lost=lost, out=out)


def revoke_all_rejoin(state: LibrdkafkaState, lost: bool, out: Out) -> None:
    """Revoke the whole assignment and rejoin (rd_kafka_cgrp_revoke_all_rejoin).

    If `lost` is true, the stored offsets of the revoked partitions are not committed.
    """
    if not state.cooperative:
        if lost:
            state.assignment_lost = True
        if state.group_assignment is not None and not state.waits_for_call:
            enqueue_revoke(state, state.group_assignment, out)
        else:
            rejoin_now(state, out)
    elif state.group_assignment:
        if lost:
            state.assignment_lost = True
        enqueue_incremental(
            state,
            assign=False,
            partitions=state.group_assignment,
            rejoin=not state.terminating,
            out=out,
        )
    elif not state.terminating:
        rejoin(state, out)
    elif state.state is J.STEADY:
        leave_maybe(state, out)


def group_is_rebalancing(state: LibrdkafkaState, out: Out) -> None:
    """Join a rebalance that another member has started. An eager member first revokes its partitions.

    Follows rd_kafka_cgrp_group_is_rebalancing.
    """
    if not state.cooperative:
        revoke_all_rejoin_maybe(state, lost=False, out=out)
    elif not state.is_rebalancing:
        rejoin(state, out)


def metadata_changed(state: LibrdkafkaState, out: Out) -> None:
    """Rejoin, as leader or follower, because the subscribed topics or their partition counts changed.

    The function follows the end of rd_kafka_cgrp_metadata_update_check.
    """
    if not state.cooperative:
        state.group_members = {}
        revoke_all_rejoin(state, lost=False, out=out)
        return
    unavailable = tuple(tp for tp in state.group_assignment or () if tp.topic not in state.subscribed_topics)
    if unavailable:
        state.assignment_lost = True
        is_leader = bool(state.group_members)
        enqueue_incremental(state, assign=False, partitions=unavailable, rejoin=is_leader, out=out)
    else:
        rejoin(state, out)


def handle_assignment(state: LibrdkafkaState, partitions: tuple[TopicPartition, ...], out: Out) -> None:
    """Queue the events of a new assignment (rd_kafka_cgrp_handle_assignment).

    With EAGER, one event contains the whole assignment. With COOPERATIVE, one event contains the added
    partitions. If partitions are revoked, an event with the revoked partitions comes first.
    """
    if not state.cooperative:
        enqueue_assign(state, partitions, out)
        return
    owned = set(state.group_assignment or ())
    added = tuple(sorted(set(partitions).difference(owned)))
    revoked = tuple(sorted(owned.difference(partitions)))
    if revoked:
        state.incr_assignment = added
        enqueue_incremental(state, assign=False, partitions=revoked, rejoin=False, out=out)
    else:
        enqueue_incremental(state, assign=True, partitions=added, rejoin=False, out=out)
