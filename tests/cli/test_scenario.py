"""`kproto scenario` writes pages and drawings, and finds stories by their ids and titles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kproto.cli import main


@pytest.mark.parametrize(("option", "start"), [("--html", "<!doctype html>"), ("--svg", "<svg")])
def test_a_written_file_is_named_with_the_title_of_its_story(
    option: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", "S3-1", "--json"]) == 0
    title = json.loads(capsys.readouterr().out)["title"]
    file = tmp_path / "story"
    assert main(["scenario", "s3-1", option, str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: {title}\n"
    assert file.read_text().startswith(start)


def test_a_list_has_the_stories_of_a_document_or_with_a_word_in_their_title(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed: dict[str, list[dict[str, str]]] = {}
    for name in ("S3", "s3", "seek"):
        assert main(["scenario", name, "--json"]) == 0
        listed[name] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert listed["S3"] == listed["s3"]
    assert {story["id"].partition("-")[0] for story in listed["S3"]} == {"S3"}
    assert all("seek" in story["title"].lower() for story in listed["seek"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("S3-999", "did you mean S3-"),
        ("parametres", "did you mean parameters? "),
        ("qqqqqq", "there are "),
    ],
)
def test_an_unknown_story_is_rejected_with_similar_names(
    name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", name]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "loss, stop-the-world, race, and parameters" in error
    assert ("did you mean" in error) == (name != "qqqqqq")
