"""What is given to a world is looked at before anything happens: a rule for each kind of argument, chosen by
its name and annotation. What has no rule here is looked at where it is used.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from ...errors import ConfigError

M = TypeVar("M", bound=Callable[..., Any])
Rule = tuple[Callable[[Any], bool], str]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _counts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and _whole(many)
        for name, many in value.items()  # pyright: ignore[reportUnknownVariableType]
    )


def _pair(value: Any) -> bool:
    given: Any = value
    return isinstance(value, tuple | list) and len(given) == 2 and all(map(_whole, given))


RULES: Final[Mapping[str, Rule]] = {
    "Mapping[str, int]": (_counts, '{"flights": 3}: names to numbers of partitions'),
    "amount": (lambda value: _whole(value) and value >= 0, "a whole number, 0 or more"),
    "bytes": (lambda value: isinstance(value, bytes), "bytes"),
    "float": (lambda value: _whole(value) or isinstance(value, float), "a number"),
    "int": (_whole, "a whole number"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "tuple[int, int]": (_pair, "two whole numbers"),
}
AMOUNTS: Final = frozenset({"lasts", "ms", "turn", "turns", "wait"})


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
                    raise ConfigError(name, value, allowed)

    return look


def _rule(parameter: inspect.Parameter) -> Rule | None:
    kind = str(parameter.annotation).removesuffix(" | None")
    is_amount = parameter.name in AMOUNTS or parameter.name.endswith("_ms")
    return RULES.get("amount" if is_amount and kind == "int" else kind)
