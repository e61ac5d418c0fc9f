"""Kafka's own command-line tools."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.conformance import judges


def tool(jars: str, name: str, *arguments: str, lines: str = "") -> str:
    """Run a tool and return its output. The tool must exit with status 0."""
    done = _run(jars, name, arguments, lines)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


def exit_code(jars: str, name: str, *arguments: str) -> int:
    """Run a tool and return its exit code."""
    return _run(jars, name, arguments).returncode


def _run(jars: str, name: str, arguments: Sequence[str], lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [
        judges.java(),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        jars,
        f"org.apache.kafka.tools.{name}",
    ]
    return subprocess.run([*command, *arguments], input=lines, capture_output=True, text=True, timeout=90)
