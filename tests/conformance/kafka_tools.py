"""Kafka's own command-line tools."""

from __future__ import annotations

import subprocess

from tests.conformance import judges


def tool(jars: str, name: str, *arguments: str, lines: str = "") -> str:
    """Run a tool and return its output. The tool must exit with status 0."""
    command = [
        judges.java(),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        jars,
        f"org.apache.kafka.tools.{name}",
    ]
    done = subprocess.run([*command, *arguments], input=lines, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout
