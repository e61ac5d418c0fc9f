"""A claim retries its start if a new leader may fix the error. When the session ends, the claim's handler
finishes the current message and returns.
"""

from __future__ import annotations

from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.metadata import MetadataResponse
from kproto.models import contract as c
from kproto.models import sarama
from kproto.testing.world import World
from tests.models.sarama.stage import (
    USUAL,
    change_responses,
    requests_of,
    stage_with_client,
    stage_with_member,
    time_of_request,
    times_printed,
)

T0 = TopicPartition("t", 0)


def test_a_slow_handler_returns_after_the_message_that_it_holds() -> None:
    world = World({"t": 1})
    world.write("t", 0, *["x"] * 100)
    a = world.join("a", sarama, topics=["t"], group_id="g", reset="earliest", heartbeat_ms=200)
    a.works_ms, a.limit = 1_000, 10
    world.run(4_500)
    record_count = len(a.records)
    world.join("b", sarama, topics=["t"], group_id="g", reset="earliest")
    assert world.run(3_000, until=lambda: "revoked" in [kind for kind, _ in a.calls])
    assert len(a.records) == record_count + 1


@pytest.mark.parametrize("code", [5, 6, 3])
def test_a_start_that_a_new_leader_may_fix_is_retried(code: int) -> None:
    stage, a = stage_with_client()
    a.inject("ListOffsets", code)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 10)
    # The first GetOffset sends its ListOffsets request again after a refresh of the topic's metadata. Without
    # the injected error, the start takes four requests.
    assert len(requests_of(a, "ListOffsets")) == 5
    assert not a.has_printed("error")


def test_after_an_offset_out_of_range_the_claim_starts_at_the_initial_offset() -> None:
    # Mirrors sarama's TestConsumerOffsetOutOfRange, with Group.ResetInvalidOffsets
    stage, a = stage_with_member(1)
    a.do(c.CommitCalled("x", {T0: 99}))
    a.run_command("close")
    stage.run(2_000)
    b = stage.add_member("B", sarama, **USUAL)
    b.run_command("subscribe t")
    assert stage.run(until=lambda: len(b.records) == 5)
    assert len(requests_of(b, "ListOffsets")) == 4


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


def test_a_partition_without_a_leader_is_checked_every_5_s() -> None:
    stage, a = stage_with_client(metadata_ms=1_000)

    def remove_leader(response: Any) -> None:
        for topic in response.topics:
            topic.partitions[1].leader_id = -1

    change_responses(a, MetadataResponse, remove_leader, 5)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 5)
    assigned = times_printed(a, "assigned")[0]
    stage.run(assigned + 4_990 - stage.now)
    assert {record.partition for record in a.records} == {T0}
    assert stage.run(5_300, until=lambda: len(a.records) == 10)
    assert stage.now - assigned >= 5_000
    assert not a.has_printed("revoked")


def test_a_claim_without_a_leader_ends_with_its_session() -> None:
    stage, a = stage_with_client(metadata_ms=300_000)

    def remove_leader(response: Any) -> None:
        for topic in response.topics:
            topic.partitions[1].leader_id = -1

    change_responses(a, MetadataResponse, remove_leader, 100)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 5)
    a.run_command("close")
    assert stage.run(1_000, until=lambda: a.closed)


def test_a_start_that_failed_twice_is_retried_after_a_backoff_and_a_refresh() -> None:
    stage, a = stage_with_client(1)
    a.inject("ListOffsets", 6, 6)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 5)
    assert not a.has_printed("error")
    second, third = (time_of_request(a, "ListOffsets", number) for number in (1, 2))
    assert 250 <= third - second <= 260
    refreshes = [line.now for line in a.lines if line.api == "Metadata" and second < line.now < third]
    assert refreshes[-1] >= second + 250


def test_a_start_is_retried_metadata_retry_max_times() -> None:
    stage, a = stage_with_client(1)
    a.inject("ListOffsets", *[6] * 8)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("error KError(6)"))
    assert len(requests_of(a, "ListOffsets")) == 8
    assert stage.run(until=lambda: a.has_printed("revoked"))


def test_an_error_that_no_new_leader_fixes_ends_the_claim_without_a_retry() -> None:
    stage, a = stage_with_client(1)
    a.inject("ListOffsets", 29, 29)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("error KError(29)"))
    assert len(requests_of(a, "ListOffsets")) == 2


def test_a_close_ends_a_claim_that_backs_off() -> None:
    stage, a = stage_with_client(1)
    a.inject("ListOffsets", *[6] * 8)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(requests_of(a, "ListOffsets")) == 2)
    stage.run(20)
    a.run_command("close")
    assert stage.run(100, until=lambda: a.closed)
    assert len(requests_of(a, "ListOffsets")) == 2
