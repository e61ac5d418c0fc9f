"""README's first look is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kproto.cli import main

TEXT = (Path(__file__).resolve().parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^### (.+?)$.*?```python\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("title", "code"), [b for b in BLOCKS if b[0] != "Spark"], ids=lambda part: part[:12]
)
def test_the_first_look_runs(title: str, code: str) -> None:
    names: dict[str, object] = {}
    exec(compile(code, f"README: {title}", "exec"), names)
    if "seen" in names:
        seen = names["seen"]
        assert isinstance(seen, list)
        assert len(seen) == 100


def test_the_first_look_has_all_rooms() -> None:
    assert len(BLOCKS) == 8


def test_the_table_of_versions_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["versions"]) == 0
    assert f"```text\n{capsys.readouterr().out}```" in TEXT


def test_the_dissection_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^    \$ kproto (decode .+)\n((?:    .+\n)+)", TEXT, re.MULTILINE)
    assert found is not None
    assert main(found[1].split()) == 1
    printed = iter(capsys.readouterr().out.splitlines())
    shown = [line.removeprefix("    ") for line in found[2].splitlines()]
    assert len(shown) > 3
    assert all(line in printed for line in shown if line != "...")  # in this order
