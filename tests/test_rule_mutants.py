"""Each rule of the group's state tables has a test that fails if a handler for the rule is replaced."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.documents import DOCS


@pytest.mark.thorough
def test_each_rule_of_a_cell_is_pinned_by_its_tests() -> None:
    assert_pinned()


def test_each_mutant_is_the_only_one_in_the_table_that_the_tests_use() -> None:
    """One process runs the mutants of several rules of both tables. No mutant outlives its own test run."""
    assert_pinned("M8", "M44", "R64")


def assert_pinned(*numbers: str) -> None:
    """Fail unless a test of each rule, by default of all, detects a broken handler.

    The mutants change the tables of the state machines, so they run in a separate process.
    """
    command = [sys.executable, "-m", "tests.rule_mutants", *numbers]
    result = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
