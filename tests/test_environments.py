"""Every test file runs in an environment of tox.ini in which a missing package is a failure."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The environments in which CI sets KPROTO_JUDGES=required: a test that cannot import a package fails there.
REQUIRED = ("thorough", "judges")


def files_of_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


@cache
def words_of_commands(environment: str) -> list[str]:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    return shlex.split(tox[f"testenv:{environment}"]["commands"])


def runs(environment: str, path: Path) -> bool:
    """Return whether the command of an environment runs a test file."""
    words = words_of_commands(environment)
    ignored = [words[n + 1] for n, word in enumerate(words) if word == "--ignore"]
    selected = [word for word in words if word.startswith("tests") and word not in ignored] or ["tests"]
    return any(path.is_relative_to(ROOT / place) for place in selected) and not any(
        path.is_relative_to(ROOT / place) for place in ignored
    )


def test_every_test_file_runs_in_an_environment_that_requires_all_packages() -> None:
    forgotten = [path for path in files_of_tests() if not any(runs(name, path) for name in REQUIRED)]
    assert [str(path.relative_to(ROOT)) for path in forgotten] == []


def test_an_ignored_folder_is_not_run() -> None:
    assert not runs("thorough", ROOT / "tests" / "demo" / "test_checks.py")
    assert not runs("judges", ROOT / "tests" / "wire" / "test_frame.py")


def test_ci_requires_all_packages_in_these_environments() -> None:
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("the sdist has no .ci")
    lines = [line for line in script.read_text().splitlines() if "KPROTO_JUDGES=required" in line]
    assert [line.rpartition("tox -e ")[2].split()[0] for line in lines] == list(REQUIRED)


CASES = {
    "test_module.py": "import pytest\npytest.importorskip('no_such_package')\ndef test_a(): pass\n",
    "test_function.py": "import pytest\ndef test_a(): pytest.importorskip('no_such_package')\n",
    "test_fixture.py": (
        "import pytest\n@pytest.fixture\ndef f(): pytest.importorskip('no_such_package')\n"
        "def test_a(f): pass\n"
    ),
}


@pytest.mark.parametrize(
    ("judges", "workers"),
    [
        pytest.param("required", "0", marks=pytest.mark.thorough),
        ("required", "1"),
        pytest.param("available", "0", marks=pytest.mark.thorough),
        pytest.param("available", "1", marks=pytest.mark.thorough),
        ("", "0"),
        pytest.param("", "1", marks=pytest.mark.thorough),
    ],
)
def test_a_missing_package_is_a_failure_where_all_are_required(
    judges: str, workers: str, tmp_path: Path
) -> None:
    if workers != "0":
        pytest.importorskip("xdist")
    for name, source in CASES.items():
        (tmp_path / name).write_text(source)
    order = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", str(tmp_path)]
    order += ["--import-mode=importlib", "--continue-on-collection-errors"]
    order += ["-p", "xdist", "-n", workers] if workers != "0" else []
    environment = {**os.environ, "KPROTO_JUDGES": judges, "PYTHONPATH": str(ROOT)}
    # Disabling the other installed plugins halves the CPU time that each process takes to start.
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(order, cwd=tmp_path, env=environment, capture_output=True, text=True)
    failed = set(re.findall(r"^(?:FAILED|ERROR) (\w+\.py)", done.stdout, re.M))
    assert failed == (set(CASES) if judges == "required" else set()), done.stdout
    assert (done.returncode != 0) == (judges == "required"), done.stdout
    reports = done.stdout.count("KPROTO_JUDGES=required: add the package")
    assert reports >= len(failed), done.stdout
    assert (reports > 0) == (judges == "required"), done.stdout
