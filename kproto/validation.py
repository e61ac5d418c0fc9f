"""Checks of arguments and of single values.

Each check raises a ConfigError that says which value was given and which values are allowed.

Every package may use the functions that check single values.

`checked` is for functions of the broker and of the testing kit. It takes a `Rule` for each argument, and
checks the arguments before each call.

    @checked(topic=TEXT, partition=WHOLE_NUMBER)
    def elect_leader(self, topic: str, partition: int) -> None: ...

Arguments that have no rule are checked in the body of the decorated function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeGuard, TypeVar, cast

from .errors import ConfigError

# Hide the checks in pytest's tracebacks, so that the tracebacks end at the call in the test.
__tracebackhide__ = True

# The maximum size of a string in bytes. Kafka writes the length of a string as an int16, and limits compact
# strings to the same size.
MAX_TEXT_BYTES: Final = 2**15 - 1


# ---- Single values. Each function takes (name, value), and returns the value to use or raises ConfigError.


class UnencodableText(ConfigError):
    """The error for a string that a request cannot contain."""


def encodable_text(name: str, text: str) -> str:
    """Return `text` as a plain str, even if it is an enum.

    Raises UnencodableText if a request cannot contain the text.

    One invalid text makes the whole request fail: the request cannot be encoded, or the broker cannot read
    the request.
    """
    text = str.__str__(text)
    if len(text) <= MAX_TEXT_BYTES and text.isascii():
        return text
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UnencodableText(name, text, f"a text that can be encoded as UTF-8: {error.reason}") from None
    if size > MAX_TEXT_BYTES:
        raise UnencodableText(name, text, f"a text of at most {MAX_TEXT_BYTES} bytes; this one has {size}")
    return text


def any_text(name: str, value: object) -> str:
    """Check a string, which may be empty."""
    if not isinstance(value, str):
        raise ConfigError(name, value, "a text")
    return encodable_text(name, value)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether `value` is an int, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def whole_number(name: str, value: object, least: int, most: int = 2**31 - 1) -> int:
    """Check that `value` is a whole number from `least` to `most`."""
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


# ---- the arguments of a function

M = TypeVar("M", bound=Callable[..., Any])


class Rule(NamedTuple):
    """A rule for the values of an argument."""

    is_right: Callable[[Any], bool]
    # The description of the allowed values in the error.
    allowed: str
    # Whether the error must not show the value.
    is_secret: bool = False


def or_none(rule: Rule) -> Rule:
    """Return a rule that also allows None."""

    def is_right(value: Any) -> bool:
        return value is None or rule.is_right(value)

    return rule._replace(is_right=is_right)


def secret(rule: Rule) -> Rule:
    """Return a copy of `rule` whose errors do not show the value."""
    return rule._replace(is_secret=True)


def checked(**rules: Rule) -> Callable[[M], M]:
    """Decorate a function so that the arguments that `rules` names are checked before each call.

    The rule of a `*args` parameter applies to each of its values. A parameter's default is always allowed.
    """

    def decorate(function: M) -> M:
        check = _argument_checker(function, rules)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            return function(*args, **kwargs)

        return cast("M", call)

    return decorate


def _argument_checker(
    function: Callable[..., Any], rules: Mapping[str, Rule]
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], None]:
    """Return a function that raises ConfigError for arguments of `function` that break a rule."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    for name in rules.keys() - parameters.keys():
        raise TypeError(f"{function.__qualname__} has no parameter {name!r}, for which checked() has a rule")

    names = list(parameters)
    checked_parameters = [
        (name, names.index(name), parameters[name].kind, parameters[name].default, rule)
        for name, rule in rules.items()
    ]

    def check(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        for name, index, kind, default, rule in checked_parameters:
            if kind is inspect.Parameter.VAR_POSITIONAL:
                values = args[index:]
            elif index < len(args) and kind is not inspect.Parameter.KEYWORD_ONLY:
                values = (args[index],)
            elif name in kwargs:
                values = (kwargs[name],)
            else:
                continue
            for value in values:
                if value is not default and not rule.is_right(value):
                    try:
                        signature.bind(*args, **kwargs)
                    except TypeError:
                        # The arguments do not match the function's signature, so the call of the function
                        # will raise a TypeError.
                        return
                    raise ConfigError(name, "..." if rule.is_secret else value, rule.allowed)

    return check


# ---- checks that the rules below use


def is_text(value: Any) -> bool:
    """Return whether `value` is a str."""
    return isinstance(value, str)


def is_partition(value: Any) -> bool:
    """Return whether `value` is a pair of a topic and a partition number."""
    parts: Any = value
    return isinstance(value, tuple) and len(parts) == 2 and is_text(parts[0]) and is_whole(parts[1])


def has_attributes(*names: str) -> Callable[[Any], bool]:
    """Return a check for an object with these attributes."""
    return lambda value: all(hasattr(value, name) for name in names)


def names_to(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check for a mapping of strings to values that pass `is_right`."""

    def check(value: Any) -> bool:
        return isinstance(value, Mapping) and all(
            is_text(name) and is_right(item) for name, item in cast("Any", value).items()
        )

    return check


def list_of(is_right: Callable[[Any], bool], length: int | None = None) -> Callable[[Any], bool]:
    """Return a check for a list or tuple of values that pass `is_right`."""

    def check(value: Any) -> bool:
        items: Any = value
        if not isinstance(value, tuple | list) or (length is not None and len(items) != length):
            return False
        return all(map(is_right, items))

    return check


def _is_offsets(value: Any) -> bool:
    """Return whether `value` maps partitions to offsets or None."""
    return isinstance(value, Mapping) and all(
        is_partition(partition) and (offset is None or is_whole(offset))
        for partition, offset in cast("Any", value).items()
    )


def _is_bytes(value: Any) -> bool:
    return isinstance(value, bytes)


def _is_zero_or_more(value: Any) -> bool:
    return is_whole(value) and value >= 0


def _is_number(value: Any) -> bool:
    return is_whole(value) or isinstance(value, float)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_port(value: Any) -> bool:
    return is_whole(value) and 0 <= value < 1 << 16


def _is_text_or_int(value: Any) -> bool:
    return isinstance(value, str | int)


def _is_name(value: Any) -> bool:
    return is_text(value) and value != ""


# ---- rules

TEXT: Final = Rule(is_text, "a text")
NAME: Final = Rule(_is_name, "a name that is not empty")
TEXTS: Final = Rule(list_of(is_text), "a list of texts")
BYTES: Final = Rule(_is_bytes, "bytes")
WHOLE_NUMBER: Final = Rule(is_whole, "a whole number")
ZERO_OR_MORE: Final = Rule(_is_zero_or_more, "a whole number, 0 or more")
NUMBER: Final = Rule(_is_number, "a number")
BOOLEAN: Final = Rule(_is_bool, "True or False")
PORT: Final = Rule(_is_port, "a port, up to 65535; 0 is any free one")
FUNCTION: Final = Rule(callable, "a function")
FUNCTION_WITHOUT_ARGUMENTS: Final = Rule(callable, "a function that takes nothing")
PARTITION: Final = Rule(is_partition, 'a partition, as TopicPartition("flights", 0)')
OFFSETS: Final = Rule(_is_offsets, 'partitions to offsets, as {TopicPartition("flights", 0): 7}')
NAMES_TO_NUMBERS: Final = Rule(names_to(is_whole), 'names to whole numbers, as {"flights": 3}')
NAMES_TO_TEXTS: Final = Rule(names_to(is_text), "names to texts")
NAMES_TO_SETTINGS: Final = Rule(names_to(_is_text_or_int), "names to texts and whole numbers")
