"""Metadata and ConsumerMetadata: which topics, when, and what an answer changes (M196 to M201).

* One request at a time, every metadata.max.age.ms, and at once when it is wanted; after that not before
  retry.backoff.ms. A topic that doesn't exist is wanted again and again.
* A pattern asks for all topics. A leader asks for those of the whole group.
* The rebalance is asked for by comparison: what the leader planned with, and what there is now.
"""

from __future__ import annotations

from typing import cast

from ...group.classic.member import leadership
from ...group.protocol import Metadata
from ...messages.metadata import MetadataResponse
from ..common import metadata_request
from . import offset_fetcher
from .state import RETRY_BACKOFF_MS, Out, State, send, some_node


def wanted(state: State) -> list[str] | None:
    if state.pattern is not None:
        return None
    topics = state.topics | state.group_topics
    return sorted(topics | {tp.topic for tp in state.assigned})


def due(state: State) -> int | None:
    """When the next request may go out; None while one is open or there is nothing to ask."""
    if state.metadata_open or not state.bootstrap:
        return None
    if not (state.automatic or state.assigned):
        return None
    expires = state.metadata_last + state.metadata_ms
    return state.metadata_last + RETRY_BACKOFF_MS if state.metadata_wanted else expires


def serve(state: State, out: Out) -> None:
    """NetworkClient's DefaultMetadataUpdater.maybeUpdate."""
    at = due(state)
    if at is None or at > state.now:
        return
    state.metadata_open = True
    topics = wanted(state)
    send(state, some_node(state), metadata_request(topics, create=True), out, topics)


def new_topics(state: State) -> None:
    """requestUpdateForNewTopics: at once."""
    state.metadata_wanted = True
    state.metadata_last = min(state.metadata_last, state.now - RETRY_BACKOFF_MS)


def answered(state: State, answer: MetadataResponse, asked: object, out: Out) -> None:
    before = dict(state.cluster.topics)
    state.cluster.learn(answer, whole=asked is None)
    state.metadata_open, state.metadata_last = False, state.now
    state.metadata_wanted = bool(state.cluster.errors.keys() & (state.topics | state.group_topics))
    again = wanted(state)
    known: set[object] = set(cast("list[object]", asked)) if isinstance(asked, list) else set()
    if asked is not None and again is not None and set(again) - known:
        new_topics(state)
    if state.pattern is not None:
        state.topics = state.cluster.matching(state.pattern, full=True)
    state.snapshot = counts(state, state.topics | state.group_topics)
    if before:
        offset_fetcher.leaders_changed(state, before)


def failed(state: State) -> None:
    state.metadata_open, state.metadata_wanted, state.metadata_last = False, True, state.now


def counts(state: State, topics: frozenset[str]) -> dict[str, object]:
    """MetadataSnapshot: partitions by topic, and their racks where the member has one."""
    return dict(leadership.take_snapshot(topics, known(state, topics), bool(state.config.rack)))


def known(state: State, topics: frozenset[str]) -> Metadata:
    racks = {topic: tuple(sets) for topic, sets in state.cluster.rack_sets(topics).items()}
    return Metadata(state.cluster.counts(topics), racks=racks)
