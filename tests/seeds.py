"""Seeds of random schedules: the same in each run unless KPROTO_SEED is set. A failure reports its seed.

With KPROTO_SEED=random, as in tox -e soak, `tests/conftest.py` draws a number and sets KPROTO_SEED to it.

for seed in seeds(3):
    with repeatable(seed, "KPROTO_STORIES=1"):
        ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

FIRST = int(os.environ.get("KPROTO_SEED") or 1)


def seeds(count: int, behind: int = 0) -> range:
    """Return `count` seeds of this test run. The first `behind` seeds are left to other tests."""
    return range(FIRST + behind, FIRST + behind + count)


@contextmanager
def repeatable(seed: int, selection: str) -> Generator[None]:
    """Add a note to any error: how to repeat the run with `seed`.

    `selection`, such as "KPROTO_STORIES=1", sets an environment variable so that the test draws one seed.
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
