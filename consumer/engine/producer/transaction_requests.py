"""The requests of a transaction (KIP-98, KIP-447, KIP-890), each for all versions that may be spoken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

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
)

from ...records import GroupMetadata
from ..network.connection import Prepared
from ..requests import by_topic, said_once
from .batches import Identity

# The last versions before KIP-890's second one, as Kafka's clients have them. AddPartitionsToTxn is the
# brokers' own from version 4 on.
LAST_PRODUCE: Final = 11
LAST_END: Final = 4
LAST_OFFSETS: Final = 4
LAST_PARTITIONS: Final = 3
OWN_EPOCH_FROM: Final = 3  # KIP-360: a producer asks for the next epoch of its own id
MEMBERS_FROM: Final = 3  # KIP-447: who commits offsets says who it is in the group

# Partition -> offset, leader epoch, metadata.
Offsets = Mapping[TopicPartition, tuple[int, int | None, str]]


def name_request(transactional_id: str, timeout_ms: int, own: Identity | None) -> Prepared:
    """For an id, which fences who had it before; or for the next epoch of one's `own`."""

    def build(version: int) -> InitProducerIdRequest:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if own is not None:
            if version < OWN_EPOCH_FROM:
                detail = f"a transaction of {transactional_id!r} failed: make a new producer"
                raise UnsupportedVersion(
                    "InitProducerId", version, f"{detail} (brokers from 2.5 on need none)"
                )
            request.producer_id, request.producer_epoch = own
        return request

    return Prepared(InitProducerIdRequest, build)


def partitions_request(
    transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """What clients send, up to version 3."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=[one.partition for one in found])
            for name, found in by_topic(partitions).items()
        ],
    )


def partitions_answered(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, int]:
    """The code of each partition that the answer mentions."""
    return said_once(
        (TopicPartition(topic.name, entry.partition_index), entry.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for entry in topic.results_by_partition
    )


def offsets_answered(response: TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    """The code of each partition that the answer mentions."""
    return said_once(
        (TopicPartition(topic.name, entry.partition_index), entry.error_code)
        for topic in response.topics
        for entry in topic.partitions
    )


def offsets_request(
    transactional_id: str, identity: Identity, member: GroupMetadata, offsets: Offsets
) -> Prepared:
    """Without a generation (-1) the group asks nobody who commits."""

    def build(version: int) -> TxnOffsetCommitRequest:
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
            topics.append(TxnOffsetCommitRequestTopic(name=name, partitions=entries))
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=member.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=topics,
        )
        if version >= MEMBERS_FROM:
            request.generation_id = member.generation
            request.member_id = member.member_id
            request.group_instance_id = member.group_instance_id
        return request

    return Prepared(TxnOffsetCommitRequest, build)
