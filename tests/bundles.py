"""Bundle short checks into one test: pytest needs about 4 ms per test, longer than many checks take.

@pytest.mark.parametrize("messages", bundles(ALL))
def test_every_message_has_a_key(messages: Sequence[str]) -> None:
    check_each(messages, lambda message: ...)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def bundles(cases: Sequence[Any], count: int = 12) -> list[Any]:
    """Divide `cases` into `count` parameters of one test, so that pytest-xdist can distribute them."""
    return [pytest.param(cases[n::count], id=f"{n + 1} of {count}") for n in range(count)]


def rotated(cases: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Return parameters for all pairs of a case and a value. The quick tests run one pair of each case."""
    return [
        pytest.param(case, value, marks=[] if n % len(values) == place else pytest.mark.thorough)
        for n, case in enumerate(cases)
        for place, value in enumerate(values)
    ]


def check_each(cases: Sequence[Case], check: Callable[[Case], object]) -> None:
    """Call `check` with every case. Raise all failures together, each with a note that names its case."""
    failures: list[Exception] = []
    for case in cases:
        try:
            check(case)
        except Exception as error:
            error.add_note(f"the case is {getattr(case, '__name__', case)}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases failed", failures)
