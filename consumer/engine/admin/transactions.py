"""Admin operations that list, describe and abort transactions, and describe and fence producers.

See KIP-664, and KIP-618 for fencing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kproto.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kproto.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from ..error_actions import ADMIN, GROUPS, ErrorAction, Row
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from ..requests import by_topic
from .cluster import COORDINATOR_KEYS, read_metadata
from .fanout import Answer, Router, fan_out, single_value, to_coordinators, to_leaders, to_nodes
from .plan import Plan, expect_response

# The key type of FindCoordinator.
_TRANSACTIONAL_ID = COORDINATOR_KEYS.index("transactional id")

# The actions for the error codes of InitProducerId. CONCURRENT_TRANSACTIONS is retried, as in Java's
# FenceProducersHandler: the coordinator is still completing the transaction.
_FENCE_PRODUCERS: Row = {**GROUPS, ErrorCode.CONCURRENT_TRANSACTIONS: ErrorAction.RETRY}


class TransactionListing(msgspec.Struct, frozen=True, order=True):
    """A transaction, as its coordinator listed it. Java: TransactionListing.

    `state` is Kafka's name for the state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit,
    CompleteAbort, Dead or PrepareEpochFence.
    """

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(msgspec.Struct, frozen=True):
    """A transaction, as its coordinator described it. Java: TransactionDescription.

    `start_time_ms` is when the open transaction began (ms since 1970), or None if no transaction is open.
    `partitions` contains the partitions that the producer has added to the transaction.
    """

    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: frozenset[TopicPartition]


class ProducerState(msgspec.Struct, frozen=True, order=True):
    """An idempotent or transactional producer of a partition, as the leader described it.

    `last_timestamp` is the time of the producer's last batch (ms since 1970). Java: ProducerState.

    `current_transaction_start_offset` is the first offset of the open transaction, or None if no transaction
    is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int | None
    current_transaction_start_offset: int | None


def list_transactions(
    view: ClusterView,
    clock: Callable[[], int],
    *,
    states: Collection[str],
    producer_ids: Collection[int],
    min_duration_ms: int | None,
) -> Plan[dict[int, list[TransactionListing]]]:
    """Return the transactions that each broker coordinates: node id -> transactions."""
    yield from read_metadata(view, [], clock)

    def request(nodes: Sequence[int]) -> Prepared:
        return list_transactions_request(states, producer_ids, min_duration_ms)

    def read(call: Call, nodes: Sequence[int]) -> Iterator[Answer[int, list[TransactionListing]]]:
        response = expect_response(ListTransactionsResponse, call)
        listings = [
            TransactionListing(entry.transactional_id, entry.producer_id, entry.transaction_state)
            for entry in response.transaction_states
        ]
        unknown_states = ", ".join(response.unknown_state_filters)
        message = f"the broker knows no state {unknown_states}" if unknown_states else None
        code = response.error_code or (ErrorCode.INVALID_REQUEST if unknown_states else 0)
        for node in nodes:
            yield Answer(node, sorted(listings), code, message)

    router: Router[int] = to_nodes(view, clock, lambda node: node)
    name = "broker {}".format
    return (
        yield from fan_out(sorted(view.brokers), router, "ListTransactions", GROUPS, request, read, name=name)
    )


def list_transactions_request(
    states: Collection[str], producer_ids: Collection[int], min_duration_ms: int | None
) -> Prepared:
    """Return a ListTransactions request. `min_duration_ms` requires brokers of Kafka 3.8 or later.

    For brokers before 3.8, building a request with `min_duration_ms` raises UnsupportedVersion.
    """

    def build(version: int) -> ListTransactionsRequest:
        if min_duration_ms is not None and version < 1:
            allowed = "1 and higher (Kafka 3.8 and later) to filter by duration"
            raise UnsupportedVersion("ListTransactions", version, allowed)
        return ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if min_duration_ms is None else min_duration_ms,
        )

    return Prepared(ListTransactionsRequest, build)


def describe_transactions(
    view: ClusterView, transactional_ids: Collection[str], clock: Callable[[], int]
) -> Plan[dict[str, TransactionDescription]]:
    """Return the description of each transactional id's transaction, from its coordinator."""

    def request(ids: Sequence[str]) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=list(ids))

    def read(call: Call, ids: Sequence[str]) -> Iterator[Answer[str, TransactionDescription]]:
        for state in expect_response(DescribeTransactionsResponse, call).transaction_states:
            description = TransactionDescription(
                -1 if call.node is None else call.node,
                state.transaction_state,
                state.producer_id,
                state.producer_epoch,
                state.transaction_timeout_ms,
                state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
                frozenset(
                    TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions
                ),
            )
            yield Answer(state.transactional_id, description, state.error_code)

    router: Router[str] = to_coordinators(view, _TRANSACTIONAL_ID)
    return (
        yield from fan_out(
            transactional_ids, router, "DescribeTransactions", GROUPS, request, read, name=_describe_id
        )
    )


def describe_producers(
    view: ClusterView,
    partitions: Collection[TopicPartition],
    clock: Callable[[], int],
    *,
    broker: int | None,
) -> Plan[dict[TopicPartition, list[ProducerState]]]:
    """Return the active producers of each partition, from its leader or from the replica on `broker`."""

    def request(items: Sequence[TopicPartition]) -> DescribeProducersRequest:
        topics = [
            TopicRequest(name=name, partition_indexes=[p.partition for p in entries])
            for name, entries in by_topic(items).items()
        ]
        return DescribeProducersRequest(topics=topics)

    def read(
        call: Call, items: Sequence[TopicPartition]
    ) -> Iterator[Answer[TopicPartition, list[ProducerState]]]:
        for topic in expect_response(DescribeProducersResponse, call).topics:
            for entry in topic.partitions:
                states = [
                    ProducerState(
                        state.producer_id,
                        state.producer_epoch,
                        state.last_sequence,
                        state.last_timestamp,
                        state.coordinator_epoch if state.coordinator_epoch >= 0 else None,
                        state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
                    )
                    for state in entry.active_producers
                ]
                partition = TopicPartition(topic.name, entry.partition_index)
                yield Answer(partition, sorted(states), entry.error_code, entry.error_message)

    router: Router[TopicPartition]
    if broker is None:
        router = to_leaders(view, clock, _identity)
    else:
        router = to_nodes(view, clock, lambda partition: broker)
    return (yield from fan_out(partitions, router, "DescribeProducers", ADMIN, request, read))


def abort_transaction(
    view: ClusterView,
    partition: TopicPartition,
    clock: Callable[[], int],
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> Plan[None]:
    """Write an abort marker into one partition, for a transaction that its coordinator does not know."""

    def request(items: Sequence[TopicPartition]) -> WriteTxnMarkersRequest:
        topic = WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=coordinator_epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def read(call: Call, items: Sequence[TopicPartition]) -> Iterator[Answer[TopicPartition, None]]:
        for marker in expect_response(WriteTxnMarkersResponse, call).markers:
            for topic in marker.topics:
                for entry in topic.partitions:
                    yield Answer(TopicPartition(topic.name, entry.partition_index), None, entry.error_code)

    router = to_leaders(view, clock, _identity)
    return (yield from single_value(fan_out([partition], router, "WriteTxnMarkers", ADMIN, request, read)))


def fence_producers(
    view: ClusterView, transactional_ids: Collection[str], clock: Callable[[], int], *, timeout_ms: int
) -> Plan[dict[str, tuple[int, int]]]:
    """Fence the producers of these transactional ids, and abort their transactions.

    The result maps each transactional id to the producer id and epoch that the coordinator has assigned.
    """

    # An InitProducerId request is for one transactional id (`one_by_one`).
    def request(ids: Sequence[str]) -> InitProducerIdRequest:
        return InitProducerIdRequest(transactional_id=ids[0], transaction_timeout_ms=timeout_ms)

    def read(call: Call, ids: Sequence[str]) -> Iterator[Answer[str, tuple[int, int]]]:
        response = expect_response(InitProducerIdResponse, call)
        yield Answer(ids[0], (response.producer_id, response.producer_epoch), response.error_code)

    router: Router[str] = to_coordinators(view, _TRANSACTIONAL_ID)
    return (
        yield from fan_out(
            transactional_ids,
            router,
            "InitProducerId",
            _FENCE_PRODUCERS,
            request,
            read,
            one_by_one=True,
            name=_describe_id,
        )
    )


def force_terminate_transaction(
    view: ClusterView, transactional_id: str, clock: Callable[[], int], *, timeout_ms: int
) -> Plan[None]:
    """Abort the transaction of a transactional id, even a prepared one (KIP-939), and fence the producer."""
    yield from single_value(fence_producers(view, [transactional_id], clock, timeout_ms=timeout_ms))


def _identity(partition: TopicPartition) -> TopicPartition:
    return partition


def _describe_id(transactional_id: str) -> str:
    return f"transactional id {transactional_id!r}"
