"""Parses Avro schemas, and maps their types to Spark's types as Spark's own from_avro does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from kproto.errors import ConfigError

ABSENT: Final = object()  # The value of `AvroField.default` for a field without a default.

_PRIMITIVES: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}

# Spark's type for each pair (kind, logical type).
_LOGICAL: Final = {
    ("int", "date"): "DATE",
    ("long", "time-micros"): "TIME(6)",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}

# Maps each pair (kind, logical type) that cannot be a column to the reason. Spark does not ignore these
# logical types. Other unsupported logical types are ignored, as in Spark.
_NOT_READ: Final = {
    ("long", "timestamp-nanos"): "PySpark has no timestamps of nanoseconds",
    ("long", "local-timestamp-nanos"): "PySpark has no timestamps of nanoseconds",
    ("long", "custom-decimal"): "custom-decimal is not supported",
}
_CATALYST: Final = "spark.sql.catalyst.type"
_MAX_PRECISION: Final = 38  # Of Spark's decimals.


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record.

    `names` contains its name and its aliases. `default` is the default value as parsed from JSON.
    """

    names: tuple[str, ...]
    node: AvroNode
    default: Any = ABSENT


@dataclass(frozen=True, slots=True)
class AvroNode:
    """A type in an Avro schema.

    `kind` is Avro's name for the type. `inner` contains the type of an array's items or of a map's values, or
    all types of a union except null.
    """

    kind: str
    logical: str = ""
    name: str = ""
    fields: tuple[AvroField, ...] = ()
    inner: tuple[AvroNode, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    # The full names of the aliases. A reader's type also matches a writer's type that has one of these names.
    aliases: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    # If the type cannot be a column: its definition, the reason, and the attribute of the definition without
    # which it could be a column.
    refused: tuple[str, str, str] | None = None
    null: int = -1  # The position of null among a union's branches, or -1 if the union has no null.

    @property
    def branches(self) -> tuple[AvroNode, ...]:
        """The types of a union, without null."""
        return self.inner

    @property
    def ddl(self) -> str:
        """Return the corresponding Spark type as DDL."""
        match self.kind:
            case "record":
                inner = ", ".join(f"{quoted(field.names[0])}: {field.node.ddl}" for field in self.fields)
                return f"STRUCT<{inner}>"
            case "array":
                return f"ARRAY<{self.inner[0].ddl}>"
            case "map":
                return f"MAP<STRING, {self.inner[0].ddl}>"
            case "enum":
                return "STRING"
            case "union":
                common = self.merged
                if common is not None:
                    return common.ddl
                members = (f"member{n}: {branch.ddl}" for n, branch in enumerate(self.inner))
                return f"STRUCT<{', '.join(members)}>"
            case _ if self.logical == "decimal":
                return f"DECIMAL({self.precision}, {self.scale})"
            case "fixed":
                return "BINARY"
            case _:
                return _LOGICAL.get((self.kind, self.logical)) or _PRIMITIVES[self.kind]

    @property
    def merged(self) -> AvroNode | None:
        """Return the type to which all branches of a union can be converted, or None."""
        kinds = {branch.kind for branch in self.inner if not branch.logical}
        if len(self.inner) == 1:
            return self.inner[0]
        if len(self.inner) == 2 and kinds in ({"int", "long"}, {"float", "double"}):
            return AvroNode(max(kinds) if kinds == {"int", "long"} else "double")
        return None


def quoted(name: str) -> str:
    """Quote a name for DDL."""
    return f"`{name.replace('`', '``')}`"


def parse(option: str, text: str, references: Iterable[str] = ()) -> AvroNode:
    """Parse an Avro schema in JSON. `references` define types that the schema uses.

    Raises ConfigError if one of the schemas is invalid or recursive, or has an array, map or union whose only
    type is null.
    """
    names: dict[str, AvroNode] = {}
    for reference in references:
        _Reader(option, names).read(_load(option, reference), "", "")
    return _Reader(option, names).read(_load(option, text), "", "")


def checked_columns(option: str, node: AvroNode, place: str = "") -> AvroNode:
    """Return `node`, a type of a reader's schema. Raises ConfigError if a part of it cannot be a column."""
    if node.kind == "null":
        raise ConfigError(option, "null", _null_column(place))
    if node.refused is not None:
        text, why, attribute = node.refused
        raise ConfigError(
            option,
            text,
            f"{why}, for the Avro type{_of_field(place)}; set {option} to the schema without the attribute "
            f"{attribute} (the type is then {node.ddl}), or without the field",
        )
    for field in node.fields:
        checked_columns(option, field.node, _inside(place, field.names[0]))
    for inner in node.inner:
        checked_columns(option, inner, place if node.kind == "union" else f"{place}[]")
    return node


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _of_field(place: str) -> str:
    return f" of field {place}" if place else ""


def _null_column(place: str) -> str:
    """Return the error for the type null outside a union."""
    return (
        f"the Avro type{_of_field(place)} is null, which cannot be a column; remove the field, or make it a "
        "union of null and another type"
    )


def _load(option: str, text: str) -> Any:
    """Parse the JSON of a schema. If it is only the name of a type, without quotes, return the name."""
    try:
        return json.loads(text)
    except ValueError as error:
        if text.strip().replace(".", "").replace("_", "").isalnum():
            return text.strip()
        raise ConfigError(option, text[:80], f"an Avro schema must be JSON ({error})") from None


class _Reader:
    """Parses the types of one schema, and adds named types to `names`."""

    def __init__(self, option: str, names: dict[str, AvroNode]) -> None:
        self.option, self.names = option, names
        self.open: set[str] = set()

    def wrong(self, part: object, reason: str) -> ConfigError:
        """Return a ConfigError that shows a part of the schema."""
        return ConfigError(self.option, json.dumps(part)[:200], reason)

    def read_item(self, part: Any, space: str, place: str) -> AvroNode:
        """Parse the type of an array's items or of a map's values. Raises ConfigError if it is null.

        An item of the type null has no bytes, so a few bytes could claim any number of items.
        """
        node = self.read(part, space, place)
        if node.kind == "null":
            raise self.wrong(cast("object", part), _null_column(place))
        return node

    def read(self, part: Any, space: str, place: str) -> AvroNode:
        """Parse a type. `space` is the enclosing namespace. `place` is the path of the enclosing field."""
        if isinstance(part, str):
            return self.named(part, space)
        if isinstance(part, list):
            return self.union(cast(Any, part), space, place)
        if not isinstance(part, dict) or "type" not in part:
            raise self.wrong(
                cast("object", part),
                f"the Avro type{_of_field(place)} must be a name, a list, or an object with a type",
            )
        definition = cast("dict[str, Any]", part)
        kind: Any = definition["type"]
        if not isinstance(kind, str):
            return self.read(kind, space, place)
        if kind in ("record", "error", "enum", "fixed"):
            return self.new(kind, definition, space, place)
        if kind in ("array", "map"):
            word = "items" if kind == "array" else "values"
            if word not in definition:
                raise self.wrong(definition, f"an Avro {kind} needs the attribute {word}")
            return AvroNode(kind, inner=(self.read_item(definition[word], space, f"{place}[]"),))
        return self.logical(self.named(kind, space), definition)

    def named(self, name: str, space: str) -> AvroNode:
        """Return a primitive type, or a named type that was defined before."""
        if name in _PRIMITIVES or name == "null":
            return AvroNode(name)
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self.open or name in self.open:
            raise self.wrong(name, "Spark has no recursive types; remove the field")
        node = self.names.get(full) or self.names.get(name)
        if node is None:
            known = ", ".join([*_PRIMITIVES, "null", *self.names])
            raise self.wrong(name, f"the Avro type is not defined; the defined types are {known}")
        return node

    def union(self, parts: list[Any], space: str, place: str) -> AvroNode:
        """Parse a union, which may contain null once."""
        branches = [self.read(part, space, place) for part in parts]
        null = [n for n, branch in enumerate(branches) if branch.kind == "null"]
        if len(null) > 1 or len(null) == len(branches):
            raise self.wrong(
                parts,
                f"the union{_of_field(place)} needs a type other than null, and may contain null only "
                "once; change the union, or remove the field",
            )
        types = tuple(branch for branch in branches if branch.kind != "null")
        return AvroNode("union", inner=types, null=null[0] if null else -1)

    def new(self, kind: str, definition: Mapping[str, Any], space: str, place: str) -> AvroNode:
        """Parse the definition of a record, enum or fixed type."""
        name = definition.get("name")
        if not isinstance(name, str) or not name:
            raise self.wrong(definition, f"an Avro {kind} needs a name")
        space = name.rpartition(".")[0] if "." in name else str(definition.get("namespace") or space)
        full = name if "." in name or not space else f"{space}.{name}"
        aliases = tuple(
            alias if "." in alias or not space else f"{space}.{alias}"
            for alias in map(str, definition.get("aliases") or ())
        )
        node_defined = AvroNode("record" if kind == "error" else kind, name=full, aliases=aliases)
        if kind == "enum":
            symbols, default = tuple(map(str, definition.get("symbols") or ())), definition.get("default")
            node_defined = replace(
                node_defined, symbols=symbols, default_symbol=default if default in symbols else None
            )
        elif kind == "fixed":
            size = definition.get("size")
            if not isinstance(size, int) or size < 0:
                raise self.wrong(definition, "a fixed type needs a size of at least 0")
            node_defined = self.logical(replace(node_defined, size=size), definition)
        else:
            self.open.add(full)
            fields: list[AvroField] = []
            for field in cast("list[dict[str, Any]]", definition.get("fields") or ()):
                if not {"name", "type"} <= set(field):
                    raise self.wrong(field, "a field of a record needs a name and a type")
                names = (str(field["name"]), *map(str, field.get("aliases") or ()))
                node = self.read(field["type"], space, _inside(place, names[0]))
                fields.append(AvroField(names, node, field.get("default", ABSENT)))
            self.open.discard(full)
            node_defined = replace(node_defined, fields=tuple(fields))
        self.names[full] = node_defined
        return node_defined

    def logical(self, node: AvroNode, definition: Mapping[str, Any]) -> AvroNode:
        """Return a type with its logical type, or without it if Spark does not support the logical type."""
        word = definition.get("logicalType")
        why, attribute = _NOT_READ.get((node.kind, str(word)), ""), "logicalType"
        if word == "decimal" and node.kind in ("bytes", "fixed"):
            precision, scale = definition.get("precision", 0), definition.get("scale", 0)
            if not _is_decimal(node, precision, scale):
                return node  # As Avro specifies, an invalid logical type is ignored.
            if precision > _MAX_PRECISION:
                why = f"Spark's decimals have at most {_MAX_PRECISION} digits"
            else:
                return replace(node, logical=word, precision=precision, scale=scale)
        elif (node.kind, str(word)) in _LOGICAL:
            return replace(node, logical=str(word))
        elif not why and node.kind in ("int", "long") and definition.get(_CATALYST) is not None:
            why, attribute = f"{_CATALYST} is not supported", _CATALYST
        return replace(node, refused=(json.dumps(definition)[:200], why, attribute)) if why else node


def _is_decimal(node: AvroNode, precision: object, scale: object) -> bool:
    """Return whether the attributes of a decimal are valid, as Java's LogicalTypes.Decimal checks them."""
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision > 0:
        return False
    return node.kind == "bytes" or precision <= math.floor(math.log10(2) * (8 * node.size - 1))
