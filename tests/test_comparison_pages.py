"""Tables about other libraries are parsed correctly, and each kproto name in them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import comparison_pages
from tests.comparison_pages import FOLDER, code, names, rows

SOURCES = Path(__file__).parents[1] / "consumer"
# These modules contain names of other libraries, and are therefore not searched for names of kproto.
FOREIGN = {"other_clients.py", "other_options.py"}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(comparison_pages, "FOLDER", tmp_path)
    (tmp_path / "page.md").write_text(
        "# Coming from x\n"
        "```python\n| `code` | no table |\n```\n"
        "## Options\n\n| x | kproto |\n|---|---|\n"
        "| `Group.Session.Timeout`, `Heartbeat.Interval`, `.Max` | `a\\|b` |\n"
        "## Errors\n\n| x | kproto |\n|---|---|\n| `ErrClosed` | `IllegalState` |\n"
    )
    return "page"


def test_a_cell_may_contain_a_bar(page: str) -> None:
    assert [code(cells[1]) for cells in rows(page, "Options")] == [["a|b"]]


def test_a_name_may_omit_what_it_shares_with_the_name_before(page: str) -> None:
    named = names(page, "Options")
    assert named > {"Group.Session.Timeout", "Group.Heartbeat.Interval", "Group.Heartbeat.Max"}
    assert "Timeout" not in named
    assert names(page) - named == {"ErrClosed"}


def test_the_options_and_methods_of_kproto_exist() -> None:
    """Each name with `_` in the second column of a page's tables occurs in the clients' source.

    `tests/cli/test_comparison_pages.py` checks the pages about tools.
    """
    texts = [path.read_text("utf-8") for path in SOURCES.rglob("*.py") if path.name not in FOREIGN]
    pages = {path.stem for path in FOLDER.glob("*.md")} - {"kcat", "kafka-tools"}
    cells = [part for page in pages for row in rows(page) for part in code(row[1])]
    words = {word for cell in cells for word in re.findall(r"[a-z]\w*_\w+", cell)}
    assert len(words) > 100
    assert words - set(re.findall(r"\w+", " ".join(texts))) == set()
