"""What all tests share: Hypothesis profiles, and when the outside judges run.

pytest                        quick: our own tests; the judges in tests/conformance are skipped
KPROTO_JUDGES=available       also every judge that this machine has
KPROTO_JUDGES=required        also every judge, and a missing one is a failure (as in CI)
KPROTO_PROFILE=quick|ci|soak  how many examples Hypothesis draws
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("quick", max_examples=15, deadline=None, suppress_health_check=_CHECKS)
# Always the same examples, so a failure here is a failure everywhere. quick and soak draw new ones.
settings.register_profile(
    "ci", max_examples=200, deadline=None, suppress_health_check=_CHECKS, derandomize=True
)
settings.register_profile("soak", max_examples=5000, deadline=None, suppress_health_check=_CHECKS)
settings.load_profile(os.environ.get("KPROTO_PROFILE", "quick"))

# pytest-xdist's workers have COLUMNS set, which would wrap the output for it.
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("KPROTO_PROFILE", "quick") == "quick":
        for item in items:
            if item.get_closest_marker("thorough"):
                item.add_marker(pytest.mark.skip(reason="takes longer: tox -e thorough"))
    if _ASKED:
        return
    for item in items:
        judges = JUDGES.intersection(mark.name for mark in item.iter_markers())
        if judges:
            reason = f"outside judge ({', '.join(sorted(judges))}): set KPROTO_JUDGES=available to ask it"
            item.add_marker(pytest.mark.skip(reason=reason))
