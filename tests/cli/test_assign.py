"""`kproto assign` prints an assignment with its reasons; with `--lines`, an object for each line of stdin."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from kproto.cli import main

GROUP = {
    "assignor": "cooperative-sticky",
    "topics": {"flights": {"partitions": 2, "racks": None}},
    "members": [
        {"id": "m1", "subscribed": ["flights"], "owned": {"flights": [0, 1]}, "generation": 1},
        {"id": "m2", "subscribed": ["flights"]},
    ],
}


def test_the_table_shows_what_each_member_gets_and_why_partitions_move(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "assign cooperative-sticky --topic flights:2 --member m1=flights:0-1 --member m2"
    assert main(words.split()) == 0
    assert capsys.readouterr().out.splitlines()[:8] == [
        "cooperative-sticky: 2 partitions, 2 members",
        "",
        "MEMBER  BEFORE  AFTER  PARTITIONS",
        "m1      2       1      flights:0",
        "m2      0       0      -",
        "",
        "PARTITIONS  FROM  TO  OUTCOME   WHY",
        "flights:0   m1    m1  kept      m1 owned it before",
    ]


def test_a_file_describes_the_same_group_as_the_arguments(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps(GROUP))
    assert main(["assign", "--file", str(path), "--json"]) == 0
    from_file = json.loads(capsys.readouterr().out)
    words = "assign cooperative-sticky --topic flights:2 --member m1=flights:0,1 --member m2 --json"
    assert main(words.split()) == 0
    assert json.loads(capsys.readouterr().out) == from_file
    assert from_file["assignment"] == {"m1": {"flights": [0]}, "m2": {}}
    assert from_file["partitions"][1]["outcome"] == "withheld"


def test_each_json_line_gets_its_assignment_or_its_error(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = f"{json.dumps(GROUP)}\n{{}}\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["assign", "--json", "--lines"]) == 1
    first, second = map(json.loads, capsysbinary.readouterr().out.splitlines())
    assert first["assignment"] == {"m1": {"flights": [0]}, "m2": {}}
    assert isinstance(first["micros"], int)
    assert second == {"error": "the key 'assignor' is missing"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "ASSIGNOR, at least one --topic and one --member are required; or --file"),
        ("range --topic flights --member m1", "--topic='flights' is not allowed; NAME:PARTITIONS"),
        ("range --topic flights:2 --member =flights:0", "--member='=flights:0' is not allowed; ID"),
        ("range --topic t:2 --topic t:3 --member m", "--topic='t:3' is not allowed; allowed once for each"),
        ("best --topic flights:2 --member m1", 'assignor is "best", not one of range'),
        ("--file /does/not/exist", "--file='/does/not/exist' is not allowed; cannot be read: No such file"),
        ("range --file x", "--file='x' is not allowed; allowed only without ASSIGNOR"),
        ("--lines", "--lines=True is not allowed; allowed only with --json"),
    ],
)
def test_invalid_arguments_exit_with_2_and_say_what_is_allowed(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_code:
        raise SystemExit(main(["assign", *words.split()]))
    assert exit_code.value.code == 2
    assert message in capsys.readouterr().err


def test_control_characters_of_a_member_id_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "group.json"
    path.write_text(json.dumps({**GROUP, "members": [{"id": "m\x1b[31m", "subscribed": ["flights"]}]}))
    assert main(["assign", "--file", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
