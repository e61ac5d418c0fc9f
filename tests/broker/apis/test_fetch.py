"""Fetch returns whole batches within its limits, or waits for records."""

from __future__ import annotations

import pytest

from kproto.broker.log import BatchRange, Log
from kproto.broker.machine import ElectLeader, GrowTopic, ResponseSent, TruncateLog
from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kproto.messages.delete_topics import DeleteTopicsRequest
from tests.broker.stage import Client, Stage, batch_of, fetch_request, fetch_topic, partitions_of, values_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2})


@pytest.fixture
def producer(stage: Stage) -> Client:
    return stage.client()


@pytest.mark.parametrize("version", range(4, 19))
def test_records_are_returned_in_every_version(
    stage: Stage, client: Client, producer: Client, version: int
) -> None:
    producer.produce(batch_of(b"a", b"b"))
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(topic_id=stage.topic("t").id)), version))
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
    assert values_of(data) == [b"a", b"b"]


def test_a_fetch_within_a_batch_returns_the_whole_batch(client: Client, producer: Client) -> None:
    producer.produce(batch_of(b"a", b"b"))
    producer.produce(batch_of(b"c"))
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(1))))
    assert values_of(data) == [b"a", b"b", b"c"]


def test_a_fetch_at_the_end_waits_for_the_next_record(stage: Stage, client: Client, producer: Client) -> None:
    client.send(fetch_request(fetch_topic()), 12)
    stage.wait(100)
    assert client.answers == []
    producer.produce(batch_of(b"a"))
    assert values_of(partitions_of(client.answer())[0]) == [b"a"]


def test_a_record_of_another_partition_does_not_complete_a_fetch(client: Client, producer: Client) -> None:
    client.send(fetch_request(fetch_topic(partition=0)), 12)
    producer.produce(batch_of(b"a"), partition=1)
    assert client.answers == []


def test_a_fetch_without_records_is_answered_after_max_wait(stage: Stage, client: Client) -> None:
    client.send(fetch_request(fetch_topic(), wait=500), 12)
    stage.wait(499)
    assert client.answers == []
    stage.wait(1)
    [data] = partitions_of(client.answer())
    assert (data.error_code, data.records) == (0, b"")


def test_a_fetch_with_max_wait_0_is_answered_immediately(client: Client) -> None:
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(), wait=0)))
    assert (data.error_code, data.records) == (0, b"")


def test_a_fetch_without_partitions_is_answered_immediately(client: Client) -> None:
    assert partitions_of(client.fetch(fetch_request())) == []


def test_min_bytes_counts_all_partitions(client: Client, producer: Client) -> None:
    size = len(batch_of(b"a"))
    client.send(fetch_request(fetch_topic(partition=0), fetch_topic(partition=1), min_bytes=2 * size), 12)
    producer.produce(batch_of(b"a"), partition=0)
    assert client.answers == []
    producer.produce(batch_of(b"b"), partition=1)
    assert [values_of(data) for data in partitions_of(client.answer())] == [[b"a"], [b"b"]]


def test_a_produce_copies_no_records_for_parked_fetches(
    monkeypatch: pytest.MonkeyPatch, stage: Stage, client: Client, producer: Client
) -> None:
    for _ in range(3):
        producer.produce(batch_of(b"x" * 1000))
    copied: list[BatchRange] = []
    really = Log.batches_of

    def batches_of(self: Log, batches: BatchRange) -> list[bytes]:
        copied.append(batches)
        return really(self, batches)

    monkeypatch.setattr(Log, "batches_of", batches_of)
    client.send(fetch_request(fetch_topic(0), min_bytes=5000, wait=500), 12)
    for _ in range(4):
        producer.produce(batch_of(b"a"))
        assert copied == []
    stage.wait(500)
    assert len(values_of(partitions_of(client.answer())[0])) == 7
    assert len(copied) == 1


def test_after_max_wait_fewer_than_min_bytes_are_returned(
    stage: Stage, client: Client, producer: Client
) -> None:
    client.send(fetch_request(fetch_topic(), min_bytes=1 << 20, wait=500), 12)
    producer.produce(batch_of(b"a"))
    stage.wait(500)
    assert values_of(partitions_of(client.answer())[0]) == [b"a"]


def test_the_first_batch_is_returned_whatever_its_size(client: Client, producer: Client) -> None:
    producer.produce(batch_of(b"a" * 1000))
    producer.produce(batch_of(b"b"))
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(max_bytes=10), max_bytes=10)))
    assert values_of(data) == [b"a" * 1000]


def test_only_the_first_partition_may_exceed_the_limit(client: Client, producer: Client) -> None:
    for partition in (0, 1):
        producer.produce(batch_of(b"a" * 1000), partition=partition)
    topics = (fetch_topic(partition=0, max_bytes=10), fetch_topic(partition=1, max_bytes=10))
    assert [len(values_of(data)) for data in partitions_of(client.fetch(fetch_request(*topics)))] == [1, 0]


def test_an_empty_partition_does_not_count_as_the_first(client: Client, producer: Client) -> None:
    producer.produce(batch_of(b"a" * 1000), partition=1)
    topics = (fetch_topic(partition=0, max_bytes=10), fetch_topic(partition=1, max_bytes=10))
    assert [len(values_of(data)) for data in partitions_of(client.fetch(fetch_request(*topics)))] == [0, 1]


def test_partition_max_bytes_limits_a_partition(client: Client, producer: Client) -> None:
    for _ in range(5):
        producer.produce(batch_of(b"a" * 100))
    size = len(batch_of(b"a" * 100))
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(max_bytes=3 * size))))
    assert len(data.records or b"") == 3 * size


def test_max_bytes_limits_all_partitions_together(client: Client, producer: Client) -> None:
    for partition in (0, 0, 0, 1, 1, 1):
        producer.produce(batch_of(b"a" * 100), partition=partition)
    size = len(batch_of(b"a" * 100))
    response = client.fetch(
        fetch_request(fetch_topic(partition=0), fetch_topic(partition=1), max_bytes=4 * size)
    )
    assert [len(data.records or b"") // size for data in partitions_of(response)] == [3, 1]


def test_fetch_max_bytes_of_the_broker_limits_every_fetch() -> None:
    batch = batch_of(b"a" * 600)
    client = Stage({"t": 1}, fetch_max_bytes=2 * len(batch)).client()
    for _ in range(5):
        client.produce(batch)
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic())))
    assert len(data.records or b"") == 2 * len(batch)


@pytest.mark.parametrize("offset", [-1, 3])
def test_an_offset_outside_the_log_is_out_of_range(client: Client, producer: Client, offset: int) -> None:
    producer.produce(batch_of(b"a", b"b"))
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(offset))))
    assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_an_error_of_one_partition_does_not_affect_others(client: Client, producer: Client) -> None:
    producer.produce(batch_of(b"a"))
    good, bad = partitions_of(client.fetch(fetch_request(fetch_topic(), fetch_topic(partition=9))))
    assert values_of(good) == [b"a"]
    assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_error_completes_a_fetch_immediately(client: Client) -> None:
    codes = [
        data.error_code
        for data in partitions_of(
            client.fetch(fetch_request(fetch_topic(), fetch_topic(topic="u"), wait=10_000))
        )
    ]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_an_unknown_topic_id_is_answered_with_that_id(stage: Stage, client: Client) -> None:
    unknown = stage.random_id()
    response = client.fetch(fetch_request(fetch_topic(topic_id=unknown)), 13)
    assert [topic.topic_id for topic in response.responses] == [unknown]
    assert [data.error_code for data in partitions_of(response)] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_re_created_topic_is_unknown_by_its_old_id(stage: Stage, client: Client) -> None:
    old = stage.topic("t").id
    second_client = stage.client()
    second_client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    second_client.ask(CreateTopicsRequest(topics=[topic]))
    assert stage.topic("t").id not in (old, NO_ID)
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(topic_id=old)), 13))
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_deleting_a_topic_completes_its_delayed_fetches(
    stage: Stage, client: Client, producer: Client
) -> None:
    client.send(fetch_request(fetch_topic(), wait=10_000), 12)
    producer.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
    assert [d.error_code for d in partitions_of(client.answer())] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_new_partition_can_be_fetched(stage: Stage, client: Client, producer: Client) -> None:
    stage.step(GrowTopic("t", 3))
    producer.produce(batch_of(b"a"), partition=2)
    assert values_of(partitions_of(client.fetch(fetch_request(fetch_topic(partition=2))))[0]) == [b"a"]


def test_a_delayed_fetch_of_a_closed_connection_is_removed(
    stage: Stage, client: Client, producer: Client
) -> None:
    client.send(fetch_request(fetch_topic(), wait=500), 12)
    client.leave()
    producer.produce(batch_of(b"a"))
    stage.wait(1000)
    assert client.answers == []


def test_read_committed_receives_an_empty_list_of_aborted_transactions(
    client: Client, producer: Client
) -> None:
    producer.produce(batch_of(b"a"))
    committed, uncommitted = (
        partitions_of(client.fetch(fetch_request(fetch_topic(), isolation=isolation)))[0]
        for isolation in (1, 0)
    )
    assert (committed.aborted_transactions, uncommitted.aborted_transactions) == ([], None)


def test_an_old_leader_epoch_is_fenced_and_a_new_one_unknown(stage: Stage, client: Client) -> None:
    stage.step(ElectLeader("t", 0))
    codes = [
        partitions_of(client.fetch(fetch_request(fetch_topic(epoch=epoch), wait=0)))[0].error_code
        for epoch in (0, 1, 2, -1)
    ]
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH, 0, ErrorCode.UNKNOWN_LEADER_EPOCH, 0]


def test_an_election_completes_a_fetch_with_the_old_epoch(stage: Stage, client: Client) -> None:
    client.send(fetch_request(fetch_topic(epoch=0), wait=10_000), 12)
    stage.step(ElectLeader("t", 0))
    assert [d.error_code for d in partitions_of(client.answer())] == [ErrorCode.FENCED_LEADER_EPOCH]


def test_an_unknown_last_fetched_epoch_is_out_of_range(client: Client) -> None:
    """A fetch whose last fetched epoch exceeds the log's current epoch fails with OFFSET_OUT_OF_RANGE.

    The broker does not know where the client's log diverges from its own. It returns an error, because a
    diverging epoch of -1 without an error would mean that the logs do not diverge.
    """
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(fetched_epoch=5))))
    assert (data.error_code, data.diverging_epoch.epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_position_after_the_end_of_its_epoch_is_answered_with_the_diverging_epoch(
    stage: Stage, client: Client, producer: Client
) -> None:
    producer.produce(batch_of(b"a", b"b"))
    stage.step(ElectLeader("t", 0))
    producer.produce(batch_of(b"c", b"d"))
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(3, fetched_epoch=0))))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset, data.records) == (0, 2, b"")
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(2, fetched_epoch=0))))
    assert values_of(data) == [b"c", b"d"]


def test_a_position_after_a_truncation_is_out_of_range(
    stage: Stage, client: Client, producer: Client
) -> None:
    producer.produce(batch_of(b"a", b"b"))
    producer.produce(batch_of(b"c"))
    stage.step(TruncateLog("t", 0, 2))
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(3))))
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_truncated_position_with_an_epoch_is_answered_with_the_diverging_epoch(
    stage: Stage, client: Client, producer: Client
) -> None:
    """A fetch beyond the end of a truncated log returns the diverging epoch.

    The fetch does not fail with OFFSET_OUT_OF_RANGE. As in Kafka's Partition.readRecords, the broker first
    checks the last fetched epoch, and only then compares the fetch offset with the end of the log.
    """
    producer.produce(batch_of(b"a", b"b"))
    producer.produce(batch_of(b"c"))
    stage.step(TruncateLog("t", 0, 2))
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(3, fetched_epoch=0))))
    assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 0, 2)


def test_a_truncation_completes_a_delayed_fetch(stage: Stage, client: Client, producer: Client) -> None:
    producer.produce(batch_of(b"a"))
    client.send(fetch_request(fetch_topic(1), wait=10_000), 12)
    stage.step(TruncateLog("t", 0, 0))
    assert [d.error_code for d in partitions_of(client.answer())] == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_unsent_responses_limit_a_fetch_to_one_batch(
    stage: Stage, producer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the unsent responses reach MAX_UNSENT_BYTES, a fetch returns only one batch.

    Without MAX_UNSENT_BYTES, clients that do not read their responses could exhaust the broker's memory.
    """
    for _ in range(4):
        producer.produce(batch_of(b"x" * 1000))
    monkeypatch.setattr("kproto.broker.apis.fetch.MAX_UNSENT_BYTES", 5000)
    lazy = [stage.client() for _ in range(3)]
    for slow_client in lazy:
        slow_client.reads = False
        slow_client.send(fetch_request(fetch_topic()), 12)
    batches = [len(values_of(partitions_of(client.answer())[0])) for client in lazy]
    assert batches == [4, 1, 1]
    held = stage.broker.cluster.unsent
    assert 6000 < held < 7000
    stage.step(ResponseSent(lazy[0].conn))
    assert stage.broker.cluster.unsent < 3000
    assert len(values_of(partitions_of(producer.fetch(fetch_request(fetch_topic())))[0])) > 1
    for slow_client in lazy:
        slow_client.leave()
    assert stage.broker.cluster.unsent == 0
