"""A failing random schedule can be repeated."""

from __future__ import annotations

import pytest

from tests import seeds
from tests.seeds import repeatable


def test_the_seeds_of_a_run_derive_from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "FIRST", 77)
    assert [*seeds.seeds(2), *seeds.seeds(2, 2)] == [77, 78, 79, 80]


def test_a_failure_says_how_to_repeat_it() -> None:
    with pytest.raises(AssertionError) as raised, repeatable(79, "KPROTO_STORIES=1"):
        raise AssertionError("a claim")
    assert raised.value.__notes__ == ["KPROTO_SEED=79 KPROTO_STORIES=1 repeats it"]
