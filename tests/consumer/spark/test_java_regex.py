r"""Java regular expressions match the same topic names as in Java, or are rejected with a reason.

A line of `java_regex_answers.txt` contains a pattern, a tab, and names. They are the members of `_NAMES` in
which Java 17's `Matcher.find()` finds the pattern. If Java rejects the pattern, "refused" replaces the names.

tests/conformance/test_java_regex.py compares these patterns, and thousands of others, with Java.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer.spark.java_regex import matcher
from kproto.errors import ConfigError

ANSWERS = Path(__file__).with_name("java_regex_answers.txt")
_NAMES = (
    "flights flights-1 flights.eu Flights FLIGHTS f a aa ab ba abc a1 a-1 a_b 1 12 123 0 . .. - _ a.b A aB "
    "x0 q z zz aaa aab orders orders-2024 orders.v2 ORDERS-2 i I s S k K A-Z b d"
)
NAMES = _NAMES.split(" ")


def answer(pattern: str) -> str:
    try:
        matches = matcher(pattern)
    except ConfigError:
        return "refused"
    return " ".join(name for name in NAMES if matches(name))


def test_patterns_match_the_names_that_java_matches() -> None:
    lines = ANSWERS.read_text(encoding="utf-8").splitlines()
    cases = [line.partition("\t")[::2] for line in lines]
    assert len(cases) > 400
    assert [(p, expected, answer(p)) for p, expected in cases if answer(p) != expected] == []


@pytest.mark.parametrize(
    ("pattern", "at", "text", "why"),
    [
        ("a)", 1, ")", "the closing parenthesis has no opening one"),
        ("(?i)*", 4, "*", "the quantifier has nothing to repeat"),
        ("(?i)+a", 4, "+a", "the quantifier has nothing to repeat"),
        ("(?i)?", 4, "?", "the quantifier has nothing to repeat"),
        ("a{3,2}", 1, "{3,2}", "the repetition is illegal"),
        ("a{2147483648}", 1, "{2147483", "the repetition is illegal"),
        (f"a{{{'9' * 5_000}}}", 1, "{9999999", "the repetition is illegal"),
        ("{2}", 0, "{2}", "the repetition is illegal"),
        ("ba**", 1, "a**", "a repetition cannot be repeated"),
        ("(?x)a* + ?", 4, "a* + ?", "a repetition cannot be repeated"),
        ("a|*b", 2, "*b", "the meta character has nothing to repeat"),
        ("?", 0, "?", "the meta character has nothing to repeat"),
        ("b(a", 1, "(a", "the group is not closed"),
        ("b(?i:a", 1, "(?i:a", "the group is not closed"),
        ("b(?i", 1, "(?i", "the group is not closed"),
        ("(?<1a>b)", 3, "1a>b)", "a group name is a letter, followed by letters and digits"),
        ("(?<a", 3, "a", "a group name is a letter, followed by letters and digits"),
        ("(?<n>a)(?<n>b)", 10, "n>b)", "the group name n is defined twice"),
        ("(?q)a", 2, "q)a", "the inline modifier is unknown"),
        ("(?i--x)a", 4, "-x)a", "the inline modifier is unknown"),
        ("ab\\", 2, "\\", "the pattern ends with a backslash"),
        (r"a\b{g}", 1, r"\b{g}", "this boundary is not supported"),
        (r"(a)\2", 3, r"\2", "group 2 is not complete at this position"),
        (r"\k<n>", 2, "<n>", "the reference does not name a group that was defined before"),
        (r"(?<n>a)\k<m>", 9, "<m>", "the reference does not name a group that was defined before"),
        (r"(?<n>a)\k<n", 9, "<n", "the reference does not name a group that was defined before"),
        (r"a\p{L", 1, r"\p{L", "the name of the property is not closed"),
        (r"a\p{x=L}", 1, r"\p{x=L}", "the property 'x=L' is unknown"),
        (r"\p{IsGreek}", 0, r"\p{IsGre", "the property 'IsGreek' is not supported for topic names"),
        (r"a\y", 1, r"\y", "the escape sequence is illegal or not supported"),
        (r"a\xg0", 1, r"\xg0", "the number of the escaped character is illegal"),
        (r"\x{110000}", 0, r"\x{11000", "the number of the escaped character is illegal"),
        (r"\08", 0, r"\08", "the number of the escaped character is illegal"),
        ("a[bc", 1, "[bc", "the character class is not closed"),
        ("[a&&&b]", 4, "&b]", "an intersection is written with two &, not more"),
        ("a[c-b]", 2, "c-b]", "the range ends before it begins"),
    ],
)
def test_a_rejected_pattern_has_a_position_and_a_reason(pattern: str, at: int, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        matcher(pattern)
    assert f"at position {at}, {text!r}: {why}" in str(raised.value)
    assert raised.value.option == "subscribePattern"


def test_what_python_cannot_express_is_rejected_for_the_named_option() -> None:
    with pytest.raises(ConfigError, match="Python cannot compile its translation") as raised:
        matcher("(?<=a|bb)c", "topics")
    assert raised.value.option == "topics"


@pytest.mark.parametrize("pattern", ["(" * 5000 + "a" + ")" * 5000, "[" * 5000 + "a" + "]" * 5000])
def test_a_pattern_that_is_nested_too_deeply_is_rejected(pattern: str) -> None:
    with pytest.raises(ConfigError, match="nested too deeply; use a simpler pattern"):
        matcher(pattern)
