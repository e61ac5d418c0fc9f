"""kafka-go's reader of one partition: restarts, and backoffs."""

from __future__ import annotations

from kproto.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kproto.models import contract as c
from tests.models.kafka_go.stage import ReaderStage, request_name


def fail_fetch(reader: ReaderStage, code: int) -> None:
    """Answer the open fetch of partition 0 with an error code."""
    sent = reader.fetch(0)
    reader.open.remove(sent)
    data = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=0,
        last_stable_offset=0,
        aborted_transactions=None,
        records=b"",
    )
    topics = [FetchableTopicResponse(topic="t", partitions=[data])]
    reader.do(c.ResponseReceived(sent.request, FetchResponse(throttle_time_ms=0, responses=topics), 10))


def fetches(reader: ReaderStage) -> list[int]:
    """Return the offsets of the fetches of partition 0."""
    partitions = [request.topics[0].partitions[0] for request in reader.requests_of("Fetch")]
    return [partition.fetch_offset for partition in partitions if partition.partition == 0]


def test_a_fetch_without_a_response_restarts_the_reader_on_a_new_connection() -> None:
    reader = ReaderStage(watch=False).join()
    sent = reader.fetch(0)
    reader.open.remove(sent)
    reader.do(c.RequestFailed(sent.request, "connection reset by peer"))
    assert c.CloseConnection(sent.to) in reader.said
    reader.wait(100)
    assert reader.fetch(0).to != sent.to


def test_a_partition_without_a_leader_is_looked_up_again_after_100_ms() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.settle(but=("OffsetFetch",))
    reader.settle(but=("Metadata",))
    unanswered = list(reader.open)
    assert [request_name(sent) for sent in unanswered] == ["Metadata", "Metadata"]
    for sent in unanswered:
        reader.open.remove(sent)
        response = reader.response(sent.request, 0)
        for partition in response.topics[0].partitions:  # type: ignore[attr-defined]
            partition.leader_id = -1
        reader.do(c.ResponseReceived(sent.request, response, sent.version))
    before = len(reader.requests_of("Metadata"))
    reader.wait(99)
    assert len(reader.requests_of("Metadata")) == before
    reader.wait(1)
    assert len(reader.requests_of("Metadata")) == before + 2


def test_the_first_error_after_a_skip_to_the_start_of_the_log_backs_off_100_ms() -> None:
    reader = ReaderStage(watch=False).join()
    fail_fetch(reader, 1)
    while lookups := [sent for sent in reader.open if request_name(sent) == "ListOffsets"]:
        reader.open.remove(lookups[0])
        response = reader.response(lookups[0].request, 0)
        response.topics[0].partitions[0].offset = 5  # type: ignore[attr-defined]
        reader.do(c.ResponseReceived(lookups[0].request, response, lookups[0].version))
    assert fetches(reader) == [0, 5]
    fail_fetch(reader, 29)
    reader.wait(99)
    assert fetches(reader) == [0, 5]
    reader.wait(1)
    assert fetches(reader) == [0, 5, 5]
