"""The command line: what comes in, in which form it may come, and how the answers go out."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from kproto.cli import main

QUESTION = b'{"kind": "request", "name": "HeartbeatRequest", "version": 4, "hex": "026700000003046d2d310000"}'
ANSWER = {"json": {"groupId": "g", "generationId": 3, "memberId": "m-1", "groupInstanceId": None}}


class Dribble(io.RawIOBase):
    """A pipe on which bytes arrive in pieces of a given size."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data = io.BytesIO(data)
        self.size = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.data.readinto(memoryview(buffer)[: self.size])


def ask(monkeypatch: pytest.MonkeyPatch, data: bytes, size: int = 1 << 20) -> list[object]:
    """The answers of `kproto decode --json --lines` to these bytes on stdin, which arrive in such pieces."""
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Dribble(data, size))))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, write_through=True))
    assert main(["decode", "--json", "--lines"]) == 0
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("size", [1, 7, 94, 95, 96, 1000])
def test_lines_are_whole_however_they_arrive(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    assert ask(monkeypatch, (QUESTION + b"\n") * 3, size) == [ANSWER] * 3


def test_the_last_line_needs_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, QUESTION + b"\n" + QUESTION) == [ANSWER] * 2


def test_lines_may_end_as_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(monkeypatch, (QUESTION + b"\r\n") * 2) == [ANSWER] * 2


def test_every_line_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    told = ask(monkeypatch, b"\n".join([b"", QUESTION, b"\xff", b"", QUESTION, b""]))
    assert [isinstance(one, dict) and "error" in one for one in told] == [True, False, True, True, False]
