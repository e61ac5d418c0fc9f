"""`main` ends a failed command with one line and an exit code, even if stdout cannot be written."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from kproto import cli
from kproto.cli import main
from kproto.errors import ConfigError, KprotoError

FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (BrokenPipeError(), 1, ""),
        (FULL, 1, "kproto versions: No space left on device\n"),
        (OSError("no strerror"), 1, "kproto versions: no strerror\n"),
        (KprotoError("the cluster is gone"), 1, "kproto versions: the cluster is gone\n"),
        (ConfigError("--x", "y", "allowed: z"), 2, "kproto versions: --x='y' is not allowed; allowed: z\n"),
        (
            ConfigError("--sasl-password", "s3cr3t", "allowed: z"),
            2,
            "kproto versions: --sasl-password='[hidden]' is not allowed; allowed: z\n",
        ),
        (KeyboardInterrupt(), 130, "\nstopped\n"),
    ],
)
def test_an_error_of_a_command_is_one_line_and_an_exit_code(
    error: BaseException,
    code: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(options: object) -> int:
        raise error

    monkeypatch.setattr("kproto.cli.versions._versions", fail)
    assert main(["versions"]) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", text)


class FullStream(io.StringIO):
    """An output whose buffered text cannot be written, because the disk is full."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor

    def flush(self) -> None:
        raise FULL

    def fileno(self) -> int:
        return self.descriptor


def test_output_that_cannot_be_written_is_discarded_so_that_python_does_not_write_it_at_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "output").open("wb") as file:
        monkeypatch.setattr(sys, "stdout", FullStream(file.fileno()))
        assert main(["versions", "Heartbeat"]) == 1
        assert os.fstat(file.fileno()).st_rdev == os.stat(os.devnull).st_rdev
        monkeypatch.undo()
    assert capsys.readouterr().err == "kproto versions: No space left on device\n"


def test_closed_streams_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["versions", "Heartbeat"]) == 0
    stdin, stdout = sys.stdin, sys.stdout
    assert (stdin.read(), stdin.mode, stdout.mode) == ("", "r", "w")
    cli._reopen_closed_streams()
    assert (sys.stdin, sys.stdout) == (stdin, stdout)  # Open streams are kept.
    stdin.close()
    stdout.close()
