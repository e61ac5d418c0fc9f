"""The documentation says what is so: its blocks run, its links lead somewhere, what is made is whole."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from consumer.spark.session import SETTINGS
from tests.documents import DOCS, PAGES, Block, blocks, run_console, run_python, with_kproto

BLOCKS = [block for page in PAGES for block in blocks(page)]


def name(of: Any) -> str:
    return of.relative_to(DOCS).as_posix() if isinstance(of, Path) else f"{of.page}:{of.line}"


@cache
def program(name: str) -> Any:
    """One of the programs beside the pages, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hooks() -> Any:
    return program("hooks")


@cache
def made() -> dict[str, str]:
    return dict(hooks().generated())


def python_of(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind == "python" and block.runs and not block.needs]


@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page)], ids=name)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_python(python_of(page))


CONSOLES = [block for block in BLOCKS if block.kind == "console" and block.runs]


@pytest.mark.parametrize("block", CONSOLES, ids=name)
def test_a_command_prints_what_the_page_shows(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    run_console(block, capsys)


@pytest.mark.thorough
@pytest.mark.parametrize("block", [b for b in BLOCKS if b.mark == "script"], ids=name)
def test_a_script_runs(block: Block, tmp_path: Path) -> None:
    script = f"set -eu\n{block.code}"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=with_kproto(tmp_path), check=True, timeout=100)


def test_a_script_or_a_command_is_run_or_says_why_not() -> None:
    known = ("needs: clients", "needs: spark", "script", "not run: ", "file: ", "")
    for block in BLOCKS:
        assert block.mark.startswith(known), f"{block.page}:{block.line}: {block.mark}"
        assert bool(block.file) == (block.kind in ("go", "java", "js")), f"{block.page}:{block.line}"
        if block.kind == "sh":
            assert block.mark == "script" or not block.runs, f"{block.page}:{block.line}"


def test_every_link_between_pages_leads_to_a_heading() -> None:
    texts = {page.relative_to(DOCS).as_posix(): page.read_text() for page in DOCS.rglob("*.md")} | made()
    for page, text in texts.items():
        plain = re.sub(r"(?ms)^```.*?^```", "", text)
        for link in re.findall(r"\]\(([^)\s]+)\)", plain):
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if target.endswith(".md"):
                assert target in texts, f"{page}: {link}"
                assert not anchor or anchor in program("links").anchors(texts[target]), f"{page}: {link}"
            else:
                assert (DOCS / target).exists(), f"{page}: {link}"


def test_a_site_is_searched_for_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text(
        '<h1 id="one">A</h1> <a href="../">up</a> <a href="#one">1</a>'
    )
    (tmp_path / "index.html").write_text(
        '<a href="a/#one">fine</a> <a href="a/#two"></a> <a href="b/"></a> <img src="c.png">'
        '<a href="https://kafka.apache.org/"></a> <script src="https://elsewhere.example/x.js"></script>'
    )
    assert list(program("links").of_site(tmp_path)) == [
        "index.html: a/#two: no such heading",
        "index.html: b/",
        "index.html: c.png",
        "index.html: loads https://elsewhere.example/x.js",
    ]


def test_a_file_is_searched_for_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, or two\n\n```\n# none\n```\n")
    (tmp_path / "README.md").write_text(
        "[1](other.md#a-heading-or-two) [2](other.md#none) [3](no.md) [4](https://kafka.apache.org/)"
    )
    assert list(program("links").of_file(tmp_path / "README.md")) == [
        f"{tmp_path / 'README.md'}: other.md#none: no such heading",
        f"{tmp_path / 'README.md'}: no.md",
    ]


def test_a_site_without_pages_and_what_is_not_there_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = program("links").main
    assert main([str(tmp_path)]) == 1
    assert main([str(tmp_path / "none"), str(tmp_path)]) == 2
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == f"{tmp_path}: there is no page\n"
    assert told.err.splitlines() == [
        f"links.py: there is no {tmp_path / 'none'}",
        "links.py: name folders of HTML or files of Markdown",
    ]


def test_the_client_page_has_what_the_second_door_gives() -> None:
    import kproto

    text = made()["reference/client.md"]
    for public in kproto.__all__:
        if public not in ("__version__", "TopicPartition"):
            assert f"## {public}\n" in text, public
    assert "`poll(timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]`" in text
    assert "`await poll(" in text


def test_the_command_line_page_has_every_command() -> None:
    from kproto import cli

    text = made()["reference/cli.md"]
    for command in cli._NAMES:
        assert f"## kproto {command}\n" in text


def test_the_errors_page_has_every_code_and_class() -> None:
    from kproto import errors
    from kproto.error_codes import ErrorCode

    classes = [
        cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.KprotoError)
    ]
    text = made()["reference/errors.md"]
    assert all(f"`{code.name}`" in text for code in ErrorCode)
    assert all(f"### {cls.__name__}\n" in text for cls in classes)


def test_the_protocol_has_a_page_for_every_message() -> None:
    from kproto.messages.index import API_NAMES

    assert {f"protocol/{api}.md" for api in API_NAMES.values()} <= set(made())


def test_the_page_of_spark_says_why_for_each_setting_of_its_session() -> None:
    text = (DOCS / "how-to" / "spark.md").read_text()
    assert [name for name in SETTINGS if f"`{name}`" not in text] == []


def test_every_page_is_in_the_navigation() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text()
    for page in {page.relative_to(DOCS).as_posix() for page in PAGES} | set(made()):
        assert page in text or page.startswith("protocol/"), page


def cited() -> set[str]:
    """The names of rules in the source, in its tests and in the other pages: such as M10 and I7."""
    root = DOCS.parent
    files = [path for room in ("kproto", "consumer", "tests", "docs") for path in (root / room).rglob("*.py")]
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "rules"]
    text = "\n".join(path.read_text() for path in [*files, *pages] if path.name != "documents.py")
    return set(re.findall(r"\b(?:[RM]\d{1,3}|[IX]\d{1,2})\b", text))


def test_every_rule_that_is_cited_is_defined() -> None:
    defined = {name: text for page in hooks().RULES for name, text in hooks().rules(page).items()}
    assert cited() - set(defined) == set()
    assert all(defined.values())


def test_every_rule_that_is_defined_is_cited() -> None:
    defined = {name: text for page in hooks().RULES for name, text in hooks().rules(page).items()}
    assert set(defined) - cited() - {"I4", "I9", "I11", "I16", "I17", "I19"} == set()


def test_every_story_that_is_cited_exists() -> None:
    from kproto.scenarios import scenarios

    told = {story.id for story in scenarios()} | set(hooks().SAID)
    told |= {id.rstrip("abcdefghijklmnopqrstuvwxyz") for id in told}  # S3-19a is a branch of S3-19
    room = DOCS.parent / "kproto"
    text = "\n".join(path.read_text() for path in [*room.rglob("*.py"), *DOCS.rglob("*.md")])
    assert set(re.findall(r"\bS[0-3]-\d+\b", text)) - told == set()


def test_the_stories_that_the_lessons_call_played_with_the_originals_are_those_that_the_judges_name() -> None:
    page = DOCS / "lessons" / "README.md"
    table = [line for line in page.read_text().splitlines() if re.match(r"\| 00\d \|", line)]
    judges = (DOCS.parent / "tests" / "conformance").glob("test_document_*.py")
    named = {story for one in judges for story in re.findall(r"\bS[0-3]-\d+[a-m]?\b", one.read_text())}
    assert set(re.findall(r"\bS[0-3]-\d+[a-m]?\b", "\n".join(table))) == named
