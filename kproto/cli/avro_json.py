"""Avro values as JSON, in `kproto consume` and `kproto produce`.

Rules:

* Bytes and fixed are base64. Decimals are strings such as "12.50". Dates and times are ISO 8601, and
  timestamps end with Z. UUIDs are strings.

* NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".

* The JSON that `to_json` returns is valid, and is accepted as JSON to send.

* A value of a union is written without the name of its branch, unlike in Avro's JSON encoding.

* JSON to send may name the branch of a union as Avro does, {"bytes": "AAE="}. Without a name, the value
  belongs to the first branch that it fits.

* JSON to send must fit the schema exactly. The check is needed because fastavro would ignore unknown fields,
  and truncate large integers.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

from ..errors import brief

_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BITS: Final = {"int": 32, "long": 64}


def to_json(value: Any) -> Any:
    """Return the JSON value for a value that fastavro has decoded; the module's rules describe the types."""
    items: Any = value
    match value:
        case dict():
            return {str(name): to_json(item) for name, item in items.items()}
        case list():
            return [to_json(item) for item in items]
        case bytes():
            return b64encode(value).decode()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case date() | time():  # Also matches datetime, a subclass of date.
            return value.isoformat().replace("+00:00", "Z")
        case UUID():
            return str(value)
        case _:
            return value


def _timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError
    return moment


def _local_timestamp(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError
    return moment


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError
    return number


# A key is (type, logical type). A value is (the parser of a string of this type, an example for error
# messages). A logical type that is missing here, such as timestamp-nanos, is read like its underlying type.
_LOGICAL: Final[Mapping[tuple[str, str], tuple[Callable[[str], Any], str]]] = {
    ("int", "date"): (date.fromisoformat, "a date such as 2026-11-28"),
    ("int", "time-millis"): (time.fromisoformat, "a time such as 09:30:00"),
    ("long", "time-micros"): (time.fromisoformat, "a time such as 09:30:00"),
    ("long", "timestamp-millis"): (_timestamp, "a time such as 2026-11-28T09:30:00Z"),
    ("long", "timestamp-micros"): (_timestamp, "a time such as 2026-11-28T09:30:00Z"),
    ("long", "local-timestamp-millis"): (_local_timestamp, "a time such as 2026-11-28T09:30:00"),
    ("long", "local-timestamp-micros"): (_local_timestamp, "a time such as 2026-11-28T09:30:00"),
    ("bytes", "decimal"): (_decimal, 'a decimal such as "12.50"'),
    ("fixed", "decimal"): (_decimal, 'a decimal such as "12.50"'),
    ("string", "uuid"): (UUID, "a UUID"),
    ("fixed", "uuid"): (UUID, "a UUID"),
}


class JsonReader:
    """Converts JSON to the Python objects that fastavro encodes.

    `schema` is a schema that fastavro has parsed. `named` maps the full name of each of its named types to
    the type.
    """

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._schema = schema
        self._named = named

    def read(self, value: Any) -> Any:
        """Return the object to encode for a JSON value. Raises ValueError if it does not fit the schema."""
        return self._read(value, self._schema, "$")

    def _read(self, value: Any, schema: Any, place: str, *, default: bool = False) -> Any:
        """Read a value at `place`, such as $.a[0].

        With `default`, the value is a default in a schema: bytes are characters up to U+00FF, and logical
        types are read like their underlying types.
        """
        items: Any = value
        branches: Any = schema
        if isinstance(schema, list):
            if default:
                return self._read(value, branches[0], place, default=True)
            return self._union(value, branches, place)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        attributes = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {"type": schema}
        kind: Any = attributes["type"]
        if not isinstance(kind, str):
            return self._read(value, kind, place, default=default)
        if not default and (logical := _LOGICAL.get((kind, str(attributes.get("logicalType"))))) is not None:
            parse, example = logical
            is_decimal = attributes["logicalType"] == "decimal"
            if isinstance(value, str) or is_decimal:
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                try:
                    return parse(str(value) if is_number else _text(value))
                except (ValueError, ArithmeticError):
                    raise _misfit(value, example, place) from None
        match kind:
            case "record" | "error":
                return self._record(value, attributes, place, default=default)
            case "array" if isinstance(value, list):
                return [
                    self._read(item, attributes["items"], f"{place}[{number}]", default=default)
                    for number, item in enumerate(items)
                ]
            case "map" if isinstance(value, dict):
                entries = cast("dict[str, Any]", value).items()
                return {
                    name: self._read(item, attributes["values"], f"{place}.{name}", default=default)
                    for name, item in entries
                }
            case "enum" if value in attributes["symbols"]:
                return value
            case "enum":
                raise _misfit(value, f"one of {', '.join(attributes['symbols'])}", place)
            case "fixed":
                return _bytes(value, place, default=default, size=int(attributes["size"]))
            case "bytes":
                return _bytes(value, place, default=default)
            case _:
                return _primitive(value, kind, place)

    def _union(self, value: Any, branches: list[Any], place: str) -> Any:
        """Return the pair (branch name, value), which fastavro encodes as this branch of the union."""
        names = [self._name(branch) for branch in branches]
        if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
            [(name, inner)] = cast("dict[str, Any]", value).items()
            if name in names:
                try:
                    return name, self._read(inner, branches[names.index(name)], place)
                except ValueError:
                    pass  # Perhaps the object is not {branch: value}, but a record or a map.
        reasons: list[ValueError] = []
        for name, branch in zip(names, branches, strict=True):
            try:
                return name, self._read(value, branch, place)
            except ValueError as error:
                reasons.append(error)
        reasons_of_types = [reason for reason, name in zip(reasons, names, strict=True) if name != "null"]
        if len(reasons_of_types) == 1:
            raise reasons_of_types[0]
        raise _misfit(value, f"one of the types {', '.join(names)}", place)

    def _name(self, branch: Any) -> str:
        """Return the name of a union's branch: the full name of a named type, or else its type."""
        if not isinstance(branch, dict):
            return str(branch)
        attributes = cast("dict[str, Any]", branch)
        return str(attributes.get("name", attributes["type"]))

    def _record(self, value: Any, record: dict[str, Any], place: str, *, default: bool) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _misfit(value, f"an object with the fields of {record['name']}", place)
        values = cast("dict[str, Any]", value)
        fields: dict[str, dict[str, Any]] = {field["name"]: field for field in record["fields"]}
        if unknown := sorted(values.keys() - fields.keys()):
            allowed = ", ".join(fields) or "none"
            raise ValueError(f"{place} has the unknown field {unknown[0]}; fields of the schema: {allowed}")
        objects: dict[str, Any] = {}
        for name, field in fields.items():
            is_default = default or name not in values
            if name not in values and "default" not in field:
                raise ValueError(f"{place} has no field {name}, and the schema has no default for it")
            item = values.get(name, field.get("default"))
            objects[name] = self._read(item, field["type"], f"{place}.{name}", default=is_default)
        return objects


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _bytes(value: Any, place: str, *, default: bool, size: int | None = None) -> bytes:
    try:
        data = _text(value).encode("latin-1") if default else b64decode(_text(value), validate=True)
    except ValueError:
        raise _misfit(value, "bytes in base64", place) from None
    if size is not None and len(data) != size:
        raise _misfit(value, f"{size} bytes in base64", place)
    return data


def _primitive(value: Any, kind: str, place: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "null" if value is None:
            return None
        case "boolean" if isinstance(value, bool):
            return value
        case "string" if isinstance(value, str):
            return value
        case "float" | "double" if is_number or (isinstance(value, str) and value in _FLOATS):
            return _FLOATS[value] if isinstance(value, str) else float(value)
        case "int" | "long" if is_number and isinstance(value, int):
            limit = 1 << _BITS[kind] - 1
            if -limit <= value < limit:
                return value
        case _:
            pass
    raise _misfit(value, f"of the type {kind}", place)


def _misfit(value: Any, expected: str, place: str) -> ValueError:
    return ValueError(f"{place} is {brief(value)}, not {expected}")
