"""Patterns of subscribePattern match the same names as java.util.regex.Pattern."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyspark")

from consumer.spark.java_regex import matcher
from kproto.errors import ConfigError
from tests.conformance import judges

pytestmark = pytest.mark.java


def _words(text: str) -> list[str]:
    return text.split(" ")


NAMES = _words(
    "flights flights-1 flights.eu Flights FLIGHTS f a aa ab ba abc a1 a-1 a_b 1 12 123 0 . .. - _ a.b A aB "
    "x0 q z zz aaa aab orders orders-2024 orders.v2 ORDERS-2 i I s S k K A-Z b d"
)
# Patterns from Spark's users, and corner cases of the grammar. The last pattern is empty.
PATTERNS = (Path(__file__).parent / "java_patterns.txt").read_text().split("\n")

ATOMS = _words(
    r"a b 1 . - _ A Z \d \w \W "
    r"\p{Lower} \P{L} [a-c] [^a] [a-z&&[^b]] [a&&[ab]1] \Qa.\E \. (a) (a|b) "
    r"(?:1|a) (?>a|ab) (?i) (?-i) (?i:a) (?<=a) (?!b) (?=.) \b ^ $ | \1 (?x)"
)
TIMES = ["", "", "", "*", "+", "?", "*?", "++", "{2}", "{1,2}", "{0,1}+", "?+"]


def drawn(seed: int, count: int) -> Iterator[str]:
    random = Random(seed)
    for _ in range(count):
        yield "".join(random.choice(ATOMS) + random.choice(TIMES) for _ in range(random.randint(1, 5)))


def java_says(patterns: list[str], folder: Path) -> list[str]:
    source = Path(__file__).parent / "java" / "Regex.java"
    lines = "".join(f"{pattern.encode().hex()}\t{','.join(NAMES)}\n" for pattern in patterns)
    run = [judges.java(), "-Xss4m", str(source)]
    done = subprocess.run(run, input=lines, capture_output=True, text=True, cwd=folder, check=True)
    return done.stdout.splitlines()


def we_say(pattern: str) -> str:
    try:
        matches = matcher(pattern)
    except ConfigError:
        return "refused"
    return "".join("01"[matches(name)] for name in NAMES)


def is_left_out(pattern: str) -> bool:
    """Return whether kproto rejects the pattern for one of two reasons that the comparison ignores.

    The two reasons are an illegal repetition and an incomplete expression, as in some patterns of `NOT_HERE`.
    """
    try:
        matcher(pattern)
    except ConfigError as error:
        return "repetition is illegal" in str(error) or "is not complete at this position" in str(error)
    return False


# Patterns that Java accepts, and that kproto rejects with an error.
NOT_HERE = {
    r".*(?<=a|bb)",  # A look-behind of variable length.
    r"\N{LATIN SMALL LETTER A}",
    # A Unicode script whose letters no topic name can contain.
    r"\p{IsGreek}*a",
    # A quantifier without an operand, and a quantifier after another quantifier. Java documents neither case.
    r"{2}",
    r"a{2}{2}",
    r"[a&&&b]",
    r"\1(a)",  # A backreference to a group that follows it.
}


def test_usual_patterns_have_javas_meaning(tmp_path: Path) -> None:
    wrong = []
    for pattern, java in zip(PATTERNS, java_says(PATTERNS, tmp_path), strict=True):
        expected = "refused" if pattern in NOT_HERE else java
        if we_say(pattern) != expected:
            wrong.append((pattern, java, we_say(pattern)))
    assert wrong == []


def test_random_patterns_have_javas_meaning(tmp_path: Path) -> None:
    seed = int(os.environ.get("KPROTO_SEED", "7"))
    patterns = list(drawn(seed, 5000))
    answers = list(zip(patterns, java_says(patterns, tmp_path), strict=True))
    cases = [(pattern, java) for pattern, java in answers if java == "refused" or not is_left_out(pattern)]
    assert len(cases) > 4000
    wrong = [(pattern, java, we_say(pattern)) for pattern, java in cases if we_say(pattern) != java]
    assert wrong == [], f"KPROTO_SEED={seed}"
