"""The last commit of a session has four attempts, and looks up a lost coordinator."""

from __future__ import annotations

from tests.models.sarama.stage import add_second_member, requests_of, stage_with_member, times_printed
from tests.rules import rule

GOOD = "Commit v8 gen=1 id=A1 t:0@5/e-1,t:1@5/e-1 -> 0"


@rule("M127")
def test_the_last_commit_has_four_attempts() -> None:
    # Offsets.Retry.Max is 3. Each attempt looks the coordinator up again.
    stage, a = stage_with_member(auto_commit_ms=60_000)
    a.inject("Commit", *[27] * 9)
    add_second_member(stage)
    failed = [line for line in requests_of(a, "Commit") if line.endswith("27!")]
    assert len(failed) == 4
    assert len(times_printed(a, "error KError(27)")) == 8


def test_offsets_retry_max_limits_the_last_commit() -> None:
    stage, a = stage_with_member(auto_commit_ms=60_000, **{"Offsets.Retry.Max": 0})
    a.inject("Commit", *[27] * 9)
    add_second_member(stage)
    assert len([line for line in requests_of(a, "Commit") if line.endswith("27!")]) == 1


def test_close_looks_up_a_lost_coordinator_and_commits() -> None:
    # TestAbortPartitionOffsetManager
    stage, a = stage_with_member(auto_commit_ms=60_000)
    a.drop_connections()
    stage.run(500)
    a.run_command("close")
    assert stage.run(10_000, until=lambda: a.closed)
    assert requests_of(a, "Commit")[-1] == GOOD
