"""Fetching (Fetcher, FetchSessionHandler): requests, and the records that a poll returns.

Each node gets one request at a time, in a fetch session (KIP-227).

* M156: A partition is fetched if it is assigned, is neither paused nor being revoked, and has a position but
  no buffered records.

* M160: A fetch session has an id and an epoch. A request lists only the partitions that changed since the
  previous request.

* M154, M173: After an error that concerns the leader or the topic of a partition, the consumer requests
  metadata and repeats the fetch. After OFFSET_OUT_OF_RANGE it resets the position. Poll throws most other
  errors, such as authorization errors.
"""

from __future__ import annotations

from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.fetch import FetchRequest, FetchResponse
from ..common import FetchedRecords, FetchStart, fetch_request, parse_fetch, read_records
from ..contract import ModelRecord
from .offset_fetcher import reset_by_policy
from .release import exception_name
from .state import (
    FETCHING,
    FetchSessionHandler,
    InFlightRequest,
    JavaCompletedFetch,
    JavaState,
    Out,
    TopicPartitionState,
    node_address,
    send_request,
)

_LEADER_ERRORS = {
    E.NOT_LEADER_OR_FOLLOWER,
    E.REPLICA_NOT_AVAILABLE,
    E.KAFKA_STORAGE_ERROR,
    E.FENCED_LEADER_EPOCH,
    E.OFFSET_NOT_AVAILABLE,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.UNKNOWN_TOPIC_ID,
    E.INCONSISTENT_TOPIC_ID,
    E.UNKNOWN_LEADER_EPOCH,
}


def send_fetches(state: JavaState, out: Out) -> None:
    """Send one Fetch to each node without a Fetch in flight (sendFetches)."""
    if len(state.pending_fetch_nodes) >= len(state.cluster.brokers):
        return
    buffered = {partition.tp for partition in state.buffer}
    starts_by_node: dict[int, dict[TopicPartition, FetchStart]] = {}
    for tp, partition in state.assigned.items():
        has_position = partition.state is FETCHING
        if not has_position or partition.paused or partition.pending_revocation or tp in buffered:
            continue
        leader = state.cluster.leader(tp)
        if leader is None:
            state.metadata_update_requested = True
        elif leader.node not in state.pending_fetch_nodes:
            starts_by_node.setdefault(leader.node, {})[tp] = FetchStart(partition.offset, leader.epoch)
    for node_id, fetch_starts in starts_by_node.items():
        _send_fetch(state, node_id, fetch_starts, out)


def _send_fetch(
    state: JavaState, node_id: int, partitions: dict[TopicPartition, FetchStart], out: Out
) -> None:
    """Send a Fetch of `partitions`; in a fetch session, list only what changed since the previous request."""
    session = state.sessions.get(node_id) or state.sessions.setdefault(node_id, FetchSessionHandler())
    is_full, session_partitions = session.epoch <= 0, session.partitions
    included, forgotten = partitions, []
    if not is_full:
        included = {tp: start for tp, start in partitions.items() if session_partitions.get(tp) != start}
        forgotten = [tp for tp in session_partitions if tp not in partitions]
    request = fetch_request(
        included,
        state.cluster,
        wait_ms=state.fetch_wait_ms,
        isolation=state.isolation,
        session=(session.id, session.epoch),
        forgotten=forgotten,
        rack=state.config.rack or "",
    )
    session.partitions = partitions
    state.pending_fetch_nodes.add(node_id)
    send_request(state, node_address(state, node_id), request, out, (node_id, is_full, partitions))


def on_fetch_response(
    state: JavaState, entry: InFlightRequest, response: FetchResponse | None, out: Out
) -> None:
    """Update the fetch session, then buffer the records of each partition.

    The function follows FetchSessionHandler.handleResponse. `response` is None for a lost connection.
    """
    node_id, is_full, fetch_starts = cast("tuple[int, bool, dict[TopicPartition, FetchStart]]", entry.context)
    state.pending_fetch_nodes.discard(node_id)
    session = state.sessions.setdefault(node_id, FetchSessionHandler())
    if response is None:
        session.epoch, session.partitions = 0, {}
        return
    if response.error_code:
        session.id = 0 if response.error_code == E.FETCH_SESSION_ID_NOT_FOUND else session.id
        session.epoch, session.partitions = 0, {}
        return
    if response.session_id == 0:
        session.id, session.epoch, session.partitions = 0, 0, {}
    else:
        session.id, session.epoch = response.session_id, 1 if is_full else session.epoch + 1
    for tp, data in parse_fetch(response, state.cluster):
        if tp not in fetch_starts:
            continue
        offset = fetch_starts[tp].offset
        fetched = (
            FetchedRecords([], offset, -1)
            if data.error_code
            else read_records(tp, data, offset, committed=state.isolation == 1)
        )
        if data.error_code or fetched.position > offset:
            state.buffer.append(JavaCompletedFetch(tp, offset, fetched, data.error_code))


def collect_fetch(state: JavaState, max_records: int) -> tuple[ModelRecord, ...]:
    """Return up to `max_records` buffered records.

    Buffered data that does not start at its partition's position is dropped.
    """
    records: list[ModelRecord] = []
    paused_data: list[JavaCompletedFetch] = []
    while state.buffer and len(records) < max_records:
        completed = state.buffer.popleft()
        partition = state.assigned.get(completed.tp)
        if (
            partition is None
            or partition.state is not FETCHING
            or partition.pending_revocation
            or partition.offset != completed.offset
        ):
            continue
        if partition.paused:
            paused_data.append(completed)
        elif completed.error:
            _handle_fetch_error(state, completed)
        else:
            records += _fetch_records(state, completed, partition, max_records - len(records))
    state.buffer.extendleft(reversed(paused_data))
    return tuple(records)


def _fetch_records(
    state: JavaState, completed: JavaCompletedFetch, partition: TopicPartitionState, max_records: int
) -> list[ModelRecord]:
    """Return up to `max_records` of `completed`, advance the position, and buffer the remaining records."""
    fetched = completed.fetched
    returned, remaining = fetched.records[:max_records], fetched.records[max_records:]
    partition.offset = remaining[0].offset if remaining else fetched.position
    partition.epoch = fetched.epoch if fetched.epoch >= 0 else partition.epoch
    if remaining:
        state.buffer.appendleft(
            JavaCompletedFetch(
                completed.tp,
                partition.offset,
                FetchedRecords(remaining, fetched.position, fetched.epoch),
            )
        )
    elif not state.release.sorts_partitions:
        # When poll has returned all buffered records of a partition, kafka-clients 2.6 moves the partition to
        # the end of the assignment (movePartitionToEnd). The order matters in a rebalance: a member with too
        # many partitions keeps the first ones.
        state.assigned[completed.tp] = state.assigned.pop(completed.tp)
    return returned


def _handle_fetch_error(state: JavaState, completed: JavaCompletedFetch) -> None:
    """Handle the error code: reset the position, request metadata, make poll throw, or do nothing.

    Only UNKNOWN_SERVER_ERROR is ignored.
    """
    if completed.error == E.OFFSET_OUT_OF_RANGE:
        reset_by_policy(state, completed.tp)
    elif completed.error in _LEADER_ERRORS:
        state.metadata_update_requested = True
    elif completed.error != E.UNKNOWN_SERVER_ERROR:
        state.pending_exception = (
            exception_name(completed.error),
            f"fetching {completed.tp}: {exception_name(completed.error)}",
        )


def clear_unassigned_data(state: JavaState) -> None:
    """Drop buffered data of partitions that are not assigned.

    Follows clearBufferedDataForUnassignedPartitions.
    """
    state.buffer = type(state.buffer)(
        completed for completed in state.buffer if completed.tp in state.assigned
    )


def maybe_close_fetch_sessions(state: JavaState, out: Out) -> None:
    """Close each fetch session with a Fetch that has the final epoch, -1 (maybeCloseFetchSessions)."""
    for node_id, session in state.sessions.items():
        if session.id and node_id in state.cluster.brokers:
            request: FetchRequest = fetch_request({}, state.cluster, wait_ms=0, session=(session.id, -1))
            send_request(state, node_address(state, node_id), request, out)
    state.sessions = {}
