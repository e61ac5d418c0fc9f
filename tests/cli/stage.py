"""Helpers for the command-line tests."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kproto.cli import main

PASSWORD = "s3cr3t-of-alice"


@contextmanager
def running_broker(
    folder: Path, *words: str, protocol: str, password: str = PASSWORD
) -> Generator[list[str]]:
    """Run `kproto broker` during the `with` block, and yield its first printed lines."""
    command = [
        sys.executable,
        "-m",
        "kproto",
        "broker",
        "--listen",
        f"PLAINTEXT://127.0.0.1:0,{protocol}://localhost:0",
    ]
    command += ["--tls-self-signed", str(folder), "--topic", "flights:1", *words]
    command += ["--user", f"alice:{password}"] if protocol.startswith("SASL") else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [next(process.stdout)]
            while "sarama" not in lines[-1]:
                lines.append(next(process.stdout).rstrip("\n"))
            yield lines
        finally:
            process.terminate()


class StoppedAt(io.StringIO):
    """A stream that raises KeyboardInterrupt, as Ctrl-C does, after a line that contains `text`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self._is_stopped = False

    def write(self, text: str) -> int:
        size = super().write(text)
        if not self._is_stopped and text.endswith("\n") and self._text in self.getvalue():
            self._is_stopped = True
            raise KeyboardInterrupt
        return size


class StubAdmin:
    """Replaces the admin client of one command, for results that the embedded broker does not return.

    A key of `answers` is the name of a method. A value is the method's result, the error that it raises, or a
    function that returns the result.

    `calls` lists each call: the name of the method, and its arguments.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, **answers: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._answers = answers
        monkeypatch.setattr(module, "admin_client", self._open)

    @contextmanager
    def _open(self, options: object) -> Generator[StubAdmin]:
        yield self

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append((name, *arguments, *named.items()))
            answer = self._answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer(*arguments) if callable(answer) else answer

        return call


class Shell:
    """Runs commands in this process against a broker, and keeps their output."""

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self.capsys = capsys
        self.errors = ""

    def __call__(self, words: str, *more: str, code: int = 0) -> list[str]:
        """Run `kproto WORDS MORE --bootstrap ...`, check its exit code, and return its lines.

        After the call, `errors` contains the text that the command wrote to stderr.
        """
        command = [*words.split(), *more, "--bootstrap", self.bootstrap]
        try:
            result = main(command)
        except SystemExit as end:  # argparse has rejected the arguments.
            result = end.code
        printed = self.capsys.readouterr()
        self.errors = printed.err
        assert result == code, printed
        # An error message must show an option as --option='value'. In NAME='--option', the option would look
        # like the value of NAME.
        assert not re.match(r"kproto [\w-]+: [^=]*='--[a-z]", printed.err), printed.err
        return printed.out.splitlines()

    def json(self, words: str, *more: str, code: int = 0) -> list[dict[str, Any]]:
        """Run a command with `--json`, and return the objects that it printed."""
        return [json.loads(line) for line in self(words, *more, "--json", code=code)]
