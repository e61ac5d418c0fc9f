"""Rules and tests are linked: docs/rules defines the rules, the source cites them, tests check them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kproto.inspect import rules
from tests.documents import DOCS

ROOT = DOCS.parent
NUMBER = r"\b(?:[RM]\d{1,3}|[IX]\d{1,2})\b"


def defined() -> Mapping[str, str]:
    """Return the text of each rule by its number."""
    return rules.definitions()


def cited_in(*folders: str) -> set[str]:
    """Return the rule numbers in the Python files of these folders."""
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return {number for path in files for number in re.findall(NUMBER, path.read_text())}


def cited_in_pages() -> set[str]:
    pages = [page for page in DOCS.rglob("*.md") if page.parent.name != "rules"]
    return {number for page in pages for number in re.findall(NUMBER, page.read_text())}


def pinned() -> frozenset[str]:
    """Return the rule numbers of all `@rule(...)` decorators in the tests."""
    return frozenset(rules.tests())


def in_order(numbers: set[str] | frozenset[str]) -> list[str]:
    return sorted(numbers, key=lambda number: (number[0], int(number[1:])))


def test_every_cited_rule_is_defined() -> None:
    cited = cited_in("kproto", "consumer", "tests") | cited_in_pages()
    assert in_order(cited - defined().keys()) == []


def test_every_rule_is_defined_once() -> None:
    numbers = [number for page in rules.PAGES for number in rules.definitions_of(page)]
    assert sorted(numbers) == sorted(set(numbers))


def test_every_defined_rule_has_a_text() -> None:
    assert [number for number, text in defined().items() if not text] == []


def test_the_rules_of_a_page_are_in_order() -> None:
    for page in rules.PAGES:
        numbers = re.findall(r"(?m)^### ([A-Z]\d+)\n", (DOCS / "rules" / f"{page}.md").read_text())
        assert numbers == in_order(set(numbers)), page


def test_every_defined_rule_is_cited_by_the_source() -> None:
    assert in_order(defined().keys() - cited_in("kproto", "consumer")) == []


def test_every_defined_rule_is_pinned_by_a_test() -> None:
    assert in_order(defined().keys() - pinned()) == []


def test_a_test_pins_only_defined_rules() -> None:
    assert in_order(pinned() - defined().keys()) == []
