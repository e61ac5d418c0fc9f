"""The code blocks of README run, its picture is up to date, and its links are valid."""

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


def test_four_of_the_five_sections_for_readers_have_a_block() -> None:
    assert len(BLOCKS) == 4
    assert len(re.findall(r"^### You ", TEXT, re.MULTILINE)) == 5


def test_readme_has_less_than_150_lines() -> None:
    assert len(TEXT.splitlines()) < 150


def test_the_picture_is_the_output_of_its_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--life", str(tmp_path / "life.svg")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'life.svg'}\n"
    assert (tmp_path / "life.svg").read_text() == (ROOT / "docs" / "life.svg").read_text()


def test_every_link_is_valid() -> None:
    for link in LINKS:
        assert (ROOT / link.partition("#")[0]).exists(), link


def test_the_dissection_is_the_output_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"^    \$ kproto (decode .+)\n((?:    .+\n)+)", TEXT, re.MULTILINE)
    assert example is not None
    assert main(example[1].split()) == 1
    printed = iter(capsys.readouterr().out.splitlines())
    shown = [line.removeprefix("    ") for line in example[2].splitlines()]
    assert len(shown) > 3
    assert all(line in printed for line in shown if line != "...")  # In this order.


def description(url: str) -> str:
    spec = importlib.util.spec_from_file_location("kproto_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.description(TEXT, url, "0.2.0"))


def test_links_on_a_package_index_are_absolute_if_the_repository_has_an_address() -> None:
    text = description("https://code.example/team/kproto")
    assert "](https://code.example/team/kproto/blob/v0.2.0/docs/how-to/watch.md)" in text
    assert "](https://code.example/team/kproto/raw/v0.2.0/docs/life.svg)" in text
    assert len(re.findall(r"\]\(https:", text)) == len(re.findall(r"\]\(", text)) == len(LINKS)


def test_a_package_index_shows_no_links_without_an_address() -> None:
    text = description("")
    assert "](" not in text
    # The alternative text of the picture is removed with the picture.
    assert "The life of a group: members join" not in text
    # A link is replaced by its text.
    assert "start with kafka-python, aiokafka,\nconfluent-kafka," in text
    assert text.endswith("start with\n`docs/index.md`.\n")


@pytest.mark.parametrize("url", ["", "https://code.example/team/kproto"])
def test_a_package_index_renders_no_relative_link(url: str) -> None:
    """Render README as PyPI does; `tox -e dist` installs the renderer."""
    renderer = pytest.importorskip("readme_renderer.markdown")
    if not renderer.variants:
        pytest.skip("readme_renderer comes without its extra md")
    page = renderer.render(description(url))
    targets = re.findall(r'(?:href|src)="([^"]*)"', page)
    external = [target for target in targets if not target.startswith("#")]
    assert all(target.startswith("https://") for target in external)
    assert len(external) == (len(LINKS) if url else 0)


def test_changelog_and_citation_name_the_version_of_the_package() -> None:
    changelog = re.search(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    assert changelog is not None
    assert changelog[1] == __version__
    assert f"\nversion: {__version__}\ndate-released: {changelog[2]}\n" in citation
