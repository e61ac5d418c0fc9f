"""A claim: the offset at which it starts, and the events after which its handler returns."""

from __future__ import annotations

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models import contract as c
from kproto.models import sarama
from kproto.testing.world import World
from tests.models.sarama.stage import USUAL, requests_of, stage_with_client, stage_with_member

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
