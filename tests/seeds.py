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

GIVEN_SEED = os.environ.get("KPROTO_SEED")
FIRST = int(GIVEN_SEED) if GIVEN_SEED else Random().randrange(10**6)


def seeds(count: int, behind: int = 0) -> range:
    """Return `count` seeds of this run that follow its first `behind` seeds, which other tests use."""
    return range(FIRST + behind, FIRST + behind + count)


@contextmanager
def repeatable(seed: int, selection: str) -> Generator[None]:
    """Add a note to an error that says how to repeat the run with `seed`.

    `selection` is a setting of an environment variable that limits the test to this seed.
    """
    try:
        yield
    except BaseException as error:
        error.add_note(f"KPROTO_SEED={seed} {selection} repeats it")
        raise


def expect_failure(check: Callable[[int], object], seeds: range, *errors: type[Exception]) -> None:
    """Run `check` with each seed until it raises an AssertionError or one of `errors`.

    Raises RuntimeError if no seed fails, which means that the tests do not kill the mutant.
    """
    for seed in seeds:
        try:
            check(seed)
        except (AssertionError, *errors):
            return
    raise RuntimeError(f"expected the check to fail with at least one seed; it succeeded with all of {seeds}")
