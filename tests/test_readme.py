"""README's first look is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
    assert len(BLOCKS) == 5
