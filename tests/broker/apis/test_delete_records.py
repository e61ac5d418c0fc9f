"""DeleteRecords advances the log start offset of a partition."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.stage import Client, Stage, batch_of

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def client(stage: Stage) -> Client:
    client = stage.client()
    client.produce(batch_of(b"a", b"b", timestamps=[100, 300]))
    client.produce(batch_of(b"c", b"d", timestamps=[200, 250], compression="gzip"))
    return client


def delete(client: Client, offset: int, partition: int = 0) -> tuple[int, int]:
    requested = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=[requested])], timeout_ms=1
    )
    [result] = client.ask(request).topics[0].partitions
    return result.error_code, result.low_watermark


def test_the_log_starts_at_the_requested_offset(client: Client) -> None:
    assert delete(client, 3) == (0, 3)
    assert client.list_offsets(EARLIEST).offset == 3
    assert client.list_offsets(0).offset == 3


def test_offset_minus_one_deletes_all_records(client: Client) -> None:
    assert delete(client, -1) == (0, 4)
    assert client.list_offsets(EARLIEST).offset == client.list_offsets(LATEST).offset == 4


def test_an_offset_after_the_end_is_out_of_range(client: Client) -> None:
    assert delete(client, 5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_a_compacted_topic_is_a_policy_violation(stage: Stage, client: Client) -> None:
    stage.topic("t").configs["cleanup.policy"] = "compact"
    assert delete(client, 3) == (ErrorCode.POLICY_VIOLATION, -1)
    stage.topic("t").configs["cleanup.policy"] = "compact, delete"
    assert delete(client, 3) == (0, 3)


def test_records_of_an_unknown_partition_are_not_deleted(client: Client) -> None:
    assert delete(client, 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
