"""Every option is documented in help() of its client and on the page of client options."""

from __future__ import annotations

import pydoc
import re
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from consumer.consumer_options import ConsumerConfig
from consumer.option_docs import consumer_docs, option_tables, producer_docs, security_docs
from consumer.producer_options import ProducerConfig
from consumer.security.option_names import SecurityConfig
from docs.hooks import with_option_tables

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "client-options.md"
CHAPTERS = {"A consumer": consumer_docs(), "A producer": producer_docs(), "TLS and SASL": security_docs()}
CLIENTS = {
    Consumer: ConsumerConfig,
    AsyncConsumer: ConsumerConfig,
    Producer: ProducerConfig,
    AsyncProducer: ProducerConfig,
    Admin: SecurityConfig,
    AsyncAdmin: SecurityConfig,
}


def help_text(client: type) -> str:
    return pydoc.plain(pydoc.render_doc(client))


def documented_options(client: type) -> dict[str, str]:
    """Return each option of a client's docstring with the text below it."""
    texts: dict[str, str] = {}
    name = ""
    for line in (client.__doc__ or "").splitlines():
        if line.startswith(8 * " "):
            texts[name] += line.strip() + " "
        elif line.startswith(4 * " "):
            name = line.strip().partition(":")[0]
            texts[name] = ""
    return texts


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_the_docstring_describes_every_option(client: Any) -> None:
    assert set(documented_options(client)) == set(CLIENTS[client].__annotations__)
    assert all(documented_options(client).values()), [
        name for name, text in documented_options(client).items() if not text
    ]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_help_shows_every_option(client: Any) -> None:
    text = help_text(client)
    for name in CLIENTS[client].__annotations__:
        assert f"     {name}: " in text


def test_defaults_and_types_are_those_of_the_code() -> None:
    text = help_text(Consumer)
    assert "max_poll_interval_ms: int = 300_000\n" in text
    assert "auto_offset_reset: str = 'latest'\n" in text
    assert "group_id: str | None = None\n" in text
    assert "The options have Kafka's names" in text


def test_every_option_has_a_description() -> None:
    """`tests/test_registries.py` checks that the table, the types and the defaults list every option."""
    assert {option.name for option in security_docs()} == set(SecurityConfig.__annotations__)
    for option in (*consumer_docs(), *producer_docs(), *security_docs()):
        assert option.description, option.name


# ---- the page of the options


def chapters() -> dict[str, str]:
    """Return the published text of each chapter of the page."""
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
