"""ConsumePartition requests the start and end of the log, and rejects an offset outside this range."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.models.contract import RequestFailed
from kproto.models.sarama import broker_consumer, errors
from kproto.models.sarama.config import NEWEST, OLDEST
from kproto.models.sarama.consume_partition import ConsumePartition
from tests.models.sarama.stage import ClientStage, metadata_of, requests_of, stage_with_member

T0 = TopicPartition("t", 0)


def test_s3_13_both_ends_of_the_log_are_requested_for_each_partition() -> None:
    _, a = stage_with_member()
    assert requests_of(a, "ListOffsets") == [
        "ListOffsets v6 iso=0 t:0@-1 -> 0 t:0@5",
        "ListOffsets v6 iso=0 t:0@-2 -> 0 t:0@0",
        "ListOffsets v6 iso=0 t:1@-1 -> 0 t:1@5",
        "ListOffsets v6 iso=0 t:1@-2 -> 0 t:1@0",
    ]


def listed(offset: int, partition: int = 0) -> ListOffsetsResponse:
    block = ListOffsetsPartitionResponse(partition_index=partition, error_code=0, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[block])])


def opened(offset: int, stage: ClientStage | None = None) -> ClientStage:
    """Open t-0, whose log has the offsets from 3 to 7."""
    stage = stage or ClientStage()
    stage.start(ConsumePartition(stage.client, stage.caller, T0, offset).start)
    stage.answer(listed(7))
    stage.answer(listed(3))
    return stage


@pytest.mark.rule("M185")
@pytest.mark.parametrize(
    ("requested", "offset"), [(NEWEST, 7), (OLDEST, 3), (3, 3), (5, 5), (7, 7), (2, None), (8, None)]
)
def test_an_offset_outside_the_log_is_out_of_range(requested: int, offset: int | None) -> None:
    ((signal, result),) = opened(requested).signals
    assert signal == "partition_opened"
    assert (
        (result == errors.OUT_OF_RANGE)
        if offset is None
        else (result.offset, result.high_watermark) == (offset, 7)
    )


def lose_leader(stage: ClientStage) -> None:
    stage.client.metadata.topics["t"].clear()


@pytest.mark.parametrize("code", [0, 29])
def test_a_leader_that_is_lost_after_the_lookups_is_refreshed(code: int) -> None:
    stage = ClientStage()
    stage.start(ConsumePartition(stage.client, stage.caller, T0, OLDEST).start)
    stage.answer(listed(7))
    lose_leader(stage)
    stage.answer(listed(3))
    assert len(stage.requests_of("Metadata")) == 1
    stage.answer(metadata_of(2, code=code))
    ((_, result),) = stage.signals
    assert (result == errors.kafka(29)) if code else (result.consumer.broker.id == 2)


def test_a_leader_that_stays_unknown_is_an_error() -> None:
    stage = ClientStage()
    stage.start(ConsumePartition(stage.client, stage.caller, T0, OLDEST).start)
    stage.answer(listed(7))
    lose_leader(stage)
    stage.answer(listed(3))
    response: Any = metadata_of(2)
    response.topics[0].partitions[0].leader_id = 9
    stage.answer(response)
    assert stage.signals == [("partition_opened", errors.LEADER_NOT_AVAILABLE)]


def test_a_partition_can_be_consumed_once() -> None:
    stage = opened(OLDEST)
    opened(OLDEST, stage)
    (_, first), (_, second) = stage.signals
    assert stage.client.children == {T0: first}
    assert second.text.endswith("(That topic/partition is already being consumed)")


def test_a_partition_that_was_paused_before_starts_paused() -> None:
    stage = ClientStage()
    stage.client.paused = {T0}
    ((_, child),) = opened(OLDEST, stage).signals
    assert child.paused


def open_at_broker_1(stage: ClientStage, index: int) -> None:
    """Open a partition whose leader moves from broker 2 to broker 1 while its offsets are looked up."""
    metadata = stage.client.metadata
    metadata.update(metadata_of(1, *[2] * index), everything=True)
    partition = TopicPartition("t", index)
    stage.start(ConsumePartition(stage.client, stage.caller, partition, OLDEST).start)
    stage.answer(listed(7, index))
    metadata.update(metadata_of(1, *[1] * index), everything=True)
    stage.answer(listed(3, index))


def test_a_partition_subscribes_again_if_the_fetch_loop_of_its_broker_fails_meanwhile() -> None:
    stage = opened(OLDEST)
    stage.wait(100)
    assert len(stage.requests_of("Fetch")) == 1
    open_at_broker_1(stage, 1)
    # The fetch loop has partition 1 and waits for the response to its Fetch. Until then, it cannot accept
    # partition 2.
    stage.wait(100)
    open_at_broker_1(stage, 2)
    assert len(stage.signals) == 2
    first = stage.signals[0][1].consumer
    fetch = next(action for action in stage.client.out if action.request is stage.requests_of("Fetch")[0])
    stage.client.on_request_failed(RequestFailed(fetch.request, "EOF"))
    stage.client.run()
    child = stage.signals[2][1]
    assert child.partition == TopicPartition("t", 2)
    assert child.consumer is not first
    assert child.subscription.consumer is child.consumer
    assert not child.consumer.stopped
    # Both goroutines of the failed fetch loop end after its last batch.
    assert (first.manager.state, first.fetcher.state) == (broker_consumer.M.STOPPED, broker_consumer.X.ENDED)
    assert stage.caller.errors == ["EOF", "kafka: broker not connected"]
