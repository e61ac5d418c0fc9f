"""Partition consumers and broker consumers: the cases of sarama's consumer_test.go that test behaviour."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models import contract as c
from kproto.models.sarama import broker_consumer
from tests.models.sarama.stage import (
    Mutate,
    assert_mutant_fails,
    fetches,
    inject_fetch_error,
    requests_of,
    stage_with_member,
    time_of_request,
)
from tests.rules import rule

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@rule("M165")
def test_s3_9_one_fetch_requests_all_partitions_of_the_broker_without_a_session() -> None:
    # TestConsumeMessageWithSessionIDs
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
    # TestPauseResumeConsumption, TestConsumerPause
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


# -- mutants


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
