"""Configure all tests: Hypothesis profiles, and the external judges, programs that check kproto.

pytest                        quick: tests without an external judge; tests/conformance is not collected
KPROTO_JUDGES=available       also the tests of each judge that is installed
KPROTO_JUDGES=required        also the tests of all judges; a missing judge or package is a failure (as in CI)
KPROTO_PROFILE=quick|ci|soak  the number of examples that Hypothesis draws; quick deselects the slow tests,
                              which are marked thorough
KPROTO_SEED=NUMBER|random     the seed of random schedules and inputs; without it, quick and ci draw the same
                              ones in every run, and soak draws new ones
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, settings

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
# The profiles quick and ci draw the same examples in every run, so that only a change of the code can make a
# test fail. The profile soak draws new examples in each run.
for _name, _count in (("quick", 6), ("ci", 200)):
    settings.register_profile(
        _name, max_examples=_count, deadline=None, suppress_health_check=_CHECKS, derandomize=True
    )
settings.register_profile("soak", max_examples=5000, deadline=None, suppress_health_check=_CHECKS)
_PROFILE = os.environ.get("KPROTO_PROFILE", "quick")
settings.load_profile(_PROFILE)

# Write bytecode even if PYTHONDONTWRITEBYTECODE is set, as in many containers. Without bytecode, each process
# compiles all modules that it imports. A worker then needs 14 s of CPU instead of 5 s to collect the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The seed is drawn before pytest-xdist starts its workers, so that all of them use this seed.
if os.environ.get("KPROTO_SEED", "random" if _PROFILE == "soak" else "") == "random":
    os.environ["KPROTO_SEED"] = str(Random().randrange(1, 10**6))
_SEED = os.environ.get("KPROTO_SEED") or "unset: each run draws the same schedules"

# pytest-xdist sets COLUMNS in its workers. If it stayed set, commands would wrap their output to this width.
os.environ.pop("COLUMNS", None)

CONFORMANCE = Path(__file__).parent / "conformance"
JUDGES = {"java", "kafka", "clients", "originals", "spark", "tshark"}
_ASKED = os.environ.get("KPROTO_JUDGES", "")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use two more workers than cores: some tests wait for a session timeout or a process.

    The distribution worksteal gives whole modules to a worker, so that most fixtures and caches of a module
    are created once. The default distribution, load, divides most modules.
    """
    if config.option.dist == "no":
        config.option.dist = "worksteal"
    return (os.cpu_count() or 1) + 2


def pytest_configure(config: pytest.Config) -> None:
    if _ASKED not in ("", "available", "required"):
        raise pytest.UsageError(
            f"KPROTO_JUDGES={_ASKED!r} is not allowed; allowed: available, required, or unset"
        )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """With KPROTO_JUDGES=required, fail a module that is skipped because a package is missing."""
    report = yield
    _fail_if_an_import_is_missing(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With KPROTO_JUDGES=required, fail a test that is skipped because a package is missing."""
    report = yield
    _fail_if_an_import_is_missing(report)
    return report


def _fail_if_an_import_is_missing(report: pytest.CollectReport | pytest.TestReport) -> None:
    if _ASKED != "required" or not report.skipped or not isinstance(report.longrepr, tuple):
        return
    reason = report.longrepr[2]
    if "could not import" in reason:  # The words of pytest.importorskip.
        report.outcome = "failed"
        report.longrepr = (
            f"{reason}\nKPROTO_JUDGES=required: add the package to this environment of tox.ini, "
            "or run the file in another one"
        )


def pytest_report_header() -> str:
    judges = _ASKED or "none, KPROTO_JUDGES=available adds their tests"
    thorough = ", tox -e thorough adds tests" if _PROFILE == "quick" else ""
    return f"kproto: profile {_PROFILE}{thorough}; outside judges: {judges}; KPROTO_SEED {_SEED}"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore tests/conformance unless judges are enabled: all of its tests run in tox -e judges."""
    return True if not _ASKED and collection_path == CONFORMANCE else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Exclude modules and test items from garbage collection, and collect garbage less often.

    Modules and test items live as long as the process, and a full garbage collection that visits them takes
    about 0.5 s.
    """
    gc.disable()
    try:
        _import_own_share(session)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 10, 50)
        gc.enable()


def _import_own_share(session: pytest.Session) -> None:
    """Import this worker's share of the test modules first. Each worker of pytest-xdist has a different
    share.

    The first import of a test module compiles it, which takes 10 s of CPU for all modules. If all workers
    imported the modules in the same order, each worker would compile all of them.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    ignored = [Path(path) for path in session.config.getoption("ignore") or ()]
    ignored += [] if _ASKED else [CONFORMANCE]
    arguments = [Path(argument.partition("::")[0]).absolute() for argument in session.config.args]
    paths = [
        path
        for argument in arguments
        for path in (sorted(argument.rglob("test_*.py")) if argument.is_dir() else [argument])
        if not any(path.is_relative_to(folder.absolute()) for folder in ignored)
    ]
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in paths[len(paths) * number // count : len(paths) * (number + 1) // count]:
        try:
            _ = pytest.Module.from_parent(session, path=path).obj
        except (Exception, pytest.skip.Exception):
            # No error is reported here, because the collection of tests imports the module again and reports
            # it.
            for name, module in list(sys.modules.items()):
                if getattr(module, "__file__", None) == str(path):
                    del sys.modules[name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests in the profile quick, and tests of judges if KPROTO_JUDGES is not set."""
    excluded = set() if _ASKED else set(JUDGES)
    if _PROFILE == "quick":
        excluded.add("thorough")
    selected, deselected = [], []
    for item in items:
        excluded_marks = excluded.intersection(mark.name for mark in item.iter_markers())
        (deselected if excluded_marks else selected).append(item)
    config.hook.pytest_deselected(items=deselected)
    items[:] = selected


@pytest.fixture(scope="module")
def fast_collections() -> None:
    """Make `gc.collect()` ignore objects that were created before a module's tests, so that it is fast."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Exclude all objects from garbage collection, because pytest runs five collections at its end."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which tests this run has left out, and which command runs them."""
    if not _ASKED:
        terminalreporter.write_line("not run: tests of outside judges (tox -e judges)")
    if _PROFILE == "quick":
        terminalreporter.write_line("not run: tests marked thorough (tox -e thorough)")
