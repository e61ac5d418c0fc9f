"""Fetch sessions (KIP-227), the client's half: say only what changed since the last fetch.

Rules that hold here (Java's FetchSessionHandler, M160 to M163):

* (id, epoch) is (0, 0) to ask for a session, then the broker's id with epochs 1, 2, ...; after 2^31 - 1
  comes 1.
* A full request lists every partition; an incremental one those that are new or changed, and those to forget.
  A partition whose topic id changed is forgotten under the old id and sent anew.
* An answer that doesn't fit the request is discarded, and the next request is a full one. The broker's
  FETCH_SESSION_ID_NOT_FOUND forgets the id; every other error closes it and asks for a new one.
* Session id 0 in an answer means that the broker keeps none: its records are good, the next fetch is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

from .metadata import NO_TOPIC_ID

FETCH_SESSION_ID_NOT_FOUND = 70
NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LAST_EPOCH = 2**31 - 1
TOPIC_IDS_FROM = 13


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked of one partition; any difference is news to the session."""

    topic_id: UUID | None
    offset: int
    max_bytes: int
    leader_epoch: int | None


class FetchSession:
    """The session with one broker. `request` for each fetch, then `accepts` its answer or `failed`."""

    def __init__(self, *, once: bool = False) -> None:
        self.id = NO_SESSION
        # `once`: a single fetch that neither has nor makes a session.
        self.epoch = FINAL_EPOCH if once else INITIAL_EPOCH
        self.partitions: dict[TopicPartition, Want] = {}
        self._full = True

    def request(
        self, wants: Mapping[TopicPartition, Want], version: int, **settings: int | str
    ) -> FetchRequest:
        """The fetch for exactly these partitions, as full or as a difference."""
        self._full = self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        if self._full:
            send = dict(wants)
            forget: dict[TopicPartition, Want] = {}
        else:
            send = {
                partition: want for partition, want in wants.items() if self.partitions.get(partition) != want
            }
            forget = {
                partition: old
                for partition, old in self.partitions.items()
                if partition not in wants or wants[partition].topic_id != old.topic_id
            }
        self.partitions = dict(wants)
        request = FetchRequest(
            max_wait_ms=int(settings["max_wait_ms"]),
            min_bytes=int(settings["min_bytes"]),
            max_bytes=int(settings["max_bytes"]),
            isolation_level=int(settings["isolation_level"]),
            topics=_topics(send, version),
            forgotten_topics_data=_forgotten(forget, version) if version >= 7 else [],
        )
        if version >= 7:
            request.session_id = self.id
            request.session_epoch = self.epoch
        if version >= 11:
            request.rack_id = str(settings["rack_id"])
        return request

    def accepts(self, response: FetchResponse, version: int) -> bool:
        """Takes the answer in; False when its records must not be used."""
        if response.error_code:
            if response.error_code == FETCH_SESSION_ID_NOT_FOUND:
                self.id = NO_SESSION
            self.epoch = INITIAL_EPOCH
            return False
        if version < 7 or self.epoch == FINAL_EPOCH:
            return True
        answered = _answered(response, version)
        known = _known(self.partitions, version)
        if self._full:
            if answered != known:
                self._reset()
                return False
            if response.session_id == NO_SESSION:
                self._reset()
                return True
            self.id, self.epoch = response.session_id, 1
            return True
        if answered - known:
            self.epoch = INITIAL_EPOCH
            return False
        if response.session_id == NO_SESSION:
            self._reset()
            return True
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        return True

    def failed(self) -> None:
        """No answer: whether the broker took the request is not known, so start over."""
        self.epoch = INITIAL_EPOCH

    def closing(self) -> FetchRequest | None:
        """A last request that frees the session at the broker, None when there is none."""
        if self.id == NO_SESSION:
            return None
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=[])
        request.session_id = self.id
        request.session_epoch = FINAL_EPOCH
        self._reset()
        return request

    def _reset(self) -> None:
        self.id = NO_SESSION
        self.epoch = INITIAL_EPOCH


def _topics(wants: Mapping[TopicPartition, Want], version: int) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for partition, want in wants.items():
        topic = topics.get(partition.topic)
        if topic is None:
            if version >= TOPIC_IDS_FROM:
                topic = FetchTopic(topic_id=want.topic_id or NO_TOPIC_ID, partitions=[])
            else:
                topic = FetchTopic(topic=partition.topic, partitions=[])
            topics[partition.topic] = topic
        entry = FetchPartition(
            partition=partition.partition, fetch_offset=want.offset, partition_max_bytes=want.max_bytes
        )
        if version >= 9 and want.leader_epoch is not None:
            entry.current_leader_epoch = want.leader_epoch
        topic.partitions.append(entry)
    return list(topics.values())


def _forgotten(forget: Mapping[TopicPartition, Want], version: int) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID | None], ForgottenTopic] = {}
    for partition, want in forget.items():
        key = (partition.topic, want.topic_id)
        topic = topics.get(key)
        if topic is None:
            if version >= TOPIC_IDS_FROM:
                topic = ForgottenTopic(topic_id=want.topic_id or NO_TOPIC_ID, partitions=[])
            else:
                topic = ForgottenTopic(topic=partition.topic, partitions=[])
            topics[key] = topic
        topic.partitions.append(partition.partition)
    return list(topics.values())


def _answered(response: FetchResponse, version: int) -> set[tuple[str | UUID, int]]:
    found: set[tuple[str | UUID, int]] = set()
    for topic in response.responses:
        name: str | UUID = topic.topic_id if version >= TOPIC_IDS_FROM else topic.topic
        found.update((name, entry.partition_index) for entry in topic.partitions)
    return found


def _known(partitions: Mapping[TopicPartition, Want], version: int) -> set[tuple[str | UUID, int]]:
    if version >= TOPIC_IDS_FROM:
        return {(want.topic_id or NO_TOPIC_ID, p.partition) for p, want in partitions.items()}
    return {(p.topic, p.partition) for p in partitions}


def by_id(partitions: Iterable[tuple[TopicPartition, Want]]) -> dict[tuple[UUID, int], TopicPartition]:
    """(topic id, index) -> partition, for reading an answer that has no names."""
    return {(want.topic_id or NO_TOPIC_ID, p.partition): p for p, want in partitions}
