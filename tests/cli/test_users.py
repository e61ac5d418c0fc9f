"""`kproto users` manages SCRAM credentials, and never shows a password."""

from __future__ import annotations

import io
import sys

import pytest

from tests.cli.stage import Shell


def test_a_password_is_set_and_deleted(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("s3cr3t-word\n"))
    shown = shell("users set carol --mechanism SCRAM-SHA-256 --iterations 4096")
    monkeypatch.setenv("KPROTO_NEW_PASSWORD", "s3cr3t-word")
    shown += shell("users set carol")
    assert shown == ["Completed updating config for user carol."] * 2
    assert shell.json("users list carol") == [
        {"user": "carol", "mechanism": "SCRAM-SHA-256", "iterations": 4096},
        {"user": "carol", "mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    assert shell("users list carol") == [
        "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-256=iterations=4096, "
        "SCRAM-SHA-512=iterations=8192"
    ]
    assert shell("users delete carol") == ["delete SCRAM-SHA-256 and SCRAM-SHA-512 of user carol"]
    assert shell("users delete carol --mechanism SCRAM-SHA-256 --execute") == [
        "Deleted SCRAM-SHA-256 of user carol."
    ]
    assert [row["mechanism"] for row in shell.json("users list")] == ["SCRAM-SHA-512"]
    shell("users delete carol --mechanism SCRAM-SHA-256", code=1)
    assert "user 'carol' has no credential for SCRAM-SHA-256" in shell.errors


def test_an_empty_password_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    shell("users set dave", code=2)
    assert "password='' is not allowed; allowed: a password on the first line of stdin" in shell.errors


def test_an_unknown_user_is_an_error(shell: Shell) -> None:
    shell("users list nobody", code=1)
    assert "nobody" in shell.errors
