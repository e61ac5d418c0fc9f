"""Count the turns of phrase, local names and module names that readers stumble over.

The counts only indicate bad writing: a low count does not prove good writing. CONTRIBUTING contains the style
guide.

The texts of peers (h11, websockets, httpcore, trio, aiokafka, kafka-python) match MARKS 6 to 14 times per
10,000 words.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("kproto", "consumer", "tests", "docs")
PAGES = ("README.md", "CONTRIBUTING.md")
# The highest allowed counts of matches of MARKS, of names in VAGUE, and of modules named in RIDDLES. Lower
# a limit when its count falls; the goal for VAGUE_NAMES is 60.
MARKS_PER_10_000_WORDS = 16
VAGUE_NAMES = 523
RIDDLE_MODULES = 3
# Regular expressions for persons as subjects, verbs that the field does not use, and pronouns without a noun.
MARKS = {
    "a person as subject": r"(?:(?<=[.:;] )|^)(?:Who|Whoever|Whose|Whom)\b(?![^.]{0,120}\?)",
    "whoever": r"\b(?:whoever|to whom|with whom|of whom|for whom)\b",
    "a pronoun for a person": r"\b(?:nobody|somebody|everybody|anybody|no one)\b",
    "tell": r"\b(?:tells?|told|telling)\b",
    "hear": r"\b(?:hears?|heard)\b",
    "go on": r"\b(?:go|goes|going|went|gone) on\b",
    "over": r"\b(?:is|was|are|were) over\b",
    "of its own": r"\b(?:of its own|of their own|of ours|by itself|by themselves)\b",
    "there is not": r"\bthat there (?:is|are)(?: not)?\b|\bis there\b|\bare there\b(?!\?)",
    "anew": r"\banew\b",
    "let in": r"\blets? (?:in|go of|go)\b",
    "give up": r"\b(?:put out|gives? up|given up|gave up|takes? back|took back|taken back)\b",
    "is no": r"\b(?:is|are|was|were) (?:no|none)\b",
    "but for": r"\bbut for\b",
    "look after": r"\blook(?:s|ed|ing)? (?:after|at)\b",
    "at once": r"\b(?:in vain|at once)\b",
    "those of": r"\b(?:what it was|of those|those of|of that is|what is of)\b",
}
PATTERNS = [
    re.compile(pattern, 0 if name == "a person as subject" else re.I) for name, pattern in MARKS.items()
]
# Most texts contain none of the words of the patterns. One search for all these words is faster than a
# search for each pattern.
ANY_MARK = re.compile(
    "|".join(r"\bwho" if name == "a person as subject" else pattern for name, pattern in MARKS.items())
)
VAGUE = {
    "one",
    "found",
    "told",
    "said",
    "given",
    "made",
    "what",
    "taken",
    "kept",
    "asked",
    "heard",
    "seen",
    "gone",
    "left",
    "rest",
    "other",
    "others",
    "both",
    "again",
    "here",
    "there",
    "it",
    "that",
}
RIDDLES = {
    "standing",
    "fates",
    "elsewhere",
    "door",
    "seat",
    "sheets",
    "starts",
    "interests",
    "peers",
    "silence",
    "beyond",
    "quiet",
    "once",
    "pieces",
    "twins",
    "solo",
    "crowd",
    "may",
    "pasted",
    "chosen",
    "books",
    "lives",
    "moment",
    "rest",
    "looking",
    "seen",
    "inside",
    "whole",
}
# Finds a vague word that code assigns or takes as a parameter: `one = `, `one, two = `, `one: int`, `one +=
# `, `for one in `, `(one)`.
VAGUE_ASSIGNMENT = re.compile(
    rf"(?<![.\w])(?:{'|'.join(sorted(VAGUE))})\s*(?:[\],:)]|=(?!=)|[-+*/%@&|^<>]{{1,2}}=|in\b)"
)
# Matches a string without its prefix, or a comment.
STRING_OR_COMMENT = re.compile(
    r'''("""(?:[^"\\]|\\.|""?(?!"))*"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#[^\n]*)''', re.S
)
# Nouns that end in -ing, which are allowed.
GERUNDS = {"testing", "string", "encoding", "decoding", "partitioning", "routing"}


@cache
def files() -> Mapping[str, str]:
    """Return the text of every Python file and documentation page by path."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.*"))]
    paths += [ROOT / page for page in PAGES]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in paths
        if path.suffix in (".py", ".md")
    }


class Scan(NamedTuple):
    """The texts of a module or page, and the names that the module assigns or takes as parameters."""

    texts: list[str]
    names: list[str]


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Iterate over the nodes of a tree, except contexts and operators. `ast.walk` takes twice as long."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for value in node.__dict__.values():
            if type(value) is list:
                waiting += [part for part in value if isinstance(part, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:
                waiting.append(value)


def scan(path: str) -> Scan:
    """Return the texts of a file: a module's comments and docstrings, or a page's paragraphs.

    `names` is empty for a page, and for a module in which no assigned name looks vague. Such a module is not
    parsed.
    """
    source = files()[path]
    if path.endswith(".md"):
        text = re.sub(r"```.*?```|^    .*$|`[^`]*`", " ", source, flags=re.S | re.M)
        return Scan([" ".join(paragraph.split()) for paragraph in text.split("\n\n")], [])
    return scan_source(source)


def scan_source(source: str) -> Scan:
    # The parts at even indexes are code. Each part at an odd index is a string or a comment.
    parts = STRING_OR_COMMENT.split(source)
    code: list[str] = parts[::2]
    texts: list[str] = []
    for before, part in zip(parts[::2], parts[1::2], strict=False):
        if part.startswith("#"):
            texts.append(part.lstrip("#: "))
        elif before[-1:] in ("f", "F"):  # The expressions of an f-string may bind names.
            code.append(part)
        elif part.startswith('"""') and before.rpartition("\n")[2].strip() in ("", "r"):
            texts.append(" ".join(part[3:-3].split()))
    may_assign_one = any(map(VAGUE_ASSIGNMENT.search, code))
    return Scan(texts, assigned_names(source) if may_assign_one else [])


def assigned_names(source: str) -> list[str]:
    """Parse a module, and return the names that it assigns or takes as parameters."""
    names: list[str] = []
    for node in nodes(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.append(name)
            case _:
                pass
    return names


def modules() -> list[str]:
    return [path for path in files() if path.endswith(".py")]


def marks(text: str) -> int:
    return sum(len(pattern.findall(text)) for pattern in PATTERNS) if ANY_MARK.search(text.lower()) else 0


def is_riddle(path: str) -> bool:
    name = Path(path).stem.removeprefix("test_")
    return name in RIDDLES or (re.fullmatch(r"[a-z]+ing", name) is not None and name not in GERUNDS)


def test_texts_have_few_marks_and_names_say_what_they_hold() -> None:
    words, marks_by_file, vague_by_file = 0, Counter[str](), Counter[str]()
    for path in files():
        texts, names = scan(path)
        words += sum(len(text.split()) for text in texts)
        marks_by_file[path] = sum(map(marks, texts))
        vague_by_file[path] = sum(name in VAGUE for name in names)
    assert marks_by_file.total() * 10_000 / words <= MARKS_PER_10_000_WORDS, marks_by_file.most_common(10)
    assert vague_by_file.total() <= VAGUE_NAMES, vague_by_file.most_common(10)


def test_modules_are_nouns_of_the_field() -> None:
    riddles = [path for path in modules() if is_riddle(path)]
    assert len(riddles) <= RIDDLE_MODULES, riddles


def test_a_mark_is_counted() -> None:
    assert marks("The member leaves, and commits first.") == 0
    assert marks("Who leaves is told anew, at once.") == 4


@pytest.mark.parametrize(
    "code",
    [
        "one = 1",
        "one: int = 1",
        "one, two = pair",
        "[two, one] = pair",
        "(two, one) = pair",
        "one += 1",
        "one //= 2",
        "one >>= 2",
        "for one in range(2): pass",
        "with open(path) as one: pass",
        "with (open(path) as one): pass",
        "if (one := 1): pass",
        "def f(one): pass",
        "def f(one=2, *two): pass",
        "f = lambda one: one",
        "f'{[one for one in range(2)]}'",
    ],
)
def test_each_form_of_an_assignment_to_a_vague_name_is_found(code: str) -> None:
    assert "one" in scan_source(code).names


def test_a_riddle_is_found() -> None:
    assert is_riddle("consumer/engine/standing.py")
    assert not is_riddle("consumer/engine/metadata.py")
