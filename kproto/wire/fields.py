"""The function `field()`, which declares what the annotation of a field cannot express.

`message` lists the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


class _Marker:
    """A constant that is compared by identity. Copying and unpickling return the same object."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


# Marks a field that has no default, so that the caller must pass a value.
REQUIRED = _Marker("REQUIRED")
# The value of an unset struct field with the default FRESH, until it is first read.
LAZY = _Marker("LAZY")

# The default of a struct field: a new struct with all of its fields at their defaults.
FRESH: Any = _Marker("FRESH")


class FieldOptions(msgspec.Struct, frozen=True):
    """The arguments of one `field()` call. They are kept until the annotations are resolved at first use."""

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
    """Declare the properties of a field that its annotation cannot express.

    The docstring of `kproto.wire.message` contains examples.

    `versions`, `nullable` and `tagged` are ranges of versions, such as "5+". They are the versions in which
    the field exists, those in which it may be null, and those in which it is tagged. `map_key` marks the key
    fields of Kafka's collections, and does not change the encoding.

    `flexible="none"` keeps the int16 or int32 length in flexible versions. Only RequestHeader.client_id needs
    this.
    """
    return FieldOptions(versions, default, nullable, tag, tagged, ignorable, map_key, flexible)


def explain_arguments(
    name: str, fields: Mapping[str, FieldOptions], values: tuple[object, ...], named: Mapping[str, object]
) -> str:
    """Describe the invalid arguments in a call of a struct's class. Return "" if all arguments are valid."""
    from difflib import get_close_matches

    if values:
        return (
            f"{name} takes no positional values, but got {len(values)}; name the fields: {', '.join(fields)}"
        )
    for key in named:
        if key not in fields:
            similar = get_close_matches(key, fields, 1)
            all_fields = f"its fields are {', '.join(fields) or 'none'}"
            hint = f"did you mean {similar[0]}?" if similar else all_fields
            return f"{name} has no field {key!r}; {hint}"
    missing = [key for key, options in fields.items() if options.default is REQUIRED and key not in named]
    return f"{name} is missing the required {' and '.join(missing)}" if missing else ""
