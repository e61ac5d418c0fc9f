"""How a field is declared, with what its annotation can't say; the rules are those of `message`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


class _Marker:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


REQUIRED = _Marker("REQUIRED")
# What the slot of a fresh struct holds until somebody looks at it.
LAZY = _Marker("LAZY")

# The default of a struct field: a new struct, all of its parts at their defaults.
FRESH: Any = _Marker("FRESH")


class FieldOptions(msgspec.Struct, frozen=True):
    """What `field()` was called with, until the annotations are resolved."""

    versions: str | None
    default: object
    nullable: str | None
    tag: int | None
    tagged: str | None
    ignorable: bool
    map_key: bool
    flexible: str | None


@overload
def field(
    versions: str | None = None,
    *,
    default: T,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    map_key: bool = False,
    flexible: str | None = None,
) -> T: ...
@overload
def field(
    versions: str | None = None,
    *,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    map_key: bool = False,
    flexible: str | None = None,
) -> Any: ...
def field(
    versions: str | None = None,
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    map_key: bool = False,
    flexible: str | None = None,
) -> Any:
    """Declare what the annotation of a field can't say; the module docstring has the rules.

    `versions`, `nullable` and `tagged` are ranges such as "5+". `map_key` marks the fields that Kafka keys
    its collections by; it is kept for readers and doesn't change the bytes. `flexible="none"` keeps the
    field in its old form in flexible versions (only RequestHeader.client_id does that).
    """
    return FieldOptions(versions, default, nullable, tag, tagged, ignorable, map_key, flexible)


def explain_arguments(
    name: str, fields: Mapping[str, FieldOptions], values: tuple[object, ...], named: Mapping[str, object]
) -> str:
    """What is wrong with the arguments of a struct, or nothing that is known."""
    from difflib import get_close_matches

    if values:
        return f"{name}: {len(values)} values have no name; fields are given by name: {', '.join(fields)}"
    for key in named:
        if key not in fields:
            near = get_close_matches(key, fields, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(fields) or 'none'}"
            return f"{name} has no field {key!r}; {hint}"
    missing = [key for key, options in fields.items() if options.default is REQUIRED and key not in named]
    return f"{name} needs {' and '.join(missing)}, too" if missing else ""
