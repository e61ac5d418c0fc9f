"""The seeds of random stories: drawn anew in each run, and told by the one that fails.

for seed in seeds(3):
    with repeatable(seed, "KPROTO_STORIES=1"):
        ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random

GIVEN = os.environ.get("KPROTO_SEED")
FIRST = int(GIVEN) if GIVEN else Random().randrange(10**6)


def seeds(count: int, behind: int = 0) -> range:
    """So many of a run, `behind` those that others play."""
    return range(FIRST + behind, FIRST + behind + count)


@contextmanager
def repeatable(seed: int, alone: str) -> Generator[None]:
    """What fails in here says how it is had again; `alone` is the variable by which one is played."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"KPROTO_SEED={seed} {alone} plays it again")
        raise


def found_out(check: Callable[[int], object], seeds: range, *errors: type[Exception]) -> None:
    """Plays until a claim breaks, or one of these errors comes; raises RuntimeError where none does: for a
    mutant, which has to be found."""
    for seed in seeds:
        try:
            check(seed)
        except (AssertionError, *errors):
            return
    raise RuntimeError(f"nothing that is claimed was broken with the seeds {seeds}")
