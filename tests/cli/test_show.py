"""`kproto show` prints messages and machines, and writes pictures and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproto.cli import main


@pytest.mark.parametrize(
    ("words", "name", "start"),
    [(["coordinator", "--svg"], "machine.svg", "<svg"), (["--life"], "life.svg", "<svg")],
)
def test_a_picture_is_written_to_a_new_folder(
    words: list[str], name: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a" / "b" / name
    assert main(["show", *words, str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert start in path.read_text()[:200]


def test_a_path_that_is_not_writable_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["show", "coordinator", "--svg", str(tmp_path / "file" / "machine.svg")]) == 2
    assert "cannot be written: " in " ".join(capsys.readouterr().err.split())


def test_a_message_is_printed_in_one_version_or_in_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "HeartbeatRequest", "--version", "0"]) == 0
    oldest = capsys.readouterr().out
    assert main(["show", "HeartbeatRequest"]) == 0
    every = capsys.readouterr().out
    assert "group_instance_id" not in oldest
    assert "group_instance_id" in every
    assert main(["show", "HeartbeatRequest", "--version", "9"]) == 2
    assert "HeartbeatRequest has the versions 0-4" in capsys.readouterr().err
