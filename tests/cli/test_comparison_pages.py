"""Each command and option of kproto on the pages about kcat and Kafka's tools exists."""

from __future__ import annotations

import re
import shlex

import pytest

from kproto.cli import build_parser
from kproto.cli.arguments import Parser
from tests.comparison_pages import FOLDER, code, rows

PAGES = ("kafka-tools", "kcat")


def sections(page: str) -> list[str]:
    """Return a regular expression for the heading of each section.

    The page about kcat counts as one section. Its regular expression is empty, so it matches every heading.
    """
    text = (FOLDER / f"{page}.md").read_text(encoding="utf-8")
    return (
        [""] if page == "kcat" else [f"^{re.escape(title)}$" for title in re.findall("(?m)^## (.+)$", text)]
    )


def parsers() -> dict[str, Parser]:
    """Return the parser of each command, such as "topics list"."""
    parser, _ = build_parser()
    by_command: dict[str, Parser] = {}
    pending = [("", parser)]
    while pending:
        name, parser = pending.pop()
        by_command[name] = parser
        pending += [(f"{name} {verb}".strip(), below) for verb, below in parser.subparsers().items()]
    return by_command


def options_of(parser: Parser) -> set[str]:
    return {option for action in parser.actions() for option in action.option_strings}


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_and_options_of_the_page_exist(page: str) -> None:
    known = parsers()
    unknown: list[str] = []
    for heading in sections(page):
        # The options that every command has, and the options of the commands that the section names.
        options = options_of(known["topics delete"]) | {"--version"}
        used: set[str] = set()
        for cells in rows(page, heading):
            command = ""
            for part in [part for cell in cells[1:] for part in code(cell)]:
                words = shlex.split(part)
                if words[0] == "kproto" and words[1][0] != "-":
                    two_words = " ".join(words[1:3])
                    command = two_words if two_words in known else words[1]
                    unknown += [part] if command not in known else []
                elif (verb := f"{command.partition(' ')[0]} {words[0]}") in known:
                    command = verb  # `add` after `kproto acls list` means `acls add`.
                options |= options_of(known[command]) if command in known else set()
                used |= {word for word in words if word.startswith("--")}
        unknown += [f"{heading}: {option}" for option in used - options]
    assert unknown == []
