r"""Translates Java's regular expressions for topic names (``subscribePattern``) to Python's `re`.

Spark's users write Java's syntax:
``\p{Digit}+``, ``[a-z&&[^q]]``, ``\Q..\E``, possessive quantifiers, inline flags. Python's `re` supports only
part of this syntax, and silently gives another part a different meaning.

Rules:

* A topic name contains only the 65 characters ``a-z A-Z 0-9 . _ -``. So each character class is translated to
  a list of those characters that it contains. Spaces, line ends and other alphabets in a pattern match no
  character of a topic name.

* The pattern may match anywhere in the name (java.util.regex.Matcher.find), as in Spark's own source. For
  example, `flights` also selects `my-flights-2`, and `^flights$` selects only `flights`.

* Syntax that Java rejects, or that this module or Python's `re` does not support, raises ConfigError. All
  other syntax has Java's meaning.

The module follows the documentation of java.util.regex.Pattern (Java 17).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kproto.errors import ConfigError
from kproto.patterns import compiled

from .java_characters import DIGITS, LETTERS, NAME_CHARACTERS, NOTHING, property_named

_CLASSES = {
    "d": DIGITS,
    "w": LETTERS | DIGITS | {"_"},
    "s": NOTHING,
    "h": NOTHING,
    "v": NOTHING,
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_FLAGS = "idmsuxU"
_MOST_TIMES = 2**31 - 1
_QUANTIFIER = re.compile(r"[?*+]|\{(\d+)(,(\d*))?\}")
_GROUP_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")


def matcher(pattern: str, option: str = "subscribePattern") -> Callable[[str], bool]:
    """Return a function that returns whether Java's `pattern` matches somewhere in a topic name.

    Raises ConfigError if Java rejects the pattern, or if it cannot be translated to Python. The error shows
    the position in the pattern, unless only Python's `re` rejects the translation.
    """
    reader = _Reader(pattern, option)
    translated = reader.alternatives(inside=False)
    try:
        expression = compiled(translated)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(
            option, pattern, f"Python cannot compile its translation ({error}); use a simpler pattern"
        ) from None
    return lambda name: expression.search(name) is not None


class _Reader:
    """Reads a pattern in Java's syntax from left to right, and translates it to Python's syntax."""

    def __init__(self, pattern: str, option: str) -> None:
        self.pattern = pattern
        self.option = option
        self.at = 0
        self.ignore_case = False
        self.comments = False
        self.groups = 0
        self.names: set[str] = set()

    def error_at(self, why: str, at: int | None = None) -> ConfigError:
        """Return a ConfigError for the pattern's text at position `at`, by default the current position."""
        where = self.at if at is None else at
        shown = self.pattern[where : where + 8]
        allowed = f"allowed: a regular expression in Java's syntax; at position {where}, {shown!r}: {why}"
        return ConfigError(self.option, self.pattern, allowed)

    def peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def accept(self, text: str) -> bool:
        """If the pattern has `text` at the current position, skip it and return True."""
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def skip_comments(self) -> None:
        """Skip whitespace and comments if the flag x is set."""
        while self.comments and self.at < len(self.pattern):
            if self.peek() in " \t\n\x0b\f\r":
                self.at += 1
            elif self.peek() == "#":
                end = re.search(r"[\n\r\u0085\u2028\u2029]", self.pattern[self.at :])
                self.at = len(self.pattern) if end is None else self.at + end.end()
            else:
                return

    # ---- structure

    def alternatives(self, *, inside: bool) -> str:
        """Translate the pattern up to the next closing parenthesis, or to the end of the pattern.

        Inline flags in this part of the pattern apply only up to its end.
        """
        flags = self.ignore_case, self.comments
        branches = [self.branch(inside=inside)]
        while self.accept("|"):
            branches.append(self.branch(inside=inside))
        if not inside and self.at < len(self.pattern):
            raise self.error_at("the closing parenthesis has no opening one")
        self.ignore_case, self.comments = flags
        return "|".join(branches)

    def branch(self, *, inside: bool) -> str:
        """Translate one alternative, up to ``|``, a closing parenthesis or the end."""
        out: list[str] = []
        while True:
            self.skip_comments()
            char = self.peek()
            if not char or char in "|)":
                return "".join(out)
            out.append(self.piece())

    def piece(self) -> str:
        """Translate an atom (a group, class, escape or character) with its quantifier."""
        at = self.at
        atom = self.atom()
        self.skip_comments()
        quantifier = _QUANTIFIER.match(self.pattern, self.at)
        if quantifier is None or not atom:
            if not atom and self.peek() in ("*", "+", "?"):
                raise self.error_at("the quantifier has nothing to repeat")
            return atom
        self.at = quantifier.end()
        self.skip_comments()
        least, _, most = quantifier.groups()
        if least and not int(least) <= int(most or least) <= _MOST_TIMES:
            raise self.error_at("the repetition is illegal", quantifier.start())
        times = quantifier[0]
        for kind in ("?", "+"):
            if self.accept(kind):
                times += kind
                break
        self.skip_comments()
        if self.peek() in ("*", "+", "?"):
            raise self.error_at("a repetition cannot be repeated", at)
        if atom in (r"\A", r"\Z", r"\b", r"\B"):
            atom = f"(?:{atom})"
        return atom + times

    def atom(self) -> str:
        """Translate one group, class, escape or character."""
        char = self.peek()
        if char == "(":
            return self.group()
        if char == "[":
            return self.one_of(self.characters())
        if char == "\\":
            return self.escape()
        if char in "*+?":
            raise self.error_at("the meta character has nothing to repeat")
        if char == "{":
            raise self.error_at("the repetition is illegal")
        self.at += 1
        if char == ".":
            return self.one_of(NAME_CHARACTERS)
        if char == "^":
            return r"\A"
        if char == "$":
            return r"\Z"
        return self.literal(char)

    def group(self) -> str:
        """Translate a group, from its opening to its closing parenthesis."""
        at = self.at
        self.at += 1
        opening = "("
        if self.accept("?"):
            for kind in (":", "=", "!", ">", "<=", "<!"):
                if self.accept(kind):
                    opening = f"(?{kind}"
                    break
            else:
                if self.accept("<"):
                    name = _GROUP_NAME.match(self.pattern, self.at)
                    if name is None or self.pattern[name.end() : name.end() + 1] != ">":
                        raise self.error_at("a group name is a letter, followed by letters and digits")
                    if name[0] in self.names:
                        raise self.error_at(f"the group name {name[0]} is defined twice")
                    self.at = name.end() + 1
                    self.names.add(name[0])
                    self.groups += 1
                    opening = f"(?P<{name[0]}>"
                else:
                    return self.flags(at)
        else:
            self.groups += 1
        inner = self.alternatives(inside=True)
        if not self.accept(")"):
            raise self.error_at("the group is not closed", at)
        return f"{opening}{inner})"

    def flags(self, at: int) -> str:
        """Translate ``(?i)``, which applies up to the end of the group, or ``(?i:...)``."""
        before = self.ignore_case, self.comments
        on = True
        while (char := self.peek()) and char not in ":)":
            if char == "-" and on:
                on = False
            elif char in _FLAGS:
                self.ignore_case = on if char == "i" else self.ignore_case
                self.comments = on if char == "x" else self.comments
            else:
                raise self.error_at("the inline modifier is unknown")
            self.at += 1
        if self.accept(")"):
            return ""
        if not self.accept(":"):
            raise self.error_at("the group is not closed", at)
        inner = self.alternatives(inside=True)
        self.ignore_case, self.comments = before
        if not self.accept(")"):
            raise self.error_at("the group is not closed", at)
        return f"(?:{inner})"

    # ---- escapes

    def escape(self) -> str:
        """Translate the escape at the current position, which begins with a backslash."""
        at = self.at
        self.at += 1
        char = self.peek()
        if not char:
            raise self.error_at("the pattern ends with a backslash", at)
        if char == "Q":
            return self.quoted()
        if char in "123456789":
            return self.reference()
        self.at += 1
        match char:
            case "b" if self.pattern.startswith("{g}", self.at):
                raise self.error_at("this boundary is not supported", at)
            case "b" | "B":
                return f"\\{char}"
            case "A" | "G":
                return r"\A"
            case "Z" | "z":
                return r"\Z"
            case "R":
                return "(?!)"
            case "X":
                return self.one_of(NAME_CHARACTERS)
            case "k":
                return self.named_reference()
            case _:
                self.at = at
                characters = self.class_escape()
                if characters is not None:
                    return self.one_of(characters)
                return self.literal(self.character())

    def quoted(self) -> str:
        self.at += 1
        end = self.pattern.find("\\E", self.at)
        text = self.pattern[self.at :] if end < 0 else self.pattern[self.at : end]
        self.at = len(self.pattern) if end < 0 else end + 2
        # A quantifier after quoted text applies only to the last quoted character.
        return "".join(map(self.literal, text))

    def reference(self) -> str:
        """Translate a reference to a group by its number.

        A further digit belongs to the number only if the pattern has already defined the group with this
        longer number.
        """
        number = int(self.peek())
        self.at += 1
        if number > self.groups:
            raise self.error_at(f"group {number} is not complete at this position", self.at - 2)
        while self.peek().isdigit() and number * 10 + int(self.peek()) <= self.groups:
            number = number * 10 + int(self.peek())
            self.at += 1
        return f"(?i:(?:\\{number}))" if self.ignore_case else f"(?:\\{number})"

    def named_reference(self) -> str:
        name = _GROUP_NAME.match(self.pattern, self.at + 1) if self.peek() == "<" else None
        if name is None or name[0] not in self.names or self.pattern[name.end() : name.end() + 1] != ">":
            raise self.error_at("the reference does not name a group that was defined before")
        self.at = name.end() + 1
        return f"(?i:(?P={name[0]}))" if self.ignore_case else f"(?P={name[0]})"

    def class_escape(self) -> frozenset[str] | None:
        r"""Return the characters of ``\d`` or ``\p{...}``, or None for a single character."""
        char = self.pattern[self.at + 1 : self.at + 2]
        if char in ("p", "P"):
            at = self.at
            self.at += 2
            if self.peek() == "{":
                end = self.pattern.find("}", self.at)
                if end < 0:
                    raise self.error_at("the name of the property is not closed", at)
                name, self.at = self.pattern[self.at + 1 : end], end + 1
            else:
                name = self.peek()
                self.at += 1
            members = self.property(name, at)
            return NAME_CHARACTERS - members if char == "P" else members
        if char and char.lower() in _CLASSES:
            self.at += 2
            members = _CLASSES[char.lower()]
            return members if char.islower() else NAME_CHARACTERS - members
        return None

    def property(self, name: str, at: int) -> frozenset[str]:
        r"""Return the characters of the property in ``\p{name}``. Raises ConfigError if it is unknown."""
        key, equals, value = name.partition("=")
        if equals:
            key = key.lower()
            if key in ("gc", "general_category"):
                name = value
            elif key in ("sc", "script"):
                name = f"Is{value}"
            elif key in ("blk", "block"):
                name = f"In{value}"
            else:
                raise self.error_at(f"the property {name!r} is unknown", at)
        members = property_named(name, self.ignore_case)
        if members is None:
            raise self.error_at(f"the property {name!r} is not supported for topic names", at)
        return members

    def character(self) -> str:
        """Read one character or its escape sequence."""
        at = self.at
        char = self.peek()
        self.at += 1
        if char != "\\":
            return char
        char = self.peek()
        self.at += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        match char:
            case "0":
                match = re.compile(r"[0-3][0-7]{2}|[0-7]{1,2}").match(self.pattern, self.at)
                return self.number(match, 0, 8, at)
            case "x" if self.peek() == "{":
                return self.number(re.compile(r"\{([0-9a-fA-F]+)\}").match(self.pattern, self.at), 1, 16, at)
            case "x":
                return self.number(re.compile(r"[0-9a-fA-F]{2}").match(self.pattern, self.at), 0, 16, at)
            case "u":
                return self.number(re.compile(r"[0-9a-fA-F]{4}").match(self.pattern, self.at), 0, 16, at)
            case "c" if self.peek():
                self.at += 1
                return chr(ord(self.pattern[self.at - 1]) ^ 64)
            case _ if char and not (char.isascii() and char.isalpha()):
                return char
            case _:
                raise self.error_at("the escape sequence is illegal or not supported", at)

    def number(self, match: re.Match[str] | None, group: int, base: int, at: int) -> str:
        if match is None or int(match[group], base) > 0x10FFFF:
            raise self.error_at("the number of the escaped character is illegal", at)
        self.at = match.end()
        return chr(int(match[group], base))

    # ---- classes

    def characters(self) -> frozenset[str]:
        """Read a character class ``[...]`` with Java's ranges, nested classes and intersections."""
        at = self.at
        self.at += 1
        negated = self.accept("^")
        sets: list[frozenset[str]] = []  # The operands of &&.
        present: frozenset[str] | None = None
        while True:
            self.skip_comments()
            if self.at >= len(self.pattern):
                raise self.error_at("the character class is not closed", at)
            if self.peek() == "]" and (present is not None or sets):
                self.at += 1
                break
            if self.accept("&&"):
                if self.peek() == "&":
                    raise self.error_at("an intersection is written with two &, not more")
                if present is not None:
                    sets.append(present)
                    present = None
                continue
            members = self.member()
            present = members if present is None else present | members
        if present is not None:
            sets.append(present)
        whole = sets[0]
        for set_ in sets[1:]:
            whole &= set_
        return NAME_CHARACTERS - whole if negated else whole

    def member(self) -> frozenset[str]:
        """Read one member of a character class: a nested class, a range or single characters."""
        if self.peek() == "[":
            return self.characters()
        if self.pattern.startswith("\\Q", self.at):
            end = self.pattern.find("\\E", self.at)
            text = self.pattern[self.at + 2 :] if end < 0 else self.pattern[self.at + 2 : end]
            self.at = len(self.pattern) if end < 0 else end + 2
            return self.cased(frozenset(text))
        if self.peek() == "\\" and (members := self.class_escape()) is not None:
            return members
        at = self.at
        first = self.character()
        self.skip_comments()
        follows = self.pattern[self.at + 1 : self.at + 2]
        if self.peek() != "-" or follows in ("]", "[", "") or self.pattern.startswith("&&", self.at + 1):
            return self.cased(frozenset(first))
        self.at += 1
        self.skip_comments()
        last = self.character()
        if last < first:
            raise self.error_at("the range ends before it begins", at)
        return self.cased(frozenset(c for c in _ALL_ASCII if first <= c <= last))

    def cased(self, characters: frozenset[str]) -> frozenset[str]:
        if self.ignore_case:
            characters = characters | {c.swapcase() for c in characters if c in LETTERS}
        return characters & NAME_CHARACTERS

    # ---- writing

    def literal(self, char: str) -> str:
        if self.ignore_case and char in LETTERS:
            return self.one_of(frozenset((char.lower(), char.upper())))
        return re.escape(char)

    def one_of(self, characters: frozenset[str]) -> str:
        if characters == NAME_CHARACTERS:
            return "."
        return f"[{''.join(map(re.escape, sorted(characters)))}]" if characters else "(?!)"


_ALL_ASCII = tuple(map(chr, range(128)))
