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

_SPECIAL_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INTEGER_BITS: Final = {"int": 32, "long": 64}


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


def _parse_timestamp(text: str) -> datetime:
    timestamp = datetime.fromisoformat(text)
    if timestamp.tzinfo is None:
        raise ValueError
    return timestamp


def _parse_local_timestamp(text: str) -> datetime:
    timestamp = datetime.fromisoformat(text)
    if timestamp.tzinfo is not None:
        raise ValueError
    return timestamp


def _parse_decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError
    return number


# A key is (type, logical type). A value is (the parser of a string of this type, an example for error
# messages). A logical type that is missing here, such as timestamp-nanos, is read like its underlying type.
_LOGICAL_TYPES: Final[Mapping[tuple[str, str], tuple[Callable[[str], Any], str]]] = {
    ("int", "date"): (date.fromisoformat, "a date such as 2026-11-28"),
    ("int", "time-millis"): (time.fromisoformat, "a time such as 09:30:00"),
    ("long", "time-micros"): (time.fromisoformat, "a time such as 09:30:00"),
    ("long", "timestamp-millis"): (_parse_timestamp, "a time such as 2026-11-28T09:30:00Z"),
    ("long", "timestamp-micros"): (_parse_timestamp, "a time such as 2026-11-28T09:30:00Z"),
    ("long", "local-timestamp-millis"): (_parse_local_timestamp, "a time such as 2026-11-28T09:30:00"),
    ("long", "local-timestamp-micros"): (_parse_local_timestamp, "a time such as 2026-11-28T09:30:00"),
    ("bytes", "decimal"): (_parse_decimal, 'a decimal such as "12.50"'),
    ("fixed", "decimal"): (_parse_decimal, 'a decimal such as "12.50"'),
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
        """Return the object to encode for a JSON value. Raises ValueError if `value` violates the schema."""
        return self._read(value, self._schema, "$")

    def _read(self, value: Any, schema: Any, path: str, *, is_default: bool = False) -> Any:
        """Read a value at `path`, such as $.a[0].

        With `is_default`, the value is a default in a schema: bytes are characters up to U+00FF, and logical
        types are read like their underlying types.
        """
        items: Any = value
        branches: Any = schema
        if isinstance(schema, list):
            if is_default:
                return self._read(value, branches[0], path, is_default=True)
            return self._read_union(value, branches, path)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        attributes = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {"type": schema}
        type_name: Any = attributes["type"]
        if not isinstance(type_name, str):
            return self._read(value, type_name, path, is_default=is_default)
        logical_type = _LOGICAL_TYPES.get((type_name, str(attributes.get("logicalType"))))
        if logical_type is not None and not is_default:
            parse, example = logical_type
            # A decimal may also be a JSON number.
            is_decimal = attributes["logicalType"] == "decimal"
            if isinstance(value, str) or is_decimal:
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                try:
                    return parse(str(value) if is_number else _require_text(value))
                except (ValueError, ArithmeticError):
                    raise _misfit_error(value, example, path) from None
        match type_name:
            case "record" | "error":
                return self._read_record(value, attributes, path, is_default=is_default)
            case "array" if isinstance(value, list):
                return [
                    self._read(item, attributes["items"], f"{path}[{index}]", is_default=is_default)
                    for index, item in enumerate(items)
                ]
            case "map" if isinstance(value, dict):
                entries = cast("dict[str, Any]", value).items()
                return {
                    name: self._read(item, attributes["values"], f"{path}.{name}", is_default=is_default)
                    for name, item in entries
                }
            case "enum" if value in attributes["symbols"]:
                return value
            case "enum":
                raise _misfit_error(value, f"one of {', '.join(attributes['symbols'])}", path)
            case "fixed":
                return _read_bytes(value, path, is_default=is_default, size=int(attributes["size"]))
            case "bytes":
                return _read_bytes(value, path, is_default=is_default)
            case _:
                return _read_primitive(value, type_name, path)

    def _read_union(self, value: Any, branches: list[Any], path: str) -> Any:
        """Return the pair (branch name, value), which fastavro encodes as this branch of the union."""
        names = [self._branch_name(branch) for branch in branches]
        if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1:
            [(name, inner)] = cast("dict[str, Any]", value).items()
            if name in names:
                try:
                    return name, self._read(inner, branches[names.index(name)], path)
                except ValueError:
                    pass  # Perhaps the object is not {branch: value}, but a record or a map.
        reasons: list[ValueError] = []
        for name, branch in zip(names, branches, strict=True):
            try:
                return name, self._read(value, branch, path)
            except ValueError as error:
                reasons.append(error)
        non_null_reasons = [reason for reason, name in zip(reasons, names, strict=True) if name != "null"]
        if len(non_null_reasons) == 1:
            raise non_null_reasons[0]
        raise _misfit_error(value, f"one of the types {', '.join(names)}", path)

    def _branch_name(self, branch: Any) -> str:
        """Return the name of a union's branch: the full name of a named type, or else its type."""
        if not isinstance(branch, dict):
            return str(branch)
        attributes = cast("dict[str, Any]", branch)
        return str(attributes.get("name", attributes["type"]))

    def _read_record(
        self, value: Any, record: dict[str, Any], path: str, *, is_default: bool
    ) -> dict[str, Any]:
        """Read the fields of a record; missing fields have the default of the schema."""
        if not isinstance(value, dict):
            raise _misfit_error(value, f"an object with the fields of {record['name']}", path)
        values = cast("dict[str, Any]", value)
        fields: dict[str, dict[str, Any]] = {field["name"]: field for field in record["fields"]}
        if unknown := sorted(values.keys() - fields.keys()):
            allowed = ", ".join(fields) or "none"
            raise ValueError(f"{path} has the unknown field {unknown[0]}; fields of the schema: {allowed}")
        objects: dict[str, Any] = {}
        for name, field in fields.items():
            is_field_default = is_default or name not in values
            if name not in values and "default" not in field:
                raise ValueError(f"{path} has no field {name}, and the schema has no default for it")
            item = values.get(name, field.get("default"))
            objects[name] = self._read(item, field["type"], f"{path}.{name}", is_default=is_field_default)
        return objects


def _require_text(value: Any) -> str:
    """Return `value` if it is a string; raise ValueError without a message if it is not."""
    if not isinstance(value, str):
        raise ValueError
    return value


def _read_bytes(value: Any, path: str, *, is_default: bool, size: int | None = None) -> bytes:
    """Read bytes from base64, or, in a schema's default, from characters up to U+00FF."""
    try:
        text = _require_text(value)
        data = text.encode("latin-1") if is_default else b64decode(text, validate=True)
    except ValueError:
        raise _misfit_error(value, "bytes in base64", path) from None
    if size is not None and len(data) != size:
        raise _misfit_error(value, f"{size} bytes in base64", path)
    return data


def _read_primitive(value: Any, type_name: str, path: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match type_name:
        case "null" if value is None:
            return None
        case "boolean" if isinstance(value, bool):
            return value
        case "string" if isinstance(value, str):
            return value
        case "float" | "double" if is_number or (isinstance(value, str) and value in _SPECIAL_FLOATS):
            return _SPECIAL_FLOATS[value] if isinstance(value, str) else float(value)
        case "int" | "long" if is_number and isinstance(value, int):
            limit = 1 << _INTEGER_BITS[type_name] - 1
            if -limit <= value < limit:
                return value
        case _:
            pass
    raise _misfit_error(value, f"of the type {type_name}", path)


def _misfit_error(value: Any, expected: str, path: str) -> ValueError:
    """Return the error for a value at `path` that is not what the schema expects."""
    return ValueError(f"{path} is {brief(value)}, not {expected}")
