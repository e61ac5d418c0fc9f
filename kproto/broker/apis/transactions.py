"""Requests of transactions: they go to the coordinator, which answers them itself; what writes asks it first.

Rules, as Kafka's AddPartitionsToTxnManager and ReplicaManager.handleProduceAppend (KIP-890):
  * X6. Records and offsets of a transaction are taken only where it is open and they take part. Newer clients
    take part by writing, older ones have said so before. Once its first record or offset is there, the
    partition knows of the transaction itself, and nobody is asked again, whatever id the request names.
  * Who is fenced hears INVALID_PRODUCER_EPOCH there, and only who knows TRANSACTION_ABORTABLE hears that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ...error_codes import ErrorCode
from ...group.classic.coordinator.responses import group_by_topic, txn_commit_response
from ...messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ...messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ...messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ...messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ...messages.end_txn import EndTxnRequest
from ...messages.init_producer_id import InitProducerIdRequest
from ...messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ...messages.txn_offset_commit import TxnOffsetCommitRequest
from ...transactions import Partition as Name
from ...transactions import Received, Reply
from ...transactions.description import unknown
from ...transactions.responses import refusal
from ...wire.message import Message
from ..broker import Broker
from ..call import PARKED, Call, Result
from ..topics import bad_name
from .group_coordinator import coordinated
from .lookup import find_partition

COMMIT_ADDS_SINCE: Final = 5  # TxnOffsetCommit
COMMIT_ABORTABLE_SINCE: Final = 4
_BETWEEN_BROKERS: Final = 5  # AddPartitionsToTxn


def transacted(broker: Broker, call: Call) -> Result:
    """Pass the request on to the transaction coordinator; another node than its own refuses."""
    request = call.envelope.request
    cluster, here = broker.cluster, broker.node.id
    if isinstance(request, DescribeTransactionsRequest | ListTransactionsRequest):
        _tell_what_is_here(broker, call)
    elif any(cluster.transaction_coordinator_of(name) != here for name in _ids(request)):
        return refusal(request, ErrorCode.NOT_COORDINATOR, call.version)
    broker.step_transaction_coordinator(Received(call.conn, request, call.version), call.now)
    return PARKED


def _ids(request: Message) -> list[str]:
    """The transactional ids that only their coordinator may answer for."""
    match request:
        case AddPartitionsToTxnRequest():
            several = [one.transactional_id for one in request.transactions]
            return [name for name in (*several, request.v3_and_below_transactional_id) if name]
        case InitProducerIdRequest() | AddOffsetsToTxnRequest() | EndTxnRequest():
            return [request.transactional_id] if request.transactional_id else []
        case _:
            return []


def _tell_what_is_here(broker: Broker, call: Call) -> None:
    """Of what the cluster knows, this node tells what it coordinates itself."""
    cluster, here = broker.cluster, broker.node.id
    connection = broker.connections.get(call.conn)
    if len(cluster.brokers) == 1 or connection is None:
        return

    def amend(response: Message) -> Message:
        if isinstance(response, DescribeTransactionsResponse):
            response.transaction_states = [
                one
                if cluster.transaction_coordinator_of(one.transactional_id) == here
                or not one.transactional_id
                else unknown(one.transactional_id, ErrorCode.NOT_COORDINATOR)
                for one in response.transaction_states
            ]
        elif isinstance(response, ListTransactionsResponse):
            response.transaction_states = [
                one
                for one in response.transaction_states
                if cluster.transaction_coordinator_of(one.transactional_id) == here
            ]
        return response if call.amend_response is None else call.amend_response(response)

    connection.current_call = replace(call, amend_response=amend)


def take_part(
    broker: Broker,
    call: Call,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Iterable[Name],
    *,
    adds: bool,
    knows_abortable: bool,
) -> dict[Name, ErrorCode]:
    """Why the producer, by id and epoch, may not write to each of these partitions now, or NONE."""
    if broker.cluster.transaction_coordinator_of(transactional_id) not in broker.cluster.nodes:
        return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    one = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=not adds,
        topics=[AddPartitionsToTxnTopic(name=name, partitions=found) for name, found in topics.items()],
    )
    asked = Received(None, AddPartitionsToTxnRequest(transactions=[one]), _BETWEEN_BROKERS)
    actions = broker.step_transaction_coordinator(asked, call.now)
    (answer,) = (action.response for action in actions if isinstance(action, Reply))
    assert isinstance(answer, AddPartitionsToTxnResponse)
    codes: dict[Name, ErrorCode] = {}
    for topic in answer.results_by_transaction[0].topic_results:
        for partition in topic.results_by_partition:
            code = ErrorCode(partition.partition_error_code)
            if code is ErrorCode.PRODUCER_FENCED:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            elif code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
                code = ErrorCode.INVALID_TXN_STATE
            codes[topic.name, partition.partition_index] = code
    return codes


def txn_offset_commit(broker: Broker, call: Call) -> Result:
    """Ask whether the group's offsets take part, then let the group coordinator keep them until the end."""
    request = call.envelope.request
    assert isinstance(request, TxnOffsetCommitRequest)
    known = {
        (topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if find_partition(broker.topics, topic.name, one.partition_index) is not None
    }
    if not known or not request.group_id:
        return coordinated(broker, call)
    code = ErrorCode.NONE
    if not broker.cluster.has_pending_offsets(request.group_id, request.producer_id, request.producer_epoch):
        (code,) = take_part(
            broker,
            call,
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            [broker.cluster.offsets_partition_of(request.group_id)],
            adds=call.version >= COMMIT_ADDS_SINCE,
            knows_abortable=call.version >= COMMIT_ABORTABLE_SINCE,
        ).values()
    if code is ErrorCode.NONE:
        result = coordinated(broker, call)
        broker.cluster.note_pending_offsets(request.group_id, request.producer_id, request.producer_epoch)
        return result
    asked = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    codes = [code if one in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in asked]
    there = {position for position, one in enumerate(asked) if one in known}
    return txn_commit_response(request, group_by_topic(request.topics, codes, there))


def describe_producers(broker: Broker, call: Call) -> Result:
    """DescribeProducers (key 61): who writes to a partition, and with which transaction open."""
    request = call.envelope.request
    assert isinstance(request, DescribeProducersRequest)
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_producers(broker, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ],
    )


def _producers(broker: Broker, name: str, index: int) -> PartitionResponse:
    partition = find_partition(broker.topics, name, index)
    if partition is None:
        why = bad_name(name)
        code = ErrorCode.INVALID_TOPIC_EXCEPTION if why else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResponse(
            partition_index=index, error_code=code, error_message=why, active_producers=[]
        )
    if not broker.is_leader(partition, index):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionResponse(partition_index=index, error_code=code, active_producers=[])
    active: list[ProducerState] = []
    for producer_id, state in partition.producers.active():
        start = partition.transactions.start_of(producer_id)
        active.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.seen_at,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=-1 if start is None else start,
            )
        )
    return PartitionResponse(partition_index=index, error_code=0, active_producers=active)
