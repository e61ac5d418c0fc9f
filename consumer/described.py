"""What `help` says of a client: its docstring, and each option with its default and the comment beside it.

The comments in `options.py` and `security/names.py` are the only place where an option is explained. Without
the source (a frozen application) names, types and defaults are told all the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from inspect import cleandoc
from typing import Any, SupportsIndex, TypeVar

import msgspec

from .security.names import SecurityConfig

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
        defaults = msgspec.structs.asdict(options())
        said = _comments(options)
        types = {name: kind for name, kind in _types(given).items() if name in defaults}
        lines += ["", "Options, and what they are unless given:"]
        for name, kind in types.items():
            default = defaults[name]
            number = isinstance(default, int) and not isinstance(default, bool)
            lines += _option(
                f"{name}: {kind} = {f'{default:_}' if number else repr(default)}", said.get(name, "")
            )
    said = _comments(SecurityConfig)
    lines += ["", "For TLS and SASL:"]
    for name, kind in _types(SecurityConfig).items():
        lines += _option(f"{name}: {kind}", said.get(name, ""))
    return "\n".join(lines)


def _comments(owner: type[Any]) -> Mapping[str, str]:
    from kproto.wire.notes import comments

    return comments(owner.__module__).get(owner.__name__, {})


def _types(given: type[Any]) -> Mapping[str, str]:
    """Names and annotations as they are written, also of what `given` extends (TypedDicts keep both)."""
    return {name: getattr(kind, "__forward_arg__", str(kind)) for name, kind in given.__annotations__.items()}


def _option(declared: str, text: str) -> list[str]:
    wrapped = textwrap.wrap(text, _WIDTH - 2 * len(_INDENT), break_long_words=False)
    return [f"{_INDENT}{declared}", *(f"{2 * _INDENT}{line}" for line in wrapped)]
