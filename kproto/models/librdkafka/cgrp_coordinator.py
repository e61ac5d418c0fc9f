"""The lookup of the coordinator: rd_kafka_cgrp_coord_query, _coord_update, _handle_FindCoordinator, _serve.

Seen (2.16): the bootstrap connection asks for brokers and coordinator at once; the brokers' own connection
asks both again, and once more while the connection to the coordinator comes up.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..common import find_coordinator, found_coordinator, metadata_request
from ..contract import Address
from .constants import name_of_error
from .request import BOOTSTRAP, COORDINATOR, TRANSPORT, Do, err_action, send, some_broker
from .state import UP, CoordState, Open, Out, State, Todo, Trouble

QUERY_MS = 500
RECONNECT_MS = 100
RELAXED_MS = 600_000
"""coordinator.query.interval.ms."""


def query(state: State, out: Out) -> None:
    """rd_kafka_cgrp_coord_query."""
    if not state.bootstrap:
        return
    send(state, some_broker(state), find_coordinator(state.config.group_id, 2), out)
    if state.coord is CoordState.query:
        state.coord = CoordState.wait
    state.find_interval.last = state.now
    state.find_interval.backoff = 0


def dead(state: State, out: Out) -> None:
    """rd_kafka_cgrp_coord_dead: forget it, and ask at once who it is."""
    state.coordinator, state.coord_up_at = None, None
    state.coord = CoordState.query
    query(state, out)


def went_down(state: State) -> None:
    """The coordinator's connection broke; it is the coordinator until somebody says otherwise."""
    if state.coord is UP:
        state.coord = CoordState.query
        state.coord_up_at = state.now + RECONNECT_MS


def found(state: State, entry: Open, answer: FindCoordinatorResponse, out: Out) -> None:
    """rd_kafka_cgrp_handle_FindCoordinator."""
    one = found_coordinator(answer)
    if one.error:
        refused(state, one.error, one.message, out)
        return
    if state.coord is CoordState.term:
        return
    address = Address(one.host, one.port, COORDINATOR)
    state.cluster.brokers.setdefault(one.node, (one.host, one.port))
    first = entry.send.to.lane == BOOTSTRAP
    changed = address != state.coordinator
    state.coordinator = address
    if state.coord is not UP:
        state.coord = CoordState.transport
        if first:
            greet(state, out)
        elif changed:
            query(state, out)
            if state.coord_up_at is None:
                state.coord_up_at = state.now


def greet(state: State, out: Out) -> None:
    """The first connection to a broker by its own name: its metadata, and the coordinator again."""
    if state.bootstrapped:
        return
    state.bootstrapped = True
    state.coordinator = None
    send(state, some_broker(state), metadata_request(()), out, "brokers")
    if state.local_topics:  # what was assigned before any broker was known
        state.metadata_at = state.now + 1  # what is due now was looked at already
    query(state, out)


def refused(state: State, code: int, message: str | None, out: Out) -> None:
    """An error: those that pass are asked about again, others are told once."""
    if code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
        state.coordinator = None
    elif code != TRANSPORT and Do.retry not in err_action(code) and code != state.last_find_error:
        state.last_find_error = code
        text = f"FindCoordinator response error: {message or name_of_error(code)}"
        state.queue.append(Trouble(name_of_error(code), text))
    if state.coord is not UP:
        state.coord = CoordState.query


def serve(state: State, out: Out) -> bool:
    """The lookup's part of rd_kafka_cgrp_serve; True when the coordinator can be spoken to."""
    if state.coord is CoordState.query:
        if state.find_interval.due(QUERY_MS, state.now):
            query(state, out)
    elif state.coord is CoordState.transport:
        if state.coord_up_at is not None and state.coord_up_at <= state.now:
            state.coord, state.coord_up_at = UP, None
            state.last_find_error = 0
            state.todo.append(Todo.serve_assignment)
    elif state.coord is UP and state.find_interval.due(RELAXED_MS, state.now):
        query(state, out)
    return state.coord is UP


def is_lookup(entry: Open) -> bool:
    return isinstance(entry.send.request, FindCoordinatorRequest)
