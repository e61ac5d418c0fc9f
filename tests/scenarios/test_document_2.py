"""Document 002 is told whole: each of its 47 entries is a story, and each has a mutant that breaks it."""

from __future__ import annotations

import pytest

from kproto.cli import main
from tests.scenarios.mutants import document_2

WHOLE = [f"S2-{number}" for number in range(1, 48)]


def test_the_list_has_every_entry_of_the_document_and_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert [one for one in listed if one.startswith("S2-")] == WHOLE


def test_every_story_of_the_document_has_its_mutant() -> None:
    assert list(document_2.MUTANTS) == WHOLE
