"""Fetching: one request at a time per broker, for all partitions fetched there (rdkafka_fetcher.c).

* No fetch sessions. A partition is asked for while fewer than queued.min.messages of it wait in the queue.
* What comes goes into the queue under the partition's version, and the next fetch goes out at once.
* The end of a partition is an event, each time it is reached (enable.partition.eof).
* OFFSET_OUT_OF_RANGE resets; an error of the leader asks for metadata and waits fetch.error.backoff.ms. Who
  may not read waits ten times as long.
"""

from __future__ import annotations

from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.fetch import FetchResponse, PartitionData
from ..common import FetchStart, fetch_request, metadata_request, parse_fetch, read_records
from . import toppar
from .constants import INVALID, err2name
from .request import any_usable_broker, broker_address, send_request
from .state import (
    ACTIVE,
    EofOp,
    ErrorOp,
    FetchOp,
    FetchPos,
    LibrdkafkaState,
    Out,
    RequestBuf,
    Toppar,
    ensure_toppar,
)

ERROR_BACKOFF_MS = 500
FORBIDDEN_BACKOFF_MS = 10 * ERROR_BACKOFF_MS  # rd_kafka_toppar_fetch_backoff
QUEUED_MIN = 100_000
_LEADER_ERRORS = {
    E.OFFSET_NOT_AVAILABLE,
    E.NOT_LEADER_OR_FOLLOWER,
    E.LEADER_NOT_AVAILABLE,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.REPLICA_NOT_AVAILABLE,
    E.KAFKA_STORAGE_ERROR,
    E.FENCED_LEADER_EPOCH,
    E.UNKNOWN_LEADER_EPOCH,
    E.BROKER_NOT_AVAILABLE,
    E.UNKNOWN_TOPIC_ID,
}


def fetch_toppars(state: LibrdkafkaState, out: Out) -> None:
    """rd_kafka_broker_fetch_toppars: a fetch to every broker that has none open."""
    if len(state.fetching_brokers) >= len(state.cluster.brokers):
        return
    enough = state.option("queued.min.messages", QUEUED_MIN)
    wanted: dict[int, dict[TopicPartition, FetchStart]] = {}
    for tp in state.assignment:
        one = state.partitions[tp]
        if not one.fetchable or one.queued >= enough:
            continue
        if one.retry_at is not None and one.retry_at > state.now:
            continue
        found = state.cluster.leader(tp)
        if found is not None and found.node not in state.fetching_brokers:
            wanted.setdefault(found.node, {})[tp] = FetchStart(one.fetch_position.offset, found.epoch)
    for node, partitions in wanted.items():
        state.fetching_brokers.add(node)
        versions = {tp: state.partitions[tp].version for tp in partitions}
        request = fetch_request(
            partitions,
            state.cluster,
            wait_ms=state.config.fetch_wait_ms,
            isolation=state.isolation,
            rack=state.config.rack or "",
        )
        send_request(state, broker_address(state, node), request, out, (node, versions))


def on_fetch_response(
    state: LibrdkafkaState, entry: RequestBuf, response: FetchResponse | None, out: Out
) -> None:
    """rd_kafka_broker_fetch_reply; no answer is a broken connection."""
    node, versions = cast("tuple[int, dict[TopicPartition, int]]", entry.context)
    state.fetching_brokers.discard(node)
    if response is None:
        state.broken_brokers.add(node)
        _back_off(state, list(versions))
        _request_leaders(state, list(versions), out)
        return
    wrong: list[TopicPartition] = []
    for tp, data in parse_fetch(response, state.cluster):
        one = ensure_toppar(state, tp)
        if versions.get(tp) != one.version or one.fetch_state is not ACTIVE:
            continue
        if data.error_code:
            _handle_partition_error(state, one, data, wrong, out)
        else:
            _handle_partition(state, one, data, node)
    if response.error_code:
        _back_off(state, list(versions))
    if wrong:
        _request_leaders(state, wrong, out)


def _handle_partition(state: LibrdkafkaState, one: Toppar, data: PartitionData, node: int) -> None:
    """rd_kafka_fetch_reply_handle_partition."""
    one.authorization_failed = False
    one.log_start_offset = data.log_start_offset
    offset = one.fetch_position.offset
    end = (
        data.last_stable_offset
        if state.isolation == 1 and data.last_stable_offset >= 0
        else data.high_watermark
    )
    if offset == end and one.reported_eof_offset != end:
        # It has asked from the end on: the answer that brought the last records doesn't say that they were.
        one.reported_eof_offset = end
        state.queue.append(EofOp(one.tp, one.version, end, node, data.high_watermark))
        return
    if data.records:
        got = read_records(one.tp, data, offset, committed=state.isolation == 1)
        if got.records:
            state.queue.append(FetchOp(one.tp, one.version, tuple(got.records), got.epoch))
            one.queued += len(got.records)
        if got.position > offset:
            one.fetch_position = FetchPos(got.position, got.epoch)


def _handle_partition_error(
    state: LibrdkafkaState, one: Toppar, data: PartitionData, wrong: list[TopicPartition], out: Out
) -> None:
    code = data.error_code
    if code == E.OFFSET_OUT_OF_RANGE:
        one.log_start_offset = INVALID
        toppar.reset_offset(
            state,
            one,
            one.fetch_position,
            "fetch failed due to requested offset not available on the broker",
            True,
            out,
        )
        return
    forbidden = code == E.TOPIC_AUTHORIZATION_FAILED
    one.retry_at = state.now + (FORBIDDEN_BACKOFF_MS if forbidden else ERROR_BACKOFF_MS)
    state.waiting_toppars[one.tp] = one
    if code in _LEADER_ERRORS:
        wrong.append(one.tp)
    elif not one.authorization_failed:
        one.authorization_failed = forbidden
        name = err2name(code)
        state.queue.append(ErrorOp(name, f"Fetch from broker failed: {one.tp}: {name}"))


def _back_off(state: LibrdkafkaState, partitions: list[TopicPartition]) -> None:
    for tp in partitions:
        one = ensure_toppar(state, tp)
        one.retry_at = state.now + ERROR_BACKOFF_MS
        state.waiting_toppars[tp] = one


def _request_leaders(state: LibrdkafkaState, partitions: list[TopicPartition], out: Out) -> None:
    topics = sorted({tp.topic for tp in partitions})
    send_request(state, any_usable_broker(state), metadata_request(topics), out, "watch")
