"""Decodes keys and values into columns, according to the options ``value.format`` and ``key.format``.

The table `FORMATS` contains the module of each format. On the driver, the module returns the type of the
decoded column in DDL. On an executor, it decodes whole batches of values.

Rules:

* A null key or value stays null, and is not an error.

* If a value cannot be decoded, ``value.onError`` determines the result. With ``fail``, the task fails. With
  ``null``, the value becomes null, the column ``_error`` contains the reason, and all other values are
  decoded as usual.

* Invalid options and registry errors always end the query.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kproto.errors import ConfigError, KprotoError

from .names import COLUMNS, ERROR, REGISTRY_URL, REGISTRY_USER
from .types import ColumnFormat, Decode, Format

__all__ = [
    "COLUMNS",
    "ERROR",
    "FORMATS",
    "NAMES",
    "BadValue",
    "ColumnFormat",
    "Decode",
    "module_of",
    "read_formats",
]


def _import_string() -> Format:
    from . import strings

    return strings


def _import_json() -> Format:
    from . import json_lines

    return json_lines


def _import_avro() -> Format:
    from . import avro

    return avro


def _import_protobuf() -> Format:
    from . import protobuf

    return protobuf


# The modules are imported at first use, because the process that plans a stream needs none of them.
FORMATS: Final[Mapping[str, Callable[[], Format]]] = {
    "string": _import_string,
    "json": _import_json,
    "avro": _import_avro,
    "protobuf": _import_protobuf,
}

# Maps the name of an option, without the prefix ``key.`` or ``value.``, to the attribute of ColumnFormat.
_ATTRIBUTES_BY_OPTION: Final = {
    "schema": "schema",
    "message": "message",
    "subject": "subject",
    "onError": "on_error",
}

# The full names of all options of the formats.
NAMES: Final = frozenset(
    [
        REGISTRY_URL,
        REGISTRY_USER,
        *(f"{column}.{name}" for column in COLUMNS for name in ("format", *_ATTRIBUTES_BY_OPTION)),
    ]
)


def module_of(column_format: ColumnFormat) -> Format:
    """Return the module that decodes the format of this column."""
    return FORMATS[column_format.format]()


def read_formats(options: Mapping[str, str], topics: tuple[str, ...]) -> tuple[ColumnFormat, ...]:
    """Return a ColumnFormat for each column whose format is set in `options`.

    `topics` are the names in ``subscribe``. If there is a single topic, the default subject in the registry
    is derived from its name. Raises ConfigError for an invalid value.
    """
    if not NAMES & options.keys():
        return ()
    from .registry import registry

    schema_registry, formats = registry(options), list[ColumnFormat]()
    for column in COLUMNS:
        format_name = options.get(f"{column}.format", "").strip().lower()
        attributes = {
            attribute: options.get(f"{column}.{option}")
            for option, attribute in _ATTRIBUTES_BY_OPTION.items()
        }
        if format_name not in FORMATS:
            if f"{column}.format" in options:
                raise ConfigError(f"{column}.format", format_name, f"allowed: {', '.join(FORMATS)}")
            continue
        on_error = (attributes.pop("on_error") or "fail").strip().lower()
        if on_error not in ("fail", "null"):
            raise ConfigError(f"{column}.onError", on_error, "allowed: fail, null")
        column_format = ColumnFormat(
            column,
            format_name,
            schema=attributes["schema"],
            message=attributes["message"],
            subject=attributes["subject"],
            on_error="null" if on_error == "null" else "fail",
            registry=schema_registry if format_name != "string" else None,
        )
        column_format = replace(column_format, schema=_schema_text(column_format))
        if column_format.subject is None and len(topics) == 1:
            column_format = replace(column_format, subject=f"{topics[0]}-{column}")
        formats.append(column_format)
    return tuple(formats)


def _schema_text(column_format: ColumnFormat) -> str | None:
    """Return the schema that the option contains, or the contents of the file that the option names.

    If the option is a path, the current process (the driver) reads the file. A file with an Avro schema is
    text. A file with a descriptor set of protobuf is binary, and its contents are returned in base64.
    """
    schema = column_format.schema
    if schema is None or not schema.strip() or column_format.format not in ("avro", "protobuf"):
        return schema
    is_json = schema.lstrip()[0] in '{["'
    if is_json or (column_format.format == "protobuf" and not os.path.isfile(schema)):
        return schema
    try:
        content = Path(schema).read_bytes()
    except (OSError, ValueError) as error:
        allowed = "an Avro schema in JSON" if column_format.format == "avro" else "a descriptor set in base64"
        raise ConfigError(
            column_format.option("schema"),
            schema,
            f"it was read as a file path ({error}); allowed: {allowed}, or the path of a file that "
            "contains it",
        ) from None
    if column_format.format == "avro":
        return content.decode()
    from base64 import b64encode

    return b64encode(content).decode()


class BadValue(KprotoError, ValueError):
    """Raised if a key or value cannot be decoded in the format that the options name."""

    def __init__(self, column: str, partition: str, offset: int, reason: str) -> None:
        super().__init__(column, partition, offset, reason)
        self.column, self.partition, self.offset, self.reason = column, partition, offset, reason

    def __str__(self) -> str:
        return (
            f"the {self.column} at offset {self.offset} of {self.partition} cannot be decoded: "
            f"{self.reason}; with {self.column}.onError=null it becomes null, and the column {ERROR} has "
            "the reason"
        )
