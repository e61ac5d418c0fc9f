"""The page of the clients' options says what `help` says: both have it from the declarations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from consumer.option_docs import Option, options_of, security_options
from consumer.options import ConsumerConfig, ConsumerOptions, ProducerConfig, ProducerOptions

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client-options.md"
SAID = {
    "A consumer": options_of(ConsumerConfig, ConsumerOptions),
    "A producer": options_of(ProducerConfig, ProducerOptions),
    "TLS and SASL": security_options(),
}


def row(option: Option) -> str:
    """The line of the page's table that tells it."""
    cells = [f"`{option.name}`", f"`{option.default}`" if option.default else "", option.text]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells if cell)} |"


def rows() -> dict[str, list[str]]:
    """Heading -> the rows of the tables below it."""
    parts = re.split(r"(?m)^## (.+)\n", PAGE.read_text(encoding="utf-8"))
    return {
        title: re.findall(r"(?m)^\| `[a-z_]+` \|.*$", text)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_the_page_has_a_chapter_for_each_kind_of_options_and_no_other() -> None:
    assert set(rows()) == set(SAID)


@pytest.mark.parametrize("chapter", SAID)
def test_each_option_stands_there_once_as_help_tells_it(chapter: str) -> None:
    assert sorted(rows()[chapter]) == sorted(row(option) for option in SAID[chapter])


@pytest.mark.parametrize("chapter", SAID)
def test_each_option_says_what_it_is_for(chapter: str) -> None:
    assert [option.name for option in SAID[chapter] if not option.text] == []
