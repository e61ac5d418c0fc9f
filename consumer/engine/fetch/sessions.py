"""Fetch sessions (KIP-227): a fetch contains only the partitions that have changed since the last fetch.

Rules (Java's FetchSessionHandler, M160 and M163):

* A request for a new session has session id 0 and epoch 0.

* Later requests have the session id that the broker has assigned. Their epochs run from 1 to 2^31 - 1 and
  then start again at 1.

* A full request contains every partition. An incremental request contains the new and the changed partitions,
  and lists the partitions that the broker must forget.

* If the topic id of a partition changes, the partition is forgotten under the old id and added under the new
  one.

* A response is discarded if it contains a partition that was not requested, or lacks a partition of a full
  request. The next request is then full.

* After FETCH_SESSION_ID_NOT_FOUND the session id is discarded, and the next request asks for a new session.
  After any other error the next request closes the old session and asks for a new one.

* Session id 0 in a response means that the broker keeps no session. The records are used, and the next
  request is full.

* `set_target` and `forget` change one partition at a time. So the cost of an incremental request depends only
  on the number of changes.

This module also builds the Fetch requests in all versions, because their content depends on the session.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

from ..metadata.cluster import NO_TOPIC_ID
from ..positions.partition_states import PartitionState

NO_SESSION = 0
INITIAL_EPOCH = 0  # The epoch of a request for a new session.
FIRST_EPOCH = 1  # The epoch of the first incremental request.
MAX_EPOCH = 2**31 - 1
FINAL_EPOCH = -1  # Closes the session, or fetches without one.
# The first version of Fetch that identifies topics by id.
TOPIC_IDS_FROM = 13


class FetchTarget(msgspec.Struct, frozen=True):
    """The parameters with which one partition is fetched.

    If one of the parameters changes, the next request contains the partition.

    `requested_epoch` is the `epoch` that the partition's state had when this target was set. Each seek or
    reset changes the epoch of the state, and responses to earlier requests are then ignored.
    """

    topic_id: UUID | None
    offset: int
    max_bytes: int
    leader_epoch: int | None
    requested_epoch: int = 0


class FetchPlan(msgspec.Struct, frozen=True):
    """The content of one fetch, independent of the request version.

    `send` contains the partitions of the request, and `forget` those that the broker must forget.
    """

    session_id: int
    session_epoch: int
    send: dict[TopicPartition, FetchTarget]
    forget: dict[TopicPartition, FetchTarget]

    def request(
        self,
        version: int,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        rack_id: str,
    ) -> FetchRequest:
        """Build the request in this version."""
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            topics=_fetch_topics(self.send, version),
            forgotten_topics_data=_forgotten_topics(self.forget, version) if version >= 7 else [],
        )
        if version >= 7:
            request.session_id = self.session_id
            request.session_epoch = self.session_epoch
        if version >= 11:
            request.rack_id = rack_id
        return request


class FetchSessionHandler:
    """The fetch session with one broker.

    The owner calls `set_target` and `forget` for changes, and `plan` for each fetch. After the fetch the
    owner calls `handle_response`, or `on_failure` if there was no response.
    """

    def __init__(self, *, sessionless: bool = False) -> None:
        self.id = NO_SESSION
        # `sessionless` is true for a single fetch outside of any session.
        self.epoch = FINAL_EPOCH if sessionless else INITIAL_EPOCH
        self.targets: dict[TopicPartition, FetchTarget] = {}
        # The fetch parameters that the broker knows from the requests of this session.
        self.requested: dict[TopicPartition, FetchTarget] = {}
        # (topic id, index) -> partition, for the partitions in `requested`.
        self._partitions_by_id: dict[tuple[UUID, int], TopicPartition] = {}
        # The partitions whose target has changed since the last request.
        self._changed_partitions: dict[TopicPartition, None] = {}
        self._without_topic_id: set[TopicPartition] = set()
        # Whether the last request contained every partition.
        self._last_request_was_full = True

    def set_target(self, partition: TopicPartition, target: FetchTarget) -> None:
        """Set the fetch parameters of a partition."""
        if self.targets.get(partition) != target:
            self.targets[partition] = target
            if target.topic_id is None:
                self._without_topic_id.add(partition)
            else:
                self._without_topic_id.discard(partition)
            self._changed_partitions[partition] = None

    def forget(self, partition: TopicPartition) -> None:
        """Stop fetching a partition."""
        if self.targets.pop(partition, None) is not None:
            self._without_topic_id.discard(partition)
            self._changed_partitions[partition] = None

    def has_requested(self, partition: TopicPartition) -> bool:
        """Return whether the session has sent the partition's current parameters to the broker."""
        target = self.targets.get(partition)
        return target is not None and self.requested.get(partition) == target

    @property
    def has_unknown_ids(self) -> bool:
        """Whether the topic id of any target is unknown."""
        return bool(self._without_topic_id)

    @property
    def is_established(self) -> bool:
        """Whether the broker has accepted an incremental fetch of the session.

        The property is also true if the broker keeps no session. While it is false, a response without
        records does not reset the count of failed fetches from the broker, because the first incremental
        fetch may still fail.
        """
        return self.epoch != FIRST_EPOCH

    def plan(self) -> FetchPlan:
        """Plan the next fetch, full or incremental. The current targets count as requested from now on."""
        self._last_request_was_full = self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        send: dict[TopicPartition, FetchTarget] = {}
        forget: dict[TopicPartition, FetchTarget] = {}
        if self._last_request_was_full:
            send.update(self.targets)
            self.requested = dict(send)
            self._partitions_by_id = {_id_and_index(p, target): p for p, target in send.items()}
        else:
            for partition in self._changed_partitions:
                self._add_change(partition, send, forget)
        self._changed_partitions = {}
        return FetchPlan(self.id, self.epoch, send, forget)

    def _add_change(
        self,
        partition: TopicPartition,
        send: dict[TopicPartition, FetchTarget],
        forget: dict[TopicPartition, FetchTarget],
    ) -> None:
        """Add the change of one partition to an incremental fetch."""
        new_target, old_target = self.targets.get(partition), self.requested.get(partition)
        if new_target == old_target:
            return
        if old_target is not None and (new_target is None or new_target.topic_id != old_target.topic_id):
            forget[partition] = old_target
            self._partitions_by_id.pop(_id_and_index(partition, old_target), None)
            del self.requested[partition]
        if new_target is not None:
            send[partition] = new_target
            self.requested[partition] = new_target
            self._partitions_by_id[_id_and_index(partition, new_target)] = partition

    def partition_of(self, topic: str, topic_id: UUID, index: int, version: int) -> TopicPartition | None:
        """Return the partition of a response entry; None if the partition was not requested."""
        if version >= TOPIC_IDS_FROM:
            return self._partitions_by_id.get((topic_id, index))
        partition = TopicPartition(topic, index)
        return partition if partition in self.requested else None

    def handle_response(self, response: FetchResponse, version: int) -> bool:
        """Update the session from a response.

        Return False if the response has an error code or does not match the request. The caller then discards
        the response's records.
        """
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = NO_SESSION
            self.epoch = INITIAL_EPOCH
            return False
        if version < 7 or self.epoch == FINAL_EPOCH:
            return True
        # A set, because a response may list a partition twice. Java's FetchSessionHandler compares sets, too.
        partitions = {
            self.partition_of(topic.topic, topic.topic_id, entry.partition_index, version)
            for topic in response.responses
            for entry in topic.partitions
        }
        has_only_requested = None not in partitions
        if self._last_request_was_full:
            if not has_only_requested or len(partitions) != len(self.requested):
                self._reset()
                return False
            if response.session_id == NO_SESSION:
                self._reset()
                return True
            self.id, self.epoch = response.session_id, FIRST_EPOCH
            return True
        if not has_only_requested:
            self.epoch = INITIAL_EPOCH
            return False
        if response.session_id == NO_SESSION:
            self._reset()
            return True
        self.epoch = FIRST_EPOCH if self.epoch == MAX_EPOCH else self.epoch + 1
        return True

    def on_failure(self) -> None:
        """Make the next request full, because the broker may or may not have received the last one."""
        self.epoch = INITIAL_EPOCH

    def close(self) -> FetchRequest | None:
        """Forget the session. Return a request that closes it at the broker; None if no session exists."""
        if self.id == NO_SESSION:
            return None
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[])
        request.session_id = self.id
        request.session_epoch = FINAL_EPOCH
        self._reset()
        return request

    def _reset(self) -> None:
        """Forget the session."""
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH


class BrokerFetches:
    """The fetch session with one broker, and the state of the partitions that are fetched from the broker."""

    def __init__(self) -> None:
        self.session = FetchSessionHandler()
        self.has_fetch_in_flight = False
        self.has_extra_fetch_in_flight = False
        self.is_first_fetch = True
        self.not_before = 0
        self.failures = 0
        # The partitions to fetch that are missing from the fetch in flight.
        self.added: dict[TopicPartition, PartitionState] = {}
        # The partitions to fetch that have no buffered records.
        self.drained: set[TopicPartition] = set()
        # The broker's partitions whose buffer is full, so that they are not fetched now.
        self.full: set[TopicPartition] = set()
        # Number of bytes buffered for the broker's partitions.
        self.buffered_bytes = 0
        # The partitions to fetch for which the broker has more records than the consumer has received.
        self.with_more_records: set[TopicPartition] = set()
        # Whether the broker may delay the response to the fetch in flight.
        self.may_wait_at_broker = True
        # When the session's last fetch was sent (ms), how long the broker may delay its response (ms), and
        # the number of consecutive empty responses that arrived in less than half of that delay.
        self.last_fetch_at = self.max_delay_ms = self.empty_responses = 0

    def has_full_buffers(self, max_bytes: int) -> bool:
        """Return whether more than `max_bytes` bytes are buffered. `max_bytes` is `fetch.max.bytes`."""
        return self.buffered_bytes > max_bytes

    def waits_for_buffer_space(self, max_bytes: int) -> bool:
        """Return whether the next fetch of the session waits until the application has taken records.

        The fetch waits while more than `max_bytes` bytes are buffered.

        Below this limit, it waits while a partition's buffer is full, if each partition to fetch still has
        buffered records. By waiting, the fetch may also include the partition whose buffer is full now.
        """
        return self.has_full_buffers(max_bytes) or (bool(self.full) and not self.drained)

    def forget(self, partition: TopicPartition) -> None:
        """Stop requesting a partition."""
        self.session.forget(partition)
        self.added.pop(partition, None)
        self.drained.discard(partition)
        self.with_more_records.discard(partition)


def _id_and_index(partition: TopicPartition, target: FetchTarget) -> tuple[UUID, int]:
    """Return the (topic id, index) by which responses identify a partition."""
    return target.topic_id or NO_TOPIC_ID, partition.partition


def _fetch_topics(targets: dict[TopicPartition, FetchTarget], version: int) -> list[FetchTopic]:
    """Return the fetch parameters of the partitions, grouped by topic, in the form of this Fetch version."""
    topics: dict[str, FetchTopic] = {}
    for partition, target in targets.items():
        topic = topics.get(partition.topic)
        if topic is None:
            if version >= TOPIC_IDS_FROM:
                topic = FetchTopic(topic_id=target.topic_id or NO_TOPIC_ID, partitions=[])
            else:
                topic = FetchTopic(topic=partition.topic, partitions=[])
            topics[partition.topic] = topic
        entry = FetchPartition(
            partition=partition.partition, fetch_offset=target.offset, partition_max_bytes=target.max_bytes
        )
        if version >= 9 and target.leader_epoch is not None:
            entry.current_leader_epoch = target.leader_epoch
        topic.partitions.append(entry)
    return list(topics.values())


def _forgotten_topics(forget: dict[TopicPartition, FetchTarget], version: int) -> list[ForgottenTopic]:
    """Return the forgotten partitions grouped by topic, as this version of Fetch encodes them."""
    topics: dict[tuple[str, UUID | None], ForgottenTopic] = {}
    for partition, target in forget.items():
        key = (partition.topic, target.topic_id)
        topic = topics.get(key)
        if topic is None:
            if version >= TOPIC_IDS_FROM:
                topic = ForgottenTopic(topic_id=target.topic_id or NO_TOPIC_ID, partitions=[])
            else:
                topic = ForgottenTopic(topic=partition.topic, partitions=[])
            topics[key] = topic
        topic.partitions.append(partition.partition)
    return list(topics.values())
