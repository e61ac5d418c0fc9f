"""The lessons show what their commands print; `python -m tests.lessons` updates them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.lessons import BLOCK, LESSONS, NOTEBOOK, PICTURE, commands, notebook, output, pages

COMMANDS = [(page.name, command, expected) for page in pages() for command, expected in commands(page)]
DOCUMENTS = [
    "000-offset-minus-1000",
    "001-new-partitions",
    "002-java-reliability",
    "003-sarama-walk",
    "004-rebalances",
]
# For each page, the quick tests run the first command that does not name S1-25. That scenario takes several
# seconds. The quick tests also run all commands that run no scenario. The other commands are thorough tests,
# because the quick tests of tests/scenarios run most of their scenarios.
QUICK = {page: command for page, command, _ in reversed(COMMANDS) if "S1-25" not in command}
RUNS_A_STORY = re.compile(r"scenario (S\d|loss)")


def _param(page: str, command: str, expected: str) -> object:
    quick = QUICK[page] == command or not RUNS_A_STORY.search(command)
    marks = [] if quick else [pytest.mark.thorough]
    return pytest.param(command, expected, marks=marks, id=f"{page[:3]} {command[7:50]}")


@pytest.mark.parametrize(("command", "expected"), [_param(*command) for command in COMMANDS])
def test_a_page_shows_the_output_of_its_command(command: str, expected: str, tmp_path: Path) -> None:
    assert output(command, tmp_path) == expected
    for picture in tmp_path.glob("*.svg"):
        assert picture.read_bytes() == (LESSONS / picture.name).read_bytes()


def test_each_document_has_a_lesson_that_the_index_links() -> None:
    index = (LESSONS / "README.md").read_text()
    assert [page.stem for page in pages()] == [*DOCUMENTS, "README"]
    for name in DOCUMENTS:
        assert f"({name}.md)" in index


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_command_of_the_page_draws_each_picture(page: Path) -> None:
    drawn = {word for command, _ in commands(page) for word in command.split() if word.endswith(".svg")}
    assert set(PICTURE.findall(page.read_text())) == drawn


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_link_is_valid(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    links = [link for link in re.findall(r"(?<!!)\[[^\]]+\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_example_in_python_runs(page: Path) -> None:
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(code, page.name, "exec"), {})


def test_the_notebook_has_the_text_and_the_commands_of_its_page() -> None:
    assert NOTEBOOK.read_text() == notebook(NOTEBOOK.with_suffix(".md").read_text())


@pytest.mark.thorough
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    document = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(document, timeout=600, resources=resources).execute()
    printed = "".join(output["text"] for cell in document.cells for output in cell.get("outputs", []))
    page = NOTEBOOK.with_suffix(".md")
    for command, expected in commands(page):
        assert f"!{command}" in "\n".join(cell.source for cell in document.cells)
        assert expected.strip() in "\n".join(line.rstrip() for line in printed.splitlines())
