"""The pytest plugin imports modules and compiles codecs before the first example of a Hypothesis test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.stage import run_pytest

ROOT = str(Path(__file__).resolve().parents[2])
pytest_plugins = ["pytester"]

MODULE = """
import sys
from hypothesis import given, strategies
from kproto.messages.fetch import FetchResponse

@given(strategies.booleans())
def test_the_first_example_finds_everything_compiled(value):
    assert {4, 18} <= set(FetchResponse.__decoders__)
    from kproto.messages.join_group import JoinGroupRequest
    assert JoinGroupRequest.__decoders__
    assert "kproto.testing.world" in sys.modules
"""


def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, module: str) -> pytest.RunResult:
    monkeypatch.setenv("PYTHONPATH", ROOT)
    pytester.makepyfile(module)
    return run_pytest(pytester, "-q", "-p", "no:cacheprovider")


def test_the_plugin_warms_up_for_hypothesis_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(pytester, monkeypatch, MODULE).assert_outcomes(passed=1)


def test_the_plugin_does_not_warm_up_for_other_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = 'import kproto, sys\ndef test_it(): assert "kproto.testing.world" not in sys.modules'
    run(pytester, monkeypatch, module).assert_outcomes(passed=1)
