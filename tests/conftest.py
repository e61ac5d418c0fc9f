"""Configure all tests: Hypothesis profiles, and the selection of external judges.

pytest                        quick: tests without an external judge; tests/conformance is skipped
KPROTO_JUDGES=available       also the tests of each judge that is installed
KPROTO_JUDGES=required        also the tests of all judges; a missing judge or package is a failure (as in CI)
KPROTO_PROFILE=quick|ci|soak  the number of examples that Hypothesis draws
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
# The profiles quick and ci draw the same examples in every run, so that failures are reproducible. Soak draws
# others.
for _name, _count in (("quick", 15), ("ci", 200)):
    settings.register_profile(
        _name, max_examples=_count, deadline=None, suppress_health_check=_CHECKS, derandomize=True
    )
settings.register_profile("soak", max_examples=5000, deadline=None, suppress_health_check=_CHECKS)
settings.load_profile(os.environ.get("KPROTO_PROFILE", "quick"))

# pytest-xdist sets COLUMNS in its workers. The output of commands would be wrapped to that width.
os.environ.pop("COLUMNS", None)

JUDGES = {"java", "kafka", "clients", "originals", "spark", "tshark"}
_ASKED = os.environ.get("KPROTO_JUDGES", "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use one more worker than cores: some tests wait for a session timeout or a process."""
    return (os.cpu_count() or 1) + 1


def pytest_configure(config: pytest.Config) -> None:
    if _ASKED not in ("", "available", "required"):
        raise pytest.UsageError(
            f"KPROTO_JUDGES={_ASKED!r} is not allowed; allowed: available, required, or unset"
        )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fail a module that is skipped because it cannot import a package, if judges are required."""
    report = yield
    _fail_if_an_import_is_missing(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is skipped because it cannot import a package, if judges are required."""
    report = yield
    _fail_if_an_import_is_missing(report)
    return report


def _fail_if_an_import_is_missing(report: pytest.CollectReport | pytest.TestReport) -> None:
    if _ASKED != "required" or not report.skipped or not isinstance(report.longrepr, tuple):
        return
    reason = report.longrepr[2]
    if "could not import" in reason:  # the words of pytest.importorskip
        report.outcome = "failed"
        report.longrepr = (
            f"{reason}\nKPROTO_JUDGES=required: add the package to this environment of tox.ini, "
            "or run the file in another one"
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("KPROTO_PROFILE", "quick") == "quick":
        for item in items:
            if item.get_closest_marker("thorough"):
                item.add_marker(pytest.mark.skip(reason="slow: run it with tox -e thorough"))
    if _ASKED:
        return
    for item in items:
        judges = JUDGES.intersection(mark.name for mark in item.iter_markers())
        if judges:
            reason = (
                f"outside judge ({', '.join(sorted(judges))}): set KPROTO_JUDGES=available to run this test"
            )
            item.add_marker(pytest.mark.skip(reason=reason))
