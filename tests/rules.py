"""`@rule("R64")` marks a test that checks a rule of docs/rules. tests/test_rules.py checks the numbers."""

from __future__ import annotations

import pytest

rule = pytest.mark.rule
