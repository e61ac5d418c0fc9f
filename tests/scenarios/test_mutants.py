"""Each mutant of a model must break its scenario: one of the scenario's claims fails."""

from __future__ import annotations

import pytest

from kproto.scenarios import find
from tests.scenarios.mutants import document_0, document_1, document_2, document_3, rebalances
from tests.scenarios.mutants.mutant import Mutant

pytestmark = pytest.mark.thorough

TABLES = (document_0, document_1, document_2, document_3, rebalances)
MUTANTS = {scenario_id: mutant for table in TABLES for scenario_id, mutant in table.MUTANTS.items()}


@pytest.mark.parametrize(
    ("scenario_id", "mutant"), MUTANTS.items(), ids=lambda value: getattr(value, "change", value)
)
def test_a_mutant_of_the_model_breaks_its_scenario(
    scenario_id: str, mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(mutant.where, dict):
        assert mutant.where[mutant.name] != mutant.new
        monkeypatch.setitem(mutant.where, mutant.name, mutant.new)
    else:
        assert getattr(mutant.where, mutant.name) != mutant.new
        monkeypatch.setattr(mutant.where, mutant.name, mutant.new)
    assert not find(scenario_id).run().holds
