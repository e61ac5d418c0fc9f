"""What is given to a broker or a world is looked at before anything happens: a rule for each kind of
argument, chosen by its name and annotation. What has no rule here is looked at where it is used.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from .errors import ConfigError

# pytest shows where a test called, and not how its arguments were looked at.
__tracebackhide__ = True

M = TypeVar("M", bound=Callable[..., Any])
Rule = tuple[Callable[[Any], bool], str]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


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


RULES: Final[Mapping[str, Rule]] = {
    "Callable[[], Any]": (callable, "a function that takes nothing"),
    "Callable[[], object]": (callable, "a function that takes nothing"),
    "Mapping[str, int]": (_named(_whole), 'names to whole numbers, as {"flights": 3}'),
    "Mapping[str, str]": (_named(_text), "names to texts"),
    "Mapping[str, str | int]": (
        _named(lambda value: isinstance(value, str | int)),
        "names to texts and whole numbers",
    ),
    "Observer": (callable, "a function"),
    "Sequence[str]": (_several(_text), "a list of texts"),
    "amount": (lambda value: _whole(value) and value >= 0, "a whole number, 0 or more"),
    "bytes": (lambda value: isinstance(value, bytes), "bytes"),
    "float": (lambda value: _whole(value) or isinstance(value, float), "a number"),
    "int": (_whole, "a whole number"),
    "port": (lambda value: _whole(value) and 0 <= value < 1 << 16, "a port, up to 65535; 0 is any free one"),
    "ssl.SSLContext": (lambda value: hasattr(value, "wrap_bio"), "an ssl.SSLContext"),
    "str": (_text, "a text"),
    "tuple[int, int]": (_several(_whole, 2), "two whole numbers"),
}
# Whole numbers that are more than that, by their names; so are all that end with _ms.
NAMED: Final = {**dict.fromkeys(("lasts", "ms", "times", "turn", "turns", "wait"), "amount"), "port": "port"}
SECRET: Final = frozenset({"users"})


def checked(method: M) -> M:
    """The method, with its arguments looked at first. Raises ConfigError."""
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
    kind = str(parameter.annotation).removesuffix(" | None")
    if kind == "int":
        kind = "amount" if parameter.name.endswith("_ms") else NAMED.get(parameter.name, kind)
    return RULES.get(kind)
