"""Functions that build the requests of a transactional producer, and functions that read their responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from kproto.errors import UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)

from ...records import GroupMetadata
from ..network.call import Prepared
from ..requests import by_topic, consistent_values

# The last versions that Java's client uses without transaction version 2 (KIP-890). From version 4 on, only
# brokers send AddPartitionsToTxn.
LAST_PRODUCE_VERSION: Final = 11
LAST_END_TXN_VERSION: Final = 4
LAST_OFFSETS_VERSION: Final = 4
# The last version of TxnOffsetCommit with topic names. Later versions use topic ids (KIP-1319).
LAST_OFFSETS_VERSION_WITH_NAMES: Final = 5
LAST_ADD_PARTITIONS_VERSION: Final = 3
# From this version on, InitProducerId can bump the epoch of the producer's own id (KIP-360).
EPOCH_BUMP_VERSION: Final = 3
# From this version on, TxnOffsetCommit identifies the group member (KIP-447).
GROUP_MEMBER_VERSION: Final = 3


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch (Java's ProducerIdAndEpoch)."""

    producer_id: int
    epoch: int


# The offsets to commit: partition -> (offset, leader epoch, metadata).
Offsets = Mapping[TopicPartition, tuple[int, int | None, str]]


def init_producer_id_request(
    transactional_id: str, timeout_ms: int, current: ProducerIdAndEpoch | None
) -> Prepared:
    """Build an InitProducerId request for a new producer id, or for the next epoch of `current`.

    A request without `current` fences the previous producer with the same transactional id. With `current`,
    building the request raises UnsupportedVersion if the version cannot bump an epoch.
    """

    def build(version: int) -> InitProducerIdRequest:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if current is not None:
            if version < EPOCH_BUMP_VERSION:
                raise UnsupportedVersion(
                    "InitProducerId",
                    version,
                    f"{EPOCH_BUMP_VERSION} and higher (Kafka 2.5 and later), because a request of the "
                    f"aborted transaction of {transactional_id!r} was not answered; create a new producer",
                )
            request.producer_id, request.producer_epoch = current
        return request

    return Prepared(InitProducerIdRequest, build)


def add_partitions_request(
    transactional_id: str, identity: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Build an AddPartitionsToTxn request in version 3 or lower, the versions that clients use."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[partition.partition for partition in in_topic])
            for name, in_topic in by_topic(partitions).items()
        ],
    )


def added_partition_codes(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, int]:
    """Map each partition in the response to its error code."""
    return consistent_values(
        (TopicPartition(topic.name, entry.partition_index), entry.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for entry in topic.results_by_partition
    )


def txn_offset_commit_codes(
    topic_ids: Mapping[str, UUID], response: TxnOffsetCommitResponse, version: int
) -> dict[TopicPartition, int]:
    """Map each partition in the response to its error code. `topic_ids` are the topic ids of the request."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    has_ids = version > LAST_OFFSETS_VERSION_WITH_NAMES

    def partition_of(topic: TxnOffsetCommitResponseTopic, index: int) -> TopicPartition:
        return TopicPartition(names.get(topic.topic_id, "") if has_ids else topic.name, index)

    return consistent_values(
        (partition_of(topic, entry.partition_index), entry.error_code)
        for topic in response.topics
        for entry in topic.partitions
    )


def txn_offset_commit_request(
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    member: GroupMetadata,
    offsets: Offsets,
    topic_ids: Mapping[str, UUID],
) -> Prepared:
    """Build a TxnOffsetCommit request.

    If `member` has only a group id, the coordinator accepts the offsets without checking a member.

    From version 6 on, the request identifies topics by id. `topic_ids` must then contain the id of each topic
    (KIP-1319).

    Building the request raises UnsupportedVersion if the version cannot identify the member, as in Java's
    TxnOffsetCommitRequest.Builder. With such a version, the coordinator would accept offsets of a removed
    member.
    """

    is_member = member.generation >= 0 or bool(member.member_id) or member.group_instance_id is not None

    def build(version: int) -> TxnOffsetCommitRequest:
        if is_member and version < GROUP_MEMBER_VERSION:
            raise UnsupportedVersion(
                "TxnOffsetCommit",
                version,
                f"{GROUP_MEMBER_VERSION} and higher (Kafka 2.5 and later), because this coordinator of group "
                f"{member.group_id!r} cannot check the generation of members (KIP-447). With this broker, "
                f"call assign() instead of subscribe(), use a transactional_id for each input partition, and "
                f"call send_offsets({member.group_id!r}, ...)",
            )
        topics: list[TxnOffsetCommitRequestTopic] = []
        for name, partitions in by_topic(offsets).items():
            entries: list[TxnOffsetCommitRequestPartition] = []
            for partition in partitions:
                offset, epoch, metadata = offsets[partition]
                entries.append(
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition.partition,
                        committed_offset=offset,
                        committed_leader_epoch=-1 if epoch is None else epoch,
                        committed_metadata=metadata,
                    )
                )
            if version > LAST_OFFSETS_VERSION_WITH_NAMES:
                topic = TxnOffsetCommitRequestTopic(topic_id=topic_ids[name], partitions=entries)
            else:
                topic = TxnOffsetCommitRequestTopic(name=name, partitions=entries)
            topics.append(topic)
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=member.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=topics,
        )
        if is_member:
            request.generation_id_or_member_epoch = member.generation
            request.member_id = member.member_id
            request.group_instance_id = member.group_instance_id
        return request

    return Prepared(TxnOffsetCommitRequest, build)
