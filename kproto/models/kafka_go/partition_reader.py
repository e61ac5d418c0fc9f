"""The type reader of reader.go: one goroutine per partition, which finds the leader, seeks and fetches.

* A reader starts with Dialer.DialLeader (Metadata on its own connection), and requests the log's start and
  end. Then it calls Seek, which requests both again. So each reader sends four ListOffsets requests.

* One Fetch is in flight at a time. The next Fetch is sent when all records of the previous one are queued.

* A cancelled reader ends immediately if it is looking up the leader, is backing off, or waits for space in
  the record queue. Otherwise it ends when the response to its request arrives. So a rebalance waits for the
  fetches in flight.

* In a cancelled reader, Go's select decides at random whether the next record of the last response is queued.
  When it does not queue a record, the reader drops this record and all later ones.

* A reader handles the Fetch errors REQUEST_TIMED_OUT, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER and
  OFFSET_OUT_OF_RANGE itself. Any other error code is returned to the application, and the Fetch is retried.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.fetch import FetchResponse, PartitionData
from ...messages.list_offsets import ListOffsetsResponse
from ...messages.metadata import MetadataResponse
from ...wire.message import Message
from ..common import (
    EARLIEST,
    LATEST,
    ClusterMetadata,
    FetchStart,
    fetch_request,
    list_offsets_request,
    metadata_request,
    parse_list_offsets,
    read_records,
)
from .state import (
    FIRST_OFFSET,
    LAST_OFFSET,
    MAX_ATTEMPTS,
    PUSHING,
    READING,
    Error,
    KafkaGoGeneration,
    KafkaGoState,
    Out,
    PartitionReader,
    ReaderMessage,
    ReaderPhase,
    backoff,
    close_connection,
    kafka_error,
    move_reader,
    network_error,
    new_connection,
    send_request,
)

W = ReaderPhase
# Defaults of ReadBackoffMin and ReadBackoffMax, in milliseconds.
BACKOFF_MIN_MS, BACKOFF_MAX_MS = 100, 1_000
# Bounds of the backoff in Dialer.LookupPartition, in milliseconds.
LOOKUP_MIN_MS, LOOKUP_MAX_MS = 100, 10_000
# Timeout of a request in reader.readOffsets, in milliseconds.
OFFSETS_TIMEOUT_MS = 10_000
# defaultRTT of time.go: the assumed time of a round trip, in milliseconds.
RTT_MS = 1_000

# The metadata for decoding Fetch responses is empty: kafka-go's Fetch versions have no topic ids.
NO_METADATA = ClusterMetadata()
# The size in bytes of a Fetch response with one message without key and value. kafka-go adds this size and
# the length of the topic's name to MaxBytes (Conn.fetchMinSize).
FETCH_MIN_SIZE = 58

_TIMESTAMPS = {
    W.FIRST_OFFSET: EARLIEST,
    W.LAST_OFFSET: LATEST,
    W.SEEK_FIRST: EARLIEST,
    W.SEEK_LAST: LATEST,
    W.RANGE_FIRST: EARLIEST,
    W.RANGE_LAST: LATEST,
}


def fetch_wait(max_wait_ms: int) -> int:
    """Return the max_wait_ms of a Fetch: MaxWait minus the time for a round trip (conn.go).

    A round trip is assumed to take one second, or a quarter of MaxWait if MaxWait is below one second.
    """
    return max_wait_ms - (max_wait_ms // 4 if max_wait_ms < RTT_MS else RTT_MS)


def initialize(state: KafkaGoState, reader: PartitionReader, out: Out) -> None:
    """Start the reader with DialLeader (reader.initialize)."""
    host, port = state.bootstrap[reader.attempt % len(state.bootstrap)]
    close_connection(out, reader.address)
    reader.address = new_connection(state, host, port, "look")
    move_reader(reader, W.LOOKING_UP)
    _, highest_version = state.offered.get(3, (0, 6))
    version = 6 if highest_version >= 6 else 1
    request = metadata_request([reader.tp.topic], create=version >= 4)
    reader.open = send_request(out, reader.address, request, version, OFFSETS_TIMEOUT_MS)


def cancel(state: KafkaGoState, reader: PartitionReader, out: Out) -> None:
    """Stop the reader at the end of its generation.

    A reader without a request in flight ends immediately, and so does a reader that is looking up the leader.
    Any other reader ends when the response to its request arrives.
    """
    reader.cancelled = True
    if reader.open is None or reader.state is W.LOOKING_UP:
        end(reader, out)


def end(reader: PartitionReader, out: Out) -> None:
    """End the reader: close its connection and drop the records that are not queued."""
    close_connection(out, reader.address)
    move_reader(reader, W.ENDED)
    reader.open, reader.address, reader.at = None, None, None
    reader.pending_records.clear()


def wait_until(state: KafkaGoState, reader: PartitionReader, phase: ReaderPhase, deadline: int) -> None:
    """Wait in `phase` until `deadline`."""
    generation = state.generation
    assert generation is not None
    move_reader(reader, phase)
    reader.at = deadline
    generation.next_reader_wakeup = (
        deadline if generation.next_reader_wakeup is None else min(deadline, generation.next_reader_wakeup)
    )


def run_timers(state: KafkaGoState, generation: KafkaGoGeneration, now: int, out: Out) -> None:
    """Continue the readers whose backoff has ended."""
    generation.next_reader_wakeup = None
    for reader in generation.readers:
        if reader.at is not None and now >= reader.at:
            reader.at = None
            if reader.state is W.RESTART_BACKOFF:
                initialize(state, reader, out)
            else:
                _send_fetch(state, reader, now, out)
    generation.next_reader_wakeup = min(
        (reader.at for reader in generation.readers if reader.at is not None), default=None
    )


def on_response(
    state: KafkaGoState, reader: PartitionReader, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Handle the response to the reader's request.

    `response` is None if the request failed. `failure` then says why.
    """
    reader.open = None
    if response is None:
        _on_connection_error(state, reader, network_error(failure), now, out)
    elif isinstance(response, MetadataResponse):
        _on_metadata_response(state, reader, response, now, out)
    elif isinstance(response, ListOffsetsResponse):
        _on_list_offsets_response(state, reader, response, now, out)
    elif isinstance(response, FetchResponse):
        _on_fetch_response(state, reader, response, now, out)


def push_records(state: KafkaGoState, reader: PartitionReader, now: int, out: Out) -> None:
    """Queue the reader's records while the queue has room. When all are queued, send the next Fetch."""
    while reader.pending_records and len(state.message_queue) < state.capacity:
        record = reader.pending_records.popleft()
        reader.offset = record.offset + 1
        state.message_queue.append(ReaderMessage(reader.assignment_version, record))
    if not reader.pending_records:
        reader.errors = 0
        _send_fetch(state, reader, now, out)


# -- inside -----------------------------------------------------------------------------------------------


def _request_offset(state: KafkaGoState, reader: PartitionReader, phase: ReaderPhase, out: Out) -> None:
    """Move to `phase`, and request the log offset that it needs (reader.readOffsets)."""
    move_reader(reader, phase)
    assert reader.address is not None
    request = list_offsets_request({reader.tp: (_TIMESTAMPS[phase], -1)}, isolation=0)
    reader.open = send_request(out, reader.address, request, 1, OFFSETS_TIMEOUT_MS)


def _on_metadata_response(
    state: KafkaGoState, reader: PartitionReader, response: MetadataResponse, now: int, out: Out
) -> None:
    cluster = ClusterMetadata()
    cluster.update(response)
    code = cluster.errors.get(reader.tp.topic, 0)
    leader = cluster.leader(reader.tp)
    if code:
        _restart(state, reader, kafka_error(code), now, out)
    elif leader is None:  # LookupPartition keeps asking.
        wait_until(state, reader, W.RESTART_BACKOFF, now + LOOKUP_MIN_MS)
    else:
        close_connection(out, reader.address)
        host, port = cluster.brokers[leader.node]
        reader.address = new_connection(state, host, port, "read")
        _request_offset(state, reader, W.FIRST_OFFSET, out)


def _on_list_offsets_response(
    state: KafkaGoState, reader: PartitionReader, response: ListOffsetsResponse, now: int, out: Out
) -> None:
    """Send the next ListOffsets request of initialize, Seek or an out-of-range check.

    After the last response of Seek, fetch if the offset is in the log or at its end, and restart otherwise.
    After the last response of an out-of-range check, call `_handle_out_of_range`. After an error in any of
    these responses, restart.
    """
    result = parse_list_offsets(response)[reader.tp]
    if result.error:
        _restart(state, reader, kafka_error(result.error), now, out)
        return
    match reader.state:
        case W.FIRST_OFFSET | W.SEEK_FIRST | W.RANGE_FIRST:
            reader.first_offset = result.offset
            next_phases = {
                W.FIRST_OFFSET: W.LAST_OFFSET,
                W.SEEK_FIRST: W.SEEK_LAST,
                W.RANGE_FIRST: W.RANGE_LAST,
            }
            _request_offset(state, reader, next_phases[reader.state], out)
        case W.LAST_OFFSET:
            reader.last_offset = result.offset
            if reader.offset == FIRST_OFFSET or 0 <= reader.offset < reader.first_offset:
                reader.offset = reader.first_offset
            elif reader.offset == LAST_OFFSET:
                reader.offset = reader.last_offset
            _request_offset(state, reader, W.SEEK_FIRST, out)
        case W.SEEK_LAST:
            if not reader.first_offset <= reader.offset <= result.offset:
                _restart(state, reader, None, now, out)
            else:
                reader.attempt, reader.errors = 0, 0
                _send_fetch(state, reader, now, out)
        case _:
            _handle_out_of_range(state, reader, result.offset, now, out)


def _handle_out_of_range(
    state: KafkaGoState, reader: PartitionReader, end_offset: int, now: int, out: Out
) -> None:
    """Handle OFFSET_OUT_OF_RANGE with the current start and end of the log (reader.run).

    Move an offset below the start to the start. Back off if the offset is at or above the end. Fetch any
    other offset again.
    """
    if reader.offset < reader.first_offset:
        reader.offset, reader.errors = reader.first_offset, 0
        _send_fetch(state, reader, now, out)
    elif reader.offset < end_offset:
        reader.errors = 0
        _send_fetch(state, reader, now, out)
    else:
        _back_off_read(state, reader, now, out)


def _send_fetch(state: KafkaGoState, reader: PartitionReader, now: int, out: Out) -> None:
    if reader.cancelled:
        end(reader, out)
        return
    assert reader.address is not None
    max_wait_ms = fetch_wait(state.fetch_wait_ms)
    _, highest_version = state.offered.get(1, (0, 10))
    max_bytes = state.max_bytes + FETCH_MIN_SIZE + len(reader.tp.topic.encode())
    request = fetch_request(
        {reader.tp: FetchStart(reader.offset, -1, max_bytes)},
        NO_METADATA,
        wait_ms=max_wait_ms,
        max_bytes=max_bytes,
        isolation=1 if state.config.isolation == "read_committed" else 0,
        log_start_offset=0,
    )
    move_reader(reader, READING)
    reader.open = send_request(
        out, reader.address, request, 10 if highest_version >= 10 else 5, max_wait_ms + OFFSETS_TIMEOUT_MS
    )


def _on_fetch_response(
    state: KafkaGoState, reader: PartitionReader, response: FetchResponse, now: int, out: Out
) -> None:
    # A reader requests a single partition, so the response contains at most one partition.
    data = next((partition for topic in response.responses for partition in topic.partitions), None)
    code = response.error_code or (data.error_code if data is not None else 0)
    if data is not None and not code:
        _buffer_records(state, reader, data, out)
    elif data is None or code == ErrorCode.REQUEST_TIMED_OUT:
        reader.errors = 0
        _send_fetch(state, reader, now, out)
    elif code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        _restart(state, reader, None, now, out)
    elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
        _request_offset(state, reader, W.RANGE_FIRST, out)
    else:
        _report_error(state, reader, kafka_error(code))
        _back_off_read(state, reader, now, out)


def _buffer_records(state: KafkaGoState, reader: PartitionReader, data: PartitionData, out: Out) -> None:
    """Keep the records of a Fetch response until the record queue has room for them."""
    fetched = read_records(
        reader.tp, data, reader.offset, committed=state.config.isolation == "read_committed"
    )
    reader.pending_records.extend(fetched.records)
    if not fetched.records:
        reader.offset = fetched.position
    move_reader(reader, PUSHING)
    if reader.cancelled:
        _push_records_randomly(state, reader)
        end(reader, out)


def _push_records_randomly(state: KafkaGoState, reader: PartitionReader) -> None:
    """Queue the records of a cancelled reader, but stop at a random record.

    In a cancelled reader, the select of sendMessage has two ready cases, of which Go picks one at random. One
    case queues the record, and the other returns.
    """
    while (
        reader.pending_records and len(state.message_queue) < state.capacity and state.config.random() < 0.5
    ):
        state.message_queue.append(ReaderMessage(reader.assignment_version, reader.pending_records.popleft()))


def _back_off_read(state: KafkaGoState, reader: PartitionReader, now: int, out: Out) -> None:
    """Repeat the Fetch after a backoff, which grows with each consecutive error.

    A cancelled reader ends instead.
    """
    reader.errors += 1
    wait_until(state, reader, W.READ_BACKOFF, now + backoff(reader.errors, BACKOFF_MIN_MS, BACKOFF_MAX_MS))
    if reader.cancelled:
        end(reader, out)


def _on_connection_error(
    state: KafkaGoState, reader: PartitionReader, error: Error, now: int, out: Out
) -> None:
    # The application does not receive connection errors of a Fetch.
    reported_error = error if reader.state is not READING else None
    _restart(state, reader, reported_error, now, out)


def _restart(state: KafkaGoState, reader: PartitionReader, error: Error | None, now: int, out: Out) -> None:
    """Start the reader again after a backoff (reader.run's outer loop).

    After MaxAttempts consecutive failures, `error` is returned to the application.
    """
    close_connection(out, reader.address)
    reader.address, reader.open = None, None
    if reader.cancelled:
        end(reader, out)
        return
    if error is not None and reader.attempt >= MAX_ATTEMPTS:
        _report_error(state, reader, error)
    reader.attempt += 1
    wait_until(
        state, reader, W.RESTART_BACKOFF, now + backoff(reader.attempt, BACKOFF_MIN_MS, BACKOFF_MAX_MS)
    )


def _report_error(state: KafkaGoState, reader: PartitionReader, error: Error) -> None:
    """Queue an error for the application. The error is dropped if the record queue is full."""
    if len(state.message_queue) < state.capacity:
        state.message_queue.append(ReaderMessage(reader.assignment_version, None, error))
