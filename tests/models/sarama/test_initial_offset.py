"""A claim starts at the committed offset, or at Offsets.Initial if no offset is committed."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kproto.models.sarama import errors
from kproto.models.sarama.initial_offset import InitialOffsetFetch, LogOffset
from kproto.models.sarama.offset_manager import OffsetManager
from tests.models.sarama.stage import (
    ClientStage,
    add_second_member,
    inject_offset_fetch_errors,
    metadata_of,
    requests_of,
    stage_with_client,
    stage_with_member,
    time_of_request,
)
from tests.rules import rule


def test_offsets_are_fetched_one_by_one_without_require_stable() -> None:
    _, a = stage_with_member()
    assert requests_of(a, "OffsetFetch") == [
        "OffsetFetch v8 stable=False t:0 -> 0 t:0@-1",
        "OffsetFetch v8 stable=False t:1 -> 0 t:1@-1",
    ]


def test_read_committed_requires_stable_offsets() -> None:
    _, a = stage_with_member(isolation="read_committed")
    assert requests_of(a, "OffsetFetch")[0].startswith("OffsetFetch v8 stable=True")


@rule("M62")
@pytest.mark.parametrize("code", [15, 16])
def test_a_fetch_that_fails_with_a_moved_coordinator_looks_it_up_again(code: int) -> None:
    # Mirrors sarama's TestOffsetManagerFetchInitialFail
    stage, a = stage_with_client()
    inject_offset_fetch_errors(a, code)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    lines = requests_of(a, "OffsetFetch", "Find")
    assert [line.split()[0] for line in lines] == [
        "Find",
        "Find",
        "OffsetFetch",
        "Find",
        "OffsetFetch",
        "OffsetFetch",
    ]
    assert time_of_request(a, "OffsetFetch", 1) - time_of_request(a, "OffsetFetch", 0) >= 250


@rule("M62")
def test_a_fetch_during_loading_waits_and_repeats_the_request() -> None:
    # Mirrors sarama's TestOffsetManagerFetchInitialLoadInProgress, TestOffsetManagerFetchInitialTopLevelErr
    stage, a = stage_with_client()
    inject_offset_fetch_errors(a, 14)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    assert len(requests_of(a, "Find")) == 2
    assert time_of_request(a, "OffsetFetch", 1) - time_of_request(a, "OffsetFetch", 0) >= 250


def test_a_failed_fetch_releases_without_cleanup_after_metadata_retry_max() -> None:
    stage, a = stage_with_client()
    inject_offset_fetch_errors(a, *[14] * 4)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("error"))
    assert a.has_printed("error KError(14)")
    assert not a.has_printed("revoked")
    assert len(requests_of(a, "OffsetFetch")) == 4


@pytest.mark.parametrize("code", [22, 25, 27])
def test_other_errors_of_the_fetch_end_the_session_immediately(code: int) -> None:
    stage, a = stage_with_client()
    inject_offset_fetch_errors(a, code)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    assert a.has_printed(f"error KError({code})")
    assert requests_of(a, "Join")[2].startswith("Join v8 id=A1 ")


def test_without_a_commit_a_claim_starts_at_the_initial_offset() -> None:
    # TestPartitionOffsetManagerInitialOffset, TestConsumerOffsetNewest, TestConsumerOffsetOldest
    stage, a = stage_with_client(reset="latest")
    a.run_command("subscribe t")
    stage.run(2_000)
    stage.produce("t", [0], 3)
    stage.run(1_000)
    assert [record.offset for record in a.records] == [5, 6, 7]


def test_the_next_session_starts_at_the_committed_offset() -> None:
    # Mirrors sarama's TestPartitionOffsetManagerNextOffset
    stage, a = stage_with_member()
    stage.run(500)
    a.run_command("close")
    stage.run(2_000)
    stage.produce("t", [0, 1], 2)
    b = add_second_member(stage)
    assert sorted((record.partition.partition, record.offset) for record in b.records) == [
        (0, 5),
        (0, 6),
        (1, 5),
        (1, 6),
    ]


# ---- one request at a time

T0 = TopicPartition("t", 0)


def list_offsets(stage: ClientStage) -> ClientStage:
    return stage.start(lambda: LogOffset(stage.client, stage.caller, T0, -2).start())


def listed(offset: int = 5, code: int = 0, partition: int = 0) -> ListOffsetsResponse:
    block = ListOffsetsPartitionResponse(partition_index=partition, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[block])])


def names_of(stage: ClientStage) -> list[str]:
    return [type(action.request).__name__ for action in stage.client.out if hasattr(action, "request")]


def test_an_offset_is_requested_from_the_leader() -> None:
    stage = list_offsets(ClientStage())
    stage.answer(listed())
    assert stage.signals == [("offset_listed", 5)]
    assert stage.client.out[0].to.host == "broker1"


def test_without_a_leader_the_topic_is_refreshed_before_the_offset_is_requested() -> None:
    stage = list_offsets(ClientStage(connected=False))
    assert names_of(stage) == ["MetadataRequest"]
    stage.answer(metadata_of(2))
    stage.answer(listed())
    assert stage.signals == [("offset_listed", 5)]
    assert names_of(stage) == ["MetadataRequest", "ListOffsetsRequest"]


@pytest.mark.parametrize("failure", ["code", "broken", "missing"])
def test_a_failed_list_offsets_is_repeated_once_after_a_refresh(failure: str) -> None:
    stage = list_offsets(ClientStage())
    error = {"code": errors.kafka(6), "broken": errors.network("EOF", False), "missing": errors.INCOMPLETE}
    for _ in range(2):
        assert stage.signals == []
        if failure == "broken":
            stage.fail()
        else:
            stage.answer(listed(code=6) if failure == "code" else listed(partition=1))
        if not stage.signals:
            stage.answer(metadata_of(1))
    assert stage.signals == [("offset_listed", error[failure])]
    assert names_of(stage) == ["ListOffsetsRequest", "MetadataRequest", "ListOffsetsRequest"]
    assert stage.client.metadata.brokers[1].opened is (failure == "code")


def test_an_error_of_the_refresh_before_the_second_attempt_is_returned() -> None:
    stage = list_offsets(ClientStage())
    stage.answer(listed(code=6))
    stage.answer(metadata_of(code=29))
    assert stage.signals == [("offset_listed", errors.kafka(29))]


def test_a_leader_that_stays_unknown_is_looked_up_twice() -> None:
    stage = list_offsets(ClientStage(connected=False))
    for _ in range(2):
        response = metadata_of(1)
        response.topics[0].partitions[0].leader_id = 9
        stage.answer(response)
        if not stage.signals:
            response = metadata_of(1)
            response.topics[0].partitions[0].leader_id = 9
            stage.answer(response)
    assert stage.signals == [("offset_listed", errors.LEADER_NOT_AVAILABLE)]


def test_a_failed_refresh_before_the_first_request_is_repeated_once() -> None:
    stage = list_offsets(ClientStage(connected=False))
    stage.answer(metadata_of(code=29))
    assert (stage.signals, len(names_of(stage))) == ([], 2)
    stage.answer(metadata_of(code=29))
    assert stage.signals == [("offset_listed", errors.kafka(29))]


def fetch_offset(stage: ClientStage) -> ClientStage:
    offsets = OffsetManager(stage.client, "m", 1, lambda error, partition: None, lambda error: None)
    return stage.start(lambda: InitialOffsetFetch(offsets, stage.caller, T0).start())


def test_a_failed_lookup_of_the_coordinator_is_returned_if_no_retry_is_left() -> None:
    stage = fetch_offset(ClientStage(connected=False, extra={"Metadata.Retry.Max": 0}))
    stage.fail()
    stage.fail()
    ((signal, error),) = stage.signals
    assert (signal, error.text[:35]) == ("offset_fetched", "kafka: client has run out of availa")


@pytest.mark.parametrize(("code", "error"), [(30, errors.kafka(30)), (0, errors.INCOMPLETE)])
def test_without_the_partition_the_error_of_the_group_is_returned(code: int, error: errors.GoError) -> None:
    stage = ClientStage()
    stage.client.coordinator.node_id = 1
    offsets = OffsetManager(stage.client, "m", 1, lambda error, partition: None, lambda error: None)
    offsets.broker = stage.client.metadata.brokers[1].open()
    stage.start(lambda: InitialOffsetFetch(offsets, stage.caller, T0).start())
    group = OffsetFetchResponseGroup(group_id="g", error_code=code, topics=[])
    stage.answer(OffsetFetchResponse(groups=[group]))
    assert stage.signals == [("offset_fetched", error)]


def fetch_from_broker_1(stage: ClientStage) -> None:
    """Fetch the offset of t-0 from broker 1, the known coordinator."""
    stage.client.coordinator.node_id = 1
    offsets = OffsetManager(stage.client, "m", 1, lambda error, partition: None, lambda error: None)
    offsets.broker = stage.client.metadata.brokers[1].open()
    stage.start(lambda: InitialOffsetFetch(offsets, stage.caller, T0).start())


def committed(offset: int, *, index: int = 0, topic: str = "t", code: int = 0) -> OffsetFetchResponse:
    block = OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=6,
        metadata="mine",
        error_code=code,
    )
    topics = [OffsetFetchResponseTopics(name=topic, partitions=[block])]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


def coordinator_2() -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=0, node_id=2, host="broker2", port=9092)


def test_a_committed_offset_has_its_leader_epoch_and_metadata() -> None:
    stage = ClientStage()
    fetch_from_broker_1(stage)
    stage.answer(committed(7))
    ((signal, result),) = stage.signals
    assert (signal, result.offset, result.epoch, result.metadata) == ("offset_fetched", 7, 6, "mine")
    assert not result.dirty


@pytest.mark.parametrize("place", [{"index": 1}, {"topic": "u"}])
def test_the_offset_of_another_partition_is_not_used(place: dict[str, Any]) -> None:
    stage = ClientStage()
    fetch_from_broker_1(stage)
    stage.answer(committed(7, **place))
    assert stage.signals == [("offset_fetched", errors.INCOMPLETE)]


def test_a_fetch_without_a_response_asks_the_next_coordinator_without_a_backoff() -> None:
    stage = ClientStage()
    fetch_from_broker_1(stage)
    stage.fail()
    stage.answer(coordinator_2())
    stage.answer(committed(7))
    assert names_of(stage) == ["OffsetFetchRequest", "FindCoordinatorRequest", "OffsetFetchRequest"]
    assert [action.to.host for action in stage.client.out if hasattr(action, "request")][-1] == "broker2"
    assert stage.signals[0][1].offset == 7


def test_a_fetch_is_repeated_metadata_retry_max_times() -> None:
    stage = ClientStage(extra={"Metadata.Retry.Max": 1})
    fetch_from_broker_1(stage)
    stage.fail("first")
    stage.answer(coordinator_2())
    stage.fail("second")
    assert stage.signals == [("offset_fetched", errors.network("second", False))]


def test_a_failed_lookup_of_the_coordinator_is_repeated_before_an_offset_is_fetched() -> None:
    stage = fetch_offset(ClientStage())
    for code in (24, 0):
        response = coordinator_2()
        response.error_code = code
        stage.answer(response)
    stage.answer(committed(7))
    assert names_of(stage) == ["FindCoordinatorRequest"] * 2 + ["OffsetFetchRequest"]
    assert stage.signals[0][1].offset == 7


@pytest.mark.parametrize(("isolation", "stable"), [("read_committed", True), ("read_uncommitted", False)])
@pytest.mark.parametrize(("version", "since"), [("2.8.0", True), ("2.4.0", False)])
def test_an_old_fetch_names_its_group_and_topic(
    version: str, since: bool, isolation: str, stable: bool
) -> None:
    stage = ClientStage(extra={"Version": version}, isolation=isolation)
    fetch_from_broker_1(stage)
    (request,) = stage.requests_of("OffsetFetch")
    assert (request.group_id, request.groups) == ("g", [])
    assert [(topic.name, topic.partition_indexes) for topic in request.topics] == [("t", [0])]
    assert request.require_stable is (stable and since)
    topic = committed(7).groups[0].topics[0]
    block = OffsetFetchResponsePartition(partition_index=0, committed_offset=7, metadata="", error_code=0)
    stage.answer(OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name=topic.name, partitions=[block])]))
    assert stage.signals[0][1].offset == 7
