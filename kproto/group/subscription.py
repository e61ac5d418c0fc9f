"""The subscription in JoinGroup's `metadata`, and the assignment in SyncGroup's `assignment`.

The metadata and the assignment begin with an int16, the version. `ConsumerProtocolSubscription` (R181) or
`ConsumerProtocolAssignment` (R184) follows. The rules follow Kafka's `ConsumerProtocol`:

* R182: version 3 is written unless the caller requests another version. Topics and partitions are sorted, so
  equal subscriptions have equal bytes (M74).

* R40, R181: the instance id is not encoded. The coordinator passes it to the leader.

* R183: a version above 3 is read as version 3, and the bytes after its fields are ignored. A negative version
  or missing bytes raise DecodeError.

* R64, R184: an empty `assignment` field is an empty assignment. The broker sends it to members that the
  leader's SyncGroup does not list.

The assignor defines the user data:

* sticky: the previous assignment and its generation, without a version number. Old versions of the assignor
  omit the generation (R211).

* cooperative-sticky: only the generation (R214).

* librdkafka and franz-go write the sticky format for cooperative-sticky, too. kafka-python writes a version
  number before the sticky format.

A leader reads the user data of all these clients. It ignores user data that it cannot decode, so that no
member can prevent an assignment.
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

# KIP-881.
NEWEST_VERSION = 3

# The size in bytes of the int16 before the encoded message.
_VERSION_SIZE = 2


class TopicPartition(NamedTuple):
    """One partition of one topic. Partitions are ordered by topic, then by index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """The subscription of one member, as the leader sees it. Java: ConsumerPartitionAssignor.Subscription."""

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    # The generation in which `owned` was assigned; None if the member does not report it.
    generation: int | None = None
    rack_id: str | None = None
    # The instance id of a static member. JoinGroup has a separate field for it.
    instance_id: str | None = None

    def encode(self, version: int = NEWEST_VERSION) -> bytes:
        """Encode the subscription as JoinGroup's `metadata`, without the fields that `version` does not have.

        Raises EncodeError for values that cannot be encoded, and UnsupportedVersion for an unknown version.
        """
        message = "ConsumerProtocolSubscription"
        body = ConsumerProtocolSubscription(
            topics=_sorted_topics(self.topics, message, version),
            user_data=self.user_data,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in _checked_by_topic(self.owned, message, version, "owned_partitions")
            ],
            generation_id=-1 if self.generation is None else self.generation,
            rack_id=self.rack_id,
        )
        return _encode_with_version(body, version)

    @classmethod
    def decode(cls, data: bytes, instance_id: str | None = None) -> Subscription:
        """Decode JoinGroup's `metadata`. Invalid bytes raise DecodeError, and no other error."""
        version = _read_version("ConsumerProtocolSubscription", data)
        body = ConsumerProtocolSubscription.decode(memoryview(data)[_VERSION_SIZE:], version)
        return cls(
            topics=tuple(body.topics),
            user_data=body.user_data,
            owned=_topic_partitions(body.owned_partitions),
            generation=None if body.generation_id < 0 else body.generation_id,
            rack_id=body.rack_id or None,
            instance_id=instance_id,
        )


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The assignment of one member. Java: ConsumerPartitionAssignor.Assignment."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None

    def encode(self, version: int = NEWEST_VERSION) -> bytes:
        """Encode the assignment as SyncGroup's `assignment`.

        Raises the same errors as `Subscription.encode`.
        """
        message, field_name = "ConsumerProtocolAssignment", "assigned_partitions"
        body = ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in _checked_by_topic(self.partitions, message, version, field_name)
            ],
            user_data=self.user_data,
        )
        return _encode_with_version(body, version)

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """Decode SyncGroup's `assignment`. Invalid bytes raise DecodeError, and no other error."""
        if not data:
            return cls()
        version = _read_version("ConsumerProtocolAssignment", data)
        body = ConsumerProtocolAssignment.decode(memoryview(data)[_VERSION_SIZE:], version)
        return cls(
            partitions=_topic_partitions(body.assigned_partitions),
            user_data=body.user_data,
        )


# Equivalent to `TopicPartition._make`, but faster, because no Python function is called. A leader decodes the
# partitions of every member.
_to_partition: Callable[[tuple[str, int]], TopicPartition] = partial(
    cast("Any", tuple).__new__, TopicPartition
)


def _topic_partitions(
    topics: Iterable[ConsumerProtocolSubscriptionTopicPartition | ConsumerProtocolAssignmentTopicPartition],
) -> tuple[TopicPartition, ...]:
    """Return the partitions of a decoded subscription or assignment, in the order of its topics."""
    return tuple(map(_to_partition, [(entry.topic, index) for entry in topics for index in entry.partitions]))


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Return the partitions sorted and grouped by topic. Duplicates are kept."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _checked_by_topic(
    partitions: Iterable[TopicPartition], message: str, version: int, field_name: str
) -> list[tuple[str, list[int]]]:
    """Return `by_topic(partitions)`, or raise EncodeError if an element is not a TopicPartition."""
    try:
        return by_topic(partitions)
    # The list has elements that are not pairs, or elements of different types.
    except (TypeError, ValueError):
        detail = f"{short_repr(partitions)} are not TopicPartitions of a str and an int"
        raise EncodeError(message, version, field_name, detail) from None


def _sorted_topics(topics: Iterable[str], message: str, version: int) -> list[str]:
    """Return the topics sorted, or raise EncodeError if they cannot be sorted.

    A single str is an error, because it would be sorted as a list of one-character topics.
    """
    if isinstance(topics, str):
        detail = f"a str is not a sequence of topics; for one topic give ({brief(topics)},)"
        raise EncodeError(message, version, "topics", detail)
    try:
        return sorted(topics)
    except TypeError:
        raise EncodeError(message, version, "topics", f"{short_repr(topics)} is not a list of str") from None


def _encode_with_version(body: Message, version: int) -> bytes:
    """Encode `version` and then the message. Raises UnsupportedVersion for an unknown version."""
    check_version(type(body), version)
    return version.to_bytes(_VERSION_SIZE, "big") + body.encode(version)


def _read_version(message: str, data: bytes) -> int:
    """Return the version with which to decode `data`: its own version, but at most NEWEST_VERSION (R183)."""
    if len(data) < _VERSION_SIZE:
        raise DecodeError(message, -1, "version", 0)
    version = int.from_bytes(data[:_VERSION_SIZE], "big", signed=True)
    if version < 0:
        raise DecodeError(message, version, "version", 0, "the version is negative")
    return min(version, NEWEST_VERSION)


# User data of the sticky and cooperative-sticky assignors.


class StickyUserData(Message, versions="0-1"):
    """The user data of Java's StickyAssignor: the previous assignment, and from version 1 on its generation.

    The version number is not part of the encoded bytes.
    """

    previous_assignment: list[StickyUserDataTopic]
    generation: Int32 = field("1+", default=-1)


class StickyUserDataTopic(Struct):
    topic: String
    partitions: list[Int32]


class ReportedOwnership(NamedTuple):
    """The partitions that a member reports as owned, and the generation in which they were assigned.

    `generation` is None if the member does not report it.
    """

    owned: tuple[TopicPartition, ...]
    generation: int | None


# The member reports no partitions, or its report cannot be decoded.
NO_CLAIM = ReportedOwnership((), None)


def sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """Return the sticky assignor's user data for an assignment. Raise EncodeError for invalid partitions."""
    indexes_by_topic = _checked_by_topic(owned, "StickyUserData", 1, "previous_assignment")
    topics = [StickyUserDataTopic(topic=topic, partitions=indexes) for topic, indexes in indexes_by_topic]
    return StickyUserData(previous_assignment=topics, generation=generation).encode(1)


def read_sticky_user_data(data: bytes | None) -> ReportedOwnership:
    """Decode the sticky assignor's user data in any client's format; return NO_CLAIM if no format fits."""
    if not data:
        return NO_CLAIM
    # Version 0 of the user data has no generation. kafka-python writes a version number of 2 bytes before the
    # data, so decoding also starts at offset 2.
    for offset, version in ((0, 1), (0, 0), (2, 1), (2, 0)):
        try:
            body = StickyUserData.decode(memoryview(data)[offset:], version)
        except DecodeError:
            continue
        owned = tuple(
            TopicPartition(entry.topic, index)
            for entry in body.previous_assignment
            for index in entry.partitions
        )
        return ReportedOwnership(owned, None if body.generation < 0 else body.generation)
    return NO_CLAIM


def cooperative_user_data(generation: int) -> bytes:
    """Return the user data of the cooperative-sticky assignor: the generation, or -1 if it is unknown.

    Raises EncodeError for a value that is not an int32.
    """
    try:
        return generation.to_bytes(4, "big", signed=True)
    except (AttributeError, OverflowError):
        detail = f"{short_repr(generation)} is not a value of int32"
        raise EncodeError("CooperativeStickyUserData", 0, "generation", detail) from None


def read_cooperative_generation(data: bytes | None) -> int | None:
    """Return the generation in a cooperative-sticky member's user data, or None if the data contain none.

    The user data has the format of Java's CooperativeStickyAssignor or of Java's StickyAssignor.
    """
    if data is None or len(data) < 4:
        return None
    # The format of cooperative-sticky has 4 bytes: the generation. The format of sticky has at least 8 bytes
    # if it contains a generation.
    if len(data) >= 8:
        generation = read_sticky_user_data(data).generation
        if generation is not None:
            return generation
    generation = int.from_bytes(data[:4], "big", signed=True)
    return None if generation < 0 else generation


def read_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Decode a member's metadata as a leader does. Undecodable metadata counts as an empty subscription.

    Old sarama releases write version 1 but omit the field that version 1 added. Such metadata is read as
    version 0.
    """
    data_as_version_0 = b"\0\0" + data[_VERSION_SIZE:]
    for candidate in (data, data_as_version_0):
        try:
            return Subscription.decode(candidate, instance_id)
        except DecodeError:
            continue
    return Subscription(instance_id=instance_id)
