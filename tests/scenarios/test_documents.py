"""Each scenario of lessons 000, 001, 003 and 004 exists, and has a mutant that breaks it."""

from __future__ import annotations

import pytest

from kproto.scenarios import scenarios
from tests.scenarios.mutants import document_0, document_1, document_3, rebalances
from tests.scenarios.mutants.mutant import Table

# The scenario ids of each document. S4 stands for lesson 004, which has no document.
ENTRIES = {
    "S0": [f"S0-{number}" for number in range(1, 21)],
    "S1": [f"S1-{number}" for number in range(1, 28)],
    "S3": [
        *(f"S3-{number}" for number in range(1, 19)),
        *(f"S3-19{letter}" for letter in "abcdefghijklm"),
        *(f"S3-{number}" for number in range(20, 26)),
    ],
    "S4": [f"S4-{number}" for number in range(1, 9)],
}


@pytest.mark.parametrize("document", ENTRIES)
def test_the_scenarios_are_exactly_the_entries_of_the_document(document: str) -> None:
    assert [scenario.id for scenario in scenarios() if scenario.id.startswith(f"{document}-")] == ENTRIES[
        document
    ]


@pytest.mark.parametrize(
    ("document", "table"),
    [
        ("S0", document_0.MUTANTS),
        ("S1", document_1.MUTANTS),
        ("S3", document_3.MUTANTS),
        ("S4", rebalances.MUTANTS),
    ],
)
def test_every_scenario_has_a_mutant(document: str, table: Table) -> None:
    assert sorted(table) == sorted(ENTRIES[document])
