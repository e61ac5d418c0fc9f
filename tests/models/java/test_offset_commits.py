"""The commits that an application requests from Java's consumer, and their retries."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.error_codes import ErrorCode
from kproto.models import java
from kproto.models.java import java_2_6
from tests.models.stage import Stage


@pytest.mark.parametrize("release", [java, java_2_6], ids=["4.3", "2.6"])
def test_commit_sync_retries_a_retriable_error_after_the_backoff(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    a = stage.add_member("A", release, reset="earliest", assignors=["range"], auto_commit=False)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    stage.run(400)
    a.inject("Commit", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    a.run_command("commit")
    assert stage.run(1_000, until=lambda: a.has_printed("commit ok"))
    first, second = (line.now for line in a.lines if line.api == "Commit")
    assert 100 <= second - first <= 110
