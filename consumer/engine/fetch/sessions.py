"""Fetch sessions (KIP-227), the client's half: say only what changed since the last fetch.

Rules that hold here (Java's FetchSessionHandler, M160 to M163):

* (id, epoch) is (0, 0) to ask for a session, then the broker's id with epochs 1, 2, ...; after 2^31 - 1
  comes 1.
* A full request lists every partition; an incremental one those that are new or changed, and those to forget.
  A partition whose topic id changed is forgotten under the old id and sent anew.
* An answer that doesn't fit the request is discarded, and the next request is a full one. The broker's
  FETCH_SESSION_ID_NOT_FOUND forgets the id; every other error closes it and asks for a new one.
* Session id 0 in an answer means that the broker keeps none: its records are good, the next fetch is full.
* What is wanted is told change by change (`want`, `forget`), so that a request costs what changed, and not
  what there is.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

from ..metadata.cluster import NO_TOPIC_ID

NO_SESSION = 0
INITIAL_EPOCH = 0
FIRST_EPOCH = 1
FINAL_EPOCH = -1
LAST_EPOCH = 2**31 - 1
TOPIC_IDS_FROM = 13


class FetchTarget(msgspec.Struct, frozen=True):
    """What is asked of one partition; any difference is news to the session.

    `asked_in` is the partition's epoch here: an answer to another one means nothing any more.
    """

    topic_id: UUID | None
    offset: int
    max_bytes: int
    leader_epoch: int | None
    asked_in: int = 0


class FetchPlan(msgspec.Struct, frozen=True):
    """One fetch that was decided on, for whatever version it will be sent in."""

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
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            topics=_topics(self.send, version),
            forgotten_topics_data=_forgotten(self.forget, version) if version >= 7 else [],
        )
        if version >= 7:
            request.session_id = self.session_id
            request.session_epoch = self.session_epoch
        if version >= 11:
            request.rack_id = rack_id
        return request


class FetchSession:
    """The session with one broker: `want` and `forget` what changes, `plan` each fetch, then `accepts` its
    answer or `failed`."""

    def __init__(self, *, once: bool = False) -> None:
        self.id = NO_SESSION
        # `once`: a single fetch that neither has nor makes a session.
        self.epoch = FINAL_EPOCH if once else INITIAL_EPOCH
        self.wanted: dict[TopicPartition, FetchTarget] = {}
        # As the last request left it at the broker.
        self.told: dict[TopicPartition, FetchTarget] = {}
        self._names: dict[tuple[UUID, int], TopicPartition] = {}
        self._news: dict[TopicPartition, None] = {}
        self._nameless: set[TopicPartition] = set()
        self._full = True

    # ---- what is wanted

    def want(self, partition: TopicPartition, want: FetchTarget) -> None:
        if self.wanted.get(partition) != want:
            self.wanted[partition] = want
            if want.topic_id is None:
                self._nameless.add(partition)
            else:
                self._nameless.discard(partition)
            self._news[partition] = None

    def forget(self, partition: TopicPartition) -> None:
        if self.wanted.pop(partition, None) is not None:
            self._nameless.discard(partition)
            self._news[partition] = None

    def asks(self, partition: TopicPartition) -> bool:
        """Whether the last request asked for the partition as it is wanted now."""
        want = self.wanted.get(partition)
        return want is not None and self.told.get(partition) == want

    @property
    def named(self) -> bool:
        """Whether some topic is known by its name only."""
        return bool(self._nameless)

    @property
    def proven(self) -> bool:
        """Whether the broker has known its session again; also where it keeps none."""
        return self.epoch != FIRST_EPOCH

    # ---- asking

    def plan(self) -> FetchPlan:
        """The next fetch, for exactly the partitions that are wanted now, as full or as a difference."""
        self._full = self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        send: dict[TopicPartition, FetchTarget] = {}
        forget: dict[TopicPartition, FetchTarget] = {}
        if self._full:
            send.update(self.wanted)
            self.told = dict(send)
            self._names = {_name(p, want): p for p, want in send.items()}
        else:
            for partition in self._news:
                self._tell(partition, send, forget)
        self._news = {}
        return FetchPlan(self.id, self.epoch, send, forget)

    def _tell(
        self,
        partition: TopicPartition,
        send: dict[TopicPartition, FetchTarget],
        forget: dict[TopicPartition, FetchTarget],
    ) -> None:
        new, old = self.wanted.get(partition), self.told.get(partition)
        if new == old:
            return
        if old is not None and (new is None or new.topic_id != old.topic_id):
            forget[partition] = old
            self._names.pop(_name(partition, old), None)
            del self.told[partition]
        if new is not None:
            send[partition] = new
            self.told[partition] = new
            self._names[_name(partition, new)] = partition

    # ---- answers

    def name(self, topic: str, topic_id: UUID, index: int, version: int) -> TopicPartition | None:
        """Which partition an entry of the answer is about; None when it was not asked for."""
        if version >= TOPIC_IDS_FROM:
            return self._names.get((topic_id, index))
        partition = TopicPartition(topic, index)
        return partition if partition in self.told else None

    def accepts(self, response: FetchResponse, version: int) -> bool:
        """Takes the answer in; False when its records must not be used."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.id = NO_SESSION
            self.epoch = INITIAL_EPOCH
            return False
        if version < 7 or self.epoch == FINAL_EPOCH:
            return True
        answered, fits = 0, True
        for topic in response.responses:
            for entry in topic.partitions:
                answered += 1
                fits = fits and (
                    self.name(topic.topic, topic.topic_id, entry.partition_index, version) is not None
                )
        if self._full:
            if not fits or answered != len(self.told):
                self._reset()
                return False
            if response.session_id == NO_SESSION:
                self._reset()
                return True
            self.id, self.epoch = response.session_id, FIRST_EPOCH
            return True
        if not fits:
            self.epoch = INITIAL_EPOCH
            return False
        if response.session_id == NO_SESSION:
            self._reset()
            return True
        self.epoch = FIRST_EPOCH if self.epoch == LAST_EPOCH else self.epoch + 1
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


def _name(partition: TopicPartition, want: FetchTarget) -> tuple[UUID, int]:
    return want.topic_id or NO_TOPIC_ID, partition.partition


def _topics(wants: dict[TopicPartition, FetchTarget], version: int) -> list[FetchTopic]:
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


def _forgotten(forget: dict[TopicPartition, FetchTarget], version: int) -> list[ForgottenTopic]:
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
