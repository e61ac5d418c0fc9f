"""Consume returns when partitions are added, and fails for a missing topic, so members call it in a loop."""

from __future__ import annotations

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models import contract as c
from kproto.models import sarama
from tests.models.sarama.stage import USUAL, requests_of, stage_with_client, stage_with_member
from tests.models.stage import Stage
from tests.rules import rule


@rule("M64")
def test_s1_3_without_a_loop_new_partitions_end_the_consumption() -> None:
    stage, a = stage_with_member(metadata_ms=1_000, Once=True)
    stage.grow("t", 4)
    stage.run(10_000)
    assert len(requests_of(a, "Join")) == 2
    assert a.has_printed("revoked")
    stage.produce("t", [0, 2], 5)
    stage.run(5_000)
    assert len(a.records) == 10


def test_unsubscribe_commits_and_does_not_leave() -> None:
    stage, a = stage_with_member(auto_commit_ms=60_000)
    a.run_command("unsubscribe")
    stage.run(2_000)
    assert requests_of(a, "Commit", "Leave") == ["Commit v8 gen=1 id=A1 t:0@5/e-1,t:1@5/e-1 -> 0"]
    a.run_command("subscribe t")
    stage.run(2_000)
    assert requests_of(a, "Join")[2].startswith("Join v8 id=A1 sess=6000 reb=30000 reason=null")


def test_a_missing_topic_fails_consume_and_is_requested_again() -> None:
    stage = Stage({}, **{"auto.create.topics.enable": "false"})
    a = stage.add_member("A", sarama, **USUAL)
    a.run_command("subscribe no")
    stage.run(3_000)
    assert a.has_printed("error KError(3)", times=2)
    assert requests_of(a, "Metadata")[1:6] == ["Metadata v11 no"] * 5
    stage.topic("no", 1)
    assert stage.run(until=lambda: a.has_printed("assigned no:0"))


def test_a_group_that_is_closed_before_its_first_response_closes_without_a_join() -> None:
    stage, a = stage_with_client()
    a.do(c.SubscribeCalled(("t",)))
    a.do(c.CloseCalled())
    assert not a.closed
    assert stage.run(1_000, until=lambda: a.closed)
    assert a.requests == ["Metadata v11 all"]


def test_consume_without_topics_is_an_error_and_is_called_again() -> None:
    stage, a = stage_with_client()
    stage.run(100)
    a.do(c.SubscribeCalled(()))
    stage.run(650)
    assert [line for *_, line in a.printed[1:]] == ["error errors.errorString no topics provided"] * 3
    a.run_command("subscribe t")
    assert stage.run(2_000, until=lambda: len(a.records) == 10)


def test_the_same_topics_may_be_consumed_again_after_unsubscribe() -> None:
    stage, a = stage_with_member()
    a.run_command("unsubscribe")
    stage.run(1_000)
    assert (a.state.generation, a.state.group.session) == (-1, None)
    stage.produce("t", [0], 1)
    a.run_command("subscribe t")
    assert stage.run(2_000, until=lambda: len(a.records) == 11)
    assert a.state.generation == 2


def test_a_commit_before_the_first_session_does_nothing() -> None:
    stage, a = stage_with_client()
    a.do(c.CommitCalled("x", {TopicPartition("t", 0): 3}))
    stage.run(1_000)
    assert a.committed == {"x": None}
    assert requests_of(a, "Commit", "Find") == []


def test_calls_that_sarama_does_not_have_are_reported() -> None:
    stage, a = stage_with_client()
    a.do(c.SubscribeCalled(pattern="t.*"))
    a.do(c.SeekCalled(TopicPartition("t", 0), 3))
    stage.run(1_000)
    assert [line for *_, line in a.printed[1:]] == [
        "error UnknownCommand sarama has no Subscribe",
        "error UnknownCommand sarama has no Seek",
    ]
    assert a.state.group.requested_topics is None


@pytest.mark.parametrize(("code", "starts"), [(29, True), (3, False)])
def test_a_client_starts_unless_its_first_metadata_cannot_be_used(code: int, starts: bool) -> None:
    stage, a = stage_with_client()
    a.inject("Metadata", *[code] * 4)
    a.run_command("subscribe t")
    assert stage.run(3_000, until=lambda: a.closed or a.has_printed("error"))
    assert a.has_printed(f"error KError({code})")
    stage.run(2_000)
    assert a.closed is not starts
    assert a.has_printed("assigned t:0 t:1") is starts
