"""Columns beyond bytes: ``value.format`` and ``key.format``.

Each format is a row of `FORMATS`: a module that says what column it makes (on the driver, without Arrow), and
decodes values into it (on an executor, whole batches at once). Rules:

* A null key or value is null, and no error.
* A value that can't be decoded is *bad*: null, with the reason in the column ``_error``, or the end of the
  task, as ``value.onError`` says. It never shifts or changes another value.
* What is wrong with the options or the registry, and not with one value, is an error in any case.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from kproto.errors import ConfigError, KprotoError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from .registry import Registry, Schema

Column: TypeAlias = Any  # of Arrow, which has no types
Bad: TypeAlias = Mapping[int, str]  # What is wrong with the values that are bad, by their row.

# A BinaryArray without nulls becomes a column of the same length, with null where a value is bad.
Decode: TypeAlias = Callable[[Column], tuple[Column, Bad]]

ERROR: Final = "_error"

COLUMNS: Final = ("key", "value")


class Format(Protocol):
    """What a format's module has."""

    def column(self, asked: Asked) -> str:
        """The column's type, in DDL. Raises ConfigError if the options don't say it."""
        ...

    def decoder(self, asked: Asked, kind: DataType) -> Decode:
        """How values become a column of `kind`. Raises ConfigError if they can't."""
        ...


def _string() -> Format:
    from . import strings

    return strings


def _json() -> Format:
    from . import json_lines

    return json_lines


def _avro() -> Format:
    from . import avro

    return avro


def _protobuf() -> Format:
    from . import protobuf

    return protobuf


# Imported when they are needed: who plans a stream needs none of them.
FORMATS: Final[Mapping[str, Callable[[], Format]]] = {
    "string": _string,
    "json": _json,
    "avro": _avro,
    "protobuf": _protobuf,
}


# How the registry is to hand over the schema that a format reads with.
_FORMS: Final[Mapping[str, str]] = {"avro": "", "protobuf": "serialized"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options say about one of the columns key and value. `latest` is the registry's schema that it
    is read with, once it is `settled`.
    """

    where: str
    format: str
    schema: str | None = None
    message: str | None = None
    subject: str | None = None
    on_error: Literal["fail", "null"] = "fail"
    registry: Registry | None = field(default=None)
    latest: Schema | None = None

    @property
    def module(self) -> Format:
        return FORMATS[self.format]()

    def option(self, name: str) -> str:
        """The full name of one of its options."""
        return f"{self.where}.{name}"

    def settled(self) -> Asked:
        """The same with the registry's latest schema, if that is what it is read with: it is asked for once,
        as a query's columns stay while the registry goes on. Raises NoSuchSchema, RegistryFailed.
        """
        if self.registry is None or self.subject is None or self.format not in _FORMS:
            return self
        if self.schema is not None or self.latest is not None:
            return self
        return replace(self, latest=self.registry.latest(self.subject, _FORMS[self.format]))


# Option -> attribute of Asked; each begins with ``key.`` or ``value.``.
_OPTIONS: Final = {"schema": "schema", "message": "message", "subject": "subject", "onError": "on_error"}
REGISTRY: Final = ("schema.registry.url", "schema.registry.basic.auth.user.info")

# All options of this room.
NAMES: Final = frozenset(
    [*REGISTRY, *(f"{column}.{name}" for column in COLUMNS for name in ("format", *_OPTIONS))]
)


def asked(given: Mapping[str, str], topics: tuple[str, ...]) -> tuple[Asked, ...]:
    """The formats that the options name, `topics` being those that ``subscribe`` names.

    Raises ConfigError for a wrong one, and for options that belong to none.
    """
    if not NAMES & given.keys():
        return ()
    from .registry import registry

    where, found = registry(given), list[Asked]()
    for column in COLUMNS:
        name = given.get(f"{column}.format", "").strip().lower()
        own = {attribute: given.get(f"{column}.{option}") for option, attribute in _OPTIONS.items()}
        if name not in FORMATS:
            if f"{column}.format" in given:
                raise ConfigError(f"{column}.format", name, f"allowed: {', '.join(FORMATS)}")
            continue
        on_error = (own.pop("on_error") or "fail").strip().lower()
        if on_error not in ("fail", "null"):
            raise ConfigError(f"{column}.onError", on_error, "allowed: fail, null")
        one = Asked(column, name, **own, registry=where if name != "string" else None)  # type: ignore[arg-type]
        one = replace(one, on_error="null" if on_error == "null" else "fail", schema=_text(one))
        if one.subject is None and len(topics) == 1:
            one = replace(one, subject=f"{topics[0]}-{column}")
        found.append(one)
    return tuple(found)


def _text(one: Asked) -> str | None:
    """A schema that is the path of a file is what the file holds: read on the driver, for all."""
    given = one.schema
    if given is None or not given.strip() or one.format not in ("avro", "protobuf"):
        return given
    if given.lstrip()[0] in '{["' or (one.format == "protobuf" and not os.path.isfile(given)):
        return given
    try:
        content = Path(given).read_bytes()
    except (OSError, ValueError) as error:
        shape = "an Avro schema in JSON" if one.format == "avro" else "a descriptor set in base64"
        raise ConfigError(one.option("schema"), given, f"{shape}, or the path of one ({error})") from None
    if one.format == "avro":
        return content.decode()
    from base64 import b64encode

    return b64encode(content).decode()


class BadValue(KprotoError, ValueError):
    """A key or value that isn't what its format says, and where it is."""

    def __init__(self, where: str, place: str, offset: int, why: str) -> None:
        super().__init__(where, place, offset, why)
        self.where, self.place, self.offset, self.why = where, place, offset, why

    def __str__(self) -> str:
        return (
            f"the {self.where} at offset {self.offset} of {self.place} can't be decoded: {self.why}; "
            f"{self.where}.onError=null makes it null, with the reason in the column {ERROR}"
        )
