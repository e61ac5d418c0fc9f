"""The page of the clients' options has a table for each section of the options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from consumer.option_docs import consumer_docs, option_tables, producer_docs, security_docs
from docs.hooks import with_option_tables

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client-options.md"
CHAPTERS = {"A consumer": consumer_docs(), "A producer": producer_docs(), "TLS and SASL": security_docs()}


def chapters() -> dict[str, str]:
    """Return each chapter of the page as it is published."""
    parts = re.split(r"(?m)^## (.+)\n", with_option_tables(PAGE.read_text(encoding="utf-8")))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_page_has_a_chapter_for_each_kind_of_options() -> None:
    assert set(chapters()) == set(CHAPTERS)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_page_has_a_row_for_each_option(chapter: str) -> None:
    rows = re.findall(r"(?m)^\| `([a-z_]+)` \|.*$", chapters()[chapter])
    assert sorted(rows) == sorted(option.name for option in CHAPTERS[chapter])


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_page_has_each_section_of_the_table(chapter: str) -> None:
    for section, table in option_tables(chapter):
        assert table in chapters()[chapter], section
