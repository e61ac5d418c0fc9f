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
_CONTROL_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_FLAGS = "idmsuxU"
_MAX_REPETITIONS = 2**31 - 1
_QUANTIFIER = re.compile(r"[?*+]|\{(\d+)(,(\d*))?\}")
_GROUP_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")


def matcher(pattern: str, option: str = "subscribePattern") -> Callable[[str], bool]:
    """Return a function that returns whether Java's `pattern` matches somewhere in a topic name.

    Raises ConfigError if Java rejects the pattern, or if it cannot be translated to Python. The error shows
    the position in the pattern, except if Python's `re` rejects the translation.
    """
    reader = _Reader(pattern, option)
    try:
        expression = compiled(reader.translate_alternatives(in_group=False))
    except RecursionError:
        allowed = "its groups or character classes are nested too deeply; use a simpler pattern"
        raise ConfigError(option, pattern, allowed) from None
    except re.error as error:
        raise ConfigError(
            option, pattern, f"Python cannot compile its translation ({error}); use a simpler pattern"
        ) from None
    return lambda name: expression.search(name) is not None


class _Reader:
    """Reads a pattern in Java's syntax from left to right, and translates it to Python's syntax."""

    def __init__(self, pattern: str, option: str) -> None:
        self.pattern = pattern
        self.option = option
        self.position = 0  # The position in the pattern of the next character to read.
        self.ignore_case = False  # The flag i.
        self.comments = False  # The flag x.
        self.group_count = 0  # The number of capturing groups that have begun.
        self.group_names: set[str] = set()

    def error_at(self, why: str, position: int | None = None) -> ConfigError:
        """Return a ConfigError for the pattern's text at `position`, by default the current position."""
        start = self.position if position is None else position
        excerpt = self.pattern[start : start + 8]
        allowed = f"allowed: a regular expression in Java's syntax; at position {start}, {excerpt!r}: {why}"
        return ConfigError(self.option, self.pattern, allowed)

    def peek(self) -> str:
        """Return the character at the current position, or "" at the end of the pattern."""
        return self.pattern[self.position : self.position + 1]

    def accept(self, text: str) -> bool:
        """If the pattern has `text` at the current position, skip it and return True."""
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def skip_comments(self) -> None:
        """Skip whitespace and comments if the flag x is set."""
        while self.comments and self.position < len(self.pattern):
            if self.peek() in " \t\n\x0b\f\r":
                self.position += 1
            elif self.peek() == "#":
                end = re.search(r"[\n\r\u0085\u2028\u2029]", self.pattern[self.position :])
                self.position = len(self.pattern) if end is None else self.position + end.end()
            else:
                return

    # ---- structure

    def translate_alternatives(self, *, in_group: bool) -> str:
        """Translate the pattern up to the next closing parenthesis, or to the end of the pattern.

        Inline flags in this part of the pattern do not apply to the rest of the pattern.
        """
        flags = self.ignore_case, self.comments
        branches = [self.translate_branch()]
        while self.accept("|"):
            branches.append(self.translate_branch())
        if not in_group and self.position < len(self.pattern):
            raise self.error_at("the closing parenthesis has no opening one")
        self.ignore_case, self.comments = flags
        return "|".join(branches)

    def translate_branch(self) -> str:
        """Translate one alternative, up to ``|``, a closing parenthesis or the end."""
        pieces: list[str] = []
        while True:
            self.skip_comments()
            char = self.peek()
            if not char or char in "|)":
                return "".join(pieces)
            pieces.append(self.translate_piece())

    def translate_piece(self) -> str:
        """Translate an atom (a group, class, escape or character) with its quantifier."""
        start = self.position
        atom = self.translate_atom()
        self.skip_comments()
        quantifier = _QUANTIFIER.match(self.pattern, self.position)
        if quantifier is None or not atom:
            if not atom and self.peek() in ("*", "+", "?"):
                raise self.error_at("the quantifier has nothing to repeat")
            return atom
        self.position = quantifier.end()
        self.skip_comments()
        minimum, _, maximum = quantifier.groups()
        # A number of more than 4300 digits is rejected first, because int() would raise ValueError for it.
        is_too_long = max(len(minimum or ""), len(maximum or "")) > 4300
        if is_too_long or (minimum and not int(minimum) <= int(maximum or minimum) <= _MAX_REPETITIONS):
            raise self.error_at("the repetition is illegal", quantifier.start())
        repetition = quantifier[0]
        for mode in ("?", "+"):  # reluctant, possessive
            if self.accept(mode):
                repetition += mode
                break
        self.skip_comments()
        if self.peek() in ("*", "+", "?"):
            raise self.error_at("a repetition cannot be repeated", start)
        if atom in (r"\A", r"\Z", r"\b", r"\B"):
            # Python rejects a repeated anchor or boundary, but accepts a repeated group that contains one.
            atom = f"(?:{atom})"
        return atom + repetition

    def translate_atom(self) -> str:
        """Translate one group, class, escape or character."""
        char = self.peek()
        if char == "(":
            return self.translate_group()
        if char == "[":
            return self.class_expression(self.read_class())
        if char == "\\":
            return self.translate_escape()
        if char in "*+?":
            raise self.error_at("the meta character has nothing to repeat")
        if char == "{":
            raise self.error_at("the repetition is illegal")
        self.position += 1
        if char == ".":
            return self.class_expression(NAME_CHARACTERS)
        if char == "^":
            return r"\A"
        if char == "$":
            return r"\Z"
        return self.literal_expression(char)

    def translate_group(self) -> str:
        """Translate a group, from its opening to its closing parenthesis."""
        start = self.position
        self.position += 1
        opening = self.translate_group_opening()
        if opening is None:
            return self.translate_flags(start)
        inner = self.translate_alternatives(in_group=True)
        if not self.accept(")"):
            raise self.error_at("the group is not closed", start)
        return f"{opening}{inner})"

    def translate_group_opening(self) -> str | None:
        """Return how a group starts in Python, such as "(?:"; None for inline flags.

        The group's opening parenthesis has been read. A capturing group is added to `group_count`.
        """
        if not self.accept("?"):
            self.group_count += 1
            return "("
        for kind in (":", "=", "!", ">", "<=", "<!"):
            if self.accept(kind):
                return f"(?{kind}"
        if not self.accept("<"):
            return None
        name = _GROUP_NAME.match(self.pattern, self.position)
        if name is None or self.pattern[name.end() : name.end() + 1] != ">":
            raise self.error_at("a group name is a letter, followed by letters and digits")
        if name[0] in self.group_names:
            raise self.error_at(f"the group name {name[0]} is defined twice")
        self.position = name.end() + 1
        self.group_names.add(name[0])
        self.group_count += 1
        return f"(?P<{name[0]}>"

    def translate_flags(self, start: int) -> str:
        """Translate ``(?i)`` or ``(?i:...)``, whose ``(?`` at position `start` has been read.

        The flags of ``(?i)`` apply until the enclosing `translate_alternatives` restores the former flags.
        """
        former_flags = self.ignore_case, self.comments
        value = True  # True if the following letters set their flags, False if they unset them.
        while (char := self.peek()) and char not in ":)":
            if char == "-" and value:
                value = False
            elif char in _FLAGS:
                self.ignore_case = value if char == "i" else self.ignore_case
                self.comments = value if char == "x" else self.comments
            else:
                raise self.error_at("the inline modifier is unknown")
            self.position += 1
        if self.accept(")"):
            return ""
        if not self.accept(":"):
            raise self.error_at("the group is not closed", start)
        inner = self.translate_alternatives(in_group=True)
        self.ignore_case, self.comments = former_flags
        if not self.accept(")"):
            raise self.error_at("the group is not closed", start)
        return f"(?:{inner})"

    # ---- escapes

    def translate_escape(self) -> str:
        """Translate the escape at the current position, which begins with a backslash."""
        start = self.position
        self.position += 1
        char = self.peek()
        if not char:
            raise self.error_at("the pattern ends with a backslash", start)
        if char == "Q":
            return self.translate_quoted()
        if char in "123456789":
            return self.translate_reference()
        self.position += 1
        match char:
            case "b" if self.pattern.startswith("{g}", self.position):
                raise self.error_at("this boundary is not supported", start)
            case "b" | "B":
                return f"\\{char}"
            case "A" | "G":
                return r"\A"
            case "Z" | "z":
                return r"\Z"
            case "R":
                return "(?!)"
            case "X":
                return self.class_expression(NAME_CHARACTERS)
            case "k":
                return self.translate_named_reference()
            case _:
                self.position = start
                characters = self.read_class_escape()
                if characters is not None:
                    return self.class_expression(characters)
                return self.literal_expression(self.read_character())

    def translate_quoted(self) -> str:
        r"""Translate the text after ``\Q``, up to ``\E`` or to the end of the pattern."""
        self.position += 1
        end = self.pattern.find("\\E", self.position)
        text = self.pattern[self.position :] if end < 0 else self.pattern[self.position : end]
        self.position = len(self.pattern) if end < 0 else end + 2
        # A quantifier after quoted text applies only to the last quoted character.
        return "".join(map(self.literal_expression, text))

    def translate_reference(self) -> str:
        """Translate a reference to a group by its number.

        A further digit belongs to the number only if the pattern has already defined the group with this
        longer number.
        """
        number = int(self.peek())
        self.position += 1
        if number > self.group_count:
            raise self.error_at(f"group {number} is not complete at this position", self.position - 2)
        while self.peek().isdigit() and number * 10 + int(self.peek()) <= self.group_count:
            number = number * 10 + int(self.peek())
            self.position += 1
        return f"(?i:(?:\\{number}))" if self.ignore_case else f"(?:\\{number})"

    def translate_named_reference(self) -> str:
        r"""Translate the rest of a reference to a named group, ``\k<name>``, after its ``\k``."""
        name = _GROUP_NAME.match(self.pattern, self.position + 1) if self.peek() == "<" else None
        if (
            name is None
            or name[0] not in self.group_names
            or self.pattern[name.end() : name.end() + 1] != ">"
        ):
            raise self.error_at("the reference does not name a group that was defined before")
        self.position = name.end() + 1
        return f"(?i:(?P={name[0]}))" if self.ignore_case else f"(?P={name[0]})"

    def read_class_escape(self) -> frozenset[str] | None:
        r"""Read ``\d`` or ``\p{...}``, and return its characters.

        If the escape stands for a single character, return None and read nothing.
        """
        char = self.pattern[self.position + 1 : self.position + 2]
        if char in ("p", "P"):
            start = self.position
            self.position += 2
            if self.peek() == "{":
                end = self.pattern.find("}", self.position)
                if end < 0:
                    raise self.error_at("the name of the property is not closed", start)
                name, self.position = self.pattern[self.position + 1 : end], end + 1
            else:
                name = self.peek()
                self.position += 1
            members = self.property_characters(name, start)
            return NAME_CHARACTERS - members if char == "P" else members
        if char and char.lower() in _CLASSES:
            self.position += 2
            members = _CLASSES[char.lower()]
            return members if char.islower() else NAME_CHARACTERS - members
        return None

    def property_characters(self, name: str, start: int) -> frozenset[str]:
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
                raise self.error_at(f"the property {name!r} is unknown", start)
        members = property_named(name, self.ignore_case)
        if members is None:
            raise self.error_at(f"the property {name!r} is not supported for topic names", start)
        return members

    def read_character(self) -> str:
        """Read one character or its escape sequence."""
        start = self.position
        char = self.peek()
        self.position += 1
        if char != "\\":
            return char
        char = self.peek()
        self.position += 1
        if char in _CONTROL_CHARACTERS:
            return _CONTROL_CHARACTERS[char]
        match char:
            case "0":
                return self.read_code_point(r"[0-3][0-7]{2}|[0-7]{1,2}", 8, start)
            case "x" if self.peek() == "{":
                return self.read_code_point(r"\{([0-9a-fA-F]+)\}", 16, start)
            case "x":
                return self.read_code_point(r"[0-9a-fA-F]{2}", 16, start)
            case "u":
                return self.read_code_point(r"[0-9a-fA-F]{4}", 16, start)
            case "c" if self.peek():
                self.position += 1
                return chr(ord(self.pattern[self.position - 1]) ^ 64)
            case _ if char and not (char.isascii() and char.isalpha()):
                return char
            case _:
                raise self.error_at("the escape sequence is illegal or not supported", start)

    def read_code_point(self, digits: str, base: int, start: int) -> str:
        """Read the number of a character, and return the character. The escape began at `start`.

        `digits` is the expression that the number matches. If it has a group, the number is in the group.
        """
        match = re.compile(digits).match(self.pattern, self.position)
        number = None if match is None else int(match[match.lastindex or 0], base)
        if match is None or number is None or number > 0x10FFFF:
            raise self.error_at("the number of the escaped character is illegal", start)
        self.position = match.end()
        return chr(number)

    # ---- classes

    def read_class(self) -> frozenset[str]:
        """Read a character class ``[...]`` with Java's ranges, nested classes and intersections."""
        start = self.position
        self.position += 1
        negated = self.accept("^")
        operands: list[frozenset[str]] = []  # The operands of && that have been read completely.
        # The members of the operand that is being read; None before its first member.
        operand: frozenset[str] | None = None
        while True:
            self.skip_comments()
            if self.position >= len(self.pattern):
                raise self.error_at("the character class is not closed", start)
            if self.peek() == "]" and (operand is not None or operands):
                self.position += 1
                break
            if self.accept("&&"):
                if self.peek() == "&":
                    raise self.error_at("an intersection is written with two &, not more")
                if operand is not None:
                    operands.append(operand)
                    operand = None
                continue
            members = self.read_class_member()
            operand = members if operand is None else operand | members
        if operand is not None:
            operands.append(operand)
        intersection = operands[0].intersection(*operands[1:])
        return NAME_CHARACTERS - intersection if negated else intersection

    def read_class_member(self) -> frozenset[str]:
        """Read one member of a character class: a nested class, a range or single characters."""
        if self.peek() == "[":
            return self.read_class()
        if self.pattern.startswith("\\Q", self.position):
            end = self.pattern.find("\\E", self.position)
            text = self.pattern[self.position + 2 :] if end < 0 else self.pattern[self.position + 2 : end]
            self.position = len(self.pattern) if end < 0 else end + 2
            return self.with_both_cases(frozenset(text))
        if self.peek() == "\\" and (members := self.read_class_escape()) is not None:
            return members
        start = self.position
        first = self.read_character()
        self.skip_comments()
        after_hyphen = self.pattern[self.position + 1 : self.position + 3]
        is_literal_hyphen = after_hyphen[:1] in ("]", "[", "") or after_hyphen == "&&"
        if self.peek() != "-" or is_literal_hyphen:
            return self.with_both_cases(frozenset(first))
        self.position += 1
        self.skip_comments()
        last = self.read_character()
        if last < first:
            raise self.error_at("the range ends before it begins", start)
        return self.with_both_cases(frozenset(c for c in _ALL_ASCII if first <= c <= last))

    def with_both_cases(self, characters: frozenset[str]) -> frozenset[str]:
        """Return the `characters` allowed in topic names, in upper and lower case if the flag i is set."""
        if self.ignore_case:
            characters = characters | {c.swapcase() for c in characters if c in LETTERS}
        return characters & NAME_CHARACTERS

    # ---- writing

    def literal_expression(self, char: str) -> str:
        """Return an expression that matches one character, in upper and lower case if the flag i is set."""
        if self.ignore_case and char in LETTERS:
            return self.class_expression(frozenset((char.lower(), char.upper())))
        return re.escape(char)

    def class_expression(self, characters: frozenset[str]) -> str:
        """Return an expression for one of `characters`; without characters, it never matches."""
        if characters == NAME_CHARACTERS:
            return "."
        return f"[{''.join(map(re.escape, sorted(characters)))}]" if characters else "(?!)"


_ALL_ASCII = tuple(map(chr, range(128)))
