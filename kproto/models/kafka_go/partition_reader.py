"""reader.go, the type reader: the routine of one partition, which looks its leader up, seeks and fetches.

Rules that hold here:

* It starts with Dialer.DialLeader (Metadata on a connection of its own), asks for both ends of the log, and
  Seek asks for them again: four ListOffsets for each partition.
* One Fetch is open at a time; the next goes out when all records of the last are in the queue.
* Cancelled, it ends at once where it waits or pushes, and at the answer where a request is open: a rebalance
  waits for open fetches. Of the records of such an answer, Go's select puts each in the queue or gives up, as
  chance has it.
* What a Fetch answers that isn't known here goes to the application, and the fetch is tried again.
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
    Cluster,
    Wanted,
    fetch,
    list_offsets,
    listed_offsets,
    metadata_request,
    read,
)
from .state import (
    FIRST,
    LAST,
    MAX_ATTEMPTS,
    PUSHING,
    READING,
    Error,
    Generation,
    Out,
    PartitionReader,
    Queued,
    State,
    Where,
    backoff,
    hang_up,
    kafka_error,
    lane,
    network_error,
    send,
)

W = Where
BACKOFF_MIN_MS, BACKOFF_MAX_MS = 100, 1_000  # ReadBackoffMin, ReadBackoffMax
LOOKUP_MIN_MS, LOOKUP_MAX_MS = 100, 10_000  # Dialer.LookupPartition
OFFSETS_TIMEOUT_MS = 10_000  # reader.readOffsets
RTT_MS = 1_000  # time.go: defaultRTT

UNKNOWN = Cluster()
"""What a fetch needs to know of the cluster: nothing, as its versions have no ids of topics."""

_ENDS = {
    W.first: EARLIEST,
    W.last: LATEST,
    W.seek_first: EARLIEST,
    W.seek_last: LATEST,
    W.first_again: EARLIEST,
    W.last_again: LATEST,
}


def fetch_wait(max_wait_ms: int) -> int:
    """conn.go: how long the broker may wait: MaxWait without a round trip (a second, or a quarter)."""
    return max_wait_ms - (max_wait_ms // 4 if max_wait_ms < RTT_MS else RTT_MS)


def begin(state: State, reader: PartitionReader, out: Out) -> None:
    """reader.initialize: DialLeader first."""
    host, port = state.bootstrap[reader.attempt % len(state.bootstrap)]
    hang_up(out, reader.address)
    reader.address = lane(state, host, port, "look")
    reader.where = W.looking
    version = 6 if state.offered.get(3, (0, 6))[1] >= 6 else 1
    request = metadata_request([reader.tp.topic], create=version >= 4)
    reader.open = send(out, reader.address, request, version, OFFSETS_TIMEOUT_MS)


def cancel(state: State, reader: PartitionReader, out: Out) -> None:
    """The assignment ended: the routine does, too, unless it has to wait for an answer."""
    reader.cancelled = True
    if reader.open is None or reader.where is W.looking:
        end(reader, out)


def end(reader: PartitionReader, out: Out) -> None:
    hang_up(out, reader.address)
    reader.where, reader.open, reader.address, reader.at = W.ended, None, None, None
    reader.held.clear()


def wait(state: State, reader: PartitionReader, where: Where, until: int) -> None:
    """Do nothing until then."""
    made = state.generation
    assert made is not None
    reader.where, reader.at = where, until
    made.soonest = until if made.soonest is None else min(until, made.soonest)


def tick(state: State, made: Generation, now: int, out: Out) -> None:
    """The first wait is over, and perhaps others."""
    made.soonest = None
    for reader in made.readers:
        if reader.at is not None and now >= reader.at:
            reader.at = None
            if reader.where is W.before_start:
                begin(state, reader, out)
            else:
                _read(state, reader, now, out)
    made.soonest = min((one.at for one in made.readers if one.at is not None), default=None)


def answered(
    state: State, reader: PartitionReader, answer: Message | None, why: str, now: int, out: Out
) -> None:
    """The open request was answered, or (None) it failed."""
    reader.open = None
    if answer is None:
        _broke(state, reader, network_error(why), now, out)
    elif isinstance(answer, MetadataResponse):
        _looked_up(state, reader, answer, now, out)
    elif isinstance(answer, ListOffsetsResponse):
        _listed(state, reader, answer, now, out)
    elif isinstance(answer, FetchResponse):
        _fetched(state, reader, answer, now, out)


def push(state: State, reader: PartitionReader, now: int, out: Out) -> bool:
    """Put what a pushing reader holds into the queue, while there is room; True when something moved."""
    moved = False
    while reader.held and len(state.queue) < state.capacity:
        record = reader.held.popleft()
        reader.offset = record.offset + 1
        state.queue.append(Queued(reader.version, record))
        moved = True
    if not reader.held:
        reader.errors = 0
        _read(state, reader, now, out)
        return True
    return moved


# -- inside -----------------------------------------------------------------------------------------------


def _ask(state: State, reader: PartitionReader, where: Where, out: Out) -> None:
    reader.where = where
    assert reader.address is not None
    request = list_offsets({reader.tp: (_ENDS[where], -1)}, isolation=0)
    reader.open = send(out, reader.address, request, 1, OFFSETS_TIMEOUT_MS)


def _looked_up(state: State, reader: PartitionReader, answer: MetadataResponse, now: int, out: Out) -> None:
    cluster = Cluster()
    cluster.learn(answer)
    code = cluster.errors.get(reader.tp.topic, 0)
    leader = cluster.leader(reader.tp)
    if code:
        _start_again(state, reader, kafka_error(code), now, out)
    elif leader is None:  # LookupPartition goes on asking
        wait(state, reader, W.before_start, now + LOOKUP_MIN_MS)
    else:
        hang_up(out, reader.address)
        host, port = cluster.brokers[leader.node]
        reader.address = lane(state, host, port, "read")
        _ask(state, reader, W.first, out)


def _listed(state: State, reader: PartitionReader, answer: ListOffsetsResponse, now: int, out: Out) -> None:
    found = listed_offsets(answer)[reader.tp]
    if found.error:
        _start_again(state, reader, kafka_error(found.error), now, out)
        return
    match reader.where:
        case W.first | W.seek_first | W.first_again:
            reader.begin = found.offset
            following = {W.first: W.last, W.seek_first: W.seek_last, W.first_again: W.last_again}
            _ask(state, reader, following[reader.where], out)
        case W.last:
            reader.end = found.offset
            if reader.offset == FIRST or 0 <= reader.offset < reader.begin:
                reader.offset = reader.begin
            elif reader.offset == LAST:
                reader.offset = reader.end
            _ask(state, reader, W.seek_first, out)
        case W.seek_last:
            if not reader.begin <= reader.offset <= found.offset:
                _start_again(state, reader, None, now, out)
            else:
                reader.attempt, reader.errors = 0, 0
                _read(state, reader, now, out)
        case _:
            _out_of_range(state, reader, found.offset, now, out)


def _out_of_range(state: State, reader: PartitionReader, end_offset: int, now: int, out: Out) -> None:
    """reader.run: before the log's beginning it skips; behind its end it waits for the log to grow."""
    if reader.offset < reader.begin:
        reader.offset, reader.errors = reader.begin, 0
        _read(state, reader, now, out)
    elif reader.offset < end_offset:
        reader.errors = 0
        _read(state, reader, now, out)
    else:
        _wait_to_read(state, reader, now, out)


def _read(state: State, reader: PartitionReader, now: int, out: Out) -> None:
    if reader.cancelled:
        end(reader, out)
        return
    assert reader.address is not None
    wait = fetch_wait(state.config.fetch_wait_ms)
    highest = state.offered.get(1, (0, 10))[1]
    request = fetch(
        {reader.tp: Wanted(reader.offset, -1, state.max_bytes)},
        UNKNOWN,
        wait_ms=wait,
        max_bytes=state.max_bytes,
        isolation=1 if state.config.isolation == "read_committed" else 0,
    )
    reader.where = READING
    reader.open = send(out, reader.address, request, 10 if highest >= 10 else 5, wait + OFFSETS_TIMEOUT_MS)


def _fetched(state: State, reader: PartitionReader, answer: FetchResponse, now: int, out: Out) -> None:
    data = next((one for topic in answer.responses for one in topic.partitions), None)  # one was asked for
    code = answer.error_code or (data.error_code if data is not None else 0)
    if data is not None and not code:
        _take(state, reader, data, out)
    elif data is None or code == ErrorCode.REQUEST_TIMED_OUT:
        reader.errors = 0
        _read(state, reader, now, out)
    elif code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        _start_again(state, reader, None, now, out)
    elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
        _ask(state, reader, W.first_again, out)
    else:
        _report(state, reader, kafka_error(code))
        _wait_to_read(state, reader, now, out)


def _take(state: State, reader: PartitionReader, data: PartitionData, out: Out) -> None:
    found = read(reader.tp, data, reader.offset, committed=state.config.isolation == "read_committed")
    reader.held.extend(found.records)
    if not found.records:
        reader.offset = found.position
    reader.where = PUSHING
    if reader.cancelled:
        _push_or_give_up(state, reader)
        end(reader, out)


def _push_or_give_up(state: State, reader: PartitionReader) -> None:
    """Both cases of reader.sendMessage's select are ready: Go draws one, for each record."""
    while reader.held and len(state.queue) < state.capacity and state.config.random() < 0.5:
        state.queue.append(Queued(reader.version, reader.held.popleft()))


def _wait_to_read(state: State, reader: PartitionReader, now: int, out: Out) -> None:
    reader.errors += 1
    wait(state, reader, W.before_read, now + backoff(reader.errors, BACKOFF_MIN_MS, BACKOFF_MAX_MS))
    if reader.cancelled:
        end(reader, out)


def _broke(state: State, reader: PartitionReader, error: Error, now: int, out: Out) -> None:
    _start_again(state, reader, error if reader.where is not READING else None, now, out)


def _start_again(state: State, reader: PartitionReader, error: Error | None, now: int, out: Out) -> None:
    """reader.run's outer loop; `error` is told to the application after MaxAttempts."""
    hang_up(out, reader.address)
    reader.address, reader.open = None, None
    if reader.cancelled:
        end(reader, out)
        return
    if error is not None and reader.attempt >= MAX_ATTEMPTS:
        _report(state, reader, error)
    reader.attempt += 1
    wait(state, reader, W.before_start, now + backoff(reader.attempt, BACKOFF_MIN_MS, BACKOFF_MAX_MS))


def _report(state: State, reader: PartitionReader, error: Error) -> None:
    if len(state.queue) < state.capacity:
        state.queue.append(Queued(reader.version, None, error))
