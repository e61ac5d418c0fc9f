"""Handles new metadata: re-created topics, missing partitions and missing leaders.

Rules:

* For `STALE_METADATA_MS` after a topic's id was replaced, the earlier id is ignored, because a broker with
  outdated metadata may still return it.

* If a response contains the earlier id after this time, the earlier id counts as a new id. The response that
  replaced the id may have been wrong, for example because another cluster used the same address.

* A new id means that the topic was re-created, and that positions in the deleted topic are invalid. A call to
  assign() refers to the topic that exists at the time of the call.

* All topics of a response are examined, not only those of assigned partitions. A topic that matches a
  subscribed pattern has no assigned partitions between its deletion and its re-creation, so its new id would
  otherwise go unnoticed.

* Brokers older than Kafka 2.8 send no topic ids. Without ids, a topic counts as re-created as soon as a
  response omits it. From then on, its offsets are not committed, and its positions are reset when a response
  contains it again.

* A partition that has had no leader for 5 s (`FAILURE_REPORT_DELAY_MS`) is reported as `refused`. A partition
  that does not exist is reported as `missing` at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kproto.error_codes import ErrorCode, describe
from kproto.group.subscription import TopicPartition

from ...consumer_options import ConsumerOptions
from ..core import ClientCore
from ..metadata.cluster import is_local, local_id
from .offset_lookup import OffsetLookup

# Time (ms) for which a topic's earlier id is ignored after its replacement. A restarted broker may return the
# earlier id, but only for a few seconds, until its metadata is current.
STALE_METADATA_MS = 10_000


class TopicChanges:
    """Compares each Metadata response with the known topic ids and the assigned partitions."""

    def __init__(self, core: ClientCore[ConsumerOptions], offset_lookup: OffsetLookup) -> None:
        self._core = core
        self._offset_lookup = offset_lookup
        # Earlier topic id -> the time (ms) at which it was replaced. See `STALE_METADATA_MS`.
        self._replaced_at: dict[object, int] = {}
        # The assigned partitions that had no leader in the last response about their topic.
        self._leaderless: set[TopicPartition] = set()
        # The missing topics for which brokers send no ids. For each of them, `topic_ids` already contains the
        # local id that it will have after its re-creation.
        self._missing_topics: set[str] = set()
        # Number of local ids that have been assigned to topics.
        self._last_local_id = 0

    def on_metadata(self, requested: frozenset[str] | None) -> None:
        """Handle a Metadata response about the topics in `requested`; None means all topics."""
        topics = {*self._core.view.topics, *self._core.topic_ids} if requested is None else requested
        self._reset_recreated_topics(topics)
        self._report_leaderless_partitions(requested)

    def _reset_recreated_topics(self, topics: Iterable[str]) -> None:
        """Find re-created topics, and reset the positions of their partitions."""
        topic_ids = self._core.topic_ids
        with_current_id = set[str]()
        for name in topics:
            if self._update_topic_id(name):
                with_current_id.add(name)
        for partition, state in list(self._core.partitions.states.items()):
            if partition.topic in with_current_id and state.topic_id != topic_ids[partition.topic]:
                previous_id, state.topic_id = state.topic_id, topic_ids[partition.topic]
                if previous_id is not None:
                    self._offset_lookup.reset_recreated(state)

    def _update_topic_id(self, name: str) -> bool:
        """Update the known id of a topic. Return whether the metadata contains the topic's current id.

        The result is False if the topic is missing, or if the metadata contains an outdated id.
        """
        topic_ids = self._core.topic_ids
        known_id = topic_ids.get(name)
        topic_id = self._core.view.topic_id(name) or self._update_local_id(name, known_id)
        if topic_id is None or (topic_id != known_id and self._is_outdated(topic_id)):
            return False
        if topic_id != known_id:
            topic_ids[name] = topic_id
            brokers_upgraded = is_local(known_id) and not is_local(topic_id)
            if brokers_upgraded and name not in self._missing_topics:
                self._adopt_broker_id(name, known_id, topic_id)
            elif known_id is not None:
                self._replaced_at[known_id] = self._core.now
        return True

    def _update_local_id(self, name: str, known_id: UUID | None) -> UUID | None:
        """Return the local id of a topic for which brokers send no id; None if the topic is missing.

        The result is also None if a broker has already sent an id for the topic, or if the response contains
        an error of the topic. When a known topic is missing for the first time, a new local id is stored. The
        topic has this id after its re-creation.
        """
        topic = self._core.view.topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
        has_broker_id = known_id is not None and not is_local(known_id)
        if has_broker_id or code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return None
        if code == ErrorCode.NONE:
            self._missing_topics.discard(name)
            return known_id or self._create_local_id()
        if known_id is not None and name not in self._missing_topics:
            self._missing_topics.add(name)
            self._core.topic_ids[name] = self._create_local_id()
        return None

    def _create_local_id(self) -> UUID:
        self._last_local_id += 1
        return local_id(self._last_local_id)

    def _adopt_broker_id(self, name: str, known_id: UUID | None, topic_id: UUID) -> None:
        """Replace a topic's local id with the broker's id, after an upgrade to Kafka 2.8 or later.

        The client creates a local id for a topic of a broker that sends no topic ids.
        """
        for state in self._core.partitions.states.values():
            if state.partition.topic == name and state.topic_id == known_id:
                state.topic_id = topic_id

    def _is_outdated(self, topic_id: object) -> bool:
        """Return whether this topic id was replaced less than `STALE_METADATA_MS` ago."""
        replaced_at = self._replaced_at.get(topic_id)
        return replaced_at is not None and self._core.now < replaced_at + STALE_METADATA_MS

    def _report_leaderless_partitions(self, requested: frozenset[str] | None) -> None:
        """Report partitions that have no leader, or that do not exist."""
        core, view, known_leaderless = self._core, self._core.view, self._leaderless
        # The response says nothing about the topics that were not requested.
        leaderless = {
            partition
            for partition in known_leaderless
            if requested is not None and partition.topic not in requested
        }
        missing: list[TopicPartition] = []
        for partition in core.partitions:
            if requested is not None and partition.topic not in requested:
                continue
            topic = view.topics.get(partition.topic)
            if topic is None or topic.error_code or view.leader(partition) is not None:
                continue
            leaderless.add(partition)
            metadata = topic.partitions.get(partition.partition)
            error_code = metadata.error_code if metadata is not None else ErrorCode.NONE
            why = describe(error_code) if error_code else "the leader is unknown"
            core.report_failure("Metadata", why, partition, repeated=partition in known_leaderless)
            if metadata is None and partition not in known_leaderless:
                missing.append(partition)
        self._leaderless = leaderless
        self._report_missing_partitions(missing)

    def _report_missing_partitions(self, missing: list[TopicPartition]) -> None:
        """Report partitions that do not exist, in one report for each topic."""
        for name in sorted({partition.topic for partition in missing}):
            partitions = [partition for partition in missing if partition.topic == name]
            count = len(self._core.view.topics[name].partitions)
            reason = f"topic {name!r} has {count} partition{'' if count == 1 else 's'} (yet)"
            self._core.report("missing", partitions, reason=reason)
