"""What the lessons show is what comes out. `python -m tests.lessons` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lessons import BLOCK, PICTURE, ROOM, commands, output, pages

EVERY = [(page.name, command, shown) for page in pages() for command, shown in commands(page)]
DOCUMENTS = ["000-offset-minus-1000", "001-new-partitions", "002-java-reliability", "003-sarama-walk"]
LONG = re.compile(r"scenario (S1-25|loss(?!.*--client)|stop-the-world(?!.*--members 3))")


def _param(page: str, command: str, shown: str) -> object:
    marks = [pytest.mark.thorough] if LONG.search(command) else []
    return pytest.param(command, shown, marks=marks, id=f"{page[:3]} {command[7:50]}")


@pytest.mark.parametrize(("command", "shown"), [_param(*one) for one in EVERY])
def test_a_page_shows_what_its_command_prints(command: str, shown: str, tmp_path: Path) -> None:
    assert output(command, tmp_path) == shown
    for picture in tmp_path.glob("*.svg"):
        assert picture.read_bytes() == (ROOM / picture.name).read_bytes()


def test_each_document_has_its_lesson_and_the_index_names_it() -> None:
    index = (ROOM / "README.md").read_text()
    assert [page.stem for page in pages()] == [*DOCUMENTS, "README"]
    for name in DOCUMENTS:
        assert f"({name}.md)" in index


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_picture_is_drawn_by_a_command_of_its_page(page: Path) -> None:
    drawn = {word for command, _ in commands(page) for word in command.split() if word.endswith(".svg")}
    assert set(PICTURE.findall(page.read_text())) == drawn


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    links = [link for link in re.findall(r"(?<!!)\[[^\]]+\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_example_in_python_runs(page: Path) -> None:
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(code, page.name, "exec"), {})
