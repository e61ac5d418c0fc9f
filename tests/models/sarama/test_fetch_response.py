"""A partition consumer reads messages, its next offset and its fetch size from one response."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import AbortedTransaction, PartitionData
from kproto.models.sarama.errors import GoError, kafka
from kproto.models.sarama.fetch_response import parse
from kproto.models.sarama.partition_consumer import MessageReceiver, PartitionConsumer
from kproto.records import Record, encode_batch
from tests.models.sarama.stage import stage_with_client
from tests.rules import rule


class Errors(MessageReceiver):
    """A partition consumer's Errors channel, which records the texts of the errors."""

    __slots__ = ("texts",)

    def __init__(self) -> None:
        self.texts: list[str] = []

    def report(self, error: GoError) -> None:
        self.texts.append(error.text)


def partition_consumer(offset: int = 0, **conf: Any) -> tuple[PartitionConsumer, list[str]]:
    """Return a partition consumer at `offset`, and the list of its errors."""
    _, member = stage_with_client(**conf)
    errors = Errors()
    return PartitionConsumer(member.state, errors, TopicPartition("t", 0), offset), errors.texts


def response(records: bytes, high_watermark: int = 10) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=high_watermark,
        aborted_transactions=None,
        records=records,
    )


def batch(*offsets: int) -> bytes:
    return encode_batch([Record(offset, 0, None, b"x" * 100) for offset in offsets])


@rule("M190")
def test_a_response_without_a_complete_batch_increases_the_fetch_size() -> None:
    child, errors = partition_consumer(**{"Fetch.Default": 50, "Fetch.Max": 120})
    data = batch(0)
    assert parse(child, response(data[:50])) == ([], None)
    assert child.fetch_size == min(len(data), 120)
    child.fetch_size = 100
    parse(child, response(data[:11]))
    assert child.fetch_size == 120
    assert (child.offset, errors) == (0, [])


@rule("M190")
def test_a_message_above_the_largest_fetch_size_is_reported_and_skipped() -> None:
    child, errors = partition_consumer(offset=4, **{"Fetch.Default": 50, "Fetch.Max": 50})
    assert parse(child, response(batch(4)[:50])) == ([], None)
    assert (child.offset, child.fetch_size) == (5, 50)
    assert errors == ["kafka: message is larger than Consumer.Fetch.Max"]


@rule("M191")
def test_an_empty_batch_advances_the_offset_up_to_the_high_watermark() -> None:
    child, _ = partition_consumer()
    empty = encode_batch([], base_offset=0, last_offset=6)
    assert parse(child, response(empty, high_watermark=6)) == ([], None)
    assert child.offset == 0
    assert parse(child, response(empty, high_watermark=7)) == ([], None)
    assert child.offset == 7


@rule("M192")
def test_only_a_response_with_records_changes_the_high_watermark() -> None:
    child, _ = partition_consumer()
    parse(child, response(batch(0), high_watermark=1))
    assert child.high_watermark == 1
    parse(child, response(b"", high_watermark=5))
    assert child.high_watermark == 1
    parse(child, response(batch(1), high_watermark=6))
    assert child.high_watermark == 6


def test_records_below_the_requested_offset_are_dropped() -> None:
    child, _ = partition_consumer(offset=1)
    messages, error = parse(child, response(batch(0, 1, 2)))
    assert error is None
    assert [message.offset for message in messages] == [1, 2]
    assert child.offset == 3


def test_a_batch_below_the_requested_offset_advances_the_offset_by_one() -> None:
    child, _ = partition_consumer(offset=5)
    rows = [Record(number, 0, None, b"x") for number in range(3)]
    assert parse(child, response(encode_batch(rows))) == ([], None)
    assert child.offset == 6


def test_an_error_code_yields_no_message() -> None:
    child, _ = partition_consumer(offset=1)
    failed = response(batch(1))
    failed.error_code = 1
    assert parse(child, failed) == ([], kafka(1))
    assert child.offset == 1


def test_a_corrupt_batch_is_a_decoding_error_and_keeps_the_offset() -> None:
    child, errors = partition_consumer()
    data = bytearray(batch(0))
    data[-1] ^= 1
    messages, error = parse(child, response(bytes(data)))
    assert messages == []
    assert error is not None
    assert error.name == "sarama.PacketDecodingError"
    assert (child.offset, errors) == (0, [])


@rule("M179")
def test_the_preferred_replica_of_a_response_is_kept_for_the_refresh_frequency() -> None:
    for frequency, lease in ((60_000, 60_000), (0, 600_000)):
        child, _ = partition_consumer(metadata_ms=frequency)
        preferring = response(b"")
        preferring.preferred_read_replica = 2
        assert parse(child, preferring) == ([], None)
        assert child.preferred == (2, child.client.now + lease)


@rule("M191")
def test_the_last_of_several_empty_batches_decides() -> None:
    child, _ = partition_consumer()
    empty = encode_batch([], base_offset=0, last_offset=2) + encode_batch([], base_offset=3, last_offset=6)
    parse(child, response(empty))
    assert child.offset == 7


@rule("M190")
def test_without_a_largest_fetch_size_the_size_grows_with_the_batch() -> None:
    child, _ = partition_consumer(**{"Fetch.Default": 50})
    data = batch(0, 1, 2)
    parse(child, response(data[:50]))
    assert child.fetch_size == len(data)
    parse(child, response(data[:50]))
    assert child.fetch_size == 2 * len(data)
    parse(child, response(data))
    assert child.fetch_size == 50
    parse(child, response(data[:12]))
    assert child.fetch_size == len(data)


@pytest.mark.parametrize(("isolation", "offsets"), [("read_uncommitted", [0, 1]), ("read_committed", [])])
def test_aborted_records_are_skipped_under_read_committed(isolation: str, offsets: list[int]) -> None:
    child, _ = partition_consumer(isolation=isolation)
    rows = [Record(offset, 0, None, b"x") for offset in (0, 1)]
    aborted = response(encode_batch(rows, producer_id=9, producer_epoch=0, is_transactional=True))
    aborted.aborted_transactions = [AbortedTransaction(producer_id=9, first_offset=0)]
    messages, _ = parse(child, aborted)
    assert [message.offset for message in messages] == offsets
    assert child.offset == 2
