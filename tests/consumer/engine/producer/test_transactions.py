"""The producer engine sends the requests of transactions as Java does, to a scripted coordinator.

tests/conformance/test_transactions_on_kafka.py runs transactions against Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from consumer import Producer
from consumer.engine.producer.transaction_states import CALLS, EDGES, ProducerTransactionState
from consumer.engine.timeouts import FAILURE_REPORT_DELAY_MS
from consumer.options import producer_options
from consumer.records import GroupMetadata
from kproto.error_codes import ErrorCode
from kproto.errors import (
    BrokerError,
    ConfigError,
    Fenced,
    IllegalState,
    KprotoError,
    NotAuthorized,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.produce import ProduceRequest
from kproto.messages.txn_offset_commit import TxnOffsetCommitRequest
from kproto.records import batches
from kproto.records.list_encoder import unnumbered
from kproto.wire.types import ZERO_UUID
from tests.consumer.scripted_coordinator import Script
from tests.consumer.stage import World, tp

# A key is an API key (Produce, InitProducerId, AddPartitionsToTxn, EndTxn, TxnOffsetCommit). A value is the
# highest version that brokers before Kafka 2.5 support.
BEFORE_KAFKA_2_5 = {0: 8, 22: 2, 24: 1, 26: 1, 28: 2}


class TransactionWorld(Script):
    """A simulated cluster with a transactional producer whose requests are answered by a script."""

    def __init__(self, *, second: bool = False, **options: Any) -> None:
        super().__init__(second=second)
        self.world = World({"t": 2})
        self.world.tamper = self.answer
        self.producer = self.world.producer(transactional_id="x", linger_ms=0, **options)
        engine = self.producer.engine
        assert engine.transactions is not None
        self.engine, self.machine = engine, engine.transactions
        self.place = engine.core.network.bootstrap[0]

    def call(self, operation: str) -> KprotoError | None:
        """Start an operation, wait for its end, and return its error."""
        call = self.machine.call(operation)
        self.producer.tick()
        assert self.world.run(60_000, until=lambda: call.done), self.machine.open_reason()
        call.reported = True
        return call.error

    def begin(self) -> None:
        assert self.call("begin") is None
        assert self.machine.state is ProducerTransactionState.IN_TRANSACTION

    def run_until(self, request_: type) -> None:
        """Run the simulated cluster until the coordinator has received a request of this type."""
        assert self.world.run(until=lambda: any(isinstance(request, request_) for request in self.asked))

    def numbers(self) -> list[tuple[int, int, bool]]:
        """Return the epoch, first sequence number and transactional flag of each sent batch."""
        return [
            (batch.producer_epoch, batch.base_sequence, batch.is_transactional)
            for request in self.asked
            if isinstance(request, ProduceRequest)
            for topic in request.topic_data
            for entry in topic.partition_data
            for batch in batches(entry.records or b"")
        ]


def test_a_transaction_sends_the_requests_of_kafkas_client_in_its_order() -> None:
    play = TransactionWorld()
    play.begin()
    assert play.kinds() == ["FindCoordinator", "InitProducerId"]
    play.producer.must_send("t", "a", partition=0)
    play.producer.tick()
    assert play.call("commit") is None
    assert play.kinds() == ["AddPartitionsToTxn", "Produce", "EndTxn"]
    assert play.machine.state is ProducerTransactionState.READY


def test_with_kip_890_no_partition_is_added_and_each_transaction_has_its_own_epoch() -> None:
    play = TransactionWorld(second=True)
    for _ in range(2):
        play.begin()
        play.producer.must_send("t", "a", partition=0)
        play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp("t", 0): (5, None, "")})
        assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (1, 0, True)]
    kinds = play.kinds()
    assert [kind for kind in kinds if kind.startswith("Add")] == []
    assert kinds.count("EndTxn") == kinds.count("TxnOffsetCommit") == kinds.count("Produce") == 2


def test_with_kip_890_an_abort_needs_no_new_producer_id() -> None:
    play = TransactionWorld(second=True)
    play.refusals[ProduceRequest] = [120]
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    assert play.call("commit") is not None
    assert play.call("abort") is None
    assert play.kinds() == ["FindCoordinator", "InitProducerId", "Produce", "EndTxn"]


def test_batches_are_transactional_and_sequence_numbers_continue() -> None:
    play = TransactionWorld()
    for _ in range(2):
        play.begin()
        play.producer.must_send("t", "a", partition=0)
        play.producer.must_send("t", "b", partition=0)
        assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (0, 2, True)]
    assert {request.transactional_id for request in play.asked if isinstance(request, ProduceRequest)} == {
        "x"
    }


def test_a_commit_sends_the_records_without_waiting_for_linger_ms() -> None:
    world = World({"t": 1})
    producer = world.producer(transactional_id="x", linger_ms=50_000)
    transactions = producer.engine.transactions
    assert transactions is not None
    begin = transactions.call("begin")
    producer.tick()
    assert world.run(until=lambda: begin.done)
    batch = producer.must_send("t", "a")
    commit = transactions.call("commit")
    producer.tick()
    assert world.run(1_000, until=lambda: commit.done)
    assert (batch.done, batch.error, commit.error) == (True, None, None)


def test_an_empty_transaction_sends_no_request() -> None:
    play = TransactionWorld()
    play.begin()
    assert play.call("commit") is None
    play.begin()
    assert play.call("abort") is None
    assert play.kinds() == ["FindCoordinator", "InitProducerId"]


def test_sends_outside_of_a_transaction_raise() -> None:
    play = TransactionWorld()
    with pytest.raises(IllegalState, match=r"it has no producer id yet; allowed now: begin\(\)"):
        play.engine.append("t", None, b"a", 0, 0, ())
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    assert play.engine.records.partition_count("t") == 2
    assert play.call("commit") is None
    with pytest.raises(IllegalState, match="no transaction is open"):
        play.engine.append("t", None, b"a", 0, 0, ())
    # `send_columns` calls `count` and `append_batch`, which must raise the same error as `append`.
    with pytest.raises(IllegalState, match="no transaction is open"):
        play.engine.records.partition_count("t")
    whole = unnumbered([5], [None], [b"a"], [()])
    with pytest.raises(IllegalState, match="no transaction is open"):
        play.engine.records.append_batch("t", 0, whole, [5])
    assert play.engine.records.open_batches == {}


@pytest.mark.parametrize("code", [-1, 55])
def test_a_rejected_partition_fails_the_transaction_but_not_the_producer(code: int) -> None:
    """A rejected partition fails the transaction, but not the producer.

    As in Java, OPERATION_NOT_ATTEMPTED (55) counts as a rejection even if no other partition has an error.
    """
    play = TransactionWorld()
    play.refusals[AddPartitionsToTxnRequest] = [code]
    play.begin()
    batch = play.producer.must_send("t", "a", partition=0)
    error = play.call("commit")
    assert "AddPartitionsToTxn" in str(error)
    assert batch.error is error
    assert play.kinds().count("Produce") == 0
    assert play.call("abort") is None


def test_a_rejected_partition_is_not_added_to_the_next_transaction() -> None:
    """An abort removes the partitions that await registration with the coordinator, as in Java.

    The second transaction only sends offsets, and registers no partition. In the third transaction, a send
    registers only its own partition.
    """
    play = TransactionWorld()
    play.refusals[AddPartitionsToTxnRequest] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    assert isinstance(play.call("commit"), NotAuthorized)
    assert play.call("abort") is None
    play.kinds()
    play.begin()
    play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp("t", 1): (5, None, "")})
    assert play.call("commit") is None
    assert "AddPartitionsToTxn" not in play.kinds()
    play.begin()
    play.producer.must_send("t", "b", partition=1)
    assert play.call("commit") is None
    (request,) = [r for r in play.asked if isinstance(r, AddPartitionsToTxnRequest)]
    assert [topic.partitions for topic in request.v3_and_below_topics] == [[1]]


@pytest.mark.parametrize("code", [14, 15, 16, 51])
@pytest.mark.parametrize("request_", [InitProducerIdRequest, AddPartitionsToTxnRequest, EndTxnRequest])
def test_a_retriable_error_is_retried(code: int, request_: type) -> None:
    play = TransactionWorld()
    play.refusals[request_] = [code, code]
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    assert play.call("commit") is None
    assert sum(isinstance(request, request_) for request in play.asked) == 3
    lookups = sum(isinstance(request, FindCoordinatorRequest) for request in play.asked)
    assert lookups == (3 if code in (15, 16) else 1)


@pytest.mark.parametrize("code", [47, 90])
@pytest.mark.parametrize("request_", [InitProducerIdRequest, AddPartitionsToTxnRequest, EndTxnRequest])
def test_a_fenced_producer_fails_for_good(code: int, request_: type) -> None:
    play = TransactionWorld()
    play.refusals[request_] = [code]
    error: KprotoError | None = play.call("begin")
    if error is None:
        play.producer.must_send("t", "a", partition=0)
        error = play.call("commit")
    assert isinstance(error, Fenced)
    assert play.machine.state is ProducerTransactionState.FATAL_ERROR
    with pytest.raises(Fenced):
        play.machine.call("begin")
    assert play.engine.open_records == 0


def test_a_broker_without_producer_ids_fails_the_producer() -> None:
    """The first `begin` raises UnsupportedVersion for a broker before Kafka 0.11."""
    world = World({"t": 1}, highest={"InitProducerId": -1})
    producer = world.producer(transactional_id="x")
    transactions = producer.engine.transactions
    assert transactions is not None
    begin = transactions.call("begin")
    producer.tick()
    assert world.run(5_000, until=lambda: begin.done)
    assert isinstance(begin.error, UnsupportedVersion)
    assert begin.error.__notes__ == ["The producer of 'x' has failed: create a new one."]
    assert transactions.state is ProducerTransactionState.FATAL_ERROR
    assert [change.kind for change in producer.changes] == ["failed"]
    assert transactions.close() is None
    begin.reported = True
    with pytest.raises(UnsupportedVersion):
        transactions.call("begin")


def test_a_repeated_call_waits_for_the_same_operation_until_its_result_is_known() -> None:
    play = TransactionWorld()
    begin = play.machine.call("begin", "task 1")
    assert play.machine.call("begin", "task 1") is begin
    begin.waiting.add("task 1")
    assert play.machine.call("begin", "task 1") is begin
    with pytest.raises(IllegalState, match=r"another thread or task has called begin\(\)"):
        play.machine.call("begin", "task 2")
    begin.waiting.clear()
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    commit = play.machine.call("commit")
    assert not commit.done
    assert play.machine.call("commit", "task 2") is commit
    assert (
        play.machine.open_reason()
        == "'x': the transaction is being committed; 1 records are not acknowledged"
    )
    play.producer.tick()
    assert play.world.run(60_000, until=lambda: commit.done)
    assert play.machine.call("commit") is commit
    commit.reported = True
    with pytest.raises(IllegalState, match=r"no transaction is open; allowed now: begin\(\)"):
        play.machine.call("commit")


def test_close_aborts_an_open_transaction_and_waits_for_the_end_of_another() -> None:
    play = TransactionWorld()
    assert play.machine.close() is None
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    abort = play.machine.close()
    assert abort is not None
    assert (abort.name, abort.done) == ("abort", False)
    assert play.machine.close() is abort
    play.producer.tick()
    assert play.world.run(60_000, until=lambda: abort.done)
    assert play.machine.close() is None
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    commit = play.machine.call("commit")
    assert play.machine.close() is commit


@pytest.mark.parametrize(
    ("code", "least", "most"),
    [(ErrorCode.CONCURRENT_TRANSACTIONS, 15, 35), (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 800, 1_300)],
)
def test_partitions_are_added_again_after_20_ms_while_the_previous_transaction_ends(
    code: ErrorCode, least: int, most: int
) -> None:
    """As in Java, CONCURRENT_TRANSACTIONS has a shorter backoff than other retriable errors."""
    play = TransactionWorld(retry_backoff_ms=1_000, retry_backoff_max_ms=1_000)
    play.refusals[AddPartitionsToTxnRequest] = [code]
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    play.run_until(AddPartitionsToTxnRequest)
    began = play.world.now
    play.asked.clear()
    play.run_until(AddPartitionsToTxnRequest)
    assert least <= play.world.now - began <= most
    assert play.call("commit") is None


@pytest.mark.parametrize("request_", [InitProducerIdRequest, EndTxnRequest])
def test_a_request_is_retried_at_growing_intervals(request_: type) -> None:
    play = TransactionWorld(retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    play.refusals[request_] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 7
    times: list[int] = []

    def answer(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, request_):
            times.append(play.world.now)
        return play.answer(client, request, version)

    play.world.tamper = answer
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    assert play.call("commit") is None
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert len(waits) == 7
    assert 70 <= waits[0] <= 140
    assert waits[0] < waits[1] < waits[2] < waits[3]
    assert all(700 <= wait <= 1_300 for wait in waits[4:])
    # After a success, the backoff of the next transaction starts at its minimum again.
    times.clear()
    play.refusals[EndTxnRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    play.begin()
    play.producer.must_send("t", "b", partition=0)
    assert play.call("commit") is None
    if request_ is EndTxnRequest:
        assert 70 <= times[1] - times[0] <= 140


def test_an_unauthorized_transactional_id_is_a_fatal_error() -> None:
    play = TransactionWorld()
    play.refusals[FindCoordinatorRequest] = [53]
    assert isinstance(play.call("begin"), NotAuthorized)
    assert play.machine.state is ProducerTransactionState.FATAL_ERROR


@pytest.mark.parametrize(
    "request_", [InitProducerIdRequest, AddPartitionsToTxnRequest, ProduceRequest, EndTxnRequest]
)
def test_a_lost_authorization_asks_for_a_new_producer(request_: type) -> None:
    """A producer whose transactional id was once rejected remains unusable, as in Java.

    Even after an ACL has been added, the application needs a new producer.
    """
    play = TransactionWorld()
    play.refusals[request_] = [53]
    error: KprotoError | None = play.call("begin")
    if error is None:
        play.producer.must_send("t", "a", partition=0)
        error = play.call("commit")
    assert isinstance(error, NotAuthorized)
    assert str(error).endswith("an ACL that allows WRITE on the transactional id; then make a new producer")
    with pytest.raises(NotAuthorized, match="make a new producer"):
        play.machine.call("begin")


def test_a_failed_record_requires_an_abort_and_the_next_epoch() -> None:
    play = TransactionWorld()
    play.refusals[ProduceRequest] = [87]
    play.begin()
    play.producer.must_send("t", "bad", partition=0)
    error = play.call("commit")
    assert isinstance(error, BrokerError)
    assert error.code == 87
    with pytest.raises(BrokerError):
        play.machine.call("commit")
    with pytest.raises(BrokerError):
        play.engine.append("t", None, b"a", 0, 0, ())
    assert play.call("abort") is None
    play.begin()
    play.producer.must_send("t", "good", partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (1, 0, True)]
    init_request = [request for request in play.asked if isinstance(request, InitProducerIdRequest)][-1]
    assert (init_request.producer_id, init_request.producer_epoch) == (7, 0)
    assert [request.committed for request in play.asked if isinstance(request, EndTxnRequest)] == [
        False,
        True,
    ]


def test_before_kafka_2_5_an_abort_waits_for_the_batches_in_flight_and_keeps_the_epoch() -> None:
    """If the coordinator is older than Kafka 2.5, an abort waits for the batches in flight, as in Java.

    The abort keeps the epoch, because only coordinators of Kafka 2.5 and later can bump it at the producer's
    request (KIP-360).
    """
    play = TransactionWorld()
    play.engine.core.network.caps = BEFORE_KAFKA_2_5
    play.begin()
    first = play.producer.must_send("t", "a", partition=0)
    play.run_until(ProduceRequest)
    assert play.call("abort") is None
    assert first.error is None
    assert first.base_offset is not None
    play.begin()
    play.producer.must_send("t", "b", partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (0, 1, True)]
    assert len([request for request in play.asked if isinstance(request, InitProducerIdRequest)]) == 1


@pytest.mark.parametrize("kind", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest])
def test_before_kafka_2_5_an_addition_without_a_response_ends_the_producer_at_the_abort(kind: type) -> None:
    """The coordinator may have added the partition although the response to this request did not arrive.

    If the request arrived only after the abort, it would add the partition to the next transaction. Before
    Kafka 2.5 the producer cannot bump its epoch to fence such a request.
    """
    play = TransactionWorld(retry_backoff_ms=500, retry_backoff_max_ms=500)
    play.engine.core.network.caps = BEFORE_KAFKA_2_5
    play.begin()
    cuts: list[int] = []

    def cut(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, kind):
            play.world.cut(client)
            cuts.append(play.world.now)
            return None
        return play.answer(client, request, version)

    play.world.tamper = cut
    if kind is AddOffsetsToTxnRequest:
        play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp("t", 0): (5, None, "")})
    else:
        play.producer.must_send("t", "a", partition=0)
    play.producer.tick()
    assert play.world.run(until=lambda: len(cuts) == 2)  # The network reconnects once.
    play.world.tamper = play.answer
    play.world.run(50)
    error = play.call("abort")
    assert isinstance(error, UnsupportedVersion)
    assert "a request of the aborted transaction of 'x' was not answered; create a new producer" in str(error)


def test_from_kafka_2_5_on_an_abort_with_a_batch_in_flight_is_followed_by_a_new_epoch() -> None:
    """The producer requests the new epoch with version 3 of InitProducerId, which KIP-360 added."""
    play = TransactionWorld()
    play.engine.core.network.caps = {**BEFORE_KAFKA_2_5, 22: 3}
    play.begin()
    first = play.producer.must_send("t", "a", partition=0)
    play.run_until(ProduceRequest)
    assert play.call("abort") is None
    assert isinstance(first.error, IllegalState)
    play.begin()
    play.producer.must_send("t", "b", partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (1, 0, True)]
    assert len([request for request in play.asked if isinstance(request, InitProducerIdRequest)]) == 2


def test_before_kafka_2_5_the_first_sequence_number_is_used_again_if_its_batch_is_rejected() -> None:
    play = TransactionWorld()
    play.engine.core.network.caps = BEFORE_KAFKA_2_5
    play.begin()
    play.refusals[ProduceRequest] = [87]
    play.producer.must_send("t", "bad", partition=0)
    assert isinstance(play.call("commit"), BrokerError)
    assert play.call("abort") is None
    play.begin()
    play.producer.must_send("t", "next", partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (0, 0, True)]


def test_before_kafka_2_5_an_unknown_producer_id_restarts_the_sequence_numbers() -> None:
    """The leader's log contains no batch of the producer: the topic was re-created, or records were deleted.

    In both cases a broker before Kafka 2.4 accepts only the sequence number 0.
    """
    play = TransactionWorld()
    play.engine.core.network.caps = BEFORE_KAFKA_2_5
    for value in ("a", "b"):
        play.begin()
        play.producer.must_send("t", value, partition=0)
        if value == "b":
            play.refusals[ProduceRequest] = [ErrorCode.UNKNOWN_PRODUCER_ID]
            assert isinstance(play.call("commit"), BrokerError)
            assert play.call("abort") is None
        else:
            assert play.call("commit") is None
    play.begin()
    play.producer.must_send("t", "c", partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (0, 1, True), (0, 0, True)]


def test_before_kafka_2_5_batches_are_renumbered_if_the_producers_records_were_deleted() -> None:
    """After UNKNOWN_PRODUCER_ID the batches are sent again from sequence number 0, without an abort.

    The log start offset in the response is above the last acknowledged offset. As in Java, the producer
    concludes that the acknowledged records were deleted, not lost.
    """
    play = TransactionWorld()
    play.engine.core.network.caps = BEFORE_KAFKA_2_5
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    assert play.call("commit") is None
    rejections: list[int] = []

    def answer(client: Any, request: Any, version: int) -> Any:
        response = play.answer(client, request, version)
        if isinstance(request, ProduceRequest) and not rejections:
            [topic] = response.responses
            [entry] = topic.partition_responses
            entry.error_code, entry.log_start_offset = ErrorCode.UNKNOWN_PRODUCER_ID, 7
            rejections.append(entry.error_code)
        return response

    play.world.tamper = answer
    play.begin()
    play.producer.must_send("t", "b", partition=0)
    assert play.call("commit") is None
    play.begin()
    play.producer.must_send("t", "c", partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (0, 1, True), (0, 0, True), (0, 1, True)]


@pytest.mark.parametrize("codes", [(55, 29), (29, 55)])
def test_the_error_of_a_transaction_is_that_of_the_partition_that_was_rejected(
    codes: tuple[int, int],
) -> None:
    """OPERATION_NOT_ATTEMPTED (55) means that the coordinator rejected another partition, whose error is
    raised.
    """
    play = TransactionWorld()
    play.begin()

    def answer(client: Any, request: Any, version: int) -> Any:
        response = play.answer(client, request, version)
        if isinstance(request, AddPartitionsToTxnRequest):
            (topic,) = response.results_by_topic_v3_and_below
            for result in topic.results_by_partition:
                result.partition_error_code = codes[result.partition_index]
        return response

    play.world.tamper = answer
    for partition in (0, 1):
        play.producer.must_send("t", "a", partition=partition)
    error = play.call("commit")
    assert isinstance(error, NotAuthorized)
    assert f"t-{codes.index(29)}" in str(error)


@pytest.mark.parametrize("code", [87, 45])
def test_before_kafka_2_5_the_sequence_numbers_of_a_rejected_batch_are_used_again(code: int) -> None:
    play = TransactionWorld()
    play.engine.core.network.caps = BEFORE_KAFKA_2_5
    play.begin()
    play.producer.must_send("t", "good", partition=0)
    play.engine.flush()
    play.run_until(ProduceRequest)
    play.refusals[ProduceRequest] = [code]
    play.producer.must_send("t", "bad", partition=0)
    assert isinstance(play.call("commit"), BrokerError)
    assert play.call("abort") is None
    play.begin()
    play.producer.must_send("t", "next", partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (0, 1, True), (0, 1, True)]


def test_before_kafka_2_5_a_batch_without_a_response_is_sent_again_before_the_abort() -> None:
    play = TransactionWorld()
    play.engine.core.network.caps = BEFORE_KAFKA_2_5
    play.begin()
    answer = play.answer

    def cut(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, ProduceRequest):
            play.asked.append(request)
            play.world.tamper = answer
            play.world.cut(client)
            return None
        return answer(client, request, version)

    play.world.tamper = cut
    batch = play.producer.must_send("t", "a", partition=0)
    play.run_until(ProduceRequest)
    assert play.call("abort") is None
    assert batch.error is None
    play.begin()
    play.producer.must_send("t", "b", partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (0, 0, True), (0, 1, True)]


def test_batches_not_sent_before_the_abort_are_never_sent() -> None:
    play = TransactionWorld()
    play.begin()
    play.refusals[AddPartitionsToTxnRequest] = [51] * 1000
    batch = play.producer.must_send("t", "a", partition=0)
    play.engine.flush()
    play.producer.tick()
    play.world.run(200)
    assert play.call("abort") is None
    assert isinstance(batch.error, IllegalState)
    assert not play.numbers()
    assert play.machine.state is ProducerTransactionState.READY


def test_a_batch_that_is_too_large_is_split_with_the_same_sequence_numbers() -> None:
    play = TransactionWorld(batch_size=100_000)
    play.refusals[ProduceRequest] = [10]
    play.begin()
    for number in range(4):
        play.producer.must_send("t", str(number), partition=0)
    assert play.call("commit") is None
    assert play.numbers() == [(0, 0, True), (0, 0, True), (0, 2, True)]


def test_offsets_are_part_of_the_transaction() -> None:
    play = TransactionWorld()
    play.begin()
    play.refusals[TxnOffsetCommitRequest] = [14, 16]
    play.machine.send_offsets(GroupMetadata("g", 3, "me", None), {tp("t", 0): (5, None, "note")})
    play.producer.tick()
    assert play.call("commit") is None
    kinds = play.kinds()
    assert kinds[:4] == ["FindCoordinator", "InitProducerId", "AddOffsetsToTxn", "FindCoordinator"]
    assert kinds[4:] == ["TxnOffsetCommit"] * 2 + ["FindCoordinator", "TxnOffsetCommit", "EndTxn"]


def offsets_requests(play: TransactionWorld) -> list[TxnOffsetCommitRequest]:
    return [request for request in play.asked if isinstance(request, TxnOffsetCommitRequest)]


@pytest.mark.parametrize("topic", ["t", "other"])
def test_offsets_have_topic_ids_if_the_producer_knows_all_of_them(topic: str) -> None:
    """Offsets are committed by topic id only if the producer knows the ids of all topics (KIP-1319). As in
    Java, it knows the ids of the topics to which it writes.
    """
    play = TransactionWorld(second=True)
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    topic_id = play.engine.core.view.topic_id("t")
    play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp(topic, 0): (5, None, "")})
    assert play.call("commit") is None
    [request] = offsets_requests(play)
    expected = ("", topic_id) if topic == "t" else (topic, ZERO_UUID)
    assert [(entry.name, entry.topic_id) for entry in request.topics] == [expected]


def test_without_kip_890_offsets_have_topic_names() -> None:
    play = TransactionWorld()
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp("t", 0): (5, None, "")})
    assert play.call("commit") is None
    assert [topic.name for request in offsets_requests(play) for topic in request.topics] == ["t"]


def test_an_unknown_topic_id_of_offsets_aborts_and_refreshes_the_metadata() -> None:
    """The topic has been re-created since the producer last requested metadata. The next transaction uses the
    new topic id.
    """
    play = TransactionWorld(second=True)
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    play.world.run(100)
    play.world.delete_topic("t")
    play.world.create("t", 1)
    play.refusals[TxnOffsetCommitRequest] = [ErrorCode.UNKNOWN_TOPIC_ID]
    play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp("t", 0): (5, None, "")})
    play.producer.tick()
    play.run_until(TxnOffsetCommitRequest)
    error = play.call("commit")
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.UNKNOWN_TOPIC_ID
    assert play.call("abort") is None
    play.begin()
    play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp("t", 0): (5, None, "")})
    assert play.call("commit") is None
    ids = [topic.topic_id for request in offsets_requests(play) for topic in request.topics]
    assert ids[-1] == play.engine.core.view.topic_id("t")
    assert ids[0] != ids[-1]


def test_a_response_without_the_requested_part_is_retried() -> None:
    """A request is sent again if its response lacks the partition, the offset or the producer id.

    If such a response counted as success, a part of the transaction would be lost.
    """
    play = TransactionWorld()
    play.leaves_out = {InitProducerIdRequest, AddPartitionsToTxnRequest, TxnOffsetCommitRequest}
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp("t", 0): (5, None, "")})
    assert play.call("commit") is None
    kinds = play.kinds()
    for kind in ("InitProducerId", "AddPartitionsToTxn", "TxnOffsetCommit"):
        assert kinds.count(kind) == 2


@pytest.mark.parametrize(
    ("kind", "topics"),
    [(AddPartitionsToTxnRequest, "results_by_topic_v3_and_below"), (TxnOffsetCommitRequest, "topics")],
)
def test_a_response_with_two_results_is_retried(kind: type, topics: str) -> None:
    play = TransactionWorld()
    play.begin()
    count = 0

    def answer_twice(client: Any, request: Any, version: int) -> Any:
        nonlocal count
        response = play.answer(client, request, version)
        if isinstance(request, kind):
            count += 1
            if count == 1:
                play.refusals[kind] = [14]
                errors = getattr(play.answer(client, request, version), topics)
                setattr(response, topics, errors + getattr(response, topics))
        return response

    play.world.tamper = answer_twice
    play.producer.must_send("t", "a", partition=0)
    play.machine.send_offsets(GroupMetadata("g", -1, "", None), {tp("t", 0): (5, None, "")})
    assert play.call("commit") is None
    assert count == 2


@pytest.mark.parametrize("code", [22, 25, 30, 82, 120])
def test_offsets_of_a_replaced_member_fail_the_transaction(code: int) -> None:
    play = TransactionWorld()
    play.begin()
    play.refusals[TxnOffsetCommitRequest] = [code]
    play.machine.send_offsets(GroupMetadata("g", 3, "me", None), {tp("t", 0): (5, None, "")})
    error = play.call("commit")
    assert isinstance(error, BrokerError)
    assert error.code == code
    assert play.call("abort") is None


def test_offsets_of_a_member_need_a_version_that_identifies_the_member() -> None:
    """The commit fails unsent if TxnOffsetCommit is too old to contain the member's ids.

    Java's TxnOffsetCommitRequest.Builder makes the same check. Offsets with only a group id can be sent in
    every version of TxnOffsetCommit.
    """
    play = TransactionWorld()
    play.engine.core.network.caps = BEFORE_KAFKA_2_5
    for member, is_accepted in (
        (GroupMetadata("g", 3, "me", None), False),
        (GroupMetadata("g", -1, "", "pod-1"), False),
        (GroupMetadata("g", -1, "", None), True),
    ):
        play.begin()
        play.machine.send_offsets(member, {tp("t", 0): (5, None, "")})
        error = play.call("commit")
        if not is_accepted:
            assert isinstance(error, UnsupportedVersion)
            assert "allowed: 3 and higher (Kafka 2.5 and later)" in str(error)
            assert not [request for request in play.asked if isinstance(request, TxnOffsetCommitRequest)]
            assert play.call("abort") is None
        else:
            assert error is None
    assert [request.committed for request in play.asked if isinstance(request, EndTxnRequest)] == [
        False,
        False,
        True,
    ]


def test_offsets_name_the_member_that_has_read_the_records() -> None:
    """With the member id and generation, the coordinator can reject offsets of a removed member (KIP-447)."""
    play = TransactionWorld()
    play.begin()
    play.machine.send_offsets(GroupMetadata("g", 3, "me", "pod-1"), {tp("t", 0): (5, 2, "note")})
    assert play.call("commit") is None
    (request,) = offsets_requests(play)
    assert (request.group_id, request.generation_id_or_member_epoch) == ("g", 3)
    assert (request.member_id, request.group_instance_id) == ("me", "pod-1")
    (entry,) = request.topics[0].partitions
    assert (entry.committed_offset, entry.committed_leader_epoch, entry.committed_metadata) == (5, 2, "note")


OFFSETS = (GroupMetadata("g", 3, "me", None), {tp("t", 0): (5, None, "note")})


@pytest.mark.parametrize("second", [False, True])
def test_offsets_of_an_aborted_transaction_are_not_sent_in_the_next_one(second: bool) -> None:
    play = TransactionWorld(second=second)
    play.begin()
    play.refusals[TxnOffsetCommitRequest] = [14] * 3
    play.machine.send_offsets(*OFFSETS)
    play.producer.tick()
    play.run_until(TxnOffsetCommitRequest)
    assert play.call("abort") is None
    play.kinds()
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    assert play.call("commit") is None
    assert "TxnOffsetCommit" not in play.kinds()


@pytest.mark.parametrize("second", [False, True])
def test_an_offset_error_that_arrives_after_the_abort_is_ignored(second: bool) -> None:
    play = TransactionWorld(second=second)
    play.begin()
    play.refusals[TxnOffsetCommitRequest] = [22]
    play.machine.send_offsets(*OFFSETS)
    play.producer.tick()
    play.run_until(TxnOffsetCommitRequest)
    assert play.call("abort") is None
    play.begin()


def test_offsets_of_a_deleted_topic_fail_the_transaction_but_not_the_producer() -> None:
    play = TransactionWorld()
    play.begin()
    play.refusals[TxnOffsetCommitRequest] = [3]
    play.machine.send_offsets(*OFFSETS)
    assert isinstance(play.call("commit"), UnknownTopic)
    assert play.call("abort") is None
    play.begin()
    assert play.call("commit") is None


@pytest.mark.parametrize(
    ("request_", "second"),
    [
        (AddOffsetsToTxnRequest, False),
        (FindCoordinatorRequest, False),
        (FindCoordinatorRequest, True),
        (TxnOffsetCommitRequest, False),
        (TxnOffsetCommitRequest, True),
    ],
)
def test_offsets_expire_after_delivery_timeout_ms(request_: type, second: bool) -> None:
    """A commit of offsets fails after delivery_timeout_ms. With endless retries, the transaction could be
    neither committed nor aborted.
    """
    play = TransactionWorld(second=second, request_timeout_ms=500, delivery_timeout_ms=2000)
    play.begin()
    play.refusals[request_] = [14] * 1000
    play.machine.send_offsets(*OFFSETS)
    started_at = play.world.now
    error = play.call("commit")
    assert isinstance(error, RequestTimedOut)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
    assert 2000 <= play.world.now - started_at <= 3500
    play.refusals.clear()
    assert play.call("abort") is None
    play.kinds()
    play.begin()
    assert play.call("commit") is None
    assert play.kinds() == []


def test_offsets_that_may_still_arrive_force_a_new_epoch() -> None:
    play = TransactionWorld(delivery_timeout_ms=2000, request_timeout_ms=500)
    play.begin()
    play.refusals[TxnOffsetCommitRequest] = [14] * 1000
    play.machine.send_offsets(*OFFSETS)
    assert play.call("commit") is not None
    assert play.call("abort") is None
    assert play.kinds()[-2:] == ["EndTxn", "InitProducerId"]  # InitProducerId increments the epoch.


def test_an_abort_after_the_responses_to_all_requests_keeps_the_epoch() -> None:
    play = TransactionWorld()
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    play.producer.tick()
    assert play.world.run(until=lambda: not play.engine.records.open_batches)
    assert play.call("abort") is None
    assert play.kinds()[-3:] == ["AddPartitionsToTxn", "Produce", "EndTxn"]


@pytest.mark.parametrize("kind", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest])
def test_an_abort_with_an_addition_in_flight_is_followed_by_a_new_epoch(kind: type) -> None:
    """The new epoch fences records and offsets of the aborted transaction that reach a broker after the
    abort.
    """
    play = TransactionWorld()
    play.begin()
    play.kinds()
    if kind is AddOffsetsToTxnRequest:
        play.machine.send_offsets(*OFFSETS)
        play.producer.tick()
    else:
        play.producer.must_send("t", "a", partition=0)
        play.producer.tick()
    play.run_until(kind)
    assert play.call("abort") is None
    assert play.kinds()[-2:] == ["EndTxn", "InitProducerId"]


@pytest.mark.parametrize("kind", [AddPartitionsToTxnRequest, AddOffsetsToTxnRequest])
def test_an_abort_after_an_addition_without_a_response_is_followed_by_a_new_epoch(kind: type) -> None:
    """Although the response was lost, the coordinator may have added the partition or the group."""
    play = TransactionWorld(retry_backoff_ms=5_000, retry_backoff_max_ms=5_000)
    play.begin()

    def cut(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, kind):
            play.world.cut(client)
            return None
        return play.answer(client, request, version)

    play.world.tamper = cut
    if kind is AddOffsetsToTxnRequest:
        play.machine.send_offsets(*OFFSETS)
    else:
        play.producer.must_send("t", "a", partition=0)
    play.producer.tick()
    play.world.run(1_000)
    play.world.tamper = play.answer
    assert play.call("abort") is None
    assert play.kinds()[-2:] == ["FindCoordinator", "InitProducerId"]


@pytest.mark.parametrize("answered", [True, False])
def test_a_failure_is_reported_five_seconds_after_the_first_one_of_its_row(answered: bool) -> None:
    play = TransactionWorld(retry_backoff_ms=1_500, retry_backoff_max_ms=1_500)
    play.begin()
    play.producer.must_send("t", "a", partition=0)
    failed_at: list[int] = []

    def fail(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, EndTxnRequest):
            failed_at.append(play.world.now)
            if answered:
                play.refusals[EndTxnRequest] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
            else:
                play.world.cut(client)
                return None
        return play.answer(client, request, version)

    play.world.tamper = fail
    play.machine.call("commit")
    play.producer.tick()
    assert play.world.run(20_000, until=lambda: bool(play.producer.changes))
    (change,) = play.producer.changes
    assert change.reason.startswith("EndTxn")
    assert 0 <= play.world.now - failed_at[0] - FAILURE_REPORT_DELAY_MS < 1_500


def test_a_commit_whose_response_is_lost_is_retried_until_it_is_known() -> None:
    play = TransactionWorld(request_timeout_ms=500, delivery_timeout_ms=2000)
    play.begin()
    batch = play.producer.must_send("t", "a", partition=0)
    play.engine.flush()
    play.producer.tick()
    assert play.world.run(5000, until=lambda: batch.done)
    call = play.machine.call("commit")
    play.world.down = True
    play.world.cut(play.producer)
    play.producer.tick()
    play.world.run(3000)
    assert not call.done
    assert play.machine.call("commit") is call
    play.world.down = False
    assert play.world.run(30_000, until=lambda: call.done)
    assert call.error is None


def test_every_call_follows_an_edge_and_every_state_is_reachable() -> None:
    for state, calls in CALLS.items():
        for to in calls.values():
            assert to is state or to in EDGES[state], (state, to)
    assert set(CALLS) == set(EDGES) == set(ProducerTransactionState)
    assert {to for ends in EDGES.values() for to in ends} == set(ProducerTransactionState) - {
        ProducerTransactionState.UNINITIALIZED
    }


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"transactional_id": ""}, "transactional_id"),
        ({"transactional_id": "x", "acks": "1"}, "acks"),
        ({"transactional_id": "x", "enable_idempotence": False}, "enable_idempotence"),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, "transaction_timeout_ms"),
    ],
)
def test_invalid_options_of_transactions_are_rejected(options: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        producer_options(options)


@pytest.mark.parametrize("method", ["begin", "commit", "abort"])
def test_transactions_require_the_option_transactional_id(method: str) -> None:
    with Producer("127.0.0.1:1") as producer:
        call: Callable[[], None] = getattr(producer, method)
        with pytest.raises(IllegalState, match="needs a producer with the option transactional_id"):
            call()
