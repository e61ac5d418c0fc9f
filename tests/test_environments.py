"""The environments of tox.ini run every test file, and skip none for a missing package."""

from __future__ import annotations

import configparser
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The environments in which CI sets KPROTO_JUDGES=required: a test that cannot import a package fails there.
REQUIRED = ("thorough", "judges")


def files_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def runs(environment: str, path: Path) -> bool:
    """Return whether the command of an environment runs a test file."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    words = shlex.split(tox[f"testenv:{environment}"]["commands"])
    ignored = [words[n + 1] for n, word in enumerate(words) if word == "--ignore"]
    selected = [word for word in words if word.startswith("tests") and word not in ignored] or ["tests"]
    return any(path.is_relative_to(ROOT / place) for place in selected) and not any(
        path.is_relative_to(ROOT / place) for place in ignored
    )


@pytest.mark.parametrize("path", files_of_tests(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_file_runs_in_an_environment_that_requires_all_packages(path: Path) -> None:
    assert [environment for environment in REQUIRED if runs(environment, path)] != []


def test_an_ignored_folder_is_not_run() -> None:
    assert not runs("thorough", ROOT / "tests" / "demo" / "test_checks.py")
    assert not runs("judges", ROOT / "tests" / "wire" / "test_frame.py")


def test_ci_requires_all_packages_in_these_environments() -> None:
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("the sdist has no .ci")
    lines = [line for line in script.read_text().splitlines() if "KPROTO_JUDGES=required" in line]
    assert [line.rpartition("tox -e ")[2] for line in lines] == list(REQUIRED)


CASES = {
    "a module": "import pytest\npytest.importorskip('no_such_package')\ndef test_a(): pass\n",
    "a test": "import pytest\ndef test_a(): pytest.importorskip('no_such_package')\n",
    "a fixture": (
        "import pytest\n@pytest.fixture\ndef f(): pytest.importorskip('no_such_package')\n"
        "def test_a(f): pass\n"
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("judges", "fails"), [("required", True), ("available", False), ("", False)])
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_missing_package_is_a_failure_where_all_are_required(
    case: str, judges: str, fails: bool, workers: str, tmp_path: Path
) -> None:
    if workers != "0":
        pytest.importorskip("xdist")
    (tmp_path / "test_case.py").write_text(CASES[case])
    order = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]
    if workers != "0":
        order += ["-n", workers]
    environment = {**os.environ, "KPROTO_JUDGES": judges, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(order, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode not in (0, 5)) == fails, done.stdout
    assert ("KPROTO_JUDGES=required: add the package" in done.stdout) == fails, done.stdout
