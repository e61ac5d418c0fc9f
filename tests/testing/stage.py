"""Helpers of the testing kit's tests."""

from __future__ import annotations

import subprocess
import sys
import time


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
