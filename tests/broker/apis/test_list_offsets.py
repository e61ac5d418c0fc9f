"""ListOffsets returns the start and the end of a log, and offsets by timestamp."""

from __future__ import annotations

import pytest

from kproto.broker.machine import ElectLeader
from kproto.error_codes import ErrorCode
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.stage import Client, Stage, batch_of

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def client(stage: Stage) -> Client:
    client = stage.client()
    client.produce(batch_of(b"a", b"b", timestamps=[100, 300]))
    client.produce(batch_of(b"c", b"d", timestamps=[200, 250], compression="gzip"))
    return client


@pytest.mark.parametrize("version", range(1, 12))
def test_latest_and_earliest_in_every_version(client: Client, version: int) -> None:
    answers = [client.list_offsets(timestamp, version=version) for timestamp in (LATEST, EARLIEST)]
    assert [(a.error_code, a.offset, a.timestamp) for a in answers] == [(0, 4, -1), (0, 0, -1)]


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_timestamp"),
    [(0, 0, 100), (100, 0, 100), (101, 1, 300), (300, 1, 300), (301, -1, -1)],
)
def test_a_timestamp_finds_the_first_record_that_is_not_older(
    client: Client, timestamp: int, offset: int, found_timestamp: int
) -> None:
    answer = client.list_offsets(timestamp)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, found_timestamp)


def test_max_timestamp_finds_the_latest_record(client: Client) -> None:
    answer = client.list_offsets(MAX_TIMESTAMP)
    assert (answer.offset, answer.timestamp) == (1, 300)


def test_an_empty_log_has_no_max_timestamp() -> None:
    answer = Stage({"t": 1}).client().list_offsets(MAX_TIMESTAMP)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, -1, -1)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_special_timestamp_is_refused_before_its_version(
    client: Client, timestamp: int, since: int
) -> None:
    assert client.list_offsets(timestamp, version=since - 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.list_offsets(timestamp, version=since).error_code == 0


def test_an_unknown_special_timestamp_is_refused(client: Client) -> None:
    assert client.list_offsets(-7).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("highest", [4, 6, 8])
def test_an_old_broker_takes_an_unknown_special_timestamp_for_a_time_before_1970(highest: int) -> None:
    """For a special timestamp that it does not know, an old broker returns the first record.

    Special timestamps, such as -3 for the maximum timestamp, are negative. An old broker treats an unknown
    one as a time before 1970.

    Observed with Kafka 2.1 (ListOffsets up to v4), 2.8 (up to v6) and 3.5 (up to v8).
    """
    client = Stage({"t": 1}, highest={"ListOffsets": highest}).client()
    client.produce(batch_of(b"a", b"b", b"c", timestamps=[100, 300, 200]))
    known = {-3: 7, -4: 8}
    for version in range(1, highest + 1):
        for timestamp in (-3, -4, -5, -6, -7):
            answer = client.list_offsets(timestamp, version=version)
            is_known = known.get(timestamp, 99) <= highest
            right = {-3: (0, 1, 300), -4: (0, 0, -1)}[timestamp] if is_known else (0, 0, 100)
            assert (answer.error_code, answer.offset, answer.timestamp) == right


def test_an_unknown_partition_is_refused(client: Client) -> None:
    assert client.list_offsets(LATEST, "u").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.list_offsets(LATEST, "t", 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_duplicate_partition_is_refused_once(client: Client) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=t) for t in (LATEST, EARLIEST)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)])
    response = client.ask(request)
    assert [p.error_code for p in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]


def test_the_leader_epoch_is_that_of_the_record(stage: Stage, client: Client) -> None:
    stage.step(ElectLeader("t", 0))
    client.produce(batch_of(b"e", timestamps=[400]))
    assert [client.list_offsets(t).leader_epoch for t in (EARLIEST, 100, 400, LATEST)] == [0, 0, 1, 1]


def test_a_stale_epoch_is_fenced(stage: Stage, client: Client) -> None:
    stage.step(ElectLeader("t", 0))
    assert client.list_offsets(LATEST, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert client.list_offsets(LATEST, epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
