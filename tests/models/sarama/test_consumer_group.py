"""Consume ends at new partitions and fails for a missing topic, so members call it in a loop."""

from __future__ import annotations

from kproto.models import sarama
from tests.models.sarama.stage import USUAL, requests_of, stage_with_member
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
