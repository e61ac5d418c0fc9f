"""Random schedules of a whole cluster: every invariant holds in each of them.

KPROTO_STORIES=10000 plays so many (tox -e soak). They are drawn by KPROTO_SEED; one that fails says how it is
had again.
"""

from __future__ import annotations

import os

import pytest

from kproto.errors import ConfigError
from kproto.testing.invariants import ALWAYS, check
from kproto.testing.schedules import play
from tests.seeds import repeatable, seeds

QUICK = os.environ.get("KPROTO_PROFILE", "quick") == "quick"
STORIES = int(os.environ.get("KPROTO_STORIES", "8" if QUICK else "40"))
BUNDLE = 4 if QUICK else 10
# Seeds that once told of a defect, in the client or in a claim.
FOUND = (
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


@pytest.mark.parametrize("first", range(0, STORIES, BUNDLE))
def test_every_claim_holds_in_random_stories(first: int) -> None:
    for seed in seeds(min(BUNDLE, STORIES - first), first):
        with repeatable(seed, "KPROTO_STORIES=1"):
            check(play(seed, watch=ALWAYS))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", FOUND)
def test_seeds_that_once_failed_pass(seed: int) -> None:
    check(play(seed, watch=ALWAYS))


def test_a_story_is_the_same_twice() -> None:
    assert play(17, trace=True, steps=15).digest() == play(17, trace=True, steps=15).digest()


def test_a_client_that_there_is_not_is_told_before_it_is_drawn() -> None:
    """A short story with a mistyped name passed, without a member of it."""
    with pytest.raises(ConfigError, match=r"client='kafka_go' is not allowed; allowed: java, .*kafka-go"):
        play(3, steps=0, others=("kafka_go",))
