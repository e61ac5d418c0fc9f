"""A stage for the transaction coordinator: virtual time, and requests with defaults for all arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kproto.error_codes import ErrorCode
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kproto.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.list_transactions import ListTransactionsRequest
from kproto.transactions import (
    MarkersWritten,
    RequestReceived,
    SendResponse,
    Tick,
    TransactionCoordinator,
    TransactionEvent,
    TransactionMetadata,
    TransactionSettings,
    WriteMarkers,
    next_deadline,
    step,
)
from kproto.wire.message import Message

MINUTE = 60_000


class Identity(NamedTuple):
    """The producer id and epoch of a producer."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)


class TwoPartitions:
    """A broker with one topic, `t`, of two partitions."""

    def partitions(self, name: str) -> int | None:
        return 2 if name == "t" else None


class Stage:
    """One coordinator, its virtual clock, and the markers that it requests.

    Requested markers are written immediately, unless `hold_markers` is set.
    """

    def __init__(self, **settings: int) -> None:
        self.coordinator = TransactionCoordinator(TransactionSettings(**settings), TwoPartitions())
        self.now = 1_000_000
        self.hold_markers = False
        self.markers: list[WriteMarkers] = []
        self._responses: list[Any] = []

    def step(self, event: TransactionEvent) -> None:
        requested: list[WriteMarkers] = []
        for action in step(self.coordinator, event, self.now):
            if isinstance(action, SendResponse):
                self._responses.append(action.response)
            else:
                requested.append(action)
        self.markers += requested
        if not self.hold_markers:
            for markers in requested:
                self.step(MarkersWritten(markers.transactional_id))

    def send(self, request: Message, version: int) -> Any:
        request = type(request).decode(request.encode(version), version)
        self._responses.clear()
        self.step(RequestReceived("token", request, version))
        (response,) = self._responses
        return type(response).decode(response.encode(version), version)

    def wait(self, ms: int) -> None:
        """Let time pass, with a Tick whenever one is due."""
        end = self.now + ms
        while (deadline := next_deadline(self.coordinator)) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.step(Tick())
        self.now = end

    def transaction(self, transactional_id: str = "x") -> TransactionMetadata:
        return self.coordinator.find(transactional_id)

    # Methods that send requests. The transactional id is "x" by default.

    def init(
        self,
        identity: Identity = NO_IDENTITY,
        *,
        transactional_id: str | None = "x",
        timeout: int = MINUTE,
        version: int = 5,
    ) -> Any:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout)
        if version >= 3:
            request.producer_id, request.producer_epoch = identity
        return self.send(request, version)

    def take_id(self, **options: Any) -> Identity:
        """Send InitProducerId, which fences any previous producer; return the new producer id and epoch."""
        response = self.init(**options)
        if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            response = self.init(**options)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return Identity(response.producer_id, response.producer_epoch)

    def add(
        self,
        identity: Identity,
        *partitions: tuple[str, int],
        transactional_id: str = "x",
        version: int = 3,
        verify: bool = False,
    ) -> list[ErrorCode]:
        """Add partitions, by default t-0, to the transaction; return the error code of each."""
        indexes: dict[str, list[int]] = {}
        for name, index in partitions or (("t", 0),):
            indexes.setdefault(name, []).append(index)
        topics = [AddPartitionsToTxnTopic(name=name, partitions=those) for name, those in indexes.items()]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=topics,
            )
            results = self.send(request, version).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                verify_only=verify,
                topics=topics,
            )
            response = self.send(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            results = response.results_by_transaction[0].topic_results
        return [ErrorCode(p.partition_error_code) for topic in results for p in topic.results_by_partition]

    def add_offsets(
        self, identity: Identity, group: str = "g", *, transactional_id: str = "x", version: int = 4
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group,
        )
        return ErrorCode(self.send(request, version).error_code)

    def end(
        self,
        identity: Identity,
        *,
        committed: bool = True,
        transactional_id: str = "x",
        version: int = 5,
    ) -> Any:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=committed,
        )
        return self.send(request, version)

    def end_successfully(
        self, identity: Identity, *, committed: bool = True, transactional_id: str = "x"
    ) -> Identity:
        """End the transaction, and return the producer id and epoch from the response."""
        response = self.end(identity, committed=committed, transactional_id=transactional_id)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return Identity(response.producer_id, response.producer_epoch)

    def describe(self, transactional_id: str = "x") -> TransactionState:
        response = self.send(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        state: TransactionState = response.transaction_states[0]
        return state

    def list_transactions(self, *states: str, **filters: Any) -> Any:
        options: Mapping[str, Any] = {"producer_id_filters": [], **filters}
        return self.send(ListTransactionsRequest(state_filters=[*states], **options), 2)
