"""TxnOffsetCommit (key 28): offsets that become valid when their transaction is committed."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from ...error_codes import ErrorCode
from ...messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import (
    GROUP_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Access,
    Authorization,
    Authorized,
    group_requirement,
    narrow_commit,
    topic_requirement,
    transactional_id_requirement,
)
from .group_coordinator import handle_group_request
from .partitions import find_partition, missing_topic
from .transaction_coordinator import verify_partitions

# The first version of TxnOffsetCommit in which topics have ids instead of names (KIP-1319).
TOPIC_IDS_SINCE: Final = 6
# The first version in which the commit adds the group to the transaction (KIP-890).
ADDS_SINCE: Final = 5
# The first version whose clients know TRANSACTION_ABORTABLE (KIP-890).
KNOWS_ABORTABLE_SINCE: Final = 4
# The first version whose clients know COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).
KNOWS_LOADING_SINCE: Final = 2


def handle_txn_offset_commit(broker: Broker, call: Call) -> Result:
    """Verify that the transaction contains the group, then store the offsets."""
    request = call.request
    assert isinstance(request, TxnOffsetCommitRequest)
    if call.version < KNOWS_LOADING_SINCE:
        call = broker.replace_call(call, _replace_loading_errors)
    by_id = call.version >= TOPIC_IDS_SINCE
    partitions = [
        _Partition(topic.name, topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    known = {partition for partition in partitions if _exists(broker, partition, by_id=by_id)}
    if not known or not request.group_id:
        return handle_group_request(broker, call)
    error = _verify_group(broker, call, request)
    if error is ErrorCode.NONE:
        result = handle_group_request(broker, call)
        broker.cluster.note_pending_offsets(request.group_id, request.producer_id, request.producer_epoch)
        return result
    unknown = [partition for partition in partitions if partition not in known]
    if not unknown:
        return call.refuse(error)
    errors = [
        *((partition, _missing_error(broker, partition, by_id=by_id)) for partition in unknown),
        *((partition, error) for partition in partitions if partition in known),
    ]
    return _refuse_partitions(errors)


def _verify_group(broker: Broker, call: Call, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Verify that the transaction contains the group, unless it already has offsets of the group (X6).

    Returns the error with which the verification fails, or NONE if it succeeds.
    """
    if broker.cluster.has_pending_offsets(request.group_id, request.producer_id, request.producer_epoch):
        return ErrorCode.NONE
    (error,) = verify_partitions(
        broker,
        call,
        request.transactional_id,
        (request.producer_id, request.producer_epoch),
        [broker.cluster.offsets_partition_of(request.group_id)],
        adds=call.version >= ADDS_SINCE,
        knows_abortable=call.version >= KNOWS_ABORTABLE_SINCE,
    ).values()
    return error


class _Partition(NamedTuple):
    """A partition of a request. Its topic is identified by name, or from v6 on by id."""

    name: str
    topic_id: UUID
    number: int


def _exists(broker: Broker, partition: _Partition, *, by_id: bool) -> bool:
    name = broker.topics.name(partition.topic_id) if by_id else partition.name
    return name is not None and find_partition(broker.topics, name, partition.number) is not None


def _missing_error(broker: Broker, partition: _Partition, *, by_id: bool) -> ErrorCode:
    """Return UNKNOWN_TOPIC_ID if the topic's id is unknown, and UNKNOWN_TOPIC_OR_PARTITION otherwise."""
    is_id_unknown = by_id and broker.topics.name(partition.topic_id) is None
    return missing_topic(by_id=is_id_unknown)


def _replace_loading_errors(response: TxnOffsetCommitResponse) -> None:
    """Replace COORDINATOR_LOAD_IN_PROGRESS with COORDINATOR_NOT_AVAILABLE for old clients (R107)."""
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


def _refuse_partitions(errors: list[tuple[_Partition, ErrorCode]]) -> TxnOffsetCommitResponse:
    """Return a response that lists `errors` in order, grouped by topic (TxnOffsetCommitResponse.Builder)."""
    topics: dict[tuple[str, UUID], TxnOffsetCommitResponseTopic] = {}
    for (name, topic_id, number), code in errors:
        empty = TxnOffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=[])
        topic = topics.setdefault((name, topic_id), empty)
        topic.partitions.append(TxnOffsetCommitResponsePartition(partition_index=number, error_code=code))
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=list(topics.values()))


def _authorize(access: Access, request: TxnOffsetCommitRequest) -> Authorized:
    if not access.allows_transactional_id(Operation.WRITE, request.transactional_id):
        return access.call.refuse(TRANSACTIONAL_ID_FAILED)
    if not access.allows_group(Operation.READ, request.group_id):
        return access.call.refuse(GROUP_FAILED)
    permitted, denied = access.split_topics(Operation.READ, request.topics)
    return narrow_commit(access, permitted, denied)


API = Api(
    request=TxnOffsetCommitRequest,
    handle=handle_txn_offset_commit,
    authorization=Authorization(
        (
            transactional_id_requirement(Operation.WRITE),
            group_requirement(Operation.READ),
            topic_requirement(Operation.READ),
        ),
        _authorize,
    ),
    divided=("topics",),
)
