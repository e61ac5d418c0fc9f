"""Requests of transactional producers commit, abort and fence as in Kafka.

tests/conformance/test_transactions_like_kafka.py compares the responses to the requests of these tests with
a real Kafka's responses.
"""

from __future__ import annotations

import pytest

from kproto.broker.apis.table import REFUSABLE, served_versions
from kproto.broker.broker import Broker, TransactionCoordinatorStep
from kproto.broker.call import Node
from kproto.broker.cluster import BrokerCluster
from kproto.broker.machine import CreateTopic, FailRequests, TruncateLog
from kproto.broker.settings import Settings
from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode as E
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kproto.messages.describe_transactions import DescribeTransactionsRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.list_transactions import ListTransactionsRequest
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import batches, rows
from kproto.transactions import WriteMarkers
from tests.broker.behaviour.stage import (
    TransactionalProducer,
    committed_offset,
    read_committed,
    read_partition,
)
from tests.broker.stage import Client, Stage, batch_of, fetch_request, fetch_topic, partitions_of, values_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2})


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    return TransactionalProducer(stage)


def latest(client: Client, *, isolation: int, timestamp: int = -1) -> int:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )
    offset: int = client.ask(request).topics[0].partitions[0].offset
    return offset


def test_an_ongoing_transaction_is_visible_to_read_uncommitted_only(
    client: Client, producer: TransactionalProducer
) -> None:
    client.produce(batch_of(b"before"))
    producer.write(b"a", b"b")
    client.produce(batch_of(b"behind"))
    assert values_of(read_partition(client)) == [b"before"]
    assert values_of(read_partition(client, isolation=0)) == [b"before", b"a", b"b", b"behind"]
    data = read_partition(client, 1)
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.records) == (0, 4, 1, b"")
    assert [latest(client, isolation=level) for level in (0, 1)] == [4, 1]
    # A read_committed lookup by timestamp does not find a record of the ongoing transaction.
    assert latest(client, isolation=1, timestamp=1001) == -1
    assert latest(client, isolation=0, timestamp=1001) == 2


def test_a_committed_transaction_is_visible_after_its_marker(
    client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    producer.write(b"b", partition=1)
    producer.end()
    assert [read_committed(client, partition=partition) for partition in (0, 1)] == [[b"a"], [b"b"]]
    data = read_partition(client)
    assert (data.last_stable_offset, data.high_watermark, data.aborted_transactions) == (2, 2, [])
    *_, last = batches(data.records)
    assert (last.is_control, last.is_transactional, last.producer_epoch, last.base_offset) == (
        True,
        True,
        1,
        1,
    )


def test_a_fetch_lists_the_aborted_transactions_of_its_range(
    stage: Stage, client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    producer.write(b"b")
    producer.end(committed=False)
    client.produce(batch_of(b"plain"))
    second_producer = TransactionalProducer(stage, "y")
    second_producer.write(b"c")
    second_producer.end(committed=False)
    assert read_committed(client) == [b"plain"]
    offsets = [
        [aborted.first_offset for aborted in read_partition(client, at).aborted_transactions]
        for at in range(7)
    ]
    assert offsets == [[0, 4], [0, 4], [0, 4], [4], [4], [4], []]
    assert read_partition(client, isolation=0).aborted_transactions is None
    small = read_partition(client, max_bytes=1)
    assert [aborted.first_offset for aborted in small.aborted_transactions] == [0]


@pytest.mark.rule("X5")
def test_the_oldest_ongoing_transaction_sets_the_last_stable_offset(stage: Stage, client: Client) -> None:
    first, second = TransactionalProducer(stage, "x"), TransactionalProducer(stage, "y")
    first.write(b"x")
    second.write(b"y")
    second.end()
    assert read_committed(client) == []
    first.end()
    assert read_committed(client) == [b"x", b"y"]


def test_a_marker_completes_a_delayed_read_committed_fetch(
    client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    client.send(fetch_request(fetch_topic(), wait=60_000, isolation=1), 12)
    producer.write(b"b")
    assert client.answers == []
    producer.end()
    assert values_of(partitions_of(client.answer())[0])[:2] == [b"a", b"b"]


def test_truncating_a_marker_makes_the_transaction_ongoing_again(
    stage: Stage, client: Client, producer: TransactionalProducer
) -> None:
    client.produce(batch_of(b"plain"))
    producer.write(b"a")
    producer.end(committed=False)
    stage.step(TruncateLog("t", 0, 2))
    assert (read_partition(client, isolation=0).last_stable_offset, stage.log("t").end_offset) == (1, 2)
    stage.step(TruncateLog("t", 0, 1))
    assert read_partition(client, isolation=0).last_stable_offset == 1
    assert read_partition(client).aborted_transactions == []


def test_a_truncation_keeps_earlier_aborted_transactions(
    client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    producer.end(committed=False)
    producer.write(b"b")
    producer.stage.step(TruncateLog("t", 0, 2))
    assert read_committed(client) == []
    assert len(read_partition(client).aborted_transactions) == 1


def test_deleted_records_are_never_the_last_stable_offset(
    client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    producer.write(b"b")
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert read_partition(client, 1).last_stable_offset == 1
    producer.end(committed=False)
    assert len(read_partition(client, 1).aborted_transactions) == 1
    partition.offset = -1
    client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert read_partition(client, 3).aborted_transactions == []


def test_writing_adds_a_partition_from_v12_on_only(stage: Stage, producer: TransactionalProducer) -> None:
    assert producer.write(version=11).error_code == E.TRANSACTION_ABORTABLE
    assert producer.write(version=9).error_code == E.INVALID_TXN_STATE
    assert producer.add(0) == [0]
    assert producer.write(version=9).error_code == 0
    assert producer.write(partition=1, version=9).error_code == E.INVALID_TXN_STATE
    assert producer.write(partition=1).error_code == 0


def test_a_transactional_batch_needs_a_transactional_id(
    stage: Stage, client: Client, producer: TransactionalProducer
) -> None:
    producer.name = None  # type: ignore[assignment]
    assert producer.write().error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert stage.log("t").end_offset == 0


def test_a_fenced_producer_writes_nothing(
    stage: Stage, client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"mine")
    second_producer = TransactionalProducer(stage)
    assert producer.write(b"late").error_code == E.INVALID_PRODUCER_EPOCH
    assert producer.write(b"late", partition=1, version=9).error_code == E.INVALID_PRODUCER_EPOCH
    assert producer.commit(9) == [E.INVALID_PRODUCER_EPOCH]
    assert producer.end() == E.PRODUCER_FENCED
    second_producer.write(b"other's")
    second_producer.end()
    assert read_committed(client) == [b"other's"]


def test_a_late_batch_of_an_ended_transaction_is_fenced(
    client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    before = producer.epoch
    producer.end()
    late = producer.write(b"late", producer_epoch=before, base_sequence=1)
    assert late.error_code == E.INVALID_PRODUCER_EPOCH
    assert producer.write(b"b", base_sequence=1).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.write(b"b").error_code == 0


def test_sequences_continue_after_end_txn_up_to_v4(client: Client, producer: TransactionalProducer) -> None:
    for value in (b"a", b"b"):
        producer.add(0)
        assert producer.write(value, version=9).error_code == 0
        assert producer.end(version=4) == 0
    assert read_committed(client) == [b"a", b"b"]


def test_a_retried_batch_of_a_transaction_is_stored_once(
    client: Client, producer: TransactionalProducer
) -> None:
    assert producer.write(b"a").base_offset == 0
    assert producer.write(b"a", base_sequence=0).base_offset == 0
    producer.end()
    assert read_committed(client) == [b"a"]


def test_a_first_batch_must_start_at_sequence_0(producer: TransactionalProducer) -> None:
    assert producer.write(b"a", base_sequence=3).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_attempts_to_write_the_first_batch_are_remembered(
    client: Client, producer: TransactionalProducer
) -> None:
    """A rejected attempt at a transaction's first batch limits the later attempts' sequences.

    A later attempt must not start at a higher sequence number than the rejected attempt. If the first attempt
    used Produce v12 (KIP-890), a producer that is unknown to the partition must start at 0, even in later
    attempts with an older version. Kafka's class is VerificationStateEntry.
    """
    assert producer.write(b"a", base_sequence=3).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.add(0)
    assert producer.write(b"a", base_sequence=2, version=9).error_code == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    producer.add(1)
    refused = producer.write(b"b", partition=1, base_sequence=5, version=9, is_transactional=False)
    assert refused.error_code == 0  # A producer's first non-transactional batch may have any sequence number.
    assert producer.write(b"a", base_sequence=0).error_code == 0


def test_a_non_transactional_batch_in_an_ongoing_transaction_is_refused(
    producer: TransactionalProducer,
) -> None:
    producer.write(b"a")
    assert producer.write(b"b", is_transactional=False).error_code == E.INVALID_TXN_STATE


def test_two_producers_in_one_request_fail_the_whole_request(
    client: Client, producer: TransactionalProducer
) -> None:
    """A request with the batches of two producers fails as a whole.

    The broker also rejects the batches in this request that are not transactional, and those that belong to
    the ongoing transaction.
    """
    assert producer.write(b"x").error_code == 0
    parts = [
        PartitionProduceData(
            index=index,
            records=batch_of(
                b"a",
                producer_id=producer.id + index,
                producer_epoch=producer.epoch,
                base_sequence=1 - index,
                is_transactional=True,
            ),
        )
        for index in (0, 1)
    ]
    parts += [PartitionProduceData(index=index, records=batch_of(b"plain")) for index in (2, 99)]
    request = ProduceRequest(
        transactional_id="x",
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=parts)],
    )
    answers = client.ask(request, 12).responses[0].partition_responses
    assert [response.error_code for response in answers] == [E.INVALID_PRODUCER_ID_MAPPING] * 4


def test_a_deleted_topic_does_not_block_a_transaction(
    stage: Stage, client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    producer.write(b"b", partition=1)
    state = DeleteTopicState(name="t", topic_id=NO_ID)
    client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000))
    assert producer.end() == 0
    assert TransactionalProducer(stage).epoch == 2


@pytest.mark.parametrize(("ends", "offset"), [(True, 5), (False, -1)])
def test_offsets_become_valid_with_the_commit_of_the_transaction(
    client: Client, producer: TransactionalProducer, ends: bool, offset: int
) -> None:
    assert producer.commit(5) == [0]
    assert committed_offset(client) == (0, -1)
    assert committed_offset(client, stable=True) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    producer.end(committed=ends)
    assert committed_offset(client, stable=True) == (0, offset)


def test_offsets_need_an_ongoing_transaction_with_the_group(
    client: Client, producer: TransactionalProducer
) -> None:
    assert producer.commit(5, version=3) == [E.INVALID_TXN_STATE]
    assert producer.commit(5, version=4) == [E.TRANSACTION_ABORTABLE]
    assert producer.commit(5, partition=9) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.commit(5, group="") == [E.INVALID_GROUP_ID]
    producer.epoch += 1
    assert producer.commit(5) == [E.INVALID_PRODUCER_EPOCH]


def test_later_offset_commits_are_not_verified_again(client: Client, producer: TransactionalProducer) -> None:
    """As in Kafka 4.3.1, the coordinator verifies only a transaction's first offset commit for each group."""
    producer.name = "other"
    assert producer.commit(5) == [E.INVALID_PRODUCER_ID_MAPPING]
    producer.name = "x"
    assert producer.commit(5) == [0]
    producer.name = "other"
    assert producer.commit(6) == [0]
    assert producer.commit(6, group="another") == [E.INVALID_PRODUCER_ID_MAPPING]
    producer.epoch += 1
    assert producer.commit(7) == [E.INVALID_PRODUCER_ID_MAPPING]
    producer.epoch, producer.name = producer.epoch - 1, "x"
    producer.end()
    assert committed_offset(client, stable=True) == (0, 6)
    producer.name = "other"
    assert producer.commit(8) == [E.INVALID_PRODUCER_ID_MAPPING]


def test_a_transaction_is_aborted_after_its_timeout(stage: Stage, client: Client) -> None:
    producer = TransactionalProducer(stage, timeout=5_000)
    producer.write(b"a")
    producer.commit(7)
    stage.wait(5_000)
    assert read_partition(client).last_stable_offset == 0
    stage.wait(1)
    assert read_committed(client) == []
    assert read_partition(client).last_stable_offset == 2
    assert committed_offset(client, stable=True) == (0, -1)
    markers = [
        action
        for step in stage.reports
        if isinstance(step, TransactionCoordinatorStep)
        for action in step.actions
        if isinstance(action, WriteMarkers)
    ]
    assert [(marker.committed, marker.reason) for marker in markers] == [
        (False, "open for longer than 5000 ms")
    ]


def test_the_operator_can_fail_end_txn(stage: Stage, client: Client, producer: TransactionalProducer) -> None:
    producer.write(b"a")
    stage.step(FailRequests(26, E.COORDINATOR_LOAD_IN_PROGRESS, 1))
    assert producer.end() == E.COORDINATOR_LOAD_IN_PROGRESS
    assert read_committed(client) == []
    assert producer.end() == 0
    assert read_committed(client) == [b"a"]


@pytest.mark.parametrize("key", [22, 24, 25, 26, 28, 61, 65, 66])
def test_every_transaction_api_can_fail(key: int) -> None:
    assert key in REFUSABLE


def test_transaction_version_2_is_finalized_if_it_is_served() -> None:
    hello = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    stage = Stage()
    response = stage.client().ask(hello, 4)
    assert [(feature.name, feature.max_version_level) for feature in response.finalized_features] == [
        ("transaction.version", 2)
    ]
    stage.broker.apis[26].max_version = 4
    assert stage.client().ask(hello, 4).finalized_features == []


def test_markers_are_not_records(stage: Stage, client: Client, producer: TransactionalProducer) -> None:
    producer.write(b"a")
    producer.end()
    stored = b"".join(stage.log("t").read(0, 1 << 20, at_least_one=True))
    assert [record.value for record in rows(stored)] == [b"a"]


def test_one_node_coordinates_and_all_nodes_accept_transactional_batches() -> None:
    settings = Settings.from_properties({})
    cluster = BrokerCluster(settings, [Node(1, "one", 1), Node(2, "two", 2)])
    first, second = (
        Broker(settings, node, served_versions(), cluster=cluster) for node in cluster.nodes.values()
    )
    stage = Stage()
    stage.broker = second
    client = stage.client()
    init_request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    assert client.ask(init_request).error_code == E.NOT_COORDINATOR
    init_request.transactional_id = None
    assert client.ask(init_request).error_code == 0
    coordinator = client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])).coordinators[0]
    assert (coordinator.error_code, coordinator.node_id) == (0, 1)
    (state,) = client.ask(DescribeTransactionsRequest(transactional_ids=["x"])).transaction_states
    assert state.error_code == E.NOT_COORDINATOR
    listed = client.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
    assert (listed.error_code, listed.transaction_states) == (0, [])
    del cluster.nodes[1]
    assert first.transactions is second.transactions
    coordinator = client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])).coordinators[0]
    assert coordinator.error_code == E.COORDINATOR_NOT_AVAILABLE
    stage.step(CreateTopic("t", 1, stage.random_id()))
    cluster.leaders[stage.topic("t").partitions[0]] = 2
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    part = PartitionProduceData(index=0, records=batch_of(b"a", **producer))
    request = ProduceRequest(
        transactional_id="x",
        acks=-1,
        timeout_ms=1,
        topic_data=[TopicProduceData(name="t", partition_data=[part])],
    )
    answer = client.ask(request, 12).responses[0].partition_responses[0]
    assert answer.error_code == E.NOT_ENOUGH_REPLICAS
