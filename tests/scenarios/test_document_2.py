"""Each of the 47 scenarios of lesson 002 exists, and has a mutant that breaks it."""

from __future__ import annotations

import pytest

from kproto.cli import main
from tests.scenarios.mutants import document_2

WHOLE = [f"S2-{number}" for number in range(1, 48)]


def test_the_list_has_exactly_the_entries_of_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert [scenario_id for scenario_id in listed if scenario_id.startswith("S2-")] == WHOLE


def test_every_scenario_of_the_document_has_a_mutant() -> None:
    assert list(document_2.MUTANTS) == WHOLE
