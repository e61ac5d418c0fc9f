"""Checks of arguments and of single values; each raises ConfigError, which says what was given and what is
allowed.

The functions of the first section are for any package. `checked` checks the arguments of a function of the
broker or of the testing kit before anything else happens: a rule for each kind of argument, found by its name
and annotation. A parameter without a rule is checked where it is used.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeGuard, TypeVar, cast

from .errors import ConfigError

# pytest then shows where a test called, and not the frames of the checks.
__tracebackhide__ = True

# Kafka writes the length of a text as an int16.
MAX_TEXT_BYTES: Final = 2**15 - 1


# ---- single values: each function takes (name, value), returns the value to use, or raises ConfigError


class UnencodableText(ConfigError):
    """A text that no request can carry."""


def encodable_text(name: str, text: str) -> str:
    """Return `text` as a plain str (an enum's characters). Raises UnencodableText if no request can carry it.

    Such a text would also spoil what is beside it in a request.
    """
    text = str.__str__(text)
    if len(text) <= MAX_TEXT_BYTES and text.isascii():
        return text
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UnencodableText(name, text, f"a text that has a UTF-8 form: {error.reason}") from None
    if size > MAX_TEXT_BYTES:
        raise UnencodableText(name, text, f"a text of at most {MAX_TEXT_BYTES} bytes; this one has {size}")
    return text


def any_text(name: str, value: object) -> str:
    """Check a text, which may be empty."""
    if not isinstance(value, str):
        raise ConfigError(name, value, "a text")
    return encodable_text(name, value)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether `value` is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole_number(name: str, value: object, least: int, most: int = 2**31 - 1) -> int:
    """Check a whole number from `least` to `most`."""
    if not is_whole(value) or not least <= value <= most:
        raise ConfigError(name, value, f"a whole number from {least} to {most}")
    return value


def flag(name: str, value: object) -> bool:
    """Check a bool."""
    if not isinstance(value, bool):
        raise ConfigError(name, value, "True or False")
    return value


def one_of(name: str, value: object, choices: Collection[Any]) -> Any:
    """Check that `value` is one of `choices`."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value not in choices:
        raise ConfigError(name, value, f"allowed: {', '.join(map(repr, choices))}")
    return value


# ---- the arguments of a function, by their annotations

M = TypeVar("M", bound=Callable[..., Any])
Rule = tuple[Callable[[Any], bool], str]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _partition(value: Any) -> bool:
    given: Any = value
    return isinstance(value, tuple) and len(given) == 2 and _text(given[0]) and _whole(given[1])


def _offsets(value: Any) -> bool:
    given: Any = value
    return isinstance(value, Mapping) and all(
        _partition(key) and (one is None or _whole(one)) for key, one in given.items()
    )


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda value: all(hasattr(value, name) for name in names)


def _named(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        given: Any = value
        return isinstance(value, Mapping) and all(_text(name) and holds(one) for name, one in given.items())

    return check


def _several(holds: Callable[[Any], bool], many: int | None = None) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        given: Any = value
        right = isinstance(value, tuple | list) and len(given) == (len(given) if many is None else many)
        return right and all(map(holds, given))

    return check


_FUNCTION: Final[Rule] = (callable, "a function")
_OFFSETS: Final[Rule] = (_offsets, 'partitions to offsets, as {TopicPartition("flights", 0): 7}')
_MESSAGE: Final[Rule] = (_has("__versions__", "__fields__"), "the class of a message, as FetchRequest")
_CLASS: Final[Rule] = (lambda value: isinstance(value, type), "a class")

RULES: Final[Mapping[str, Rule]] = {
    "Callable[[], Any]": (callable, "a function that takes nothing"),
    "Callable[[], bool]": (callable, "a function that takes nothing"),
    "Callable[[], int]": (callable, "a function that takes nothing"),
    "Callable[[], object]": (callable, "a function that takes nothing"),
    "Callable[[bytes], object]": (callable, "a function that takes bytes"),
    "Certificates": (_has("context"), "what kproto.testing.certificates makes"),
    "Client | str": (
        lambda value: _text(value) or hasattr(value, "name"),
        "a client of this world, or its name",
    ),
    "Collection[int]": (
        lambda value: isinstance(value, Collection) and all(map(_whole, cast("Any", value))),
        "a list of whole numbers",
    ),
    "Invariant": _FUNCTION,
    "Issuer": (_has("check", "token"), "what kproto.testing.issuer makes"),
    "Iterable[Invariant]": (lambda value: isinstance(value, Iterable), "a list of functions"),
    "Machine": (_has("start", "step", "next_deadline"), "a member's machine, as kproto.models.java"),
    "Mapping[TopicPartition, int]": _OFFSETS,
    "Mapping[TopicPartition, int | None]": _OFFSETS,
    "Mapping[str, int]": (_named(_whole), 'names to whole numbers, as {"flights": 3}'),
    "Mapping[str, str]": (_named(_text), "names to texts"),
    "Mapping[str, str | int]": (
        _named(lambda value: isinstance(value, str | int)),
        "names to texts and whole numbers",
    ),
    "Message": (_has("__api_key__", "encode"), "a request, as FetchRequest(...)"),
    "Observer": _FUNCTION,
    "Path": (lambda value: isinstance(value, Path), "a pathlib.Path"),
    "SecurityConfig": (_named(lambda _: True), "options of TLS and SASL by their names"),
    "Sequence[tuple[TopicPartition, int]]": (
        _several(lambda one: isinstance(one, tuple) and len(cast("Any", one)) == 2 and _partition(one[0])),
        "a list of partitions with offsets",
    ),
    "Sequence[str]": (_several(_text), "a list of texts"),
    "amount": (lambda value: _whole(value) and value >= 0, "a whole number, 0 or more"),
    "bytes": (lambda value: isinstance(value, bytes), "bytes"),
    "float": (lambda value: _whole(value) or isinstance(value, float), "a number"),
    "int": (_whole, "a whole number"),
    "port": (lambda value: _whole(value) and 0 <= value < 1 << 16, "a port, up to 65535; 0 is any free one"),
    "ssl.SSLContext": (lambda value: hasattr(value, "wrap_bio"), "an ssl.SSLContext"),
    "str": (_text, "a text"),
    "str | os.PathLike[str]": (
        lambda value: (_text(value) and bool(value)) or isinstance(value, os.PathLike),
        "a file's name",
    ),
    "TopicPartition": (_partition, 'a partition, as TopicPartition("flights", 0)'),
    "type[Any]": _CLASS,
    "type[C]": _CLASS,
    "type[M]": _MESSAGE,
    "type[Message]": _MESSAGE,
    "World": (_has("heal", "alive_clients"), "a kproto.testing.world.World"),
    "tuple[int, int]": (_several(_whole, 2), "two whole numbers"),
}
# Whole numbers that are more than that, by their names; so are all that end with _ms.
NAMED: Final = {**dict.fromkeys(("lasts", "ms", "times", "turn", "turns", "wait"), "amount"), "port": "port"}
SECRET: Final = frozenset({"users"})


def checked(method: M) -> M:
    """Decorate a function: check its arguments first. Raises ConfigError."""
    look = looker(method)

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        look(*args, **kwargs)
        return method(*args, **kwargs)

    return cast("M", call)


def looker(method: Callable[..., Any]) -> Callable[..., None]:
    """What raises ConfigError for arguments that `method` can't take."""
    signature = inspect.signature(method)
    rules = {name: found for name, one in signature.parameters.items() if (found := _rule(one)) is not None}
    several = [name for name, one in signature.parameters.items() if one.kind is one.VAR_POSITIONAL]

    def look(*args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return  # the call itself says it better
        for name, (holds, allowed) in rules.items():
            for value in given.get(name, ()) if name in several else [given[name]] if name in given else []:
                if value is not signature.parameters[name].default and not holds(value):
                    raise ConfigError(name, "..." if name in SECRET else value, allowed)

    return look


def _rule(parameter: inspect.Parameter) -> Rule | None:
    annotation = str(parameter.annotation)
    kind = annotation.removesuffix(" | None")
    if kind == "int":
        kind = "amount" if parameter.name.endswith("_ms") else NAMED.get(parameter.name, kind)
    found = RULES.get(kind)
    if found is None or not annotation.endswith(" | None"):
        return found
    holds, allowed = found
    return (lambda value: value is None or holds(value)), allowed
