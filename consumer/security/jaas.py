r"""Reads the value of sasl.jaas.config as Kafka's JaasConfig does, with the rules of Java's StreamTokenizer.

* Outside quotes, `/*...*/` is a comment, and so is everything from a single `/` to the end of the line. If
  this `/` is the last character of its line, the next line is the comment.

* Quotes are double or single. A string without a closing quote ends at the end of its line.

* Inside quotes, \n and similar escapes have Java's meaning, and \101 is the character with this octal
  number. Any other character after a backslash stands for itself.

* A value without quotes begins with a letter, `_`, `$` or a character from U+00A0 on. A token that begins
  with a digit, "." or "-" is a number or a sign, which cannot be a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kproto.errors import ConfigError

from .secret import HIDDEN

# White space and comments match without a group.
_TOKEN: Final = re.compile(
    r"""[\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^*]?[^\r\n]*
    | (?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?:(?P=quote)|(?=[\r\n])|\Z)
    | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_$.\u00a0-\U0010ffff-]*)
    | (?P<other>-?[0-9.]+|.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
_ESCAPED_LETTERS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_ALLOWED: Final = (
    'one module, as in `org...ScramLoginModule required username="alice" password="...";` with values in '
    'double quotes, and \\" and \\\\ for these signs in them'
)


def read_jaas(line: str) -> tuple[str, dict[str, str]]:
    """Return the login module and the options of `MODULE required name="value" ...;`.

    Raises ConfigError for a text in another format.
    """
    tokens = _read_tokens(line)
    end = (None, "")
    (module, _), (flag, _) = next(tokens, end), next(tokens, end)
    if module is None or flag is None or flag.lower() not in _FLAGS:
        raise _invalid_jaas()
    options: dict[str, str] = {}
    for name, sign in tokens:
        if sign == ";":
            break
        (_, equals_sign), (value, _) = next(tokens, end), next(tokens, end)
        if name is None or equals_sign != "=" or value is None:
            raise _invalid_jaas()
        options[name] = value
    else:  # The ";" is missing.
        raise _invalid_jaas()
    if next(tokens, None) is not None:
        raise _invalid_jaas()
    return module, options


def _invalid_jaas() -> ConfigError:
    return ConfigError("sasl.jaas.config", HIDDEN, _ALLOWED)


def _read_tokens(line: str) -> Iterator[tuple[str | None, str]]:
    """Yield each token: (text, "") for a word or a quoted string, (None, character) for any other token."""
    for match in _TOKEN.finditer(line):
        if match["quoted"] is not None:
            yield _ESCAPE.sub(_unescaped, match["quoted"]), ""
        elif match["word"] is not None:
            yield match["word"], ""
        elif match["other"] is not None:
            yield None, match["other"]


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1] is not None:
        return chr(int(escape[1], 8))
    return _ESCAPED_LETTERS.get(escape[2], escape[2])
