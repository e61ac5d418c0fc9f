"""Partition consumers and broker consumers: the cases of sarama's consumer_test.go that test behaviour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.models import contract as c
from kproto.models.sarama import broker_consumer, errors
from kproto.models.sarama.consume_partition import ConsumePartition
from kproto.models.sarama.partition_consumer import PartitionConsumer
from kproto.records import Record, encode_batch
from tests.models.sarama.stage import (
    ClientStage,
    Mutate,
    assert_mutant_fails,
    fetches,
    inject_fetch_error,
    metadata_of,
    requests_of,
    stage_with_member,
    time_of_request,
)
from tests.rules import rule

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@rule("M165")
def test_s3_9_one_fetch_requests_all_partitions_of_the_broker_without_a_session() -> None:
    # Mirrors sarama's TestConsumeMessageWithSessionIDs
    stage, a = stage_with_member(4)
    stage.run(1_000)
    request = [line.request for line in a.lines if line.api == "Fetch"][-1]
    assert sorted(fetches(a)[-1][1]) == [("t", index, 5) for index in range(4)]
    assert (request.session_id, request.session_epoch, request.max_wait_ms, request.min_bytes) == (
        0,
        -1,
        100,
        1,
    )
    assert [line.version for line in a.lines if line.api == "Fetch"][-1] == 12


@rule("M186")
def test_m186_the_subscription_manager_collects_partitions_for_100_ms() -> None:
    _, a = stage_with_member(1)
    assert 100 <= fetches(a)[0][0] - time_of_request(a, "ListOffsets", 1) <= 104


@rule("M155")
def test_an_offset_that_leaves_the_log_ends_the_session() -> None:
    stage, a = stage_with_member(1)
    inject_fetch_error(a, 1)
    stage.produce("t", [0], 1)
    assert stage.run(5_000, until=lambda: len(requests_of(a, "Join")) == 3)
    assert a.has_printed("error KError(1)")
    assert 'reason="a ConsumeClaim handler has exited"' in requests_of(a, "Join")[2]
    assert stage.run(5_000, until=lambda: len(a.records) == 6)


@rule("M177")
def test_a_corrupt_message_is_reported_and_the_partition_starts_again() -> None:
    stage, a = stage_with_member(1)
    inject_fetch_error(a, 2)
    stage.produce("t", [0], 1)
    assert stage.run(5_000, until=lambda: len(a.records) == 6)
    assert a.has_printed("error KError(2)")
    assert len(requests_of(a, "Join")) == 2


@rule("M187")
def test_m187_below_the_processing_time_the_slowest_partition_delays_all() -> None:
    stage, a = stage_with_member(2, ChannelBufferSize=4, **{"Consumer.MaxProcessingTime": 60_000})
    a.polling = False
    stage.run(200)
    stage.produce("t", [0], 20)
    stage.run(1_000)
    fetch_count = len(fetches(a))
    stage.run(10_000)
    assert len(fetches(a)) == fetch_count


@rule("M180")
def test_paused_partitions_are_not_fetched_and_without_others_no_request_is_sent() -> None:
    # Mirrors sarama's TestPauseResumeConsumption, TestConsumerPause
    stage, a = stage_with_member()
    a.do(c.PauseCalled((T0,)))
    stage.run(500)
    assert [index for _, index, _ in fetches(a)[-1][1]] == [1]
    a.do(c.PauseCalled((T1,)))
    stage.run(500)
    fetch_count = len(fetches(a))
    stage.run(2_000)
    assert len(fetches(a)) == fetch_count
    a.do(c.ResumeCalled((T0, T1)))
    stage.run(500)
    assert len(fetches(a)[-1][1]) == 2


# ---- one response at a time


def fetching(**conf: Any) -> tuple[ClientStage, PartitionConsumer]:
    """Return a client that fetches t-0 from broker 1.

    The log of t-0 has the offsets from 3 to 7.
    """
    stage = ClientStage(**conf)
    stage.start(ConsumePartition(stage.client, stage.caller, T0, 5).start)
    for offset in (7, 3):
        block = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset)
        stage.answer(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[block])]))
    stage.wait(100)
    return stage, stage.signals[0][1]


def fetched(code: int = 0, records: bytes = b"", preferred: int = -1) -> FetchResponse:
    data = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=7,
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=records,
    )
    return FetchResponse(throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def hosts_of(stage: ClientStage) -> list[str]:
    """Return the host of each Fetch."""
    return [
        action.to.host
        for action in stage.client.out
        if isinstance(action, c.SendRequest) and isinstance(action.request, FetchRequest)
    ]


@rule("M179")
def test_a_preferred_replica_is_fetched_from_without_a_backoff() -> None:
    stage, child = fetching()
    stage.answer(fetched(preferred=2))
    stage.wait(0)
    stage.answer(metadata_of(1))
    stage.wait(100)
    assert hosts_of(stage) == ["broker1", "broker2"]
    assert child.retries == 0
    stage.answer(fetched(preferred=2))
    assert hosts_of(stage)[-2:] == ["broker2", "broker2"]


@rule("M179")
def test_a_preferred_replica_that_has_expired_gives_way_to_the_leader() -> None:
    stage, child = fetching(metadata_ms=60_000)
    child.prefer(2)
    until = stage.client.now + 60_000
    for now, broker_id in ((until, 2), (until + 1, 1)):
        stage.client.now = now
        leader = child.preferred_broker()
        assert not isinstance(leader, errors.GoError)
        assert leader[0].id == broker_id
    assert child.preferred is None


@rule("M179")
def test_a_preferred_replica_that_is_no_broker_gives_way_to_the_leader() -> None:
    _, child = fetching()
    child.prefer(9)
    leader = child.preferred_broker()
    assert not isinstance(leader, errors.GoError)
    assert leader[0].id == 1


@rule("M155")
def test_an_offset_out_of_range_at_the_leader_ends_the_partition() -> None:
    stage, child = fetching()
    stage.answer(fetched(code=1))
    assert len(stage.caller.errors) == 1
    assert child.dying
    assert ("channels_closed", None) in stage.signals
    stage.wait(5_000)
    assert (len(hosts_of(stage)), stage.client.children) == (1, {})


@rule("M179")
def test_an_offset_out_of_range_at_a_replica_returns_to_the_leader() -> None:
    stage, child = fetching()
    child.prefer(1)
    stage.answer(fetched(code=1))
    assert stage.caller.errors == []
    assert (child.dying, child.preferred) == (False, None)
    stage.wait(2_000)
    stage.answer(metadata_of(1))
    stage.wait(100)
    assert hosts_of(stage) == ["broker1"] * 2


@rule("M173")
@pytest.mark.parametrize("code", [3, 5, 6, 9, 74, 75])
def test_an_error_of_a_changed_leader_is_not_reported(code: int) -> None:
    stage, child = fetching()
    stage.answer(fetched(code=code))
    assert stage.caller.errors == []
    assert child.retries == 1
    stage.wait(1_999)
    assert stage.requests_of("Metadata") == []
    stage.wait(1)
    assert len(stage.requests_of("Metadata")) == 1


@rule("M189")
@pytest.mark.parametrize("failure", ["code", "leader"])
def test_a_failed_refresh_is_reported_and_repeated_after_two_seconds(failure: str) -> None:
    stage, _ = fetching(extra={"Metadata.Retry.Max": 0})
    stage.answer(fetched(code=6))
    for count in (1, 2):
        stage.wait(2_000)
        assert len(stage.requests_of("Metadata")) == count
        stage.answer(metadata_of(1, code=29) if failure == "code" else metadata_of(-1))
        assert len(stage.caller.errors) == count
    stage.wait(2_000)
    stage.answer(metadata_of(2))
    stage.wait(100)
    assert hosts_of(stage) == ["broker1", "broker2"]


def test_a_close_during_a_failing_refresh_ends_the_partition_without_a_report() -> None:
    stage, child = fetching()
    stage.answer(fetched(code=6))
    stage.wait(2_000)
    stage.start(child.close)
    stage.answer(metadata_of(1, code=29))
    assert stage.caller.errors == []
    assert ("channels_closed", None) in stage.signals
    assert stage.client.children == {}


def test_a_partition_that_closes_during_its_fetch_is_released_with_the_response() -> None:
    stage, child = fetching()
    stage.start(child.close)
    assert ("channels_closed", None) not in stage.signals
    stage.answer(fetched(records=encode_batch([Record(5, 0, None, b"x")])))
    assert ("channels_closed", None) in stage.signals
    assert (list(child.messages), len(hosts_of(stage))) == ([], 1)
    stage.wait(1_000)
    assert len(hosts_of(stage)) == 1


def test_a_partition_that_closes_while_its_broker_fails_is_not_subscribed_again() -> None:
    stage, child = fetching()
    stage.start(child.close)
    stage.fail()
    assert stage.caller.errors == []
    assert ("channels_closed", None) in stage.signals
    stage.wait(5_000)
    assert stage.requests_of("Metadata") == []


def test_a_partition_missing_in_the_response_is_requested_again() -> None:
    stage, _ = fetching()
    stage.answer(FetchResponse(throttle_time_ms=0, responses=[]))
    assert [request.topics[0].partitions[0].fetch_offset for request in stage.requests_of("Fetch")] == [5, 5]


def test_the_last_partition_of_a_broker_stops_its_fetch_loop() -> None:
    stage, child = fetching()
    consumer = child.consumer
    assert consumer is not None
    stage.start(child.close)
    stage.answer(fetched())
    stage.wait(200)
    assert (consumer.refs, consumer.stopped, stage.client.consumers.by_broker) == (0, True, {})
    assert consumer.manager.state is broker_consumer.M.STOPPED
    assert consumer.fetcher.state is broker_consumer.X.ENDED
    assert stage.client.next_deadline() is None
    stage.start(lambda: consumer.queue(stage.caller, broker_consumer.BrokerSubscription(child, consumer)))
    assert stage.signals[-1] == ("subscription_queued", False)


def test_a_stopped_fetch_loop_refuses_the_partitions_that_it_has_not_taken() -> None:
    stage, child = fetching()
    consumer = child.consumer
    assert consumer is not None
    subscription = broker_consumer.BrokerSubscription(child, consumer)
    consumer.inputs.append((stage.caller, subscription))
    stage.start(consumer.stop)
    assert ("subscription_queued", False) in stage.signals


# -- mutants: mistakes in the model that a test must detect


def fetch_without_waiting_for_partitions(patch: pytest.MonkeyPatch) -> None:
    on_response = broker_consumer._on_response

    def respond_and_continue(fetcher: broker_consumer.BrokerFetcher, response: object) -> None:
        on_response(fetcher, response)  # type: ignore[arg-type]
        if fetcher.state is broker_consumer.X.FEEDING:
            broker_consumer._await_batch(fetcher, None)

    row = {
        **broker_consumer.BrokerFetcher.TABLE["response"],
        broker_consumer.X.FETCHING: respond_and_continue,
    }
    patch.setattr(
        broker_consumer.BrokerFetcher, "TABLE", {**broker_consumer.BrokerFetcher.TABLE, "response": row}
    )


MUTANTS: list[tuple[Mutate, Callable[[], None]]] = [
    (
        fetch_without_waiting_for_partitions,
        test_m187_below_the_processing_time_the_slowest_partition_delays_all,
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutate", "test"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_each_mutant_fails_its_test(mutate: Mutate, test: Callable[[], None]) -> None:
    assert_mutant_fails(mutate, test)
