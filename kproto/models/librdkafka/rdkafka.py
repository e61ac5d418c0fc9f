"""The application's calls, and the queue that the library fills and a poll empties.

The module follows rdkafka.c, rdkafka_queue.c (rd_kafka_q_serve_rkmessages) and rdkafka_cgrp.c (subscribe,
unsubscribe, terminate).

* M102: subscribe() during a rebalance is deferred until the rebalance has ended.

* Outside a rebalance, subscribe() of an eager member revokes the whole assignment and rejoins without leaving
  the group, even if the topics are the same.

* subscribe() of a cooperative member revokes only the partitions of topics to which it no longer subscribes.

* A poll returns when it has enough records or its timeout expires. Rebalance callbacks run inside the poll.
  Errors are reported when the poll returns its records.

* When a record is delivered, its offset plus one is stored. Queued records that arrived under an older
  version of their partition (`Toppar.version`) are dropped.

* close() revokes, commits and leaves, and drops the remaining entries of the queue. After a fatal error,
  close() only reports this error.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...group.subscription import TopicPartition
from ...machine import ensure_state
from .. import contract as c
from . import assignment, metadata, toppar
from .cgrp_join import join
from .cgrp_leave import leave_maybe
from .cgrp_rebalance import (
    answer_by_default,
    enqueue_incremental,
    handle_assign_op,
    rejoin,
    revoke_all_rejoin,
    unassign,
)
from .constants import INVALID, PARTITION_EOF, UNKNOWN_PARTITION
from .state import (
    COORD_EDGES,
    CgrpJoinState,
    CgrpState,
    EofOp,
    ErrorOp,
    FetchOp,
    FetchPos,
    InternalOp,
    LibrdkafkaState,
    OpenPoll,
    Out,
    QueuedOp,
    RebalanceOp,
    ensure_toppar,
    move,
)

J = CgrpJoinState


# -- subscribe and unsubscribe


def subscribe(state: LibrdkafkaState, topics: tuple[str, ...] | None, out: Out) -> None:
    """Subscribe, or unsubscribe with None (rd_kafka_cgrp_subscribe).

    After a fatal error, a static member unsubscribes and reports the error.
    """
    if state.fatal is not None and state.is_static:
        if state.subscription is not None:
            unsubscribe(state, leave_group=True, out=out)
        out.append(c.Notify("error", "_FATAL", state.fatal))
        return
    state.next_subscription, state.next_unsubscribe = None, False
    if state.is_rebalancing:
        state.next_subscription, state.next_unsubscribe = topics, topics is None
    elif state.cooperative and topics is not None and state.subscription is not None:
        _modify_subscription(state, topics, out)
    else:
        if state.subscription is not None:
            unsubscribe(state, leave_group=topics is None, out=out)
        if topics is not None:
            state.subscription = topics
            join(state, out)


def unsubscribe(state: LibrdkafkaState, leave_group: bool, out: Out) -> None:
    """Revoke the whole assignment. If `leave_group` is true, leave the group afterwards.

    Follows rd_kafka_cgrp_unsubscribe.
    """
    state.max_poll_at = None
    state.subscription, state.subscribed_topics, state.errored_topics = None, {}, {}
    state.group_members = {}
    if leave_group and state.has_joined:
        state.leave_on_unassign_done = True
    if not state.assignment_lost:
        revoke_all_rejoin(state, lost=False, out=out)


def _modify_subscription(state: LibrdkafkaState, topics: tuple[str, ...], out: Out) -> None:
    """Change the subscription of a cooperative member (rd_kafka_cgrp_modify_subscription)."""
    state.subscription = topics
    if metadata.refresh_for_join(state, out):
        move(state, J.WAIT_METADATA)
        return
    available, missing = metadata.match_subscription(state)
    metadata.propagate_topic_errors(state, missing)
    unsubscribed = tuple(tp for tp in state.group_assignment or () if tp.topic not in available)
    has_changed = available != state.subscribed_topics
    state.subscribed_topics = available
    if unsubscribed:
        enqueue_incremental(state, assign=False, partitions=unsubscribed, rejoin=True, out=out)
    elif has_changed:
        rejoin(state, out)


def apply_next_subscription(state: LibrdkafkaState, out: Out) -> None:
    """Apply the subscription that was deferred until the end of a rebalance.

    Follows rd_kafka_cgrp_apply_next_subscribe.
    """
    if state.next_subscription is not None:
        topics, state.next_subscription = state.next_subscription, None
        subscribe(state, topics, out)
    elif state.next_unsubscribe:
        state.next_unsubscribe = False
        unsubscribe(state, leave_group=True, out=out)


# -- assign, seek, pause


def assign(state: LibrdkafkaState, event: c.AssignCalled, out: Out) -> None:
    """Apply an assign(), incremental_assign() or incremental_unassign() call of the application.

    The function follows rd_kafka_assign, _incremental_assign and _incremental_unassign. An assign without
    partitions means unassign.
    """
    if state.rebalance_in_callback is not None:
        state.rebalance_answered = True
    offsets = {tp: INVALID if offset is None else offset for tp, offset in event.partitions.items()}
    for tp in offsets:
        ensure_toppar(state, tp)
    is_unassign = event.change == "all" and not offsets
    error = handle_assign_op(state, None if is_unassign else offsets, event.change, out)
    if error is not None:
        out.append(c.Notify("error", *error))
    has_unknown_topic = any(tp.topic not in state.cluster.topics for tp in offsets)
    if has_unknown_topic and state.bootstrapped:
        metadata.refresh(state, out)


def seek(state: LibrdkafkaState, event: c.SeekCalled, out: Out) -> None:
    """Seek a partition (rd_kafka_seek).

    A seek before the partition's fetcher has started is rejected with "_STATE". A seek of a partition that is
    neither assigned nor in metadata is rejected with "_UNKNOWN_PARTITION".
    """
    tp = event.partition
    is_known = tp.topic in state.local_topics and state.cluster.leader(tp) is not None
    if tp not in state.assignment and not is_known:
        error: tuple[str, str] | None = UNKNOWN_PARTITION
    else:
        error = toppar.seek(state, state.partitions.get(tp), event.offset, out)
    if error is not None:
        out.append(c.Notify("error", error[0], f"Failed to seek to offset {event.offset}: {error[1]}"))


def pause(state: LibrdkafkaState, partitions: tuple[TopicPartition, ...], paused: bool) -> None:
    """Pause or resume partitions for the application."""
    for tp in partitions:
        if paused:
            toppar.pause(state, ensure_toppar(state, tp), library=False)
        else:
            toppar.resume(state, ensure_toppar(state, tp), library=False)


def assigned_offsets(state: LibrdkafkaState) -> Mapping[TopicPartition, int]:
    """Map each assigned partition to the offset with which it was assigned.

    Follows rd_kafka_assignment.

    The returned offsets are not positions: STORED (-1000) stays STORED, and neither a seek nor a record
    changes them.
    """
    return dict(state.assignment)


def position(state: LibrdkafkaState, tp: TopicPartition) -> int:
    """Return the last delivered offset plus one; INVALID (-1001) if none was delivered since the last seek.

    Follows rd_kafka_position.
    """
    toppar_state = state.partitions.get(tp)
    return toppar_state.app_position.offset if toppar_state is not None else INVALID


# -- poll


def poll(state: LibrdkafkaState, event: c.PollCalled, out: Out) -> None:
    """Open a poll. Queued records are delivered at the end of the step."""
    state.open_poll = OpenPoll(state.now + event.timeout_ms, event.limit)


def on_callback_returned(state: LibrdkafkaState, out: Out) -> None:
    """Let `serve_queue` continue, because the application's rebalance callback has returned.

    If the callback called neither assign nor unassign, the binding makes the call that the rebalance event
    requires.
    """
    event, state.rebalance_in_callback = state.rebalance_in_callback, None
    if event is not None and not state.rebalance_answered:
        answer_by_default(state, event, out)
    state.rebalance_answered = False
    if event is not None and state.open_poll is not None:
        state.open_poll.rebalance_answered = state.one_event_per_poll


def serve_queue(state: LibrdkafkaState, out: Out) -> None:
    """Deliver queued items, and finish the poll at its limit of items or at its timeout.

    The delivery stops at a rebalance event until the callback of this event has returned. While no poll is
    open, items are removed from the queue only during close(). Follows rd_kafka_q_serve_rkmessages.
    """
    open_poll = state.open_poll
    while state.queue and state.rebalance_in_callback is None and (open_poll is not None or state.closing):
        if open_poll is not None and (
            open_poll.rebalance_answered or len(open_poll.records) >= open_poll.limit
        ):
            break
        _deliver(state, state.queue.popleft(), out)
    if open_poll is not None and state.rebalance_in_callback is None:
        is_full = len(open_poll.records) + len(open_poll.errors) >= open_poll.limit
        if is_full or open_poll.rebalance_answered or state.now >= open_poll.deadline:
            _finish_poll(state, open_poll, out)


def _deliver(state: LibrdkafkaState, item: QueuedOp, out: Out) -> None:
    """Deliver a queued item. While no poll is open, only rebalance events are delivered."""
    open_poll = state.open_poll
    if isinstance(item, RebalanceOp):
        _invoke_rebalance_callback(state, item, out)
    elif isinstance(item, FetchOp):
        _deliver_messages(state, item)
    elif open_poll is not None and isinstance(item, ErrorOp):
        open_poll.errors.append(item)
    elif open_poll is not None and isinstance(item, EofOp):
        _deliver_eof(state, item, open_poll)


def _invoke_rebalance_callback(state: LibrdkafkaState, event: RebalanceOp, out: Out) -> None:
    state.rebalance_in_callback = event
    kind = "assigned" if event.assign else "lost" if state.assignment_lost else "revoked"
    out.append(c.RunCallback(kind, event.partitions))


def _deliver_messages(state: LibrdkafkaState, item: FetchOp) -> None:
    """Deliver records up to the limit of the poll, and keep the rest in the queue.

    With enable.auto.offset.store, the offset after the last delivered record is stored. Records that arrived
    under an older `version` of the partition are dropped.
    """
    toppar_state = ensure_toppar(state, item.tp)
    toppar_state.queued = max(0, toppar_state.queued - len(item.records))
    if item.version != toppar_state.version or state.open_poll is None:
        return
    capacity = state.open_poll.limit - len(state.open_poll.records)
    delivered, remaining = item.records[:capacity], item.records[capacity:]
    if remaining:
        state.queue.appendleft(FetchOp(item.tp, item.version, remaining, item.epoch))
        toppar_state.queued += len(remaining)
    state.open_poll.records += delivered
    toppar_state.app_position = FetchPos(delivered[-1].offset + 1, item.epoch)
    if state.auto_store:
        toppar_state.stored_position = toppar_state.app_position


def _deliver_eof(state: LibrdkafkaState, item: EofOp, open_poll: OpenPoll) -> None:
    """Record that the partition's end is reached. Report the end if enable.partition.eof is set."""
    toppar_state = ensure_toppar(state, item.tp)
    if item.version != toppar_state.version:
        return
    toppar_state.eof_offset = item.offset
    if state.partition_eof:
        end = f"end of partition at offset {item.offset} (HighwaterMark {item.high_watermark})"
        text = f"Fetch from broker {item.node} reached {end}"
        open_poll.errors.append(ErrorOp(PARTITION_EOF, text))


def _finish_poll(state: LibrdkafkaState, open_poll: OpenPoll, out: Out) -> None:
    state.open_poll, state.last_poll = None, state.now
    for error in open_poll.errors:
        out.append(c.Notify("event" if error.name == PARTITION_EOF else "error", error.name, error.text))
    out.append(c.FinishPoll(tuple(open_poll.records)))


# -- close


def close(state: LibrdkafkaState, out: Out) -> None:
    """Start closing the consumer (rd_kafka_consumer_close, rd_kafka_cgrp_terminate0)."""
    state.closing = state.terminating = True
    if state.open_poll is not None:
        _finish_poll(state, state.open_poll, out)
    if state.fatal is not None:
        out.append(c.Notify("error", "_FATAL", state.fatal))
        _finish_close(state, out)
        return
    if state.subscription is not None:
        unsubscribe(state, leave_group=True, out=out)
    if not state.waits_for_call:
        unassign(state)
        if state.state is J.STEADY:
            move(state, J.INIT)
            leave_maybe(state, out)
    state.internal_ops.append(InternalOp.SERVE_ASSIGNMENT)


def try_terminate(state: LibrdkafkaState, out: Out) -> None:
    """Complete close() when no commit, removal or LeaveGroup is in progress (rd_kafka_cgrp_try_terminate)."""
    if (
        not state.terminating
        or state.closed
        or state.rebalance_in_callback is not None
        or state.waits_for_call
    ):
        return
    if assignment.is_in_progress(state) or state.wait_leave or state.refused or state.internal_ops:
        return
    _finish_close(state, out)


def _finish_close(state: LibrdkafkaState, out: Out) -> None:
    ensure_state(state.coord, CgrpState.TERM, COORD_EDGES)
    state.closed = True
    state.open, state.retries = {}, []
    state.internal_ops.clear()
    out.append(c.FinishClose())
