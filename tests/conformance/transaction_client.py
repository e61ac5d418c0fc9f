"""A minimal transactional client on a socket, for scenarios on a real Kafka and on the embedded broker.

The client's results do not depend on the broker or the run. Letters replace producer ids, in the order of
their first use.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kproto.error_codes import ErrorCode
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kproto.messages.describe_transactions import DescribeTransactionsRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.list_transactions import ListTransactionsRequest
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
from kproto.wire.message import Message
from tests.broker.stage import Socket, batch_of, fetch_request, fetch_topic

PATIENCE = 30.0
NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Side:
    """A broker, a topic with two partitions, and the producers that the scenario refers to by name."""

    def __init__(self, bootstrap: str, topic: str, now: int) -> None:
        self.socket = Socket(bootstrap)
        self.topic = topic
        self.now = now  # The timestamp of the last record that this client has written.
        self.who: dict[str, tuple[int, int]] = {"nobody": (-1, -1), "stranger": (987_654_321, 0)}
        self.letters: dict[int, str] = {-1: "-", 0: "0"}
        new_topic = CreatableTopic(
            name=topic, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        self.ask(CreateTopicsRequest(topics=[new_topic]), 7)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the broker coordinates groups and transactions; a new Kafka first creates internal
        topics.
        """
        deadline = time.monotonic() + PATIENCE
        for kind, key in ((0, self.group("g")), (1, self.name("x"))):
            while True:
                answer = self.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 6)
                if answer.coordinators[0].error_code == 0:
                    break
                assert time.monotonic() < deadline
                time.sleep(0.05)
        while self.describe("none")[0] in [code.name for code in NOT_READY]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while self.committed("g")[0][0] in [code.name for code in NOT_READY]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while any(self.fetch(partition)[0] != "NONE" for partition in range(2)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        # A new broker assigns the producer id 0 first, but a broker that has run other tests has assigned it
        # already. An unused producer therefore takes the first id, so that no test receives the id 0.
        first = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        while self.ask(first, 5).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def close(self) -> None:
        self.socket.socket.close()

    def ask(self, request: Message, version: int) -> Any:
        return self.socket.ask(request, version)

    def name(self, name: str) -> str:
        return f"{self.topic}-{name}" if name else ""

    group = name

    def letter(self, producer_id: int) -> str:
        if producer_id not in self.letters:
            self.letters[producer_id] = chr(ord("a") + len(self.letters) - 2)
        return self.letters[producer_id]

    def add_fake(self, name: str, of: str, *, more: int = 0, epoch: int | None = None) -> None:
        """Add a producer that has the producer id of the producer named `of`.

        If `epoch` is None, the new producer's epoch is the epoch of `of` plus `more`.
        """
        producer_id, its = self.who[of]
        self.who[name] = producer_id, its + more if epoch is None else epoch

    # Requests. Each method returns the comparable parts of the response.

    def init(
        self, who: str = "p", *, claimed: str = "nobody", name: str | None = "x", timeout: int = 60_000,
        version: int = 5, until_named: bool = False,
    ) -> Any:  # fmt: skip
        producer_id, epoch = self.who[claimed] if version >= 3 else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=None if name is None else self.name(name),
            transaction_timeout_ms=timeout,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = self.ask(request, version)
        deadline = time.monotonic() + PATIENCE
        retriable = {*NOT_READY, *([ErrorCode.CONCURRENT_TRANSACTIONS] if until_named else [])}
        while answer.error_code in retriable:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            answer = self.ask(request, version)
        if not answer.error_code:
            self.who[who] = answer.producer_id, answer.producer_epoch
        return error_name(answer.error_code), self.letter(answer.producer_id), answer.producer_epoch

    def add(
        self, who: str, *partitions: int, name: str = "x", version: int = 3, topic: str | None = None,
        verify: bool = False,
    ) -> Any:  # fmt: skip
        producer_id, epoch = self.who[who]
        topics = [AddPartitionsToTxnTopic(name=topic or self.topic, partitions=list(partitions or (0,)))]
        if version < 4:
            answer = self.ask(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.name(name),
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=topics,
                ),
                version,
            )
            results = answer.results_by_topic_v3_and_below
        else:
            partition_result = AddPartitionsToTxnTransaction(
                transactional_id=self.name(name),
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verify,
                topics=topics,
            )
            answer = self.ask(AddPartitionsToTxnRequest(transactions=[partition_result]), version)
            results = [
                topic_result
                for result in answer.results_by_transaction
                for topic_result in result.topic_results
            ]
        return sorted(
            (partition_result.partition_index, error_name(partition_result.partition_error_code))
            for result in results
            for partition_result in result.results_by_partition
        )

    def add_offsets(self, who: str, group: str = "g", *, name: str = "x", version: int = 4) -> Any:
        producer_id, epoch = self.who[who]
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name(name),
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=self.group(group),
        )
        return error_name(self.ask(request, version).error_code)

    def end(
        self, who: str, *, committed: bool = True, name: str = "x", version: int = 5, settle: bool = True
    ) -> Any:
        """End the transaction.

        With transaction.version 2, the response contains a new epoch for the producer `who`. A test can still
        send the old epoch under the producer's name with an apostrophe ("a'" for "a").
        """
        producer_id, epoch = self.who[who]
        request = EndTxnRequest(
            transactional_id=self.name(name),
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=committed,
        )
        answer = self.ask(request, version)
        if not answer.error_code and version >= 5:
            self.who[who + "'"] = self.who[who]
            self.who[who] = answer.producer_id, answer.producer_epoch
        if settle and name:
            self.settle(name)
        return error_name(answer.error_code), self.letter(answer.producer_id), answer.producer_epoch

    def settle(self, name: str = "x") -> None:
        """Wait until the markers of the last transaction have been written."""
        deadline = time.monotonic() + PATIENCE
        while "Prepare" in self.describe(name)[1]:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def wait_for_abort(self, name: str = "x") -> Any:
        deadline = time.monotonic() + PATIENCE
        while self.describe(name)[1] != "CompleteAbort":
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return self.describe(name)

    def write(
        self, who: str, *values: bytes, seq: int = 0, partition: int = 0, name: str | None = "x",
        version: int = 12, transactional: bool = True, control: bool = False,
    ) -> Any:  # fmt: skip
        producer_id, epoch = self.who[who]
        self.now += 1
        batch = batch_of(
            *(values or (b"v",)),
            timestamps=[self.now] * max(len(values), 1),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=seq,
            is_transactional=transactional,
            is_control=control,
        )
        part = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=None if name is None else self.name(name),
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[part])],
        )
        answer = self.ask(request, version).responses[0].partition_responses[0]
        return error_name(answer.error_code), answer.base_offset, answer.log_start_offset

    def commit(
        self, who: str, offset: int, *, group: str = "g", name: str = "x", version: int = 5,
        partition: int = 0, generation: int = -1, member: str = "", topic: str | None = None,
    ) -> Any:  # fmt: skip
        producer_id, epoch = self.who[who]
        partition_offset = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=None
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name(name),
            group_id=self.group(group),
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic or self.topic, partitions=[partition_offset])],
        )
        if version >= 3:
            request.generation_id_or_member_epoch, request.member_id = generation, member
        answer = self.ask(request, version)
        return [error_name(partition.error_code) for topic in answer.topics for partition in topic.partitions]

    # State.

    def committed(self, group: str = "g", *, stable: bool = False) -> Any:
        topic = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0, 1])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group(group), topics=[topic])],
            require_stable=stable,
        )
        (group_offsets,) = self.ask(request, 9).groups
        if group_offsets.error_code:
            return [(error_name(group_offsets.error_code), -1)]
        return [
            (error_name(partition.error_code), partition.committed_offset)
            for partition in group_offsets.topics[0].partitions
        ]

    def fetch(
        self, partition: int = 0, *, committed: bool = True, offset: int = 0, max_bytes: int = 1 << 20
    ) -> Any:
        request = fetch_request(
            fetch_topic(offset, partition, topic=self.topic, max_bytes=max_bytes),
            wait=0,
            isolation=int(committed),
        )
        (data,) = self.ask(request, 12).responses[0].partitions
        aborted = data.aborted_transactions
        return (
            error_name(data.error_code),
            (data.log_start_offset, data.last_stable_offset, data.high_watermark),
            None
            if aborted is None
            else [
                (self.letter(transaction.producer_id), transaction.first_offset) for transaction in aborted
            ],
            [self.summarize_batch(batch) for batch in batches(data.records or b"")],
        )

    def summarize_batch(self, batch: Any) -> Any:
        producer = (self.letter(batch.producer_id), batch.producer_epoch, batch.base_sequence)
        flags = (batch.is_transactional, batch.is_control, batch.partition_leader_epoch)
        records = [(record.offset, record.key, record.value) for record in batch.records()]
        return producer, flags, records

    def ends(
        self, timestamps: Sequence[int] = (-1, -2, -3), *, committed: bool = True, version: int = 11
    ) -> Any:
        offsets = []
        for timestamp in timestamps:
            partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed),
                topics=[ListOffsetsTopic(name=self.topic, partitions=[partition])],
                timeout_ms=1000,
            )
            (answer,) = self.ask(request, version).topics[0].partitions
            offsets.append((error_name(answer.error_code), answer.offset, answer.leader_epoch))
        return offsets

    def delete_before(self, offset: int) -> Any:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name=self.topic, partitions=[partition])
        answer = self.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2)
        (result,) = answer.topics[0].partitions
        return error_name(result.error_code), result.low_watermark

    def describe(self, name: str = "x") -> Any:
        answer = self.ask(DescribeTransactionsRequest(transactional_ids=[self.name(name)]), 0)
        (state,) = answer.transaction_states
        inside = sorted(
            (topic.topic.removeprefix(self.topic), sorted(topic.partitions)) for topic in state.topics
        )
        producer = (self.letter(state.producer_id), state.producer_epoch)
        started = state.transaction_start_time_ms if state.transaction_start_time_ms < 1 else "then"
        return (
            error_name(state.error_code),
            state.transaction_state,
            state.transaction_timeout_ms,
            started,
            producer,
            inside,
        )

    def list_transactions(self, *states: str, version: int = 2, **filters: Any) -> Any:
        if "pattern" in filters:
            filters["transactional_id_pattern"] = filters.pop("pattern")
        elif version >= 2:
            filters["transactional_id_pattern"] = f"{self.topic}-.*"
        producers = [self.who[producer][0] for producer in filters.pop("producers", [])]
        request = ListTransactionsRequest(state_filters=[*states], producer_id_filters=producers, **filters)
        answer = self.ask(request, version)
        transactions = sorted(
            (
                state.transactional_id.removeprefix(self.topic),
                self.letter(state.producer_id),
                state.transaction_state,
            )
            for state in answer.transaction_states
            if state.transactional_id.startswith(self.topic)
        )
        return error_name(answer.error_code), sorted(answer.unknown_state_filters), transactions

    def producers(self, partition: int = 0, topic: str | None = None) -> Any:
        request = TopicRequest(name=topic or self.topic, partition_indexes=[partition])
        answer = self.ask(DescribeProducersRequest(topics=[request]), 0)
        (partition_state,) = answer.topics[0].partitions
        return error_name(partition_state.error_code), sorted(
            (
                self.letter(producer.producer_id),
                producer.producer_epoch,
                producer.last_sequence,
                producer.last_timestamp > 0,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )
            for producer in partition_state.active_producers
        )


def error_name(code: int) -> str:
    return ErrorCode(code).name
