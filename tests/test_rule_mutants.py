"""Each rule in a cell of a group's table has a test that fails if the cell is mutated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.documents import DOCS


@pytest.mark.skipif(
    os.environ.get("KPROTO_PROFILE") != "soak", reason="takes an hour: run it with tox -e soak"
)
@pytest.mark.timeout(7200)
def test_each_rule_of_a_cell_is_pinned_by_its_tests() -> None:
    """The mutants change the tables of the state machines, so they run in a separate process."""
    command = [sys.executable, "-m", "tests.rule_mutants"]
    result = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
