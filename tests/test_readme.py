"""README's blocks run as they stand, its picture is what the command draws, its links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from kproto import __version__
from kproto.cli import main
from tests.documents import Block, run_python

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text()
LINKS = re.findall(r"\]\(([^)\s]+)\)", TEXT)
BLOCKS = re.findall(r"^### (.+?)$.*?```python\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("title", "code"), BLOCKS, ids=lambda part: part[:12])
def test_a_block_runs(title: str, code: str) -> None:
    names = run_python([Block(f"README: {title}", 0, "python", code, "")])
    if "records" in names:
        records = names["records"]
        assert isinstance(records, list)
        assert len(records) == 100


def test_four_of_the_five_readers_have_a_block() -> None:
    assert len(BLOCKS) == 4
    assert len(re.findall(r"^### You ", TEXT, re.MULTILINE)) == 5


def test_a_tired_person_reads_it_to_the_end() -> None:
    assert len(TEXT.splitlines()) < 150


def test_the_picture_is_what_the_command_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--life", str(tmp_path / "life.svg")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'life.svg'}\n"
    assert (tmp_path / "life.svg").read_text() == (ROOT / "docs" / "life.svg").read_text()


def test_every_link_leads_somewhere() -> None:
    for link in LINKS:
        assert (ROOT / link.partition("#")[0]).exists(), link


def test_the_dissection_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^    \$ kproto (decode .+)\n((?:    .+\n)+)", TEXT, re.MULTILINE)
    assert found is not None
    assert main(found[1].split()) == 1
    printed = iter(capsys.readouterr().out.splitlines())
    shown = [line.removeprefix("    ") for line in found[2].splitlines()]
    assert len(shown) > 3
    assert all(line in printed for line in shown if line != "...")  # in this order


def described(url: str) -> str:
    spec = importlib.util.spec_from_file_location("kproto_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.description(TEXT, url, "0.2.0"))


def test_on_an_index_links_are_absolute_once_the_repository_has_an_address() -> None:
    text = described("https://code.example/team/kproto")
    assert "](https://code.example/team/kproto/blob/v0.2.0/docs/how-to/watch.md)" in text
    assert "](https://code.example/team/kproto/raw/v0.2.0/docs/life.svg)" in text
    assert len(re.findall(r"\]\(https:", text)) == len(re.findall(r"\]\(", text)) == len(LINKS)


def test_without_an_address_no_link_on_an_index_leads_nowhere() -> None:
    text = described("")
    assert "](" not in text
    assert "A group's life: members join" not in text  # the picture's words
    assert "start with kafka-python, aiokafka,\nconfluent-kafka," in text  # words stay
    assert text.endswith("from\n`docs/index.md` on.\n")  # where they are


@pytest.mark.parametrize("url", ["", "https://code.example/team/kproto"])
def test_the_page_that_an_index_makes_of_it_has_no_relative_link(url: str) -> None:
    """As PyPI renders it; `tox -e dist` has what that takes."""
    renderer = pytest.importorskip("readme_renderer.markdown")
    if not renderer.variants:
        pytest.skip("readme_renderer comes without its extra md")
    page = renderer.render(described(url))
    targets = re.findall(r'(?:href|src)="([^"]*)"', page)
    away = [target for target in targets if not target.startswith("#")]
    assert all(target.startswith("https://") for target in away)
    assert len(away) == (len(LINKS) if url else 0)


def test_changelog_and_citation_name_the_version_of_the_package() -> None:
    changelog = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    assert changelog is not None
    assert changelog[1] == __version__
    assert f"\nversion: {__version__}\ndate-released: {changelog[2]}\n" in citation
