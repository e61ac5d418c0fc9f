"""The pytest plugin imports modules and compiles codecs before the first example of a Hypothesis test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.stage import run_pytest

ROOT = str(Path(__file__).resolve().parents[2])
pytest_plugins = ["pytester"]

MODULE = """
import sys
from hypothesis import given, settings, strategies
from kproto.messages.fetch import FetchResponse

# Hypothesis's own profile has no deadline in CI.
settings.register_profile("deadline", deadline=200)
settings.load_profile("deadline")

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


WITHOUT_HYPOTHESIS = 'import kproto, sys\ndef test_it(): assert "kproto.testing.world" not in sys.modules'
WITHOUT_DEADLINE = """
import kproto, sys
from hypothesis import given, settings, strategies

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

@given(strategies.booleans())
def test_it(value):
    assert "kproto.testing.world" not in sys.modules
"""


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(WITHOUT_HYPOTHESIS, id="without Hypothesis", marks=pytest.mark.thorough),
        pytest.param(WITHOUT_DEADLINE, id="without a deadline"),
    ],
)
def test_the_plugin_does_not_warm_up_for_tests_without_a_deadline(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    run(pytester, monkeypatch, module).assert_outcomes(passed=1)
