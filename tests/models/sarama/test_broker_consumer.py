"""Partition consumers and broker consumers: the cases of sarama's consumer_test.go about behaviour."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models import contract as c
from kproto.models import sarama
from kproto.models.sarama import broker_consumer, partition_consumer
from kproto.models.sarama.routines import Ticker
from tests.models.sarama.stage import (
    USUAL,
    Mutate,
    assert_mutant_fails,
    inject_fetch_error,
    requests_of,
    stage_with_client,
    stage_with_member,
    time_of_request,
    times_printed,
)
from tests.models.stage import Stage, StageMember
from tests.rules import rule

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def fetches(member: StageMember) -> list[tuple[int, list[tuple[str, int, int]]]]:
    """Return the time of each Fetch, and its partitions with their offsets."""
    return [
        (
            line.now,
            [
                (topic.topic, partition.partition, partition.fetch_offset)
                for topic in line.request.topics
                for partition in topic.partitions
            ],
        )
        for line in member.lines
        if line.api == "Fetch"
    ]


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


def test_s3_13_both_ends_of_the_log_are_requested_for_each_partition() -> None:
    _, a = stage_with_member()
    assert requests_of(a, "ListOffsets") == [
        "ListOffsets v6 iso=0 t:0@-1 -> 0 t:0@5",
        "ListOffsets v6 iso=0 t:0@-2 -> 0 t:0@0",
        "ListOffsets v6 iso=0 t:1@-1 -> 0 t:1@5",
        "ListOffsets v6 iso=0 t:1@-2 -> 0 t:1@0",
    ]


@rule("M186")
def test_m186_the_subscription_manager_collects_partitions_for_100_ms() -> None:
    _, a = stage_with_member(1)
    assert 100 <= fetches(a)[0][0] - time_of_request(a, "ListOffsets", 1) <= 104


def test_a_partition_is_consumed_in_order_without_gaps() -> None:
    # TestConsumerOffsetManual, TestConsumerNonSequentialOffsets
    stage, a = stage_with_member(1)
    stage.produce("t", [0], 700)
    assert stage.run(until=lambda: len(a.records) == 705)
    assert [record.offset for record in a.records] == list(range(705))


@pytest.mark.parametrize("code", [5, 6, 3])
def test_a_start_that_a_new_leader_may_fix_is_retried(code: int) -> None:
    stage, a = stage_with_client()
    a.inject("ListOffsets", code)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 10)
    # GetOffset itself refreshes the topic and repeats the request once.
    assert len(requests_of(a, "ListOffsets")) == 5
    assert not a.has_printed("error")


def test_after_an_offset_out_of_range_the_claim_starts_at_the_initial_offset() -> None:
    # TestConsumerOffsetOutOfRange, with Group.ResetInvalidOffsets
    stage, a = stage_with_member(1)
    a.do(c.CommitCalled("x", {T0: 99}))
    a.run_command("close")
    stage.run(2_000)
    b = stage.add_member("B", sarama, **USUAL)
    b.run_command("subscribe t")
    assert stage.run(until=lambda: len(b.records) == 5)
    assert len(requests_of(b, "ListOffsets")) == 4


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


def test_an_offset_out_of_range_is_an_error_without_reset_invalid_offsets() -> None:
    stage, a = stage_with_member(1)
    a.do(c.CommitCalled("x", {T0: 99}))
    a.run_command("close")
    stage.run(2_000)
    b = stage.add_member("B", sarama, **USUAL, **{"Group.ResetInvalidOffsets": False})
    b.run_command("subscribe t")
    stage.run(3_000)
    assert b.has_printed("error KError(1)")
    assert 'reason="a ConsumeClaim handler has exited"' in requests_of(b, "Join")[2]


def stage_with_stalled_member() -> tuple[Stage, StageMember]:
    """Return a stage, and a member that stops polling when more messages exist than the channel holds."""
    stage, a = stage_with_member(2, ChannelBufferSize=4)
    a.polling = False
    stage.run(200)
    stage.produce("t", [0], 20)
    stage.run(1_000)
    return stage, a


@rule("M188")
def test_s3_12_a_slow_partition_is_left_out_after_twice_the_processing_time() -> None:
    # TestConsumerExpiryTicker tests the opposite: a delivery restarts the time.
    _, a = stage_with_stalled_member()
    times_without = [time for time, partitions in fetches(a) if [index for _, index, _ in partitions] == [1]]
    last_with = [time for time, partitions in fetches(a) if len(partitions) == 2][-1]
    assert times_without
    assert 100 <= times_without[0] - last_with <= 2 * 100 + 210


@rule("M188")
def test_s3_12_other_partitions_continue_and_the_slow_one_returns_when_it_is_drained() -> None:
    stage, a = stage_with_stalled_member()
    stage.produce("t", [1], 3)
    a.polling = True
    stage.run(2_000)
    assert len(a.records) == 10 + 20 + 3
    assert sorted(index for _, index, _ in fetches(a)[-1][1]) == [0, 1]


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


def test_a_paused_partition_stays_paused_when_it_is_assigned_again() -> None:
    stage, a = stage_with_member()
    a.do(c.PauseCalled((T0,)))
    a.inject("Heartbeat", 27)
    stage.run(3_000)
    assert a.has_printed("assigned", times=2)
    assert [index for _, index, _ in fetches(a)[-1][1]] == [1]


@rule("M178", "M189")
def test_a_failed_fetch_restarts_each_partition_after_two_seconds_with_an_error() -> None:
    # TestConsumerBounceWithReferenceOpen
    stage, a = stage_with_member()
    stage.run(1_000)
    broken = stage.now
    a.drop_connections()
    stage.run(1_900)
    assert len(times_printed(a, "error sarama.ConsumerError")) == 2
    assert fetches(a)[-1][0] <= broken
    stage.run(400)
    assert fetches(a)[-1][0] >= broken + 2_000
    stage.produce("t", [0, 1], 2)
    assert stage.run(until=lambda: len(a.records) == 14)
    assert not a.has_printed("revoked")


def test_retry_max_ends_the_partition_consumer_and_with_it_the_session() -> None:
    # TestPartitionConsumerRetryMax
    stage, a = stage_with_member(1, **{"Consumer.Retry.Max": 1})
    broken = stage.now
    a.drop_connections()
    stage.run(until=lambda: fetches(a)[-1][0] >= broken + 2_000)
    a.drop_connections()
    stage.run(5_000)
    assert a.has_printed("error errors.errorString") or a.has_printed("error sarama.ConsumerError", times=3)
    assert 'reason="a ConsumeClaim handler has exited"' in requests_of(a, "Join")[2]


def test_nothing_is_fetched_while_a_cooperative_member_joins() -> None:
    # There is one connection to each broker, with one open request at a time (M78).
    stage, a = stage_with_member(2, assignors=["cooperative-sticky"])
    a.inject("Heartbeat", 27)
    a.hold("Join", 2_000)
    stage.run(3_000)
    start = time_of_request(a, "Join", 2)
    assert not [time for time, _ in fetches(a) if start <= time < start + 2_000]


# -- mutants


def never_leave_out_a_slow_partition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ticker, "take_tick", lambda ticker, now: False)
    row = dict.fromkeys(partition_consumer.E, lambda feeder, payload: None)
    patch.setattr(
        partition_consumer.Feeder, "TABLE", {**partition_consumer.Feeder.TABLE, "timer_elapsed": row}
    )


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
        never_leave_out_a_slow_partition,
        test_s3_12_a_slow_partition_is_left_out_after_twice_the_processing_time,
    ),
    (
        fetch_without_waiting_for_partitions,
        test_m187_below_the_processing_time_the_slowest_partition_delays_all,
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutate", "test"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_each_mutant_fails_its_test(mutate: Mutate, test: Callable[[], None]) -> None:
    assert_mutant_fails(mutate, test)
