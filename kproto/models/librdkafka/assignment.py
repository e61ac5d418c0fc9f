"""The assignment: what the application (or the default answer) told the library to consume.

rdkafka_assignment.c. Four lists: `all` of it, `pending` partitions that aren't started, `queried` ones whose
committed offset is asked for, `removed` ones that have to stop. `serve` moves them on:

* Removals first: the fetcher stops; with enable.auto.commit the stored offsets are committed (unless the
  assignment is lost), and are forgotten in any case.
* Nothing starts while commits are open: their offsets may be where to start.
* STORED (-1000) asks the group; without a commit it is INVALID (-1001), which means auto.offset.reset.
* At most one OffsetFetch is open. One that fails for good leaves its partitions waiting for ever.
* When nothing is under way the group goes on (`done`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.offset_fetch import OffsetFetchResponse
from ..common import fetched_offsets, offset_fetch
from . import offset_store, toppar
from .constants import BEGINNING, CONFLICT, END, INVALID, STORED, TAIL_BASE, is_logical, name_of_error
from .request import Do, err_action, retry, send
from .state import NOWHERE, CoordState, Open, Out, Position, State, Todo, Trouble, partition

UNLIMITED = 2**31


def add(state: State, partitions: Mapping[TopicPartition, int]) -> tuple[str, str] | None:
    """rd_kafka_assignment_add; answers what is wrong with them."""
    for tp, offset in partitions.items():
        if offset not in (BEGINNING, END, STORED, INVALID) and TAIL_BASE < offset < 0:
            return ("_INVALID_ARG", f"{tp.topic} [{tp.partition}] has invalid start offset {offset}")
        if tp in state.all:
            return (CONFLICT[0], f"{tp.topic} [{tp.partition}] is already part of the current assignment")
    for tp, offset in sorted(partitions.items()):
        start = STORED if offset == INVALID else offset
        one = partition(state, tp)
        one.assigned, one.stored = True, NOWHERE
        state.all[tp] = start
        state.pending[tp] = Position(start)
    state.all = dict(sorted(state.all.items()))
    state.assignment_version += 1
    return None


def clear(state: State) -> int:
    """rd_kafka_assignment_clear; answers how many were there."""
    count = len(state.all)
    if count:
        state.pending, state.queried = {}, set()
        state.removed += state.all
        state.all = {}
        state.assignment_version += 1
    return count


def subtract(state: State, partitions: Iterable[TopicPartition]) -> tuple[str, str] | None:
    """rd_kafka_assignment_subtract."""
    gone = list(partitions)
    for tp in gone:
        if tp not in state.all:
            text = (
                f"{tp.topic} [{tp.partition}] can't be unassigned since it is not in the current assignment"
            )
            return ("_INVALID_ARG", text)
    for tp in gone:
        del state.all[tp]
        state.pending.pop(tp, None)
        state.queried.discard(tp)
    state.removed += gone
    state.assignment_version += 1
    return None


def in_progress(state: State) -> bool:
    """rd_kafka_assignment_in_progress."""
    return bool(state.wait_commits or state.pending or state.queried or state.removed)


def serve(state: State, out: Out) -> None:
    """rd_kafka_assignment_serve."""
    if state.removed:
        _serve_removals(state, out)
    if not state.wait_commits and state.pending:
        _serve_pending(state, out)
    if not (state.wait_commits or state.pending or state.queried):
        state.todo.append(Todo.assignment_done)


def _serve_removals(state: State, out: Out) -> None:
    offsets: dict[TopicPartition, Position] = {}
    for tp in state.removed:
        one = partition(state, tp)
        state.pending.pop(tp, None)
        state.queried.discard(tp)
        if one.started:
            toppar.stop(state, one)
        one.lib_paused = False
        if not is_logical(one.stored.offset):
            offsets[tp] = one.stored
        one.stored, one.assigned = NOWHERE, False
    state.removed = []
    if offsets and state.auto_commit:
        offset_store.commit_assigned(state, offsets, out)


def _serve_pending(state: State, out: Out) -> None:
    can_query = state.coord is CoordState.up and not state.wait_commits and not state.queried
    query: list[TopicPartition] = []
    for tp, position in reversed(list(state.pending.items())):
        if position.offset != STORED:
            del state.pending[tp]
            toppar.start(state, partition(state, tp), position, out)
        elif can_query:
            del state.pending[tp]
            query.append(tp)
    if query and state.coordinator is not None:
        state.queried.update(query)
        request = offset_fetch(
            state.config.group_id, query, _version(state), stable=state.isolation == 1 and not _old(state)
        )
        send(state, state.coordinator, request, out, (state.assignment_version, tuple(query)))


def _version(state: State) -> int:
    offered = state.offered.get(9)
    return min(state.versions[9], offered[1]) if offered else state.versions[9]


def _old(state: State) -> bool:
    return _version(state) < 7


def fetched(state: State, entry: Open, answer: OffsetFetchResponse | None, code: int, out: Out) -> None:
    """rd_kafka_assignment_handle_OffsetFetch; `code` is the error of a request that got no answer."""
    version, asked = cast("tuple[int, tuple[TopicPartition, ...]]", entry.about)
    error, offsets = (code, {}) if answer is None else fetched_offsets(answer)
    unstable = any(one.error == E.UNSTABLE_OFFSET_COMMIT for one in offsets.values())
    do = err_action(error)
    if Do.refresh in do:
        state.todo.append(Todo.query_coordinator)
    again = Do.retry in do or unstable
    if again and version == state.assignment_version and retry(state, entry, UNLIMITED):
        return
    if error:
        name = name_of_error(error)
        state.queue.append(
            Trouble(name, f"Failed to fetch committed offsets for {len(asked)} partition(s): {name}")
        )
    for tp in asked:
        if tp not in state.queried:
            continue  # unassigned meanwhile
        state.queried.discard(tp)
        one = offsets.get(tp)
        if one is None or error not in (E.NONE, E.UNSTABLE_OFFSET_COMMIT):
            continue
        if one.error == E.UNSTABLE_OFFSET_COMMIT:
            state.pending[tp] = Position(STORED)
        elif one.error:
            name = name_of_error(one.error)
            state.queue.append(Trouble(name, f"Failed to fetch committed offset for {tp}: {name}"))
        else:
            offset = INVALID if one.offset < 0 else one.offset
            partition(state, tp).committed = Position(offset, one.epoch)
            state.pending[tp] = Position(offset, one.epoch)
    serve(state, out)


def pause(state: State) -> None:
    """rd_kafka_assignment_pause: nothing is given out while a rebalance event waits for its answer."""
    for tp in state.all:
        toppar.pause(state, partition(state, tp), library=True)


def resume(state: State) -> None:
    """rd_kafka_assignment_resume."""
    for tp in state.all:
        toppar.resume(state, partition(state, tp), library=True)
