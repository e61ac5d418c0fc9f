"""The type Reader of reader.go: the record queue that the application reads, and the commit loop.

* Two queues connect the goroutines with the application, each with QueueCapacity entries: records
  (Reader.msgs) and commits (Reader.commits). A full record queue blocks the fetches. A full commit queue
  blocks ReadMessage.

* A record is dropped only if its assignment version is older than the current one. The version changes when
  the *next* generation begins, so records are delivered even between two generations.

* ReadMessage queues the commit of each record that it returns. Between generations, commits stay in the
  queue. The next generation commits them, even if another member owns the partition by then.

* Each commit is tried three times, whatever the error. After the third failure it is dropped (immediate mode)
  or kept for the next interval (interval mode).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...group.subscription import TopicPartition
from ...messages.offset_commit import OffsetCommitResponse
from ...wire.message import Message
from ..common import OffsetToCommit, commit_errors, offset_commit_request
from ..contract import CommitCalled, FinishCommit, FinishPoll, ModelRecord, RunCallback
from .partition_reader import push_records
from .state import (
    COMMIT_RETRIES,
    PUSHING,
    RUNNING,
    CommitRequest,
    ConsumerGroupPhase,
    Error,
    KafkaGoState,
    Out,
    ReaderCommitLoop,
    backoff,
    kafka_error,
    network_error,
    send_request,
)

# The timeout of the context that the application passes to CommitMessages, in milliseconds.
COMMIT_TIMEOUT_MS = 5_000
CLOSED = ("errors.errorString", "io: read/write on closed pipe")
DEADLINE_EXCEEDED = ("context.deadlineExceededError", "context deadline exceeded")
RETRY_MIN_MS, RETRY_MAX_MS = 100, 5_000


# -- the application --------------------------------------------------------------------------------------


def deliver_records(state: KafkaGoState, now: int, out: Out) -> None:
    """Answer the application's poll with queued records.

    The poll stands for FetchMessage or, if the Reader has a commit interval, for ReadMessage.

    The caller has just called `refill_queue`, so no goroutine can queue another record until one is taken.
    """
    if state.open_poll is None:
        return
    deadline, max_records = state.open_poll
    records: list[ModelRecord] = []
    error: Error | None = None
    took_entry = True
    while took_entry and error is None:
        took_entry = False
        while state.message_queue and len(records) < max_records and not _is_commit_queue_full(state):
            entry = state.message_queue.popleft()
            took_entry = True
            if entry.assignment_version < state.assignment_version:
                continue
            if entry.record is None:
                error = entry.error
                break
            records.append(entry.record)
            state.read_offsets[entry.record.partition] = entry.record.offset + 1
            if state.commit_ms is not None:
                state.commits.append(CommitRequest({entry.record.partition: entry.record.offset + 1}))
                merge_queued_commits(state)
        if took_entry:
            refill_queue(state, now, out)
    if records or error or state.closing or now >= deadline:
        state.open_poll = None
        out.append(FinishPoll(tuple(records), error))


def refill_queue(state: KafkaGoState, now: int, out: Out) -> None:
    """Let the partition readers queue their records."""
    if state.generation is None:
        return
    for reader in state.generation.readers:
        if reader.state is PUSHING:
            push_records(state, reader, now, out)


def _is_commit_queue_full(state: KafkaGoState) -> bool:
    return state.commit_ms is not None and len(state.commits) >= state.capacity


def commit_messages(state: KafkaGoState, event: CommitCalled, now: int, out: Out) -> None:
    """Commit the event's offsets or, if the event has none, the read position of each partition.

    Follows CommitMessages.
    """
    offsets = dict(state.read_offsets if event.offsets is None else event.offsets)
    if state.closing:
        out.append(FinishCommit(event.token, CLOSED))
        return
    commit = CommitRequest(offsets, event.token, now + COMMIT_TIMEOUT_MS)
    if state.commit_ms is not None and len(state.commits) < state.capacity:
        state.commits.append(CommitRequest(offsets))
        out.append(FinishCommit(event.token))
    else:
        state.blocked_commits.append(commit)
        unblock_commits(state, out)


def unblock_commits(state: KafkaGoState, out: Out) -> None:
    """Queue the blocked commits while the queue has room.

    With a commit interval, CommitMessages returns as soon as its commit is queued.
    """
    while state.blocked_commits and len(state.commits) < state.capacity:
        commit = state.blocked_commits.popleft()
        state.commits.append(commit)
        if state.commit_ms is not None:
            commit.deadline = None
            out.append(FinishCommit(commit.token))
            commit.token = None


def closed_commit(request: CommitRequest) -> FinishCommit:
    """Return the error that CommitMessages returns after Close."""
    return FinishCommit(request.token, CLOSED)


def commits_with_deadline(state: KafkaGoState) -> list[CommitRequest]:
    """Return the open calls of CommitMessages whose context has a deadline."""
    in_loop = state.generation.commits.replying_to if state.generation is not None else []
    if not (state.blocked_commits or state.commits or in_loop):
        return []
    return [
        request
        for request in (*state.blocked_commits, *state.commits, *in_loop)
        if request.deadline is not None
    ]


def expire_commits(state: KafkaGoState, now: int, out: Out) -> None:
    """End the CommitMessages calls whose context has expired.

    A queued commit stays in the queue, but its result is dropped. A commit that waits for space in the queue
    is dropped, so its offsets are never sent.
    """
    for commit in commits_with_deadline(state):
        assert commit.deadline is not None
        if now >= commit.deadline:
            out.append(FinishCommit(commit.token, DEADLINE_EXCEEDED))
            commit.token, commit.deadline = None, None
            if commit in state.blocked_commits:
                state.blocked_commits.remove(commit)


# -- the loop ---------------------------------------------------------------------------------------------


def merge_queued_commits(state: KafkaGoState) -> None:
    """Merge the queued commits, unless a commit is in flight (commitLoopInterval)."""
    loop = _commit_loop(state)
    if loop is not None and loop.ticker is not None and not loop.is_busy and not loop.ended:
        while state.commits:
            _merge_offsets(loop, state.commits.popleft().offsets)


def run_commit_loop(state: KafkaGoState, now: int, out: Out) -> bool:
    """Let the commit loop send, retry or drop its commits; return whether the loop has ended."""
    loop = _commit_loop(state)
    if loop is None or loop.ended or loop.open is not None:
        return False
    if loop.retry_at is not None:
        if now >= loop.retry_at or state.closing:
            loop.retry_at = None
            if state.closing:
                return _finish_commit(state, loop, CLOSED, out)
            return _send_commit(state, loop, out)
        return False
    if state.state is ConsumerGroupPhase.ENDING:
        while state.commits:
            commit = state.commits.popleft()
            _merge_offsets(loop, commit.offsets)
            loop.replying_to.append(commit)
        loop.is_final, loop.attempt = True, 0
        return _send_commit(state, loop, out)
    merge_queued_commits(state)
    if loop.ticker is not None:
        if loop.ticker.take_tick(now):
            loop.attempt = 0
            return _send_commit(state, loop, out)
    elif state.commits:
        commit = state.commits.popleft()
        _merge_offsets(loop, commit.offsets)
        loop.replying_to, loop.attempt = [commit], 0
        return _send_commit(state, loop, out)
    return False


def on_commit_response(
    state: KafkaGoState, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Handle a commit's response (None if the request failed), and retry after any error.

    Follows commitOffsetsWithRetry.
    """
    loop = _commit_loop(state)
    assert loop is not None
    loop.open = None
    error = network_error(failure)
    if isinstance(response, OffsetCommitResponse):
        code = next((error_code for error_code in commit_errors(response).values() if error_code), 0)
        if not code:
            _finish_commit(state, loop, None, out)
            return
        error = kafka_error(code)
    loop.attempt += 1
    if loop.attempt < COMMIT_RETRIES and not state.closing:
        loop.retry_at = now + backoff(loop.attempt, RETRY_MIN_MS, RETRY_MAX_MS)
    else:
        _finish_commit(state, loop, error, out)


def add_deadlines(state: KafkaGoState, deadlines: list[int]) -> None:
    """Append the deadlines of the commit loop and of blocked CommitMessages calls to `deadlines`."""
    loop = _commit_loop(state)
    for request in commits_with_deadline(state):
        if request.deadline is not None:
            deadlines.append(request.deadline)
    if loop is not None and not loop.ended and loop.open is None:
        if loop.retry_at is not None:
            deadlines.append(loop.retry_at)
        elif loop.ticker is not None and state.state is RUNNING:
            deadlines.append(loop.ticker.at)


def _commit_loop(state: KafkaGoState) -> ReaderCommitLoop | None:
    """Return the commit loop of the running generation, or None between generations."""
    return state.generation.commits if state.generation is not None else None


def _merge_offsets(loop: ReaderCommitLoop, offsets: Mapping[TopicPartition, int]) -> None:
    """Add offsets to the stash of the loop. The higher offset of a partition wins (offsetStash.merge)."""
    for partition, offset in offsets.items():
        loop.stash[partition] = max(offset, loop.stash.get(partition, offset))


def _send_commit(state: KafkaGoState, loop: ReaderCommitLoop, out: Out) -> bool:
    """Send OffsetCommit for the stash. If the stash is empty, finish the commit immediately.

    Returns whether the commit loop has ended.
    """
    if not loop.stash:
        return _finish_commit(state, loop, None, out)
    assert state.coordinator is not None
    offsets = {partition: OffsetToCommit(offset, -1, "") for partition, offset in loop.stash.items()}
    request = offset_commit_request(
        state.config.group_id, state.generation_id, state.member_id, None, offsets
    )
    loop.open = send_request(out, state.coordinator, request, 2)
    return False


def _finish_commit(state: KafkaGoState, loop: ReaderCommitLoop, error: Error | None, out: Out) -> bool:
    """Return the result to the waiting CommitMessages calls, and end the loop after its final commit.

    After an error, interval mode keeps the stash for the next interval. Returns whether the loop has ended.
    """
    if loop.ticker is None or error is None:
        loop.stash.clear()
    for commit in loop.replying_to:
        if commit.token is not None:
            out.append(FinishCommit(commit.token, error))
    loop.replying_to = []
    if loop.is_final:
        loop.ended = True
        assigned_partitions = [
            TopicPartition(topic, partition)
            for topic, partitions in state.assigned.items()
            for partition in partitions
        ]
        out.append(RunCallback("revoked", tuple(sorted(assigned_partitions)), wait=False))
    return loop.is_final
