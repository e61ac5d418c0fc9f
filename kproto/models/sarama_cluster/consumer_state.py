"""Where the loop of a sarama-cluster Consumer stands, and how it may get from one state to the other."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from ..sarama.routines import States


class ConsumerState(States):
    new = "new"
    connecting = "connecting"  # NewClient: the first metadata
    idle = "idle"  # no Consumer was made, or it is closed
    creating = "creating"  # NewConsumer: looks the coordinator up
    refreshing = "refreshing"
    finding = "finding"
    releasing = "releasing"
    learning = "learning"  # the leader: metadata of a topic of which nothing is known
    joining = "joining"
    syncing = "syncing"
    fetching = "fetching"  # offsets
    opening = "opening"
    consuming = "consuming"
    dropping = "dropping"  # releases what was opened before one failed
    quitting = "quitting"  # leaves the group after an error
    backing_off = "backing_off"
    winding_up = "winding_up"  # until all loops have ended
    closing = "closing"  # the last release
    leaving = "leaving"
    closed = "closed"


S = ConsumerState
_CYCLE_ENDS: set[Enum] = {S.backing_off, S.winding_up}

EDGES: Final[Mapping[Enum, set[Enum]]] = {
    S.new: {S.connecting, S.closed},
    S.connecting: {S.idle, S.closed},
    S.idle: {S.creating, S.closed},
    S.creating: {S.refreshing, S.idle, S.closing},
    S.refreshing: {S.finding, *_CYCLE_ENDS},
    S.finding: {S.releasing, *_CYCLE_ENDS},
    S.releasing: {S.joining, *_CYCLE_ENDS},
    S.joining: {S.learning, S.syncing, *_CYCLE_ENDS},
    S.learning: {S.syncing, *_CYCLE_ENDS},
    S.syncing: {S.fetching, S.quitting, *_CYCLE_ENDS},
    S.fetching: {S.opening, S.consuming, S.quitting, *_CYCLE_ENDS},
    S.opening: {S.consuming, S.dropping, *_CYCLE_ENDS},
    S.consuming: {S.winding_up},
    S.dropping: {S.quitting},
    S.quitting: {*_CYCLE_ENDS},
    S.backing_off: {S.winding_up},
    S.winding_up: {S.refreshing, S.closing},
    S.closing: {S.leaving},
    S.leaving: {S.idle, S.closed},
    S.closed: set(),
}
