"""A stage for the transaction coordinator: virtual time, and requests with all arguments defaulted."""

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
    Coordinator,
    Event,
    MarkersWritten,
    Received,
    Reply,
    Settings,
    Tick,
    Transaction,
    WriteMarkers,
    next_deadline,
    step,
)
from kproto.wire.message import Message

MINUTE = 60_000


class Who(NamedTuple):
    """A producer as it knows itself."""

    producer_id: int
    epoch: int


NOBODY = Who(-1, -1)


class KnownTopics:
    """A broker's topics: `t` with two partitions."""

    def partitions(self, name: str) -> int | None:
        return 2 if name == "t" else None


class Stage:
    """One coordinator, its clock, and the markers that it wants; they are written at once unless `held`."""

    def __init__(self, **settings: int) -> None:
        self.coordinator = Coordinator(Settings(**settings), KnownTopics())
        self.now = 1_000_000
        self.held = False
        self.asked: list[WriteMarkers] = []
        self._answers: list[Any] = []

    def step(self, event: Event) -> None:
        asked: list[WriteMarkers] = []
        for action in step(self.coordinator, event, self.now):
            if isinstance(action, Reply):
                self._answers.append(action.response)
            else:
                asked.append(action)
        self.asked += asked
        for one in [] if self.held else asked:
            self.step(MarkersWritten(one.transactional_id))

    def send(self, request: Message, version: int) -> Any:
        request = type(request).decode(request.encode(version), version)
        self._answers.clear()
        self.step(Received("token", request, version))
        (answer,) = self._answers
        return type(answer).decode(answer.encode(version), version)

    def wait(self, ms: int) -> None:
        """Let time pass, with a Tick whenever one is due."""
        end = self.now + ms
        while (due := next_deadline(self.coordinator)) is not None and due <= end:
            self.now = max(self.now, due)
            self.step(Tick())
        self.now = end

    def transaction(self, name: str = "x") -> Transaction:
        return self.coordinator.find(name)

    # Requests.

    def init(
        self, who: Who = NOBODY, *, name: str | None = "x", timeout: int = MINUTE, version: int = 5
    ) -> Any:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout)
        if version >= 3:
            request.producer_id, request.producer_epoch = who
        return self.send(request, version)

    def named(self, **options: Any) -> Who:
        """A producer that has the id now, whoever had it before."""
        answer = self.init(**options)
        if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            answer = self.init(**options)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        return Who(answer.producer_id, answer.producer_epoch)

    def add(
        self, who: Who, *partitions: tuple[str, int], name: str = "x", version: int = 3, verify: bool = False
    ) -> list[ErrorCode]:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions or (("t", 0),):
            topics.setdefault(topic, []).append(index)
        asked = [AddPartitionsToTxnTopic(name=topic, partitions=found) for topic, found in topics.items()]
        if version < 4:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=who.producer_id,
                v3_and_below_producer_epoch=who.epoch,
                v3_and_below_topics=asked,
            )
            results = self.send(request, version).results_by_topic_v3_and_below
        else:
            one = AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=who.producer_id,
                producer_epoch=who.epoch,
                verify_only=verify,
                topics=asked,
            )
            answer = self.send(AddPartitionsToTxnRequest(transactions=[one]), version)
            results = answer.results_by_transaction[0].topic_results
        return [ErrorCode(p.partition_error_code) for topic in results for p in topic.results_by_partition]

    def add_offsets(self, who: Who, group: str = "g", *, name: str = "x", version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=who.producer_id, producer_epoch=who.epoch, group_id=group
        )
        return ErrorCode(self.send(request, version).error_code)

    def end(self, who: Who, *, committed: bool = True, name: str = "x", version: int = 5) -> Any:
        request = EndTxnRequest(
            transactional_id=name, producer_id=who.producer_id, producer_epoch=who.epoch, committed=committed
        )
        return self.send(request, version)

    def ended(self, who: Who, *, committed: bool = True, name: str = "x") -> Who:
        """Who the producer is after its transaction."""
        answer = self.end(who, committed=committed, name=name)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        return Who(answer.producer_id, answer.producer_epoch)

    def describe(self, name: str = "x") -> TransactionState:
        answer = self.send(DescribeTransactionsRequest(transactional_ids=[name]), 0)
        state: TransactionState = answer.transaction_states[0]
        return state

    def listed(self, *states: str, **filters: Any) -> Any:
        given: Mapping[str, Any] = {"producer_id_filters": [], **filters}
        return self.send(ListTransactionsRequest(state_filters=[*states], **given), 2)
