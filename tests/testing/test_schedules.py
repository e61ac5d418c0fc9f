"""Random schedules of a whole cluster: every invariant holds in each of them.

KPROTO_STORIES=10000 runs 10,000 schedules (tox -e soak). KPROTO_SEED is the first of their seeds. A failure
shows how to reproduce it.
"""

from __future__ import annotations

import os

import pytest

from kproto.errors import ConfigError
from kproto.testing.invariants import ALWAYS, check
from kproto.testing.schedules import play
from tests.seeds import repeatable, seeds

QUICK = os.environ.get("KPROTO_PROFILE", "quick") == "quick"
SCHEDULES = int(os.environ.get("KPROTO_STORIES", "3" if QUICK else "40"))
BUNDLE = 3 if QUICK else 10
# Seeds whose schedules have found a bug in the client or in an invariant.
FAILED_SEEDS = (
    9,
    30,
    37,
    40,
    63,
    84,
    90,
    91,
    95,
    134,
    164,
    198,
    10188,
    11599,
    11768,
    12354,
    14730,
    200601,
    236766,
    237852,
)


@pytest.mark.parametrize("first", range(0, SCHEDULES, BUNDLE))
def test_every_invariant_holds_in_random_schedules(first: int) -> None:
    for seed in seeds(min(BUNDLE, SCHEDULES - first), first):
        with repeatable(seed, "KPROTO_STORIES=1"):
            check(play(seed, watch=ALWAYS))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", FAILED_SEEDS)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    check(play(seed, watch=ALWAYS))


def test_a_schedule_runs_the_same_twice() -> None:
    assert play(17, trace=True, steps=15).digest() == play(17, trace=True, steps=15).digest()


def test_an_unknown_client_is_rejected_before_the_schedule_is_drawn() -> None:
    """The names of the clients are checked even if the schedule then draws no member.

    If the members were checked instead, a short schedule could hide a misspelt client name.
    """
    with pytest.raises(ConfigError, match=r"client='kafka_go' is not allowed; allowed: java, .*kafka-go"):
        play(3, steps=0, models=("kafka_go",))
