"""Fetching: one request at a time per broker, for all partitions of the broker (rdkafka_fetcher.c).

* M165: The client does not use fetch sessions.

* M194: A partition is fetched while fewer than queued.min.messages of its records are queued.

* Records are queued with the partition's version (the version barrier of `toppar`). Then the next Fetch is
  sent, without waiting for a poll.

* With enable.partition.eof, an event is queued each time the consumer reaches a partition's end.

* OFFSET_OUT_OF_RANGE resets the offset. After an error that concerns the leader, the consumer requests
  metadata, and the partition backs off for fetch.error.backoff.ms. After a failed authorization, the backoff
  is ten times as long.
"""

from __future__ import annotations

from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.fetch import FetchResponse, PartitionData
from ..common import FetchStart, fetch_request, metadata_request, parse_fetch, read_records
from . import toppar
from .constants import INVALID, err2name
from .err_texts import err2str
from .metadata import FOR_WATCH
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

# Default of fetch.error.backoff.ms.
ERROR_BACKOFF_MS = 500
# Backoff after a failed authorization (rd_kafka_toppar_fetch_backoff).
FORBIDDEN_BACKOFF_MS = 10 * ERROR_BACKOFF_MS
# Default of queued.min.messages.
QUEUED_MIN = 100_000
# The errors after which the partition's leader is looked up again.
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
    """Send a Fetch to each broker that has none in flight (rd_kafka_broker_fetch_toppars)."""
    if len(state.fetching_brokers) >= len(state.cluster.brokers):
        return
    queued_min = state.option("queued.min.messages", QUEUED_MIN)
    partitions_by_node: dict[int, dict[TopicPartition, FetchStart]] = {}
    for tp in state.assignment:
        toppar_state = state.partitions[tp]
        if not toppar_state.fetchable or toppar_state.queued >= queued_min:
            continue
        if toppar_state.retry_at is not None and toppar_state.retry_at > state.now:
            continue
        leader = state.cluster.leader(tp)
        if leader is not None and leader.node not in state.fetching_brokers:
            partitions_by_node.setdefault(leader.node, {})[tp] = FetchStart(
                toppar_state.fetch_position.offset, leader.epoch
            )
    for node, partitions in partitions_by_node.items():
        state.fetching_brokers.add(node)
        versions = {tp: state.partitions[tp].version for tp in partitions}
        request = fetch_request(
            partitions,
            state.cluster,
            wait_ms=state.fetch_wait_ms,
            isolation=state.isolation,
            rack=state.config.rack or "",
        )
        send_request(state, broker_address(state, node), request, out, (node, versions))


def on_fetch_response(
    state: LibrdkafkaState, entry: RequestBuf, response: FetchResponse | None, out: Out
) -> None:
    """Handle a Fetch response; None means that the connection was lost (rd_kafka_broker_fetch_reply)."""
    node, versions = cast("tuple[int, dict[TopicPartition, int]]", entry.context)
    state.fetching_brokers.discard(node)
    if response is None:
        state.broken_brokers.add(node)
        _back_off_partitions(state, list(versions))
        _request_leaders(state, list(versions), out)
        return
    leaderless: list[TopicPartition] = []
    for tp, data in parse_fetch(response, state.cluster):
        toppar_state = ensure_toppar(state, tp)
        if versions.get(tp) != toppar_state.version or toppar_state.state is not ACTIVE:
            continue
        if data.error_code:
            _handle_partition_error(state, toppar_state, data, node, leaderless, out)
        else:
            _handle_partition(state, toppar_state, data, node)
    if response.error_code:
        _back_off_partitions(state, list(versions))
    if leaderless:
        _request_leaders(state, leaderless, out)


def _handle_partition(state: LibrdkafkaState, toppar_state: Toppar, data: PartitionData, node: int) -> None:
    """Queue one partition's records, or an event for its end (rd_kafka_fetch_reply_handle_partition)."""
    toppar_state.authorization_failed = False
    toppar_state.log_start_offset = data.log_start_offset
    offset = toppar_state.fetch_position.offset
    end = (
        data.last_stable_offset
        if state.isolation == 1 and data.last_stable_offset >= 0
        else data.high_watermark
    )
    if offset == end and toppar_state.reported_eof_offset != end:
        # The end of the partition is reported by a Fetch at the end offset, not by the Fetch of the last
        # records.
        toppar_state.reported_eof_offset = end
        state.queue.append(EofOp(toppar_state.tp, toppar_state.version, end, node, data.high_watermark))
        return
    if data.records:
        fetched = read_records(toppar_state.tp, data, offset, committed=state.isolation == 1)
        if fetched.records:
            state.queue.append(
                FetchOp(toppar_state.tp, toppar_state.version, tuple(fetched.records), fetched.epoch)
            )
            toppar_state.queued += len(fetched.records)
        if fetched.position > offset:
            toppar_state.fetch_position = FetchPos(fetched.position, fetched.epoch)


def _handle_partition_error(
    state: LibrdkafkaState,
    toppar_state: Toppar,
    data: PartitionData,
    node: int,
    leaderless: list[TopicPartition],
    out: Out,
) -> None:
    """Reset the offset if it is out of range; otherwise back off, and report the error.

    An error that concerns the leader is not reported: the partition is appended to `leaderless`.
    """
    code = data.error_code
    if code == E.OFFSET_OUT_OF_RANGE:
        toppar_state.log_start_offset = INVALID
        toppar.reset_offset(
            state,
            toppar_state,
            toppar_state.fetch_position,
            "fetch failed due to requested offset not available on the broker",
            failed=True,
            out=out,
        )
        return
    is_forbidden = code == E.TOPIC_AUTHORIZATION_FAILED
    toppar_state.retry_at = state.now + (FORBIDDEN_BACKOFF_MS if is_forbidden else ERROR_BACKOFF_MS)
    state.waiting_toppars[toppar_state.tp] = toppar_state
    if code in _LEADER_ERRORS:
        leaderless.append(toppar_state.tp)
    elif not toppar_state.authorization_failed:
        toppar_state.authorization_failed = is_forbidden
        position = toppar_state.fetch_position
        where = "" if is_forbidden else f" at offset {position.offset} (leader epoch {position.epoch})"
        text = f"Fetch from broker {node} failed{where}: {err2str(code)}"
        state.queue.append(ErrorOp(err2name(code), text))


def _back_off_partitions(state: LibrdkafkaState, partitions: list[TopicPartition]) -> None:
    """Fetch these partitions again only after fetch.error.backoff.ms."""
    for tp in partitions:
        toppar_state = ensure_toppar(state, tp)
        toppar_state.retry_at = state.now + ERROR_BACKOFF_MS
        state.waiting_toppars[tp] = toppar_state


def _request_leaders(state: LibrdkafkaState, partitions: list[TopicPartition], out: Out) -> None:
    """Request metadata of the partitions' topics, which names the current leaders."""
    topics = sorted({tp.topic for tp in partitions})
    send_request(state, any_usable_broker(state), metadata_request(topics), out, FOR_WATCH)
