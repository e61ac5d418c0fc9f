"""After an error in a Produce response, the producer fails, retries or splits the batch, and reports the
error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import AuthenticationFailed, EncodeError, KprotoError, RequestTimedOut, UnsupportedVersion
from kproto.messages.metadata import MetadataRequest
from kproto.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kproto.records import rows
from tests.consumer.engine.producer.stage import values_of
from tests.consumer.stage import Client, World


def test_the_error_of_a_batch_contains_the_brokers_message() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0)

    def reject(client: Client, request: Any, version: int) -> ProduceResponse | None:
        if not isinstance(request, ProduceRequest):
            return None
        entry = PartitionProduceResponse(
            index=0, error_code=ErrorCode.POLICY_VIOLATION, base_offset=-1, error_message="no empty values"
        )
        [topic] = request.topic_data
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[entry])
        return ProduceResponse(responses=[answer])

    world.tamper = reject
    batch = producer.must_send("t", "x")
    assert world.run(until=lambda: batch.error is not None)
    assert "no empty values" in str(batch.error)


def test_a_new_leader_that_a_produce_response_names_is_used_without_metadata() -> None:
    """The error response of the old leader names the new leader (KIP-951)."""
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 1)
    producer = world.producer(linger_ms=0)
    first = producer.must_send("t", "x")
    assert world.run(until=lambda: first.done)
    requests = len(world.requests_of(producer, MetadataRequest))
    world.elect("t", 0, 2)
    second = producer.must_send("t", "y")
    assert world.run(until=lambda: second.done)
    assert second.error is None
    assert len(world.requests_of(producer, MetadataRequest)) == requests


def reject(code: int, **fields: Any) -> Callable[[Client, Any, int], ProduceResponse | None]:
    """Return a function that answers every Produce request with an error code, for all of its partitions."""

    def respond(client: Client, request: Any, version: int) -> ProduceResponse | None:
        if not isinstance(request, ProduceRequest):
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=entry.index, error_code=code, base_offset=-1, **fields)
                        for entry in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return respond


def test_records_that_fail_for_one_reason_are_reported_at_growing_intervals() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0)
    world.tamper = reject(ErrorCode.POLICY_VIOLATION)
    start = world.now
    reports: dict[int, str] = {}
    for _ in range(10):
        batch = producer.must_send("t", "x")
        assert world.run(until=lambda batch=batch: batch.done)
        assert producer.must_send("t", "x") is not batch
        world.run(10_000)
        for change in producer.changes[len(reports) :]:
            reports[(world.now - start) // 10_000] = change.reason
    assert {change.kind for change in producer.changes} == {"undelivered"}
    assert list(reports) == [1, 4, 10]
    assert [reason.split(" records: ")[0] for reason in reports.values()] == ["1", "6", "12"]
    assert len({reason.split(" records: ")[1] for reason in reports.values()}) == 1


def test_each_reason_has_its_own_report() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0)
    for code in (ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_RECORD, ErrorCode.POLICY_VIOLATION):
        world.tamper = reject(code)
        batch = producer.must_send("t", "x")
        assert world.run(until=lambda batch=batch: batch.done)
    reasons = [change.reason for change in producer.changes]
    assert len(reasons) == 2
    assert all(reason.startswith("1 records: ") for reason in reasons)


def test_the_reports_of_64_reasons_are_remembered() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0)
    for number in [*range(65), 1, 0, 64]:
        world.tamper = reject(ErrorCode.POLICY_VIOLATION, error_message=f"reason {number}")
        batch = producer.must_send("t", "x")
        assert world.run(until=lambda batch=batch: batch.done)
    # Each of the first 65 failures is reported. The last of them, reason 64, displaces reason 0. So of the
    # last three failures only reason 0 is reported again, as the 66th report.
    assert len(producer.changes) == 66
    assert "reason 0" in producer.changes[-1].reason


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedVersion("Produce", 9, "the broker does not offer it"),
        EncodeError("ProduceRequest", 9, "acks", "5 is too large"),
        AuthenticationFailed("h:1", "a wrong password"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_a_retry_would_repeat_fails_the_batch_at_once(error: KprotoError) -> None:
    """As in Java's Sender, each of these errors fails the batches of the request without a retry."""
    world = World({"t": 1}, latency=(50, 50))
    producer = world.producer(linger_ms=0)
    first = producer.must_send("t", "x")
    producer.tick()
    assert world.run(until=lambda: bool(first.queue.in_flight))
    producer.engine.responses.on_no_response(first, error)
    assert first.error is error
    assert not first.queue.in_flight
    assert first.queue.needs_new_epoch


def test_a_batch_without_a_response_is_sent_again_after_a_backoff() -> None:
    world = World({"t": 1}, latency=(50, 50))
    producer = world.producer(linger_ms=0, retry_backoff_ms=300, retry_backoff_max_ms=300)
    first = producer.must_send("t", "x")
    producer.tick()
    assert world.run(until=lambda: bool(first.queue.in_flight))
    producer.engine.responses.on_no_response(first, RequestTimedOut("Produce", 100))
    assert first.error is None
    assert list(first.queue.waiting) == [first]
    assert 200 <= first.retry_at - world.now <= 400
    assert producer.engine.core.view.leader(first.partition) is None


def test_a_leader_error_without_a_new_leader_looks_the_leader_up() -> None:
    """Java's Sender requests a metadata update for every InvalidMetadataException, subclasses included."""
    world = World({"t": 1}, brokers=2)
    producer = world.producer(linger_ms=0, retry_backoff_ms=900, retry_backoff_max_ms=900)
    first = producer.must_send("t", "x")
    assert world.run(until=lambda: first.done)
    world.run(3_000)
    requests = len(world.requests_of(producer, MetadataRequest))
    rejected = reject(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(leader_id=77, leader_epoch=3)
    )

    def reject_once(client: Client, request: Any, version: int) -> ProduceResponse | None:
        if (response := rejected(client, request, version)) is not None:
            world.tamper = None
        return response

    world.tamper = reject_once
    second = producer.must_send("t", "y")
    assert world.run(until=lambda: second.failures == 1)
    assert producer.engine.core.view.leader(second.partition) is None
    assert not world.run(400, until=lambda: second.done)
    # The client has requested metadata once, during the backoff of the batch.
    assert len(world.requests_of(producer, MetadataRequest)) == requests + 1
    assert world.run(until=lambda: second.done)
    assert second.error is None
    assert len(world.requests_of(producer, MetadataRequest)) == requests + 1


def test_the_address_of_a_new_leader_in_a_produce_response_is_used() -> None:
    """KIP-951: the response contains the address of the leader that it names."""
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 1)
    producer = world.producer(linger_ms=0)
    first = producer.must_send("t", "x")
    assert world.run(until=lambda: first.done)
    brokers = producer.engine.core.view.brokers
    endpoint = NodeEndpoint(node_id=2, host="moved", port=brokers[2].port, rack="r")

    def name_address(client: Client, request: Any, version: int) -> ProduceResponse | None:
        response = reject(ErrorCode.NOT_LEADER_OR_FOLLOWER)(client, request, version)
        if response is not None:
            response.node_endpoints = [endpoint]
        return response

    world.tamper = name_address
    second = producer.must_send("t", "y")
    assert world.run(until=lambda: second.failures == 1)
    assert (brokers[2].host, brokers[2].rack) == ("moved", "r")


def test_a_batch_whose_records_are_all_invalid_fails_as_a_whole() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=100)
    errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=f"number {index}")
        for index in range(3)
    ]
    world.tamper = reject(ErrorCode.INVALID_RECORD, record_errors=errors)
    sent = [producer.deliver("t", value) for value in "abc"]
    producer.flush()
    assert world.run(until=lambda: all(delivery.done() for delivery in sent))
    assert {str(delivery.exception()) for delivery in sent} == {str(sent[0].exception())}
    assert "t-0, 3 records: record 0: number 0" in str(sent[0].exception())
    assert len(world.requests_of(producer, ProduceRequest)) == 1


def test_a_response_to_a_batch_that_has_failed_meanwhile_changes_nothing() -> None:
    world = World({"t": 1}, latency=(50, 50))
    producer = world.producer(linger_ms=0, retry_backoff_ms=300, retry_backoff_max_ms=300)
    batch = producer.must_send("t", "x")
    producer.tick()
    assert world.run(until=lambda: bool(batch.queue.in_flight))
    producer.engine.responses.fail_batch(batch, AuthenticationFailed("h:1", "a wrong password"))
    error = batch.error
    producer.engine.responses.on_no_response(batch, RequestTimedOut("Produce", 100))
    assert batch.error is error
    assert (list(batch.queue.waiting), batch.queue.in_flight, batch.failures) == ([], [], 0)


@pytest.mark.parametrize("names_them", [True, False])
def test_only_the_invalid_records_of_a_batch_fail(names_them: bool) -> None:
    """If INVALID_RECORD names the invalid records by their index (KIP-467), the valid ones are sent again.
    Otherwise the batch is split into halves.
    """
    world = World({"t": 1})
    producer = world.producer(linger_ms=100)

    def find_bad(client: Client, request: Any, version: int) -> ProduceResponse | None:
        if not isinstance(request, ProduceRequest):
            return None
        values = [row.value for row in rows(request.topic_data[0].partition_data[0].records or b"")]
        errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=f"number {index}")
            for index, value in enumerate(values)
            if value == b"bad"
        ]
        if not errors:
            return None
        fields: dict[str, Any] = {"record_errors": errors} if names_them else {}
        return reject(ErrorCode.INVALID_RECORD, **fields)(client, request, version)

    world.tamper = find_bad
    sent = [producer.deliver("t", value) for value in ("a", "bad", "b", "bad", "c")]
    producer.flush()
    assert world.run(until=lambda: all(delivery.done() for delivery in sent))
    assert [delivery.exception() is None for delivery in sent] == [True, False, True, False, True]
    assert values_of(world, "t", 0) == ["a", "b", "c"]
    if names_them:
        assert "record 3: number 3" in str(sent[3].exception())
        assert "record 1: number 1" in str(sent[1].exception())


def test_a_fenced_transactional_producer_is_referred_to_abort() -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0, transactional_id="x")
    world.tamper = reject(ErrorCode.INVALID_PRODUCER_EPOCH)
    transactions = producer.engine.transactions
    assert transactions is not None
    begin = transactions.call("begin")
    producer.tick()
    assert world.run(until=lambda: begin.done)
    batch = producer.must_send("t", "x")
    assert world.run(until=lambda: batch.done)
    assert "fenced by a newer producer, or transaction_timeout_ms has passed" in str(batch.error)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_an_error_of_a_sequence_number_is_final_without_idempotence(code: ErrorCode) -> None:
    """Without idempotence a batch has no sequence number, and so cannot get a new one."""
    world = World({"t": 1})
    producer = world.producer(linger_ms=0, enable_idempotence=False)
    world.tamper = reject(code)
    batch = producer.must_send("t", "x")
    assert world.run(1_000, until=lambda: batch.done)
    assert code.name in str(batch.error)
    world.tamper = None
    idempotent = world.producer(linger_ms=0)
    world.tamper = reject(code)
    renumbered = idempotent.must_send("t", "y")
    assert not world.run(1_000, until=lambda: renumbered.done)
    world.tamper = None
    assert world.run(5_000, until=lambda: renumbered.done)
    assert renumbered.error is None
    assert values_of(world, "t", 0) == ["y"]
