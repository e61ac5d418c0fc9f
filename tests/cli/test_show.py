"""`kproto show` prints messages and state machines, and writes pictures and pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from kproto.cli import main
from kproto.cli.machines import drawing_of
from kproto.inspect import guide, machines


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "JoinGroup --html guide",
            "--html='guide' is not allowed; allowed only without a MESSAGE",
        ),
        ("--version 3 --html guide", "--html='guide' is not allowed; allowed only without a MESSAGE"),
        (
            "JoinGroup --life g.svg",
            "--life='g.svg' is not allowed; allowed only without a MESSAGE",
        ),
        (
            "JoinGroup --svg g.svg",
            "--svg='g.svg' is not allowed; allowed only for a state machine",
        ),
        (
            "--html guide --life g.svg",
            "FILE='g.svg' is not allowed; allowed: one of --html, --life and --svg",
        ),
        ("member --version 1", "--version=1 is not allowed; allowed only for a message"),
        ("--svg g.svg", "--svg='g.svg' is not allowed; allowed only for a state machine"),
    ],
)
def test_a_file_that_does_not_fit_the_message_is_rejected(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", *words.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_command_without_a_message_and_a_file_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["show"])
    assert caught.value.code == 2
    assert "name a MESSAGE, such as JoinGroup" in capsys.readouterr().err


def test_the_guide_is_written_to_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {"index.html": "<p>index", "JoinGroup.html": "<p>\u00e9"}
    monkeypatch.setattr(guide, "pages", texts.items)
    assert main(["show", "--html", str(tmp_path / "guide")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'guide' / 'index.html'}\n"
    written = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "guide").iterdir()}
    assert written == texts


def test_messages_and_machines_are_printed_in_the_width_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["show", "transaction"]) == 0
    assert capsys.readouterr().out == machines.text("transaction", drawing_of("transaction"), 70)
    assert main(["show", "JoinGroupRequest"]) == 0
    assert capsys.readouterr().out == guide.text("JoinGroupRequest", None, 70)
