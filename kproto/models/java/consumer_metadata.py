"""Metadata and ConsumerMetadata: which topics are requested, when, and what a response changes.

* M196: Metadata is requested every metadata.max.age.ms, with one request in flight at a time. An extra
  request, such as one after a fetch error, is sent at least retry.backoff.ms after the previous response.

* While a subscribed topic does not exist, a Metadata request is sent every retry.backoff.ms.

* M200: A consumer with a pattern requests all topics. A leader requests the topics of all members of the
  group.

* M92: A leader rejoins if the metadata differs from the snapshot with which it assigned the partitions.
"""

from __future__ import annotations

from typing import cast

from ...group.classic.member import leadership
from ...group.protocol import MetadataUpdated
from ...messages.metadata import MetadataResponse
from ..common import metadata_request
from . import offset_fetcher
from .state import RETRY_BACKOFF_MS, JavaState, Out, least_loaded_node, send_request


def topics_to_request(state: JavaState) -> list[str] | None:
    """Return the topics of the next Metadata request. None requests all topics."""
    if state.pattern is not None:
        return None
    topics = state.topics | state.group_topics
    return sorted(topics | {tp.topic for tp in state.assigned})


def deadline(state: JavaState) -> int | None:
    """Return the time at which the next request may be sent, or None if no request is needed."""
    if state.metadata_in_flight or not state.bootstrap:
        return None
    if not (state.auto_assigned or state.assigned):
        return None
    expires_at = state.metadata_refreshed_at + state.metadata_ms
    return state.metadata_refreshed_at + RETRY_BACKOFF_MS if state.metadata_update_requested else expires_at


def maybe_update(state: JavaState, out: Out) -> None:
    """Send a Metadata request if it is due (DefaultMetadataUpdater.maybeUpdate)."""
    deadline_ms = deadline(state)
    if deadline_ms is None or deadline_ms > state.now:
        return
    state.metadata_in_flight = True
    topics = topics_to_request(state)
    send_request(state, least_loaded_node(state), metadata_request(topics, create=True), out, topics)


def request_update_for_new_topics(state: JavaState) -> None:
    """Request an update without waiting for the backoff (requestUpdateForNewTopics)."""
    state.metadata_update_requested = True
    state.metadata_refreshed_at = min(state.metadata_refreshed_at, state.now - RETRY_BACKOFF_MS)


def on_metadata_response(
    state: JavaState, response: MetadataResponse, requested_topics: object, out: Out
) -> None:
    """Apply a Metadata response. If `requested_topics` is None, all topics were requested."""
    previous_topics = dict(state.cluster.topics)
    state.cluster.update(response, whole=requested_topics is None)
    state.metadata_in_flight, state.metadata_refreshed_at = False, state.now
    state.metadata_update_requested = bool(state.cluster.errors.keys() & (state.topics | state.group_topics))
    topics = topics_to_request(state)
    requested_names: set[object] = (
        set(cast("list[object]", requested_topics)) if isinstance(requested_topics, list) else set()
    )
    if requested_topics is not None and topics is not None and set(topics) - requested_names:
        request_update_for_new_topics(state)
    if state.pattern is not None:
        state.topics = state.cluster.matching_topics(state.pattern, full=True)
    state.metadata_snapshot = take_snapshot(state, state.topics | state.group_topics)
    if previous_topics:
        offset_fetcher.revalidate_changed_leaders(state, previous_topics)


def on_metadata_failure(state: JavaState) -> None:
    """Make `maybe_update` send another Metadata request after the backoff."""
    state.metadata_in_flight, state.metadata_update_requested = False, True
    state.metadata_refreshed_at = state.now


def take_snapshot(state: JavaState, topics: frozenset[str]) -> dict[str, object]:
    """Map each topic to its partition count or, if the member has a rack, to the racks of its partitions.

    Follows MetadataSnapshot.
    """
    return dict(leadership.take_snapshot(topics, known_metadata(state, topics), bool(state.config.rack)))


def known_metadata(state: JavaState, topics: frozenset[str]) -> MetadataUpdated:
    """Return the partition counts and racks of those `topics` that the metadata contains."""
    racks = {topic: tuple(rack_sets) for topic, rack_sets in state.cluster.rack_sets(topics).items()}
    return MetadataUpdated(state.cluster.partition_counts(topics), racks=racks)
