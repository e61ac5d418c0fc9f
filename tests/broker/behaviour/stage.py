"""A transactional producer without a socket, and a reader of committed records."""

from __future__ import annotations

from typing import Any

from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode as E
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproto.records import batches
from tests.broker.stage import Client, Stage, batch_of, fetch_request, fetch_topic, partitions_of


class TransactionalProducer:
    """A minimal transactional producer."""

    def __init__(self, stage: Stage, name: str = "x", *, timeout: int = 60_000) -> None:
        self.stage, self.client, self.name, self.timeout = stage, stage.client(), name, timeout
        self.sequences: dict[tuple[str, int], int] = {}
        self.init()

    def init(self) -> int:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=self.timeout)
        response = self.client.ask(request)
        if response.error_code == E.CONCURRENT_TRANSACTIONS:
            response = self.client.ask(request)
        self.id, self.epoch = response.producer_id, response.producer_epoch
        self.sequences.clear()
        code: int = response.error_code
        return code

    def write(
        self,
        *data: bytes,
        partition: int = 0,
        topic: str = "t",
        version: int = 13,
        keeps: bool = False,
        **fields: Any,
    ) -> Any:
        """Produce a batch.

        If `keeps` is true, the producer's sequence number stays the same, so that the next batch repeats it.
        """
        at = self.sequences.get((topic, partition), 0)
        defaults: dict[str, Any] = {
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "base_sequence": at,
            "is_transactional": True,
        }
        batch = batch_of(*(data or (b"v",)), **{**defaults, **fields})
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=self.stage.broker.topics.id(topic) or NO_ID,
                    partition_data=[PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )
        answer = self.client.ask(request, version).responses[0].partition_responses[0]
        if not answer.error_code and not keeps:
            self.sequences[topic, partition] = at + max(len(data), 1)
        return answer

    def add(self, *partitions: int, version: int = 3) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[*partitions])],
        )
        answer = self.client.ask(request, version).results_by_topic_v3_and_below
        return [result.partition_error_code for topic in answer for result in topic.results_by_partition]

    def add_offsets(self, group: str = "g") -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        code: int = self.client.ask(request).error_code
        return code

    def commit(self, offset: int, *, group: str = "g", version: int = 5, partition: int = 0) -> list[int]:
        partition_commit = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition_commit])],
        )
        return [
            partition.error_code
            for topic in self.client.ask(request, version).topics
            for partition in topic.partitions
        ]

    def end(self, *, committed: bool = True, version: int = 5) -> int:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        response = self.client.ask(request, version)
        if not response.error_code and version >= 5:
            self.id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        code: int = response.error_code
        return code


def read_partition(
    client: Client, offset: int = 0, *, isolation: int = 1, partition: int = 0, **more: Any
) -> Any:
    (data,) = partitions_of(
        client.fetch(fetch_request(fetch_topic(offset, partition, **more), wait=0, isolation=isolation))
    )
    return data


def read_committed(client: Client, **more: Any) -> list[bytes | None]:
    """Fetch once, and return the values that a read_committed consumer would return (KIP-98)."""
    data = read_partition(client, **more)
    aborted = sorted(data.aborted_transactions, key=lambda entry: entry.first_offset)
    out: set[int] = set()
    values: list[bytes | None] = []
    for batch in batches(data.records):
        while aborted and aborted[0].first_offset <= batch.last_offset:
            out.add(aborted.pop(0).producer_id)
        if batch.is_control:
            out.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in out):
            values += [record.value for record in batch.records()]
    return values


def committed_offset(client: Client, group: str = "g", *, stable: bool = False) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    group_request = OffsetFetchRequestGroup(group_id=group, topics=topics)
    response = client.ask(OffsetFetchRequest(groups=[group_request], require_stable=stable), 9)
    committed = response.groups[0].topics[0].partitions[0]
    return committed.error_code, committed.committed_offset
