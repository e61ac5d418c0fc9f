"""What `help` says of a client: its docstring, and each option with its default and the comment beside it.

The comments in `options.py` and `security/names.py` are the only place where an option is explained. Without
the source (a frozen application) names, types and defaults are told all the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from inspect import cleandoc
from typing import Any, NamedTuple, SupportsIndex, TypeVar

import msgspec

from .security.option_names import SecurityConfig

C = TypeVar("C", bound=type)

_INDENT = "    "
_WIDTH = 96


def with_options(
    given: type[Any] | None = None, options: type[msgspec.Struct] | None = None
) -> Callable[[C], C]:
    """For a client's class: `given` declares what may be given, `options` the defaults and why."""

    def decorate(client: C) -> C:
        client.__doc__ = Described(client.__doc__ or "", given, options)
        return client

    return decorate


class Described(str):
    """A docstring that is made when somebody asks, as reading the source takes time.

    Asked through the class it is a descriptor. pydoc looks into the class's dict for a text, and expands the
    tabs of what it finds there.
    """

    _given: type[Any] | None
    _options: type[msgspec.Struct] | None

    def __new__(cls, own: str, given: type[Any] | None, options: type[msgspec.Struct] | None) -> Described:
        made = super().__new__(cls, own)
        made._given, made._options = given, options
        return made

    def __get__(self, instance: object, owner: type) -> str:
        return described(str.__str__(self), self._given, self._options)

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return self.__get__(None, str)


def described(own: str, given: type[Any] | None, options: type[msgspec.Struct] | None) -> str:
    """The docstring `own`, and below it all options."""
    lines = [cleandoc(own)]
    if given is not None and options is not None:
        lines += ["", "Options, and what they are unless given:"]
        for one in options_of(given, options):
            lines += _option(f"{one.name}: {one.kind} = {one.default}", one.text)
    lines += ["", "For TLS and SASL:"]
    for one in security_options():
        lines += _option(f"{one.name}: {one.kind}", one.text)
    return "\n".join(lines)


class Option(NamedTuple):
    """An option as a person may read it."""

    name: str
    kind: str  # its type
    default: str  # as Python; empty where the text says it
    text: str


def options_of(given: type[Any], options: type[msgspec.Struct]) -> list[Option]:
    """What a client takes beside TLS and SASL; docs/reference/client-options.md has the same."""
    defaults = msgspec.structs.asdict(options())
    said = _comments(options)
    return [
        Option(name, kind, _shown(defaults[name]), said.get(name, ""))
        for name, kind in _types(given).items()
        if name in defaults
    ]


def security_options() -> list[Option]:
    """What every client takes."""
    said = _comments(SecurityConfig)
    return [Option(name, kind, "", said.get(name, "")) for name, kind in _types(SecurityConfig).items()]


def _shown(default: Any) -> str:
    number = isinstance(default, int) and not isinstance(default, bool)
    return f"{default:_}" if number else repr(default)


def _comments(owner: type[Any]) -> Mapping[str, str]:
    from kproto.wire.field_docs import class_comments

    return class_comments(owner.__module__).get(owner.__name__, {})


def _types(given: type[Any]) -> Mapping[str, str]:
    """Names and annotations as they are written, also of what `given` extends (TypedDicts keep both)."""
    return {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in given.__annotations__.items()}


def _option(declared: str, text: str) -> list[str]:
    wrapped = textwrap.wrap(text, _WIDTH - 2 * len(_INDENT), break_long_words=False)
    return [f"{_INDENT}{declared}", *(f"{2 * _INDENT}{line}" for line in wrapped)]
