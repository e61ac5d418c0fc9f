"""reader.go, the type Reader: what the application reads from, and the loop that commits.

Rules that hold here:

* Two bounded queues stand between the routines and the application: records (Reader.msgs) and commits
  (Reader.commits), both of QueueCapacity. A full queue of records stops the partitions' fetches; a full
  queue of commits stops ReadMessage.
* A record is dropped only when its version of the assignment is older than the present, and that changes when
  the *next* generation begins: between two generations records of the last are handed out.
* ReadMessage queues the commit of what it returns; nothing is taken from that queue between two
  generations, so the next generation commits it, whoever owns the partition by then.
* A commit is tried three times, whatever was answered, and then forgotten (immediate) or kept (interval).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...group.subscription import TopicPartition
from ...messages.offset_commit import OffsetCommitResponse
from ...wire.message import Message
from ..common import Committing, commit_errors, offset_commit
from ..contract import CommitCalled, FinishCommit, FinishPoll, ModelRecord, RunCallback
from .partition_reader import push
from .state import (
    COMMIT_RETRIES,
    PUSHING,
    RUNNING,
    CommitLoop,
    Error,
    Out,
    Phase,
    State,
    Wanted,
    backoff,
    kafka_error,
    network_error,
    send,
)

PATIENCE_MS = 5_000
"""How long CommitMessages waits: the context that the application gives it."""
CLOSED = ("errors.errorString", "io: read/write on closed pipe")
PATIENCE_OVER = ("context.deadlineExceededError", "context deadline exceeded")
RETRY_MIN_MS, RETRY_MAX_MS = 100, 5_000


# -- the application --------------------------------------------------------------------------------------


def deliver(state: State, now: int, out: Out) -> None:
    """FetchMessage, or ReadMessage where commits have an interval, as often as the poll wants.

    Comes behind `refill`: until something was taken there is nothing more to push.
    """
    if state.poll is None:
        return
    until, limit = state.poll
    taken: list[ModelRecord] = []
    error: Error | None = None
    moved = True
    while moved and error is None:
        moved = False
        while state.queue and len(taken) < limit and not _full(state):
            queued = state.queue.popleft()
            moved = True
            if queued.version < state.version:
                continue
            if queued.record is None:
                error = queued.error
                break
            taken.append(queued.record)
            state.newest[queued.record.partition] = queued.record.offset + 1
            if state.commit_ms is not None:
                state.commits.append(Wanted({queued.record.partition: queued.record.offset + 1}))
                merge_interval(state)
        if moved:
            refill(state, now, out)
    if taken or error or state.closing or now >= until:
        state.poll = None
        out.append(FinishPoll(tuple(taken), error))


def refill(state: State, now: int, out: Out) -> bool:
    """Let the partitions push what they hold; True when something moved."""
    if state.generation is None:
        return False
    moved = False
    for reader in state.generation.readers:
        if reader.where is PUSHING:
            moved = push(state, reader, now, out) or moved
    return moved


def _full(state: State) -> bool:
    return state.commit_ms is not None and len(state.commits) >= state.capacity


def commit_messages(state: State, event: CommitCalled, now: int, out: Out) -> None:
    """CommitMessages with the newest message of each partition that was ever read."""
    offsets = dict(state.newest if event.offsets is None else event.offsets)
    if state.closing:
        out.append(FinishCommit(event.token, CLOSED))
        return
    wanted = Wanted(offsets, event.token, now + PATIENCE_MS)
    if state.commit_ms is not None and len(state.commits) < state.capacity:
        state.commits.append(Wanted(offsets))
        out.append(FinishCommit(event.token))
    else:
        state.blocked.append(wanted)
        unblock(state, out)


def unblock(state: State, out: Out) -> None:
    while state.blocked and len(state.commits) < state.capacity:
        wanted = state.blocked.popleft()
        state.commits.append(wanted)
        if state.commit_ms is not None:
            wanted.until = None
            out.append(FinishCommit(wanted.token))
            wanted.token = None


def refused(wanted: Wanted) -> FinishCommit:
    """CommitMessages after Close."""
    return FinishCommit(wanted.token, CLOSED)


def impatient(state: State) -> list[Wanted]:
    """The CommitMessages that wait, with the time at which their context ends."""
    loop = state.generation.commits.answering if state.generation is not None else []
    if not (state.blocked or state.commits or loop):
        return []
    return [one for one in (*state.blocked, *state.commits, *loop) if one.until is not None]


def give_up(state: State, now: int, out: Out) -> None:
    """Contexts that are over. What was queued stays queued: it is committed, and nobody hears of it."""
    for wanted in impatient(state):
        assert wanted.until is not None
        if now >= wanted.until:
            out.append(FinishCommit(wanted.token, PATIENCE_OVER))
            wanted.token, wanted.until = None, None
            if wanted in state.blocked:
                state.blocked.remove(wanted)


# -- the loop ---------------------------------------------------------------------------------------------


def merge_interval(state: State) -> None:
    """commitLoopInterval takes from the queue whenever it isn't committing."""
    loop = _loop(state)
    if loop is not None and loop.ticker is not None and not loop.busy and not loop.ended:
        while state.commits:
            _merge(loop, state.commits.popleft().offsets)


def run(state: State, now: int, out: Out) -> bool:
    """What the loop can do now; True when it has ended in here."""
    loop = _loop(state)
    if loop is None or loop.ended or loop.open is not None:
        return False
    if loop.retry_at is not None:
        if now >= loop.retry_at or state.closing:
            loop.retry_at = None
            if state.closing:
                return _finished(state, loop, CLOSED, out)
            return _send(state, loop, out)
        return False
    if state.phase is Phase.ending:
        while state.commits:
            wanted = state.commits.popleft()
            _merge(loop, wanted.offsets)
            loop.answering.append(wanted)
        loop.last, loop.attempt = True, 0
        return _send(state, loop, out)
    merge_interval(state)
    if loop.ticker is not None:
        if loop.ticker.take(now):
            loop.attempt = 0
            return _send(state, loop, out)
    elif state.commits:
        wanted = state.commits.popleft()
        _merge(loop, wanted.offsets)
        loop.answering, loop.attempt = [wanted], 0
        return _send(state, loop, out)
    return False


def answered(state: State, answer: Message | None, why: str, now: int, out: Out) -> None:
    """The commit was answered, or (None) it failed. commitOffsetsWithRetry: any error is tried again."""
    loop = _loop(state)
    assert loop is not None
    loop.open = None
    error = network_error(why)
    if isinstance(answer, OffsetCommitResponse):
        code = next((one for one in commit_errors(answer).values() if one), 0)
        if not code:
            _finished(state, loop, None, out)
            return
        error = kafka_error(code)
    loop.attempt += 1
    if loop.attempt < COMMIT_RETRIES and not state.closing:
        loop.retry_at = now + backoff(loop.attempt, RETRY_MIN_MS, RETRY_MAX_MS)
    else:
        _finished(state, loop, error, out)


def due(state: State, found: list[int]) -> None:
    """Adds the times at which it has something to do."""
    loop = _loop(state)
    for one in impatient(state):
        if one.until is not None:
            found.append(one.until)
    if loop is not None and not loop.ended and loop.open is None:
        if loop.retry_at is not None:
            found.append(loop.retry_at)
        elif loop.ticker is not None and state.phase is RUNNING:
            found.append(loop.ticker.at)


def _loop(state: State) -> CommitLoop | None:
    return state.generation.commits if state.generation is not None else None


def _merge(loop: CommitLoop, offsets: Mapping[TopicPartition, int]) -> None:
    for partition, offset in offsets.items():
        loop.stash[partition] = max(offset, loop.stash.get(partition, offset))


def _send(state: State, loop: CommitLoop, out: Out) -> bool:
    if not loop.stash:
        return _finished(state, loop, None, out)
    assert state.coordinator is not None
    offsets = {partition: Committing(offset, -1, "") for partition, offset in loop.stash.items()}
    request = offset_commit(state.config.group_id, state.generation_id, state.member_id, None, offsets)
    loop.open = send(out, state.coordinator, request, 2)
    return False


def _finished(state: State, loop: CommitLoop, error: Error | None, out: Out) -> bool:
    if loop.ticker is None or error is None:
        loop.stash.clear()
    for wanted in loop.answering:
        if wanted.token is not None:
            out.append(FinishCommit(wanted.token, error))
    loop.answering = []
    if loop.last:
        loop.ended = True
        owned = [TopicPartition(topic, one) for topic, found in state.assigned.items() for one in found]
        out.append(RunCallback("revoked", tuple(sorted(owned)), wait=False))
    return loop.last
