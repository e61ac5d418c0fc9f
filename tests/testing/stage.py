"""Helpers for the tests of the testing kit."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import entry_points

import pytest


class MemberProcess:
    """A running `kproto member` process that accepts commands, and the lines that it printed."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "kproto", "member", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def until(self, start: str) -> str:
        """Read lines up to one whose text after the timestamp starts with `start`; return that text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            timestamp, _, text = line.rstrip("\n").partition(" ")
            assert abs(float(timestamp) - time.time()) < 60
            self.lines.append(text)
            if text.startswith(start):
                return text
        raise AssertionError(f"the output ended without a line that starts with {start!r}: {self.lines}")


def plugin_options() -> list[str]:
    """Return pytest's options. They load the plugin if the package is not installed with its entry point.

    The tests run in the order of the file, because some show that a test sees the topics of an earlier test.
    """
    is_installed = entry_points(group="pytest11", name="kproto")
    return ["-p", "no:randomly", *([] if is_installed else ["-p", "kproto.testing.plugin"])]


def run_pytest(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run the tests of `pytester` with the plugin, in another process.

    Other plugins are not loaded, because they would take half of the CPU time of pytest's start.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return pytester.runpytest_subprocess("-p", "kproto.testing.plugin", *arguments)
