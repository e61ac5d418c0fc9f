"""One partition's fetcher: rdkafka_partition.c and rdkafka_offset.c.

* Every start, stop, seek, pause and resume raises the partition's version: what was fetched or queued under
  an older one is dropped. A pause goes back to what the application has had.
* seek() to a partition whose fetcher hasn't started is _STATE, to STORED (-1000) _INVALID_ARG.
* A position without a number is looked up by ListOffsets, one request per partition: after 100 ms when it
  comes from a missing or wrong offset, at once when somebody asked for it. The log's start that the last
  fetch told is taken without asking.
* A stop stores the end of a partition that was read to its end and never gave a record; but only where the
  fetcher itself was started at STORED, and a group asks for the committed offset before it starts one.
"""

from __future__ import annotations

from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.list_offsets import ListOffsetsResponse
from ...messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from ..common import (
    list_offsets_request,
    offset_for_leader_epoch_request,
    parse_list_offsets,
    parse_offset_for_leader_epoch,
)
from .constants import (
    AUTO_OFFSET_RESET,
    BEGINNING,
    END,
    INVALID,
    INVALID_ARG,
    STATE,
    STORED,
    TAIL_BASE,
    err2name,
    is_logical,
)
from .request import TRANSPORT, ErrAction, broker_address, err_action, send_request
from .state import (
    ACTIVE,
    INVALID_POS,
    ErrorOp,
    FetchPos,
    LibrdkafkaState,
    Out,
    RequestBuf,
    Toppar,
    TopparFetchState,
    ensure_toppar,
)

QUERY_BACKOFF_MS = 500
RESET_BACKOFF_MS = 100


def start(state: LibrdkafkaState, one: Toppar, position: FetchPos, out: Out) -> None:
    """rd_kafka_toppar_fetch_start."""
    one.started, one.paused_by_library = True, False
    one.version += 1
    one.eof_offset = one.reported_eof_offset = INVALID
    one.stores_offset_at_stop = position.offset == STORED
    if position.offset == INVALID:
        reset_offset(
            state, one, position, f"no previously committed offset available: {err2name(0)}", True, out
        )
    elif is_logical(position.offset):
        resolve_logical_offset(state, one, position, out)
    else:
        one.fetch_position, one.fetch_state = position, ACTIVE


def stop(state: LibrdkafkaState, one: Toppar) -> None:
    """rd_kafka_toppar_fetch_stop, with rd_kafka_offset_store_stop."""
    one.version += 1
    if (
        one.stores_offset_at_stop
        and state.auto_store
        and one.stored_position.offset == INVALID
        and one.eof_offset > 0
    ):
        found = state.cluster.leader(one.tp)
        one.stored_position = FetchPos(one.eof_offset, found.epoch if found else -1)
    one.started, one.fetch_state = False, TopparFetchState.NONE
    one.query_at, one.retry_at = None, None
    one.app_position, one.fetch_position = INVALID_POS, INVALID_POS


def seek(state: LibrdkafkaState, one: Toppar | None, offset: int, out: Out) -> tuple[str, str] | None:
    """rd_kafka_toppar_seek; answers the error."""
    if one is None or one.fetch_state is TopparFetchState.NONE:
        return STATE
    if offset == STORED:
        return INVALID_ARG
    one.version += 1
    one.app_position, one.query_at = INVALID_POS, None
    if offset < 0:
        resolve_logical_offset(state, one, FetchPos(offset), out)
    else:
        one.fetch_position, one.fetch_state = FetchPos(offset), ACTIVE
    one.reported_eof_offset = INVALID
    return None


def pause(state: LibrdkafkaState, one: Toppar, *, library: bool) -> None:
    """rd_kafka_toppar_pause_resume: go back to what the application has had, and drop what is queued."""
    one.version += 1
    if library:
        one.paused_by_library = True
    else:
        one.paused_by_application = True
    if one.app_position.offset != INVALID:
        one.fetch_position = one.app_position


def resume(state: LibrdkafkaState, one: Toppar, *, library: bool) -> None:
    one.version += 1
    if library:
        one.paused_by_library = False
    else:
        one.paused_by_application = False


def resolve_logical_offset(state: LibrdkafkaState, one: Toppar, position: FetchPos, out: Out) -> None:
    """rd_kafka_toppar_next_offset_handle for a logical offset."""
    one.fetch_position = position
    reset_offset(state, one, position, "update", False, out)


def reset_offset(state: LibrdkafkaState, one: Toppar, at: FetchPos, why: str, failed: bool, out: Out) -> None:
    """rd_kafka_offset_reset: by auto.offset.reset after a failure, else where somebody asked to go."""
    target = state.reset if at.offset == INVALID or failed else at.offset
    if target == INVALID:
        text = f"{why} ({one.tp.topic} [{one.tp.partition}])"
        state.queue.append(ErrorOp(AUTO_OFFSET_RESET, text))
        one.fetch_state = TopparFetchState.NONE
    elif target == BEGINNING and one.log_start_offset >= 0:
        one.fetch_position, one.fetch_state = FetchPos(one.log_start_offset), ACTIVE
    elif target >= 0:
        one.fetch_position, one.fetch_state = FetchPos(target, at.epoch), ACTIVE
    else:
        one.query_offset, one.fetch_state = target, TopparFetchState.OFFSET_QUERY
        request_offset(state, one, RESET_BACKOFF_MS if failed else 0, out)


def request_offset(state: LibrdkafkaState, one: Toppar, backoff_ms: int, out: Out) -> None:
    """rd_kafka_toppar_offset_request: ListOffsets for this partition alone."""
    leader = state.cluster.leader(one.tp)
    if leader is None and not backoff_ms:
        backoff_ms = QUERY_BACKOFF_MS
    if backoff_ms:
        at = state.now + backoff_ms
        if one.query_at is None or one.query_at > at:
            one.query_at = at
        state.waiting_toppars[one.tp] = one
        one.fetch_state = TopparFetchState.OFFSET_QUERY
        return
    assert leader is not None
    one.query_at = None
    timestamp = END if one.query_offset <= TAIL_BASE else one.query_offset
    request = list_offsets_request({one.tp: (timestamp, leader.epoch)}, isolation=state.isolation)
    send_request(state, broker_address(state, leader.node), request, out, (one.tp, one.version))
    one.fetch_state = TopparFetchState.OFFSET_WAIT


def run_offset_timers(state: LibrdkafkaState, out: Out) -> None:
    """rd_kafka_offset_query_tmr_cb, for each partition whose timer fired; the last started first."""
    for one in sorted(state.waiting_toppars.values(), key=lambda one: one.tp, reverse=True):
        if one.retry_at is not None and one.retry_at <= state.now:
            one.retry_at = None
        if one.query_at is None:
            if one.retry_at is None:
                del state.waiting_toppars[one.tp]
            continue
        if one.query_at > state.now:
            continue
        one.query_at = None
        request_offset(state, one, 0, out)


def on_list_offsets_response(
    state: LibrdkafkaState, entry: RequestBuf, response: ListOffsetsResponse | None, out: Out
) -> None:
    """rd_kafka_toppar_handle_Offset."""
    tp, version = cast("tuple[TopicPartition, int]", entry.context)
    one = ensure_toppar(state, tp)
    if version != one.version:
        if one.fetch_state is TopparFetchState.OFFSET_WAIT:
            request_offset(state, one, QUERY_BACKOFF_MS, out)
        return
    got = parse_list_offsets(response).get(tp) if response is not None else None
    code = TRANSPORT if response is None else E.UNKNOWN_TOPIC_OR_PARTITION if got is None else got.error
    if code == E.NONE and got is not None:
        offset = got.offset
        if one.query_offset <= TAIL_BASE:
            offset = max(0, offset - (TAIL_BASE - one.query_offset))
        one.fetch_position, one.fetch_state = FetchPos(offset, got.epoch), ACTIVE
    elif err_action(code) & (ErrAction.RETRY | ErrAction.REFRESH) or code == E.OFFSET_NOT_AVAILABLE:
        request_offset(state, one, QUERY_BACKOFF_MS, out)
    else:
        name = err2name(code)
        state.queue.append(ErrorOp(name, f"Failed to query logical offset: {name}"))
        reset_offset(state, one, FetchPos(one.query_offset), "failed to query logical offset", True, out)


def validate_position(state: LibrdkafkaState, one: Toppar, out: Out) -> None:
    """rd_kafka_offset_validate: does the leader still have what was read? Not before 2.1."""
    leader = state.cluster.leader(one.tp)
    if (
        state.is_old_release
        or leader is None
        or one.fetch_state is not ACTIVE
        or one.fetch_position.epoch < 0
    ):
        return
    one.fetch_state = TopparFetchState.VALIDATE_EPOCH_WAIT
    request = offset_for_leader_epoch_request({one.tp: (one.fetch_position.epoch, leader.epoch)})
    send_request(state, broker_address(state, leader.node), request, out, one.tp)


def on_offset_for_leader_epoch_response(
    state: LibrdkafkaState, entry: RequestBuf, response: OffsetForLeaderEpochResponse | None, out: Out
) -> None:
    """rd_kafka_toppar_handle_OffsetForLeaderEpoch."""
    one = state.partitions.get(cast("TopicPartition", entry.context))
    if one is None or one.fetch_state is not TopparFetchState.VALIDATE_EPOCH_WAIT:
        return
    one.fetch_state = ACTIVE
    got = parse_offset_for_leader_epoch(response).get(one.tp) if response is not None else None
    if got is None or got.error:
        one.retry_at = state.now + QUERY_BACKOFF_MS
        state.waiting_toppars[one.tp] = one
    elif got.epoch < 0 or got.offset < 0:
        reset_offset(
            state, one, one.fetch_position, "no epoch found less or equal to the broker's", True, out
        )
    elif got.offset < one.fetch_position.offset:
        reset_offset(state, one, FetchPos(got.offset, got.epoch), "partition log truncated", False, out)
