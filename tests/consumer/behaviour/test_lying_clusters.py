"""A consumer continues to read after its brokers have lied in many ways for up to 40 s.

After the last wrong response the consumer reads all partitions to their ends and commits. This takes at most
the sum of a request timeout, a maximum metadata age and a session timeout.

If the consumer cannot continue, each poll raises an error with the reason.

`policy="java"` is not tested here. As in Java, such a consumer believes a wrong response that names another
member as the group's leader.

`tox -e soak` draws 2,000 schedules. To repeat one, set KPROTO_SEED to the seed that its failure reports.
"""

from __future__ import annotations

import os

import pytest

from consumer.engine.network.connection import Connection
from tests.consumer.behaviour.lying_clusters import Run
from tests.seeds import expect_failure, repeatable, seeds

PROFILE = os.environ.get("KPROTO_PROFILE", "quick")
COUNT = int(os.environ.get("KPROTO_LIES", {"quick": 3, "ci": 30, "soak": 2_000}[PROFILE]))


def check_reads_on(seed: int) -> None:
    run = Run(seed)
    run.play()
    run.check()


def test_a_consumer_reads_on_after_its_brokers_have_lied() -> None:
    for seed in FIXED if PROFILE != "soak" and "KPROTO_SEED" not in os.environ else seeds(COUNT):
        with repeatable(seed, "KPROTO_LIES=1"):
            check_reads_on(seed)


def obeys_any_throttle_time(self: Connection, now: int, max_ms: int) -> tuple[str, int]:
    """A mutant of `Connection` that throttles for as long as a response demands."""
    return THROTTLE(self, now, 2**31 - 1)


THROTTLE = Connection.throttle
# The Hypothesis profiles `quick` and `ci` run the same seeds each time, so that failures are reproducible.
# With the last seed, a client once used a wrong leader epoch for 20 s.
FIXED = (*range(1_000, 1_000 + COUNT), 730_052)


@pytest.mark.thorough
def test_the_mutant_that_obeys_any_throttle_time_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "throttle", obeys_any_throttle_time)
    expect_failure(check_reads_on, range(40))
