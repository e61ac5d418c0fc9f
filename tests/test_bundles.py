"""Each case of a bundle is checked, and its failure names the case."""

from __future__ import annotations

import pytest

from tests.bundles import bundles, check_each


def test_every_case_is_in_one_bundle() -> None:
    (first,), (second,), (third,) = (bundle.values for bundle in bundles([1, 2, 3, 4, 5], count=3))
    assert (first, second, third) == ([1, 4], [2, 5], [3])


def test_every_failure_names_its_case() -> None:
    with pytest.raises(ExceptionGroup, match="2 of 3 cases failed") as raised:
        check_each([2, 0, "a"], lambda case: 1 / case)  # type: ignore[operator]
    division, operand = raised.value.exceptions
    assert (type(division), division.__notes__) == (ZeroDivisionError, ["the case is 0"])
    assert (type(operand), operand.__notes__) == (TypeError, ["the case is a"])
