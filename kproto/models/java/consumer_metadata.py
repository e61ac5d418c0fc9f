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
from .state import RETRY_BACKOFF_MS, JavaState, Out, least_loaded_node, send_request


def topics_to_request(state: JavaState) -> list[str] | None:
    if state.pattern is not None:
        return None
    topics = state.topics | state.group_topics
    return sorted(topics | {tp.topic for tp in state.assigned})


def deadline(state: JavaState) -> int | None:
    """When the next request may go out; None while one is open or there is nothing to ask."""
    if state.metadata_open or not state.bootstrap:
        return None
    if not (state.auto_assigned or state.assigned):
        return None
    expires = state.metadata_last + state.metadata_ms
    return state.metadata_last + RETRY_BACKOFF_MS if state.metadata_wanted else expires


def maybe_update(state: JavaState, out: Out) -> None:
    """NetworkClient's DefaultMetadataUpdater.maybeUpdate."""
    at = deadline(state)
    if at is None or at > state.now:
        return
    state.metadata_open = True
    topics = topics_to_request(state)
    send_request(state, least_loaded_node(state), metadata_request(topics, create=True), out, topics)


def request_update_for_new_topics(state: JavaState) -> None:
    """requestUpdateForNewTopics: at once."""
    state.metadata_wanted = True
    state.metadata_last = min(state.metadata_last, state.now - RETRY_BACKOFF_MS)


def on_metadata_response(state: JavaState, response: MetadataResponse, asked: object, out: Out) -> None:
    before = dict(state.cluster.topics)
    state.cluster.update(response, whole=asked is None)
    state.metadata_open, state.metadata_last = False, state.now
    state.metadata_wanted = bool(state.cluster.errors.keys() & (state.topics | state.group_topics))
    again = topics_to_request(state)
    requested: set[object] = set(cast("list[object]", asked)) if isinstance(asked, list) else set()
    if asked is not None and again is not None and set(again) - requested:
        request_update_for_new_topics(state)
    if state.pattern is not None:
        state.topics = state.cluster.matching_topics(state.pattern, full=True)
    state.metadata_snapshot = take_snapshot(state, state.topics | state.group_topics)
    if before:
        offset_fetcher.revalidate_changed_leaders(state, before)


def on_metadata_failure(state: JavaState) -> None:
    state.metadata_open, state.metadata_wanted, state.metadata_last = False, True, state.now


def take_snapshot(state: JavaState, topics: frozenset[str]) -> dict[str, object]:
    """MetadataSnapshot: partitions by topic, and their racks where the member has one."""
    return dict(leadership.take_snapshot(topics, known_metadata(state, topics), bool(state.config.rack)))


def known_metadata(state: JavaState, topics: frozenset[str]) -> Metadata:
    racks = {topic: tuple(sets) for topic, sets in state.cluster.rack_sets(topics).items()}
    return Metadata(state.cluster.partition_counts(topics), racks=racks)
