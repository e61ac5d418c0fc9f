"""A partition consumer omits slow partitions from fetches, and restarts after a failed fetch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models import contract as c
from kproto.models.sarama import partition_consumer
from kproto.models.sarama.routines import Ticker
from tests.models.sarama.stage import (
    Mutate,
    assert_mutant_fails,
    fetches,
    requests_of,
    stage_with_member,
    time_of_request,
    times_printed,
)
from tests.models.stage import Stage, StageMember
from tests.rules import rule

T0 = TopicPartition("t", 0)


def test_a_partition_is_consumed_in_order_without_gaps() -> None:
    # Mirrors sarama's TestConsumerOffsetManual, TestConsumerNonSequentialOffsets
    stage, a = stage_with_member(1)
    stage.produce("t", [0], 700)
    assert stage.run(until=lambda: len(a.records) == 705)
    assert [record.offset for record in a.records] == list(range(705))


def stage_with_stalled_member() -> tuple[Stage, StageMember]:
    """Return a stage, and a member whose application does not poll although its message channel is full."""
    stage, a = stage_with_member(2, ChannelBufferSize=4)
    a.polling = False
    stage.run(200)
    stage.produce("t", [0], 20)
    stage.run(1_000)
    return stage, a


@rule("M188")
def test_s3_12_a_slow_partition_is_left_out_after_twice_the_processing_time() -> None:
    # sarama's TestConsumerExpiryTicker covers the opposite case. A partition with timely delivery stays in
    # the fetches, because each delivery restarts the timer.
    _, a = stage_with_stalled_member()
    times_without = [time for time, partitions in fetches(a) if [index for _, index, _ in partitions] == [1]]
    last_with = [time for time, partitions in fetches(a) if len(partitions) == 2][-1]
    assert times_without
    assert 2 * 100 <= times_without[0] - last_with <= 2 * 100 + 210


@rule("M188")
def test_s3_12_other_partitions_continue_and_the_slow_one_returns_when_it_is_drained() -> None:
    stage, a = stage_with_stalled_member()
    refreshes = len(requests_of(a, "Metadata"))
    stage.produce("t", [1], 3)
    a.polling = True
    stage.run(1_000)
    assert len(a.records) == 10 + 20 + 3
    # The partition is fetched again without an error, a backoff or a refresh.
    assert not a.has_printed("error")
    assert len(requests_of(a, "Metadata")) == refreshes
    assert sorted(index for _, index, _ in fetches(a)[-1][1]) == [0, 1]


def test_a_paused_partition_stays_paused_when_it_is_assigned_again() -> None:
    stage, a = stage_with_member()
    a.do(c.PauseCalled((T0,)))
    a.inject("Heartbeat", 27)
    stage.run(3_000)
    assert a.has_printed("assigned", times=2)
    assert [index for _, index, _ in fetches(a)[-1][1]] == [1]


@rule("M178", "M189")
def test_a_failed_fetch_restarts_each_partition_after_two_seconds_with_an_error() -> None:
    # Mirrors sarama's TestConsumerBounceWithReferenceOpen
    stage, a = stage_with_member()
    stage.run(1_000)
    broken = stage.now
    a.drop_connections()
    stage.run(1_900)
    assert len(times_printed(a, "error sarama.ConsumerError")) == 2
    assert fetches(a)[-1][0] <= broken
    stage.run(400)
    assert fetches(a)[-1][0] >= broken + 2_000
    assert time_of_request(a, "Metadata", -1) >= broken + 2_000
    stage.produce("t", [0, 1], 2)
    assert stage.run(until=lambda: len(a.records) == 14)
    assert not a.has_printed("revoked")


def test_retry_max_ends_the_partition_consumer_and_with_it_the_session() -> None:
    # Mirrors sarama's TestPartitionConsumerRetryMax
    stage, a = stage_with_member(1, **{"Consumer.Retry.Max": 1})
    broken = stage.now
    a.drop_connections()
    stage.run(until=lambda: fetches(a)[-1][0] >= broken + 2_000)
    a.drop_connections()
    stage.run(5_000)
    assert a.has_printed("error errors.errorString") or a.has_printed("error sarama.ConsumerError", times=3)
    assert 'reason="a ConsumeClaim handler has exited"' in requests_of(a, "Join")[2]


@rule("M188")
def test_s3_12_a_slow_partition_that_fails_meanwhile_returns_after_the_backoff() -> None:
    stage, a = stage_with_stalled_member()
    a.drop_connections()
    a.polling = True
    stage.run(200)
    stage.produce("t", [0, 1], 3)
    assert stage.run(6_000, until=lambda: len(a.records) == 10 + 20 + 6)
    assert [record.offset for record in a.records if record.partition == T0] == list(range(5 + 20 + 3))


@rule("M188", "M193")
@pytest.mark.parametrize("wait", [50, 150, 250, 1_000])
def test_s3_12_close_waits_for_the_message_that_the_handler_holds_and_drops_the_others(wait: int) -> None:
    stage, a = stage_with_member(2, ChannelBufferSize=4)
    a.polling = False
    stage.run(200)
    stage.produce("t", [0], 20)
    stage.run(wait)
    a.run_command("close")
    stage.run(1_000)
    assert not a.closed
    assert len(a.poll(50, 10)) == 1
    assert stage.run(2_000, until=lambda: a.closed)
    assert len(a.records) == 10 + 1


@rule("M193")
@pytest.mark.parametrize("wait", [0, 150, 1_000])
def test_a_rebalance_drops_the_messages_of_a_slow_partition_and_reads_them_again(wait: int) -> None:
    stage, a = stage_with_member(2, ChannelBufferSize=4)
    a.polling = False
    stage.run(200)
    stage.produce("t", [0], 20)
    stage.run(wait)
    a.inject("Heartbeat", 27)
    stage.run(500)
    a.polling = True
    assert stage.run(4_000, until=lambda: len(a.records) >= 30)
    stage.run(500)
    offsets = [record.offset for record in a.records if record.partition == T0]
    assert offsets == list(range(25))


def test_a_trigger_during_the_backoff_does_not_prolong_it() -> None:
    stage, a = stage_with_member(1)
    a.drop_connections()
    broken = stage.now
    stage.run(1_000)
    (child,) = a.state.children.values()
    child.redispatch()
    a.state.run()
    stage.run(1_200)
    refreshes = [line.now for line in a.lines if line.api == "Metadata" and line.now > broken + 100]
    assert refreshes
    assert refreshes[0] - broken <= 2_010


def never_leave_out_a_slow_partition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ticker, "take_tick", lambda ticker, now: False)
    row = dict.fromkeys(partition_consumer.E, lambda feeder, payload: None)
    patch.setattr(
        partition_consumer.Feeder, "TABLE", {**partition_consumer.Feeder.TABLE, "timer_elapsed": row}
    )


MUTANTS: list[tuple[Mutate, Callable[[], None]]] = [
    (
        never_leave_out_a_slow_partition,
        test_s3_12_a_slow_partition_is_left_out_after_twice_the_processing_time,
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutate", "test"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_each_mutant_fails_its_test(mutate: Mutate, test: Callable[[], None]) -> None:
    assert_mutant_fails(mutate, test)
