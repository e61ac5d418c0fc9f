"""What members say in JoinGroup's `metadata`, and what leaders answer in SyncGroup's `assignment`.

Both begin with an int16, the version; the rest is `ConsumerProtocolSubscription` or
`ConsumerProtocolAssignment`. The rules are those of Kafka's `ConsumerProtocol`:

* Written are version 3 unless told otherwise, topics and partitions in order, so that equal subscriptions
  are equal bytes. The instance id is not among them: the coordinator gives it to the leader.
* A version higher than 3 is read as 3, and what stands behind the known fields is ignored. A negative version
  and bytes that end too early are a DecodeError.
* No bytes at all are an empty assignment: that is what brokers fill in for members the leader left out.

User data is each assignor's own. There are two forms: of the sticky assignor the previous assignment and
its generation (without the generation in old versions, and without any version in front), of the
cooperative-sticky one only the generation. librdkafka and franz-go write the first form for both, and
kafka-python puts a version in front: a leader reads them all, and takes what it can't read for no claim, so
that no member can spoil the plan for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from ..errors import DecodeError, EncodeError, brief
from ..messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ..wire.interpreter import short_repr
from ..wire.message import Message, Struct, check_version, field
from ..wire.types import Int32, String

NEWEST_VERSION = 3  # KIP-881's


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then by index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What one member wants and holds, as the leader sees it.

    `generation` is the one that `owned` was assigned in; None where the member doesn't say. `instance_id` is
    not on the wire: it stands beside the metadata in the JoinGroup answer.
    """

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int | None = None
    rack_id: str | None = None
    instance_id: str | None = None

    def encode(self, version: int = NEWEST_VERSION) -> bytes:
        """The bytes for JoinGroup's `metadata`; older versions leave out what they don't have.

        Raises EncodeError for what no member can say, UnsupportedVersion for a version that isn't there.
        """
        message = "ConsumerProtocolSubscription"
        body = ConsumerProtocolSubscription(
            topics=_topics(self.topics, message, version),
            user_data=self.user_data,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in _by_topic(self.owned, message, version, "owned_partitions")
            ],
            generation_id=-1 if self.generation is None else self.generation,
            rack_id=self.rack_id,
        )
        return _versioned(body, version)

    @classmethod
    def decode(cls, data: bytes, instance_id: str | None = None) -> Subscription:
        """Read JoinGroup's `metadata`. Raises DecodeError and nothing else."""
        version = _version("ConsumerProtocolSubscription", data)
        body = ConsumerProtocolSubscription.decode(memoryview(data)[2:], version)
        return cls(
            topics=tuple(body.topics),
            user_data=body.user_data,
            owned=_partitions(body.owned_partitions),
            generation=None if body.generation_id < 0 else body.generation_id,
            rack_id=body.rack_id or None,
            instance_id=instance_id,
        )


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What one member gets."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None

    def encode(self, version: int = NEWEST_VERSION) -> bytes:
        """The bytes for SyncGroup's `assignment`; all versions look alike. Raises as Subscription's does."""
        message, field = "ConsumerProtocolAssignment", "assigned_partitions"
        body = ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in _by_topic(self.partitions, message, version, field)
            ],
            user_data=self.user_data,
        )
        return _versioned(body, version)

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """Read SyncGroup's `assignment`. Raises DecodeError and nothing else."""
        if not data:
            return cls()
        version = _version("ConsumerProtocolAssignment", data)
        body = ConsumerProtocolAssignment.decode(memoryview(data)[2:], version)
        return cls(
            partitions=_partitions(body.assigned_partitions),
            user_data=body.user_data,
        )


_made_of: Callable[[tuple[str, int]], TopicPartition] = partial(cast("Any", tuple).__new__, TopicPartition)
"""What `TopicPartition._make` does, without a call in Python: a leader reads some for every member."""


def _partitions(
    topics: Iterable[ConsumerProtocolSubscriptionTopicPartition | ConsumerProtocolAssignmentTopicPartition],
) -> tuple[TopicPartition, ...]:
    return tuple(map(_made_of, [(one.topic, index) for one in topics for index in one.partitions]))


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """The partitions in order, grouped by topic; a partition that is there twice stays twice."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _by_topic(
    partitions: Iterable[TopicPartition], message: str, version: int, field: str
) -> list[tuple[str, list[int]]]:
    try:
        return by_topic(partitions)
    except (TypeError, ValueError):  # no pairs, or not all of one kind
        detail = f"{short_repr(partitions)} are not TopicPartitions of a text and a number"
        raise EncodeError(message, version, field, detail) from None


def _topics(topics: Iterable[str], message: str, version: int) -> list[str]:
    """In order. A text is none: its letters are no topics."""
    if isinstance(topics, str):
        detail = f"a text was given; for one topic give ({brief(topics)},)"
        raise EncodeError(message, version, "topics", detail)
    try:
        return sorted(topics)
    except TypeError:
        raise EncodeError(message, version, "topics", f"{short_repr(topics)} are not texts") from None


def _versioned(body: Message, version: int) -> bytes:
    check_version(type(body), version)
    return version.to_bytes(2, "big") + body.encode(version)


def _version(message: str, data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError(message, -1, "version", 0)
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise DecodeError(message, version, "version", 0, "a negative version")
    return min(version, NEWEST_VERSION)


# User data of the sticky assignors


class StickyUserData(Message, versions="0-1"):
    """Java's StickyAssignor: the previous assignment, and since v1 its generation. No version is written."""

    previous_assignment: list[StickyUserDataTopic]
    generation: Int32 = field("1+", default=-1)


class StickyUserDataTopic(Struct):
    topic: String
    partitions: list[Int32]


class Claim(NamedTuple):
    """What a member says that it holds, and since which generation (None: it doesn't say)."""

    owned: tuple[TopicPartition, ...]
    generation: int | None


NO_CLAIM = Claim((), None)


def sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """What the sticky assignor's next subscription carries after an assignment. Raises EncodeError."""
    pairs = _by_topic(owned, "StickyUserData", 1, "previous_assignment")
    topics = [StickyUserDataTopic(topic=topic, partitions=indexes) for topic, indexes in pairs]
    return StickyUserData(previous_assignment=topics, generation=generation).encode(1)


def read_sticky_user_data(data: bytes | None) -> Claim:
    """The claim in the sticky assignor's user data: with or without generation, or in kafka-python's form."""
    if not data:
        return NO_CLAIM
    for offset, version in ((0, 1), (0, 0), (2, 1), (2, 0)):
        try:
            body = StickyUserData.decode(memoryview(data)[offset:], version)
        except DecodeError:
            continue
        owned = tuple(TopicPartition(t.topic, p) for t in body.previous_assignment for p in t.partitions)
        return Claim(owned, None if body.generation < 0 else body.generation)
    return NO_CLAIM


def cooperative_user_data(generation: int) -> bytes:
    """What the cooperative-sticky assignor's next subscription carries; -1 before the first assignment.

    Raises EncodeError for what is no int32.
    """
    try:
        return generation.to_bytes(4, "big", signed=True)
    except (AttributeError, OverflowError):
        detail = f"{short_repr(generation)} is not a value of int32"
        raise EncodeError("CooperativeStickyUserData", 0, "generation", detail) from None


def read_cooperative_generation(data: bytes | None) -> int | None:
    """The generation in the cooperative-sticky assignor's user data, in Java's form or the sticky one."""
    if data is None or len(data) < 4:
        return None
    if len(data) >= 8:
        generation = read_sticky_user_data(data).generation
        if generation is not None:
            return generation
    generation = int.from_bytes(data[:4], "big", signed=True)
    return None if generation < 0 else generation


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Read a member's metadata as a leader has to: what can't be read claims nothing and wants nothing.

    Old sarama releases wrote version 1 without its field: they are read as version 0.
    """
    for attempt in (data, b"\0\0" + data[2:]):
        try:
            return Subscription.decode(attempt, instance_id)
        except DecodeError:
            continue
    return Subscription(instance_id=instance_id)
