"""Fetching: sessions by node (KIP-227), one request each, and what a poll takes out (M156 to M173)."""

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
    """sendFetches: for each node that has none open, what can be fetched and isn't buffered."""
    if len(state.pending_fetch_nodes) >= len(state.cluster.brokers):
        return
    buffered = {one.tp for one in state.buffer}
    wanted: dict[int, dict[TopicPartition, FetchStart]] = {}
    for tp, one in state.assigned.items():
        if one.fetch_state is not FETCHING or one.paused or one.pending_revocation or tp in buffered:
            continue
        found = state.cluster.leader(tp)
        if found is None:
            state.metadata_wanted = True
        elif found.node not in state.pending_fetch_nodes:
            wanted.setdefault(found.node, {})[tp] = FetchStart(one.offset, found.epoch)
    for number, partitions in wanted.items():
        _send_fetch(state, number, partitions, out)


def _send_fetch(
    state: JavaState, number: int, partitions: dict[TopicPartition, FetchStart], out: Out
) -> None:
    session = state.sessions.get(number) or state.sessions.setdefault(number, FetchSessionHandler())
    full, known = session.epoch <= 0, session.partitions
    said, gone = partitions, []
    if not full:
        said = {tp: one for tp, one in partitions.items() if known.get(tp) != one}
        gone = [tp for tp in known if tp not in partitions]
    request = fetch_request(
        said,
        state.cluster,
        wait_ms=state.config.fetch_wait_ms,
        isolation=state.isolation,
        session=(session.id, session.epoch),
        forgotten=gone,
        rack=state.config.rack or "",
    )
    session.partitions = partitions
    state.pending_fetch_nodes.add(number)
    send_request(state, node_address(state, number), request, out, (number, full, partitions))


def on_fetch_response(
    state: JavaState, entry: InFlightRequest, response: FetchResponse | None, out: Out
) -> None:
    """FetchSessionHandler.handleResponse, then each partition into the buffer."""
    number, full, asked = cast("tuple[int, bool, dict[TopicPartition, FetchStart]]", entry.context)
    state.pending_fetch_nodes.discard(number)
    session = state.sessions.setdefault(number, FetchSessionHandler())
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
        session.id, session.epoch = response.session_id, 1 if full else session.epoch + 1
    for tp, data in parse_fetch(response, state.cluster):
        if tp not in asked:
            continue
        offset = asked[tp].offset
        got = (
            FetchedRecords([], offset, -1)
            if data.error_code
            else read_records(tp, data, offset, committed=state.isolation == 1)
        )
        if data.error_code or got.position > offset:
            state.buffer.append(JavaCompletedFetch(tp, offset, got, data.error_code))


def has_buffered(state: JavaState) -> bool:
    return bool(state.buffer)


def collect_fetch(state: JavaState, limit: int) -> tuple[ModelRecord, ...]:
    """fetchedRecords: up to max.poll.records; what isn't at its position any more is dropped."""
    found: list[ModelRecord] = []
    keep: list[JavaCompletedFetch] = []
    while state.buffer and len(found) < limit:
        one = state.buffer.popleft()
        here = state.assigned.get(one.tp)
        if (
            here is None
            or here.fetch_state is not FETCHING
            or here.pending_revocation
            or here.offset != one.offset
        ):
            continue
        if here.paused:
            keep.append(one)
        elif one.error:
            _handle_fetch_error(state, one)
        else:
            given = one.fetched.records[: limit - len(found)]
            rest = one.fetched.records[len(given) :]
            found += given
            here.offset = rest[0].offset if rest else one.fetched.position
            here.epoch = one.fetched.epoch if one.fetched.epoch >= 0 else here.epoch
            if rest:
                state.buffer.appendleft(
                    JavaCompletedFetch(
                        one.tp, here.offset, FetchedRecords(rest, one.fetched.position, one.fetched.epoch)
                    )
                )
            elif (
                not state.release.sorts_partitions
            ):  # movePartitionToEnd: what was read is what it gives up first
                state.assigned[one.tp] = state.assigned.pop(one.tp)
    state.buffer.extendleft(reversed(keep))
    return tuple(found)


def _handle_fetch_error(state: JavaState, one: JavaCompletedFetch) -> None:
    if one.error == E.OFFSET_OUT_OF_RANGE:
        reset_by_policy(state, one.tp)
    elif one.error in _LEADER_ERRORS:
        state.metadata_wanted = True
    elif one.error != E.UNKNOWN_SERVER_ERROR:
        state.pending_exception = (
            exception_name(one.error),
            f"fetching {one.tp}: {exception_name(one.error)}",
        )


def clear_unassigned_data(state: JavaState) -> None:
    """clearBufferedDataForUnassignedPartitions."""
    state.buffer = type(state.buffer)(one for one in state.buffer if one.tp in state.assigned)


def maybe_close_fetch_sessions(state: JavaState, out: Out) -> None:
    """maybeCloseFetchSessions: one last Fetch with the final epoch."""
    for number, session in state.sessions.items():
        if session.id and number in state.cluster.brokers:
            request: FetchRequest = fetch_request({}, state.cluster, wait_ms=0, session=(session.id, -1))
            send_request(state, node_address(state, number), request, out)
    state.sessions = {}
