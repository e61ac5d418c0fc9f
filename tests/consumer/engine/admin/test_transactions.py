"""Transactions in the admin API: list, describe, abort and fence, on embedded and scripted brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from consumer import Admin, Producer, TopicPartition
from consumer.engine.admin import transactions as plans
from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, KprotoError, PartialFailure, UnsupportedVersion
from kproto.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kproto.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.consumer.engine.admin.stage import CONNECTION_LOST, clock, cluster_of, play, view_of

P0 = TopicPartition("t", 0)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 2}) as server:
        yield server


@pytest.fixture
def producer(server: Server) -> Iterator[Producer]:
    """Return a producer with an open transaction, which has written to P0."""
    with Producer(server.bootstrap, transactional_id="mine") as producer:
        producer.begin()
        producer.send("t", b"x", partition=0).result(20)
        yield producer


def test_an_open_transaction_is_listed_and_described(server: Server, producer: Producer) -> None:
    with Admin(server.bootstrap) as admin:
        [(node, [listing])] = admin.list_transactions().items()
        description = admin.describe_transactions(["mine"])["mine"]
        assert (listing.transactional_id, listing.state) == ("mine", "Ongoing")
        assert (description.producer_id, description.state) == (listing.producer_id, "Ongoing")
        assert description.coordinator_id == node
        assert description.partitions == {P0}
        assert description.start_time_ms is not None
        assert abs(description.start_time_ms / 1000 - time.time()) < 60
    producer.abort()


def test_filters_limit_the_listed_transactions(server: Server, producer: Producer) -> None:
    with Admin(server.bootstrap) as admin:
        [listings] = admin.list_transactions(states=["Empty"]).values()
        assert listings == []
        [listings] = admin.list_transactions(min_duration_ms=3_600_000).values()
        assert listings == []
        [listings] = admin.list_transactions(states=["Ongoing"]).values()
        assert len(listings) == 1
    producer.abort()


def test_an_unknown_transactional_id_does_not_hide_the_others(server: Server, producer: Producer) -> None:
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure, match="transactional id 'nobody'") as caught:
            admin.describe_transactions(["mine", "nobody"])
        assert caught.value.succeeded["mine"].state == "Ongoing"
        assert isinstance(caught.value.failed["nobody"], BrokerError)
    producer.abort()


def test_a_partition_describes_its_producers(server: Server, producer: Producer) -> None:
    with Admin(server.bootstrap) as admin:
        described = admin.describe_producers([P0, TopicPartition("t", 1)])
        [state] = described[P0]
        assert state.producer_id == admin.describe_transactions(["mine"])["mine"].producer_id
        assert state.current_transaction_start_offset == 0
        assert described[TopicPartition("t", 1)] == []
        [node] = admin.metadata().brokers
        assert admin.describe_producers([P0], broker=node) == {P0: [state]}
    producer.abort()


def test_a_fenced_producer_cannot_commit_its_transaction(server: Server) -> None:
    producer = Producer(server.bootstrap, transactional_id="mine")
    producer.begin()
    producer.send("t", b"x", partition=0).result(20)
    with Admin(server.bootstrap) as admin:
        before = admin.describe_transactions(["mine"])["mine"]
        producer_id, epoch = admin.fence_producers(["mine"])["mine"]
        assert (producer_id, epoch) > (before.producer_id, before.producer_epoch)
        with pytest.raises(KprotoError):
            producer.commit()
        assert admin.describe_transactions(["mine"])["mine"].state != "Ongoing"
    producer.kill()


def test_a_terminated_transaction_is_aborted_and_its_producer_fenced(
    server: Server, producer: Producer
) -> None:
    with Admin(server.bootstrap) as admin:
        admin.force_terminate_transaction("mine")
        assert admin.describe_transactions(["mine"])["mine"].start_time_ms is None
        with pytest.raises(KprotoError):
            producer.commit()
        with pytest.raises(BrokerError, match="INVALID_REQUEST"):
            admin.force_terminate_transaction("")


def markers(code: int) -> WriteTxnMarkersResponse:
    partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = WritableTxnMarkerTopicResult(name="t", partitions=[partition])
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=5, topics=[topic])])


def test_an_abort_marker_is_sent_to_the_leader_of_the_partition() -> None:
    plan = plans.abort_transaction(
        view_of(2), P0, clock, producer_id=5, producer_epoch=1, coordinator_epoch=7
    )
    [ask] = next(plan)  # type: ignore[misc]
    assert ask.node == 2
    assert isinstance(ask.request, WriteTxnMarkersRequest)
    [marker] = ask.request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (5, 1, 7)
    assert not marker.transaction_result


def test_a_rejected_abort_marker_raises_the_error_of_the_partition() -> None:
    plan = plans.abort_transaction(
        view_of(2), P0, clock, producer_id=5, producer_epoch=1, coordinator_epoch=7
    )
    with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
        play(plan, markers(ErrorCode.INVALID_PRODUCER_EPOCH))


def test_a_broker_without_a_response_is_asked_again_for_its_transactions() -> None:
    plan = plans.list_transactions(view_of(1), clock, states=[], producer_ids=[], min_duration_ms=None)
    empty = ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=[], transaction_states=[]
    )
    cluster = cluster_of(1, brokers=2)
    assert play(plan, cluster, empty, CONNECTION_LOST, cluster, empty)[0] == {1: [], 2: []}


def test_an_unknown_state_is_an_error() -> None:
    plan = plans.list_transactions(view_of(1), clock, states=["Odd"], producer_ids=[], min_duration_ms=None)
    response = ListTransactionsResponse(
        throttle_time_ms=0, error_code=0, unknown_state_filters=["Odd"], transaction_states=[]
    )
    with pytest.raises(PartialFailure, match=r"broker 1: .*the broker knows no state Odd"):
        play(plan, cluster_of(1, brokers=1), response)


def test_a_broker_before_3_8_cannot_filter_by_duration() -> None:
    request = plans.list_transactions_request([], [], 5)
    with pytest.raises(UnsupportedVersion, match=r"Kafka 3\.8"):
        request.build(0)
    assert request.build(1) == ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], duration_filter=5
    )
