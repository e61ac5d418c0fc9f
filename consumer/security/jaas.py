"""A JAAS line, as Kafka's JaasConfig reads it: by Java's StreamTokenizer, whose rules these are.

* `/*...*/` and everything behind a single `/` to the end of its line are comments, but within
  quotes; where the `/` is the last of its line, the next one is.
* Quotes are double or single, and end with their line at the latest; within, \\n and the like are what they
  are in Java, \\101 is a character by its octal number, and any other one behind a backslash is itself.
* Without quotes a word begins with a letter, and what begins with a digit is a number: no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kproto.errors import ConfigError

from .secret import HIDDEN

_TOKEN: Final = re.compile(
    r"""[\x00-\x20]+ | /\*.*?(?:\*/|\Z) | /[^*]?[^\r\n]*
    | (?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?:(?P=quote)|(?=[\r\n])|\Z)
    | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_$.\u00a0-\U0010ffff-]*)
    | (?P<other>-?[0-9.]+|.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
_LETTERS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_ALLOWED: Final = (
    'one module, as in `org...ScramLoginModule required username="alice" password="...";` with values in '
    'double quotes, and \\" and \\\\ for these signs in them'
)


def read_jaas(line: str) -> tuple[str, dict[str, str]]:
    """The login module and its options in `MODULE required name="value" ...;`. Raises ConfigError."""
    read = _tokens(line)
    module, flag = next(read, (None, "")), next(read, (None, ""))
    if module[0] is None or flag[0] is None or flag[0].lower() not in _FLAGS:
        raise _wrong()
    options: dict[str, str] = {}
    for name, sign in read:
        if sign == ";":
            break
        equals, value = next(read, (None, "")), next(read, (None, ""))
        if name is None or equals[1] != "=" or value[0] is None:
            raise _wrong()
        options[name] = value[0]
    else:
        raise _wrong()
    if next(read, None) is not None:
        raise _wrong()
    return module[0], options


def _wrong() -> ConfigError:
    return ConfigError("sasl.jaas.config", HIDDEN, _ALLOWED)


def _tokens(line: str) -> Iterator[tuple[str | None, str]]:
    """Each token: its text where it is a word or in quotes, else None and what it is."""
    for found in _TOKEN.finditer(line):
        if found["quoted"] is not None:
            yield _ESCAPE.sub(_meant, found["quoted"]), ""
        elif found["word"] is not None:
            yield found["word"], ""
        elif found["other"] is not None:
            yield None, found["other"]


def _meant(escape: re.Match[str]) -> str:
    if escape[1] is not None:
        return chr(int(escape[1], 8))
    return _LETTERS.get(escape[2], escape[2])
