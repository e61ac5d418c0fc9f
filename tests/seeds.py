"""Seeds of random schedules: new ones in each run, reported by the test that fails.

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
    """Return `count` seeds of this run, after the `behind` seeds that other tests use."""
    return range(FIRST + behind, FIRST + behind + count)


@contextmanager
def repeatable(seed: int, alone: str) -> Generator[None]:
    """Add a note to errors that says how to repeat `seed`; `alone` selects one schedule."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"KPROTO_SEED={seed} {alone} plays it again")
        raise


def found_out(check: Callable[[int], object], seeds: range, *errors: type[Exception]) -> None:
    """Run `check` until it raises an AssertionError or one of `errors`.

    Raises RuntimeError if it never does: a mutant must be killed.
    """
    for seed in seeds:
        try:
            check(seed)
        except (AssertionError, *errors):
            return
    raise RuntimeError(f"nothing that is claimed was broken with the seeds {seeds}")
