"""Fetching: sessions by node (KIP-227), one request each, and what a poll takes out (M156 to M173)."""

from __future__ import annotations

from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.fetch import FetchRequest, FetchResponse
from ..common import Read, Wanted, fetch, fetched, read
from ..contract import ModelRecord
from .offset_fetcher import by_policy
from .release import exception
from .state import FETCHING, Buffered, Open, Out, Session, State, node, send

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


def serve(state: State, out: Out) -> None:
    """sendFetches: for each node that has none open, what can be fetched and isn't buffered."""
    if len(state.fetching) >= len(state.cluster.brokers):
        return
    buffered = {one.tp for one in state.buffer}
    wanted: dict[int, dict[TopicPartition, Wanted]] = {}
    for tp, one in state.assigned.items():
        if one.where is not FETCHING or one.paused or one.going or tp in buffered:
            continue
        found = state.cluster.leader(tp)
        if found is None:
            state.metadata_wanted = True
        elif found.node not in state.fetching:
            wanted.setdefault(found.node, {})[tp] = Wanted(one.offset, found.epoch)
    for number, partitions in wanted.items():
        _send(state, number, partitions, out)


def _send(state: State, number: int, partitions: dict[TopicPartition, Wanted], out: Out) -> None:
    session = state.sessions.get(number) or state.sessions.setdefault(number, Session())
    full, known = session.epoch <= 0, session.partitions
    said, gone = partitions, []
    if not full:
        said = {tp: one for tp, one in partitions.items() if known.get(tp) != one}
        gone = [tp for tp in known if tp not in partitions]
    request = fetch(
        said,
        state.cluster,
        wait_ms=state.config.fetch_wait_ms,
        isolation=state.isolation,
        session=(session.id, session.epoch),
        forgotten=gone,
        rack=state.config.rack or "",
    )
    session.partitions = partitions
    state.fetching.add(number)
    send(state, node(state, number), request, out, (number, full, partitions))


def answered(state: State, entry: Open, answer: FetchResponse | None, out: Out) -> None:
    """FetchSessionHandler.handleResponse, then each partition into the buffer."""
    number, full, asked = cast("tuple[int, bool, dict[TopicPartition, Wanted]]", entry.about)
    state.fetching.discard(number)
    session = state.sessions.setdefault(number, Session())
    if answer is None:
        session.epoch, session.partitions = 0, {}
        return
    if answer.error_code:
        session.id = 0 if answer.error_code == E.FETCH_SESSION_ID_NOT_FOUND else session.id
        session.epoch, session.partitions = 0, {}
        return
    if answer.session_id == 0:
        session.id, session.epoch, session.partitions = 0, 0, {}
    else:
        session.id, session.epoch = answer.session_id, 1 if full else session.epoch + 1
    for tp, data in fetched(answer, state.cluster):
        if tp not in asked:
            continue
        offset = asked[tp].offset
        got = (
            Read([], offset, -1)
            if data.error_code
            else read(tp, data, offset, committed=state.isolation == 1)
        )
        if data.error_code or got.position > offset:
            state.buffer.append(Buffered(tp, offset, got, data.error_code))


def available(state: State) -> bool:
    return bool(state.buffer)


def collect(state: State, limit: int) -> tuple[ModelRecord, ...]:
    """fetchedRecords: up to max.poll.records; what isn't at its position any more is dropped."""
    found: list[ModelRecord] = []
    keep: list[Buffered] = []
    while state.buffer and len(found) < limit:
        one = state.buffer.popleft()
        here = state.assigned.get(one.tp)
        if here is None or here.where is not FETCHING or here.going or here.offset != one.offset:
            continue
        if here.paused:
            keep.append(one)
        elif one.error:
            _failed(state, one)
        else:
            given = one.got.records[: limit - len(found)]
            rest = one.got.records[len(given) :]
            found += given
            here.offset = rest[0].offset if rest else one.got.position
            here.epoch = one.got.epoch if one.got.epoch >= 0 else here.epoch
            if rest:
                state.buffer.appendleft(
                    Buffered(one.tp, here.offset, Read(rest, one.got.position, one.got.epoch))
                )
            elif not state.rules.sorts:  # movePartitionToEnd: what was read is what it gives up first
                state.assigned[one.tp] = state.assigned.pop(one.tp)
    state.buffer.extendleft(reversed(keep))
    return tuple(found)


def _failed(state: State, one: Buffered) -> None:
    if one.error == E.OFFSET_OUT_OF_RANGE:
        by_policy(state, one.tp)
    elif one.error in _LEADER_ERRORS:
        state.metadata_wanted = True
    elif one.error != E.UNKNOWN_SERVER_ERROR:
        state.thrown = (exception(one.error), f"fetching {one.tp}: {exception(one.error)}")


def drop_unassigned(state: State) -> None:
    """clearBufferedDataForUnassignedPartitions."""
    state.buffer = type(state.buffer)(one for one in state.buffer if one.tp in state.assigned)


def close_sessions(state: State, out: Out) -> None:
    """maybeCloseFetchSessions: one last Fetch with the final epoch."""
    for number, session in state.sessions.items():
        if session.id and number in state.cluster.brokers:
            request: FetchRequest = fetch({}, state.cluster, wait_ms=0, session=(session.id, -1))
            send(state, node(state, number), request, out)
    state.sessions = {}
