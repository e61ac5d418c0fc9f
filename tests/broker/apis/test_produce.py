"""Produce stores valid batches, rejects invalid ones, and recognizes retries of idempotent producers."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.machine import CreateTopic, TruncateLog
from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigError
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.produce import ProduceRequest
from kproto.records import batches, encode_batch, rows
from kproto.records.batch import crc32c
from kproto.records.record import Record
from tests.broker.stage import Client, Stage, batch_of
from tests.records.raw_batches import SMALLEST, raw, smallest_records


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2})


def stored_records(stage: Stage, topic: str = "t") -> list[Record]:
    return rows(b"".join(stage.log(topic).read(0, 1 << 20, at_least_one=True)))


@pytest.mark.parametrize("version", range(3, 14))
def test_a_batch_is_stored_in_every_version(stage: Stage, client: Client, version: int) -> None:
    response = client.produce(batch_of(b"a", b"b"), version=version)
    assert (response.error_code, response.base_offset) == (0, 0)
    assert [(r.offset, r.value) for r in stored_records(stage)] == [(0, b"a"), (1, b"b")]


def test_a_batch_starts_at_the_end_of_the_log(client: Client) -> None:
    assert [client.produce(batch_of(b"a", b"b")).base_offset for _ in range(3)] == [0, 2, 4]


@pytest.mark.parametrize("acks", [1, -1])
def test_acks_1_and_all_are_the_same(client: Client, acks: int) -> None:
    assert client.produce(batch_of(b"a"), acks=acks).error_code == 0


def test_other_acks_are_refused(stage: Stage, client: Client) -> None:
    assert client.produce(batch_of(b"a"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert stored_records(stage) == []


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_records_without_keys_are_refused_by_a_compacted_topic(policy: str, compression: str) -> None:
    stage = Stage()
    stage.step(CreateTopic("t", 1, stage.random_id(), {"cleanup.policy": policy}))
    records = [Record(n, 1000, key, b"x") for n, key in enumerate((b"k", None, b"", None))]
    response = stage.client().produce(encode_batch(records, compression=compression), version=9)
    assert (response.error_code, response.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [error.batch_index for error in response.record_errors] == [1, 3]
    assert stored_records(stage) == []
    assert stage.client().produce(encode_batch([records[0]]), version=9).error_code == 0


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_compressed_records_without_consecutive_offsets_are_refused(policy: str, codec: str) -> None:
    """A compressed batch is rejected at the first record whose offset is not consecutive.

    The batch of 2 million records repeats one offset, so the broker rejects the batch at its second record,
    without checking the others.
    """
    stage = Stage()
    stage.step(CreateTopic("t", 1, stage.random_id(), {"cleanup.policy": policy}))
    bomb = raw(SMALLEST * 2_000_000, 2_000_000, codec, 1000)
    response = stage.client().produce(bomb, version=9)
    compacted = policy == "compact"
    expected = ErrorCode.INVALID_RECORD if compacted else ErrorCode.UNKNOWN_SERVER_ERROR
    assert response.error_code == expected
    assert [error.batch_index for error in response.record_errors] == ([0, 1] if compacted else [])
    assert stored_records(stage) == []
    response = stage.client().produce(raw(smallest_records(2) + SMALLEST, 3, codec, 1000), version=9)
    assert response.error_code == expected
    assert "record 2 has the offset delta 0" in (response.error_message or "") or compacted


def test_a_small_compressed_batch_has_a_maximum_number_of_records(client: Client) -> None:
    allowed, too_many = (raw(smallest_records(n), n, "gzip", 1000) for n in (50_000, 52_000))
    assert client.produce(allowed).error_code == 0
    response = client.produce(too_many, version=9)
    assert response.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert response.error_message == f"{len(too_many)} compressed bytes may have 50000 records, not 52000"


def test_a_small_compressed_batch_has_a_maximum_number_of_headers(client: Client) -> None:
    allowed, too_many = (
        encode_batch(
            [Record(n, 1000, b"k", b"", (("", None),) * 50_000) for n in range(count)], compression="gzip"
        )
        for count in (5, 6)
    )
    assert client.produce(allowed).error_code == 0
    response = client.produce(too_many, version=9)
    assert response.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "may have 250000 headers" in (response.error_message or "")


def test_a_compressed_batch_has_a_maximum_decompressed_size(client: Client) -> None:
    fits, too_large = (
        encode_batch([Record(0, 0, b"k", bytes(size << 20))], compression="gzip") for size in (15, 17)
    )
    assert client.produce(fits).error_code == 0
    response = client.produce(too_large, version=9)
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert "grows beyond" in (response.error_message or "")


def test_an_error_names_at_most_100_records_without_keys() -> None:
    stage = Stage()
    stage.step(CreateTopic("t", 1, stage.random_id(), {"cleanup.policy": "compact"}))
    response = stage.client().produce(raw(smallest_records(5000), 5000, timestamp=1000), version=9)
    assert [error.batch_index for error in response.record_errors] == list(range(100))


def test_compressed_records_with_a_late_timestamp_are_refused(client: Client) -> None:
    """The broker decodes compressed records to find timestamps that are too far in the future.

    The maximum timestamp in the batch header is not sufficient: the producer may have set it below the
    timestamps of the records.
    """
    batch = bytearray(encode_batch([Record(0, 1 << 50, None, b"v")], compression="gzip"))
    batch[35:43] = bytes(8)
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    assert client.produce(bytes(batch)).error_code == ErrorCode.INVALID_TIMESTAMP


def test_the_last_offset_must_be_that_of_the_last_record(client: Client) -> None:
    batch = encode_batch([Record(0, 1000, None, b"v")], last_offset=1_000_000)
    response = client.produce(batch, version=9)
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert response.error_message == "the last offset of 1 records is 0, not 1000000"


def produce_without_response(client: Client, batch: bytes, topic: str = "t") -> None:
    """Produce with acks=0."""
    from kproto.messages.produce import PartitionProduceData, TopicProduceData

    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    client.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=[data]), 9, expects=False)


def test_acks_0_stores_without_a_response(stage: Stage, client: Client) -> None:
    produce_without_response(client, batch_of(b"a"))
    produce_without_response(client, batch_of(b"b"))
    assert client.answers == []
    assert [r.value for r in stored_records(stage)] == [b"a", b"b"]
    assert client.conn not in stage.closed


def test_an_error_with_acks_0_closes_the_connection(stage: Stage, client: Client) -> None:
    produce_without_response(client, batch_of(b"a"), topic="missing")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in stage.closed[client.conn]


def test_an_unknown_topic_or_partition_is_refused(client: Client) -> None:
    assert client.produce(batch_of(b"a"), "u", version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(batch_of(b"a"), "t", 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(batch_of(b"a"), "t", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_id_is_refused_with_its_own_error(stage: Stage, client: Client) -> None:
    assert client.produce(batch_of(b"a"), topic_id=stage.random_id()).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_produce_creates_no_topic(stage: Stage, client: Client) -> None:
    client.produce(batch_of(b"a"), "u", version=12)
    assert stage.broker.topics.named("u") is None


@pytest.mark.parametrize("records", [None, b""])
def test_a_partition_without_a_batch_is_refused(client: Client, records: bytes | None) -> None:
    assert client.produce(records).error_code == ErrorCode.INVALID_RECORD


def test_two_batches_for_one_partition_are_refused(stage: Stage, client: Client) -> None:
    assert client.produce(batch_of(b"a") + batch_of(b"b")).error_code == ErrorCode.INVALID_RECORD
    assert stored_records(stage) == []


def test_a_flipped_bit_is_corrupt_message(stage: Stage, client: Client) -> None:
    batch = bytearray(batch_of(b"a"))
    batch[-3] ^= 1
    assert client.produce(bytes(batch)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert stored_records(stage) == []


def test_every_truncated_batch_is_refused(stage: Stage, client: Client) -> None:
    batch = batch_of(b"a")
    for end in range(len(batch)):
        refused = client.produce(batch[:end]).error_code
        assert refused in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    assert stored_records(stage) == []


def test_a_batch_with_gaps_is_refused(client: Client) -> None:
    assert client.produce(batch_of(b"a", last_offset=4)).error_code == ErrorCode.INVALID_RECORD


def test_control_batches_of_clients_are_refused(client: Client) -> None:
    batch = batch_of(b"a", is_control=True, producer_id=1, producer_epoch=0, base_sequence=0)
    assert client.produce(batch).error_code == ErrorCode.INVALID_RECORD


def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    client = Stage({"t": 1}, message_max_bytes=100).client()
    assert client.produce(batch_of(b"a" * 100)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert client.produce(batch_of(b"a" * 10)).error_code == 0


def test_zstd_is_refused_before_v7(client: Client) -> None:
    batch = batch_of(b"a", compression="zstd")
    assert client.produce(batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce(batch, version=7).error_code == 0


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_batch_is_stored_unchanged(stage: Stage, client: Client, compression: str) -> None:
    client.produce(batch_of(b"a", b"b", compression=compression))
    [chunk] = stage.log("t").read(0, 1 << 20, at_least_one=True)
    [batch] = batches(chunk)
    assert batch.compression == compression
    assert [r.value for r in batch.records()] == [b"a", b"b"]


def test_create_time_keeps_the_producers_timestamps(stage: Stage, client: Client) -> None:
    response = client.produce(batch_of(b"a", timestamps=[77]))
    assert response.log_append_time_ms == -1
    assert [r.timestamp for r in stored_records(stage)] == [77]


def test_a_timestamp_far_in_the_future_is_refused(stage: Stage, client: Client) -> None:
    hour = 3_600_000
    assert client.produce(batch_of(b"a", timestamps=[stage.now + hour])).error_code == 0
    late = client.produce(batch_of(b"a", timestamps=[stage.now + hour + 1]))
    assert late.error_code == ErrorCode.INVALID_TIMESTAMP
    assert stage.log("t").end_offset == 1


def test_a_timestamp_far_in_the_future_is_refused_by_a_compacted_topic() -> None:
    stage = Stage()
    stage.step(CreateTopic("t", 1, stage.random_id(), {"cleanup.policy": "compact"}))
    late = encode_batch([Record(0, stage.now + 3_600_001, b"k", b"x")])
    response = stage.client().produce(late)
    assert response.error_code == ErrorCode.INVALID_TIMESTAMP
    assert stored_records(stage) == []


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_with_log_append_time_a_timestamp_far_in_the_future_is_replaced(policy: str) -> None:
    stage = Stage()
    configs = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": policy}
    stage.step(CreateTopic("t", 1, stage.random_id(), configs))
    late = encode_batch([Record(0, stage.now + 3_600_001, b"k", b"x")])
    assert stage.client().produce(late).error_code == ErrorCode.NONE
    assert [record.timestamp for record in stored_records(stage)] == [stage.now]


@pytest.mark.parametrize("of", ["topic", "broker"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_timestamp_outside_of_the_limits_is_refused(of: str, compression: str) -> None:
    limits = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "50"}
    options: dict[str, Any] = {f"log.{name}": value for name, value in limits.items()}
    stage = Stage(**options) if of == "broker" else Stage()
    stage.step(CreateTopic("t", 1, stage.random_id(), limits if of == "topic" else {}))
    client, now = stage.client(), stage.now
    values = [b"a", b"b", b"c"]
    within = batch_of(*values, timestamps=[now - 1_000, -1, now + 50], compression=compression)
    assert client.produce(within).error_code == 0
    for timestamps in ([now, now - 1_001, now], [now, now + 51, now], [now, 77, now]):
        response = client.produce(batch_of(*values, timestamps=timestamps, compression=compression))
        assert response.error_code == ErrorCode.INVALID_TIMESTAMP
        assert [error.batch_index for error in response.record_errors] == [1]
        assert str(timestamps[1]) in (response.error_message or "")
    assert stage.log("t").end_offset == 3


def test_log_append_time_ignores_the_limits_of_timestamps() -> None:
    stage = Stage({"t": 1}, log_message_timestamp_type="LogAppendTime", log_message_timestamp_before_max_ms=1)
    assert stage.client().produce(batch_of(b"a", timestamps=[77])).error_code == 0


def test_log_append_time_sets_the_brokers_time() -> None:
    stage = Stage({"t": 1}, log_message_timestamp_type="LogAppendTime")
    response = stage.client().produce(batch_of(b"a", b"b", timestamps=[77, 99]))
    assert response.log_append_time_ms == stage.now
    assert [r.timestamp for r in stored_records(stage)] == [stage.now, stage.now]


def from_producer(sequence: int, *values: bytes, epoch: int = 0, producer: int = 7) -> bytes:
    return batch_of(*(values or (b"x",)), producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_a_duplicate_is_answered_with_the_first_offset_and_not_stored(stage: Stage, client: Client) -> None:
    client.produce(batch_of(b"other"))
    first = client.produce(from_producer(0, b"a", b"b"))
    response = client.produce(from_producer(0, b"a", b"b"))
    assert (first.error_code, first.base_offset) == (response.error_code, response.base_offset) == (0, 1)
    assert stage.log("t").end_offset == 3


def test_only_the_last_five_batches_are_recognized_as_duplicates(client: Client) -> None:
    offsets = [client.produce(from_producer(sequence)).base_offset for sequence in range(6)]
    retried = [client.produce(from_producer(sequence)) for sequence in range(6)]
    assert retried[0].error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [answer.base_offset for answer in retried[1:]] == offsets[1:]


def test_a_gap_in_the_sequence_is_out_of_order(stage: Stage, client: Client) -> None:
    client.produce(from_producer(0, b"a", b"b"))
    assert client.produce(from_producer(3)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(from_producer(2)).error_code == 0
    assert stage.log("t").end_offset == 3


def test_an_overlapping_batch_is_out_of_order(client: Client) -> None:
    client.produce(from_producer(0, b"a", b"b"))
    assert client.produce(from_producer(1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_sequence_0(client: Client) -> None:
    client.produce(from_producer(0, b"a", b"b"))
    assert client.produce(from_producer(2, epoch=1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(from_producer(0, epoch=1)).error_code == 0


def test_an_older_epoch_is_fenced(client: Client) -> None:
    client.produce(from_producer(0, epoch=1))
    assert client.produce(from_producer(1, epoch=0)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_start_at_any_sequence(client: Client) -> None:
    assert client.produce(from_producer(41)).error_code == 0
    assert client.produce(from_producer(42)).error_code == 0


def test_sequence_0_follows_the_largest(client: Client) -> None:
    client.produce(from_producer(2**31 - 2, b"a", b"b", b"c"))
    assert client.produce(from_producer(1)).error_code == 0


def test_sequences_are_per_partition_and_producer(client: Client) -> None:
    client.produce(from_producer(0))
    assert client.produce(from_producer(0), partition=1).base_offset == 0
    assert client.produce(from_producer(0, producer=8)).base_offset == 1


def test_each_producer_gets_its_own_id(client: Client) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answers = [client.ask(request) for _ in range(3)]
    assert [(a.error_code, a.producer_epoch) for a in answers] == [(0, 0)] * 3
    assert len({a.producer_id for a in answers}) == 3


def test_produce_by_id_writes_only_to_the_topic_with_that_id(stage: Stage, client: Client) -> None:
    assert client.produce(batch_of(b"a"), "none such", topic_id=stage.topic("t").id).error_code == 0
    assert (
        client.produce(batch_of(b"a"), "none such", topic_id=NO_ID).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    )


def test_truncated_batches_can_be_produced_again(stage: Stage, client: Client) -> None:
    client.produce(from_producer(0))
    client.produce(from_producer(1))
    stage.step(TruncateLog("t", 0, 1))
    assert [(client.produce(from_producer(1)).base_offset, stage.log("t").end_offset)] == [(1, 2)]


def test_a_truncation_outside_of_the_log_is_refused(stage: Stage, client: Client) -> None:
    client.produce(from_producer(0))
    for topic, partition, offset in (("t", 0, 2), ("t", 0, -1), ("t", 9, 0), ("none", 0, 0)):
        with pytest.raises(ConfigError):
            stage.step(TruncateLog(topic, partition, offset))
    assert stage.log("t").leader_epoch == 0


def test_after_an_unclean_election_the_last_five_remaining_batches_are_known(
    stage: Stage, client: Client
) -> None:
    """After an unclean election the broker rebuilds the producer state from the remaining log.

    The broker again recognizes duplicates of the last five batches that remain in the log. Before the
    election it remembered five later batches, which the election truncated.
    """
    for sequence in range(12):
        client.produce(from_producer(sequence))
    stage.step(TruncateLog("t", 0, 3))
    assert client.produce(from_producer(12)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    retried = [client.produce(from_producer(sequence)) for sequence in range(4)]
    assert [(answer.error_code, answer.base_offset) for answer in retried] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert stage.log("t").end_offset == 4


def test_an_unclean_election_removes_a_truncated_producer_epoch(stage: Stage, client: Client) -> None:
    client.produce(from_producer(0))
    client.produce(from_producer(0, epoch=1))
    stage.step(TruncateLog("t", 0, 1))
    assert client.produce(from_producer(0)).base_offset == 0
    assert client.produce(from_producer(1)).error_code == 0


def test_a_producer_whose_batches_were_deleted_stays_known_after_a_truncation(
    stage: Stage, client: Client
) -> None:
    client.produce(from_producer(0))
    client.produce(batch_of(b"other"))
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    stage.step(TruncateLog("t", 0, 1))
    assert client.produce(from_producer(2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce(from_producer(1)).error_code == 0
