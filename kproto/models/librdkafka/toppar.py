"""One partition's fetcher and its offsets (rdkafka_partition.c, rdkafka_offset.c).

* M194: Every start, stop, seek, pause and resume increments the partition's version. Records that were
  fetched under an older version are dropped. A pause resets the fetch position to the offset after the last
  delivered record.

* seek() before the fetcher has started fails with _STATE. seek() to STORED (-1000) fails with _INVALID_ARG.

* ListOffsets resolves a logical position, with one request per partition. The request is sent immediately
  after a seek, and after 100 ms if the committed offset is missing or an offset is out of range.

* If the last Fetch response had a log start offset, BEGINNING is resolved to that offset without a request.

* If a fetcher was started at STORED and has reached the partition's end without delivering a record, the end
  offset is stored when the fetcher stops. In a group no fetcher starts at STORED, because the committed
  offset is fetched first.
"""

from __future__ import annotations

from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...machine import ensure_state
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
    NO_OFFSET,
    STATE,
    STORED,
    TAIL_BASE,
    err2name,
    is_logical,
    offset2str,
)
from .err_texts import err2str
from .request import TRANSPORT, ErrAction, broker_address, err_action, send_request
from .state import (
    ACTIVE,
    INVALID_POS,
    TOPPAR_EDGES,
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


def start(state: LibrdkafkaState, toppar: Toppar, position: FetchPos, out: Out) -> None:
    """Start fetching at `position`. A logical offset, such as -1000, is resolved first.

    The C function is rd_kafka_toppar_fetch_start.
    """
    toppar.started, toppar.paused_by_library = True, False
    toppar.version += 1
    toppar.eof_offset = toppar.reported_eof_offset = INVALID
    toppar.stores_offset_at_stop = position.offset == STORED
    if position.offset == INVALID:
        why = f"no previously committed offset available: {NO_OFFSET[1]}"
        reset_offset(state, toppar, position, why, failed=True, out=out)
    elif is_logical(position.offset):
        resolve_logical_offset(state, toppar, position, out)
    else:
        toppar.fetch_position = position
        ensure_state(toppar, ACTIVE, TOPPAR_EDGES)


def stop(state: LibrdkafkaState, toppar: Toppar) -> None:
    """Stop fetching (rd_kafka_toppar_fetch_stop, rd_kafka_offset_store_stop)."""
    toppar.version += 1
    ended_without_record = toppar.stored_position.offset == INVALID and toppar.eof_offset > 0
    if toppar.stores_offset_at_stop and state.auto_store and ended_without_record:
        leader = state.cluster.leader(toppar.tp)
        toppar.stored_position = FetchPos(toppar.eof_offset, leader.epoch if leader else -1)
    toppar.started = False
    _stop_offset_timer(toppar)
    ensure_state(toppar, TopparFetchState.NONE, TOPPAR_EDGES)
    toppar.retry_at = None
    toppar.app_position, toppar.fetch_position = INVALID_POS, INVALID_POS


def seek(state: LibrdkafkaState, toppar: Toppar | None, offset: int, out: Out) -> tuple[str, str] | None:
    """Apply a seek; return the error if the seek is rejected, else None (rd_kafka_toppar_seek)."""
    if toppar is None or toppar.state is TopparFetchState.NONE:
        return STATE
    if offset == STORED:
        return INVALID_ARG
    toppar.version += 1
    toppar.app_position = INVALID_POS
    _stop_offset_timer(toppar)
    if offset < 0:
        resolve_logical_offset(state, toppar, FetchPos(offset), out)
    else:
        toppar.fetch_position = FetchPos(offset)
        ensure_state(toppar, ACTIVE, TOPPAR_EDGES)
    toppar.reported_eof_offset = INVALID
    return None


def _stop_offset_timer(toppar: Toppar) -> None:
    """Stop the timer of ListOffsets, but only in the state OFFSET_QUERY, as librdkafka does.

    In other states the timer keeps running, and sends ListOffsets when it expires.
    """
    if toppar.state is TopparFetchState.OFFSET_QUERY:
        toppar.query_at = None


def pause(state: LibrdkafkaState, toppar: Toppar, *, library: bool) -> None:
    """Pause fetching, and drop queued records.

    If records were delivered, the fetch position is reset to the offset after the last delivered record.

    Follows rd_kafka_toppar_pause_resume.
    """
    toppar.version += 1
    if library:
        toppar.paused_by_library = True
    else:
        toppar.paused_by_application = True
    if toppar.app_position.offset != INVALID:
        toppar.fetch_position = toppar.app_position


def resume(state: LibrdkafkaState, toppar: Toppar, *, library: bool) -> None:
    toppar.version += 1
    if library:
        toppar.paused_by_library = False
    else:
        toppar.paused_by_application = False


def resolve_logical_offset(state: LibrdkafkaState, toppar: Toppar, position: FetchPos, out: Out) -> None:
    """Resolve a logical offset (rd_kafka_toppar_next_offset_handle)."""
    toppar.fetch_position = position
    reset_offset(state, toppar, position, "update", failed=False, out=out)


def reset_offset(
    state: LibrdkafkaState, toppar: Toppar, position: FetchPos, why: str, failed: bool, out: Out
) -> None:
    """Reset the offset to `position`, or apply auto.offset.reset.

    auto.offset.reset applies if the offset of `position` is INVALID or if `failed` is true. `why` is the
    reason in the error message. The function follows rd_kafka_offset_reset.
    """
    target = state.reset if position.offset == INVALID or failed else position.offset
    if target == INVALID:
        text = f"{why} ({toppar.tp.topic} [{toppar.tp.partition}])"
        state.queue.append(ErrorOp(AUTO_OFFSET_RESET, text))
        ensure_state(toppar, TopparFetchState.NONE, TOPPAR_EDGES)
    elif target == BEGINNING and toppar.log_start_offset >= 0:
        toppar.fetch_position = FetchPos(toppar.log_start_offset)
        ensure_state(toppar, ACTIVE, TOPPAR_EDGES)
    elif target >= 0:
        toppar.fetch_position = FetchPos(target, position.epoch)
        ensure_state(toppar, ACTIVE, TOPPAR_EDGES)
    else:
        toppar.query_offset = target
        ensure_state(toppar, TopparFetchState.OFFSET_QUERY, TOPPAR_EDGES)
        request_offset(state, toppar, RESET_BACKOFF_MS if failed else 0, out)


def request_offset(state: LibrdkafkaState, toppar: Toppar, backoff_ms: int, out: Out) -> None:
    """Send ListOffsets for one partition, immediately or after `backoff_ms`.

    If the partition has no leader, QUERY_BACKOFF_MS replaces a `backoff_ms` of 0.

    Follows rd_kafka_toppar_offset_request.
    """
    leader = state.cluster.leader(toppar.tp)
    if leader is None and not backoff_ms:
        backoff_ms = QUERY_BACKOFF_MS
    if backoff_ms:
        query_at = state.now + backoff_ms
        if toppar.query_at is None or toppar.query_at > query_at:
            toppar.query_at = query_at
        state.waiting_toppars[toppar.tp] = toppar
        ensure_state(toppar, TopparFetchState.OFFSET_QUERY, TOPPAR_EDGES)
        return
    assert leader is not None
    toppar.query_at = None
    timestamp = END if toppar.query_offset <= TAIL_BASE else toppar.query_offset
    request = list_offsets_request({toppar.tp: (timestamp, leader.epoch)}, isolation=state.isolation)
    send_request(state, broker_address(state, leader.node), request, out, (toppar.tp, toppar.version))
    ensure_state(toppar, TopparFetchState.OFFSET_WAIT, TOPPAR_EDGES)


def run_offset_timers(state: LibrdkafkaState, out: Out) -> None:
    """Send ListOffsets for each partition whose timer is due, in descending order of topic and index.

    Partitions without a timer are removed from `waiting_toppars`. Follows rd_kafka_offset_query_tmr_cb.
    """
    for toppar in sorted(state.waiting_toppars.values(), key=lambda toppar: toppar.tp, reverse=True):
        if toppar.retry_at is not None and toppar.retry_at <= state.now:
            toppar.retry_at = None
        if toppar.query_at is None:
            if toppar.retry_at is None:
                del state.waiting_toppars[toppar.tp]
            continue
        if toppar.query_at > state.now:
            continue
        toppar.query_at = None
        request_offset(state, toppar, backoff_ms=0, out=out)


def on_list_offsets_response(
    state: LibrdkafkaState, entry: RequestBuf, response: ListOffsetsResponse | None, out: Out
) -> None:
    """Handle ListOffsets (rd_kafka_toppar_handle_Offset).

    If a seek or another call has changed the partition's version since the request, a second ListOffsets
    request follows after 500 ms. As in librdkafka 2.16.1, its result replaces the position even after a seek
    to an offset.
    """
    tp, version = cast("tuple[TopicPartition, int]", entry.context)
    toppar = ensure_toppar(state, tp)
    if version != toppar.version:
        request_offset(state, toppar, QUERY_BACKOFF_MS, out)
        return
    listed = parse_list_offsets(response).get(tp) if response is not None else None
    code = TRANSPORT if response is None else E.UNKNOWN_TOPIC_OR_PARTITION if listed is None else listed.error
    if code == E.NONE and listed is not None:
        offset = listed.offset
        if toppar.query_offset <= TAIL_BASE:
            tail_count = TAIL_BASE - toppar.query_offset
            offset = max(0, offset - tail_count)
        toppar.fetch_position = FetchPos(offset, listed.epoch)
        ensure_state(toppar, ACTIVE, TOPPAR_EDGES)
    elif err_action(code) & (ErrAction.RETRY | ErrAction.REFRESH) or code == E.OFFSET_NOT_AVAILABLE:
        request_offset(state, toppar, QUERY_BACKOFF_MS, out)
    else:
        text = f"Failed to query logical offset {offset2str(toppar.query_offset)}: {err2str(code)}"
        state.queue.append(ErrorOp(err2name(code), text))
        position, why = FetchPos(toppar.query_offset), "failed to query logical offset"
        reset_offset(state, toppar, position, why, failed=True, out=out)


def validate_position(state: LibrdkafkaState, toppar: Toppar, out: Out) -> None:
    """Send OffsetForLeaderEpoch to detect a truncated log. Releases since 2.1 do this.

    Follows rd_kafka_offset_validate.
    """
    leader = state.cluster.leader(toppar.tp)
    if (
        state.is_old_release
        or leader is None
        or toppar.state is not ACTIVE
        or toppar.fetch_position.epoch < 0
    ):
        return
    ensure_state(toppar, TopparFetchState.VALIDATE_EPOCH_WAIT, TOPPAR_EDGES)
    request = offset_for_leader_epoch_request({toppar.tp: (toppar.fetch_position.epoch, leader.epoch)})
    send_request(state, broker_address(state, leader.node), request, out, toppar.tp)


def on_offset_for_leader_epoch_response(
    state: LibrdkafkaState, entry: RequestBuf, response: OffsetForLeaderEpochResponse | None, out: Out
) -> None:
    """Handle the response that validates the position (rd_kafka_toppar_handle_OffsetForLeaderEpoch)."""
    toppar = state.partitions.get(cast("TopicPartition", entry.context))
    if toppar is None or toppar.state is not TopparFetchState.VALIDATE_EPOCH_WAIT:
        return
    ensure_state(toppar, ACTIVE, TOPPAR_EDGES)
    epoch_end = parse_offset_for_leader_epoch(response).get(toppar.tp) if response is not None else None
    if epoch_end is None or epoch_end.error:
        toppar.retry_at = state.now + QUERY_BACKOFF_MS
        state.waiting_toppars[toppar.tp] = toppar
    elif epoch_end.epoch < 0 or epoch_end.offset < 0:
        why = "no epoch found less or equal to the broker's"
        reset_offset(state, toppar, toppar.fetch_position, why, failed=True, out=out)
    elif epoch_end.offset < toppar.fetch_position.offset:
        position = FetchPos(epoch_end.offset, epoch_end.epoch)
        reset_offset(state, toppar, position, "partition log truncated", failed=False, out=out)
