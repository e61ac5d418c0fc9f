"""The links from rule to test: docs/rules defines the rules, the source cites them, and tests pin them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kproto.inspect import rules
from tests.documents import DOCS

ROOT = DOCS.parent
NUMBER = r"\b(?:[RM]\d{1,3}|[IX]\d{1,2})\b"

# Rules without a test that carries their number. Remove a number when its test exists; add none.
UNTESTED = """
I1 I2 I3 I4 I5 I6 I7 I8 I9 I10 I11 I12 I13 I14 I15 I16 I17 I18 I19 I20
"""
# Rules that the source cites before docs/rules defines them.
UNDEFINED = """
"""
# Rules that the source does not cite.
UNCITED = """
"""


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
    """Return the rule numbers of all `@rule("R64")` in the tests."""
    return frozenset(rules.tests())


def in_order(numbers: set[str] | frozenset[str]) -> list[str]:
    return sorted(numbers, key=lambda number: (number[0], int(number[1:])))


def test_every_cited_rule_is_defined() -> None:
    cited = cited_in("kproto", "consumer", "tests") | cited_in_pages()
    assert in_order(cited - defined().keys() - set(UNDEFINED.split())) == []


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
    cited = cited_in("kproto", "consumer") | set(UNCITED.split())
    assert in_order(defined().keys() - cited) == []


def test_every_defined_rule_is_pinned_by_a_test() -> None:
    assert in_order(defined().keys() - pinned() - set(UNTESTED.split())) == []


def test_the_untested_rules_are_defined_and_have_no_test() -> None:
    untested = set(UNTESTED.split())
    assert in_order(untested - defined().keys()) == []
    assert in_order(untested & pinned()) == []


def test_a_test_pins_only_defined_rules() -> None:
    assert in_order(pinned() - defined().keys()) == []
