"""Checks of arguments and of single values; each raises ConfigError, which says what was given and what is
allowed.

The functions of the first section are for any package. `checked` checks the arguments of a function of the
broker or of the testing kit before anything else happens: a rule for each kind of argument, found by its name
and annotation. Parameters of the kinds in `UNCHECKED` are checked where they are used. Any other annotation
without a rule is an error when the function is decorated.
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


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_partition(value: Any) -> bool:
    parts: Any = value
    return isinstance(value, tuple) and len(parts) == 2 and _is_text(parts[0]) and is_whole(parts[1])


def _is_offsets(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _is_partition(partition) and (offset is None or is_whole(offset))
        for partition, offset in cast("Any", value).items()
    )


def _has(*names: str) -> Callable[[Any], bool]:
    """Return a check for an object with these attributes."""
    return lambda value: all(hasattr(value, name) for name in names)


def _mapping_of(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check for a mapping of texts to values that are right."""

    def check(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            _is_text(name) and is_right(item) for name, item in cast("Any", value).items()
        )

    return check


def _list_of(is_right: Callable[[Any], bool], length: int | None = None) -> Callable[[Any], bool]:
    """Return a check for a list or tuple of values that are right."""

    def check(value: Any) -> bool:
        items: Any = value
        if not isinstance(value, tuple | list) or (length is not None and len(items) != length):
            return False
        return all(map(is_right, items))

    return check


def _is_partition_and_offset(value: Any) -> bool:
    pair: Any = value
    return isinstance(value, tuple) and len(pair) == 2 and _is_partition(pair[0])


_FUNCTION: Final[Rule] = (callable, "a function")
_OFFSETS: Final[Rule] = (_is_offsets, 'partitions to offsets, as {TopicPartition("flights", 0): 7}')
_MESSAGE: Final[Rule] = (_has("__versions__", "__fields__"), "the class of a message, as FetchRequest")

# Annotation -> whether a value is right, and what is allowed.
RULES: Final[Mapping[str, Rule]] = {
    "Callable[[], Any]": (callable, "a function that takes nothing"),
    "Callable[[], bool]": (callable, "a function that takes nothing"),
    "Callable[[], int]": (callable, "a function that takes nothing"),
    "Callable[[], object]": (callable, "a function that takes nothing"),
    "Callable[[bytes], object]": (callable, "a function that takes bytes"),
    "Certificates": (_has("context"), "what kproto.testing.certificates makes"),
    "Client | str": (
        lambda value: _is_text(value) or hasattr(value, "name"),
        "a client of this world, or its name",
    ),
    "Invariant": _FUNCTION,
    "Issuer": (_has("check", "token"), "what kproto.testing.issuer makes"),
    "Iterable[Invariant]": (lambda value: isinstance(value, Iterable), "a list of functions"),
    "Model": (_has("start", "step", "next_deadline"), "a module such as kproto.models.java"),
    "Mapping[TopicPartition, int]": _OFFSETS,
    "Mapping[TopicPartition, int | None]": _OFFSETS,
    "Mapping[str, int]": (_mapping_of(is_whole), 'names to whole numbers, as {"flights": 3}'),
    "Mapping[str, str]": (_mapping_of(_is_text), "names to texts"),
    "Mapping[str, str | int]": (
        _mapping_of(lambda value: isinstance(value, str | int)),
        "names to texts and whole numbers",
    ),
    "Message": (_has("__api_key__", "encode"), "a request, as FetchRequest(...)"),
    "Observer": _FUNCTION,
    "Path": (lambda value: isinstance(value, Path), "a pathlib.Path"),
    "SecurityConfig": (_mapping_of(lambda _: True), "options of TLS and SASL by their names"),
    "Sequence[tuple[TopicPartition, int]]": (
        _list_of(_is_partition_and_offset),
        "a list of partitions with offsets",
    ),
    "Sequence[str]": (_list_of(_is_text), "a list of texts"),
    "amount": (lambda value: is_whole(value) and value >= 0, "a whole number, 0 or more"),
    "bytes": (lambda value: isinstance(value, bytes), "bytes"),
    "float": (lambda value: is_whole(value) or isinstance(value, float), "a number"),
    "int": (is_whole, "a whole number"),
    "port": (
        lambda value: is_whole(value) and 0 <= value < 1 << 16,
        "a port, up to 65535; 0 is any free one",
    ),
    "ssl.SSLContext": (lambda value: hasattr(value, "wrap_bio"), "an ssl.SSLContext"),
    "str": (_is_text, "a text"),
    "str | os.PathLike[str]": (
        lambda value: (_is_text(value) and bool(value)) or isinstance(value, os.PathLike),
        "a file's name",
    ),
    "TopicPartition": (_is_partition, 'a partition, as TopicPartition("flights", 0)'),
    "type[Any]": (lambda value: isinstance(value, type), "a class"),
    "type[M]": _MESSAGE,
    "type[Message]": _MESSAGE,
    "World": (_has("heal", "alive_clients"), "a kproto.testing.world.World"),
    "tuple[int, int]": (_list_of(is_whole, 2), "two whole numbers"),
}
# Annotations without a rule: the functions check such arguments where they use them.
UNCHECKED: Final = frozenset(
    {
        "Algorithm",
        "Any",
        "Callable[[Any], object]",
        "Check",
        "ErrorCode | str",
        "Iterable[Acl]",
        "Iterable[str]",
        "Literal['none', 'requested', 'required']",
        "Protocol",
        "bool",
        "bytes | str",
        "dict[str, str]",
        "str | bytes",
        "str | int",
        "tuple[tuple[str, bytes | None], ...]",
    }
)
# Parameters of type int with a stricter rule; so have all whose names end with _ms.
NAMED: Final = {**dict.fromkeys(("lasts", "ms", "times", "turn", "turns", "wait"), "amount"), "port": "port"}
SECRET: Final = frozenset({"users"})


def checked(function: M) -> M:
    """Decorate a function: check its arguments first. Raises ConfigError."""
    check = argument_checker(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return function(*args, **kwargs)

    return cast("M", call)


def argument_checker(function: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that raises ConfigError for arguments that `function` can't take."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    rules = {name: rule for name in parameters if (rule := _rule(function, parameters[name]))}

    def check(*args: Any, **kwargs: Any) -> None:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return  # the call itself raises a better error
        for name, (is_right, allowed) in rules.items():
            if name not in arguments:
                continue
            is_several = parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for value in arguments[name] if is_several else [arguments[name]]:
                if value is not parameters[name].default and not is_right(value):
                    raise ConfigError(name, "..." if name in SECRET else value, allowed)

    return check


def _rule(function: Callable[..., Any], parameter: inspect.Parameter) -> Rule | None:
    """Return the rule of a parameter, or None if it has no annotation or an unchecked one."""
    if parameter.annotation is parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
        return None
    annotation = str(parameter.annotation)
    kind = annotation.removesuffix(" | None")
    if kind == "int":
        kind = "amount" if parameter.name.endswith("_ms") else NAMED.get(parameter.name, kind)
    if kind in UNCHECKED:
        return None
    if kind not in RULES:
        raise TypeError(
            f"{function.__qualname__}: the annotation {annotation!r} of {parameter.name!r} has no rule; "
            "add it to RULES or UNCHECKED of kproto.validation"
        )
    rule = RULES[kind]
    if not annotation.endswith(" | None"):
        return rule
    is_right, allowed = rule
    return (lambda value: value is None or is_right(value)), allowed
