"""Parses Avro schemas, and maps their types to Spark's types as Spark's own from_avro does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from kproto.errors import ConfigError

ABSENT: Final = object()  # The value of `AvroField.default` for a field without a default.

# Spark's type for each of Avro's primitive types, except null.
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
_LOGICAL_TYPES: Final = {
    ("int", "date"): "DATE",
    ("long", "time-micros"): "TIME(6)",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}

# Maps each pair (kind, logical type) that cannot be a column to the reason. Spark does not ignore these
# logical types. Other unsupported logical types are ignored, as in Spark.
_UNSUPPORTED_TYPES: Final = {
    ("long", "timestamp-nanos"): "PySpark has no timestamps of nanoseconds",
    ("long", "local-timestamp-nanos"): "PySpark has no timestamps of nanoseconds",
    ("long", "custom-decimal"): "custom-decimal is not supported",
}
# The attribute in which Spark's to_avro stores a type that Avro lacks, such as an interval.
_CATALYST_TYPE: Final = "spark.sql.catalyst.type"
_MAX_PRECISION: Final = 38  # Of Spark's decimals.


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record.

    `names` contains the field's name and its aliases. `default` is the default value as parsed from JSON.
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
    # None if the type can be a column. Otherwise: the type's definition, the reason, and the attribute that
    # the schema's author has to remove from the definition, so that the type can be a column.
    unsupported: tuple[str, str, str] | None = None
    null: int = -1  # The position of null among a union's branches, or -1 if the union has no null.

    @property
    def branches(self) -> tuple[AvroNode, ...]:
        """The types of a union, without null."""
        return self.inner

    @property
    def ddl(self) -> str:
        """The corresponding Spark type as DDL."""
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
                return _LOGICAL_TYPES.get((self.kind, self.logical)) or _PRIMITIVES[self.kind]

    @property
    def merged(self) -> AvroNode | None:
        """The type to which all branches of this union can be converted, or None if no such type exists."""
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
        _SchemaParser(option, names).read(_parse_json(option, reference), "", "")
    return _SchemaParser(option, names).read(_parse_json(option, text), "", "")


def checked_columns(option: str, node: AvroNode, path: str = "") -> AvroNode:
    """Return `node`, a type of a reader's schema. Raises ConfigError if a part of it cannot be a column."""
    if node.kind == "null":
        raise ConfigError(option, "null", _null_column_error(path))
    if node.unsupported is not None:
        definition, reason, attribute = node.unsupported
        raise ConfigError(
            option,
            definition,
            f"{reason}, for the Avro type{_of_field(path)}; set {option} to the schema without the attribute "
            f"{attribute} (the type is then {node.ddl}), or without the field",
        )
    for field in node.fields:
        checked_columns(option, field.node, _field_path(path, field.names[0]))
    for inner in node.inner:
        checked_columns(option, inner, path if node.kind == "union" else f"{path}[]")
    return node


def _field_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _of_field(path: str) -> str:
    """Return the part of an error message that names the field; "" for the schema's outermost type."""
    return f" of field {path}" if path else ""


def _null_column_error(path: str) -> str:
    """Return the error for the type null outside a union."""
    return (
        f"the Avro type{_of_field(path)} is null, which cannot be a column; remove the field, or make it a "
        "union of null and another type"
    )


def _parse_json(option: str, text: str) -> Any:
    """Parse the JSON of a schema. If `text` is only the name of a type, without quotes, return the name."""
    try:
        return json.loads(text)
    except ValueError as error:
        if text.strip().replace(".", "").replace("_", "").isalnum():
            return text.strip()
        raise ConfigError(option, text[:80], f"an Avro schema must be JSON ({error})") from None


class _SchemaParser:
    """Parses the types of one schema, and adds named types to `names`."""

    def __init__(self, option: str, names: dict[str, AvroNode]) -> None:
        self.option, self.names = option, names
        # The full names of the enclosing records, whose definitions are not parsed yet.
        self.open_records: set[str] = set()

    def schema_error(self, part: object, reason: str) -> ConfigError:
        """Return a ConfigError that shows a part of the schema."""
        return ConfigError(self.option, json.dumps(part)[:200], reason)

    def read_item(self, part: Any, namespace: str, path: str) -> AvroNode:
        """Parse the type of an array's items or of a map's values.

        Raises ConfigError for the type null. Its items have no bytes, so a few bytes could claim any number
        of items.
        """
        node = self.read(part, namespace, path)
        if node.kind == "null":
            raise self.schema_error(cast("object", part), _null_column_error(path))
        return node

    def read(self, part: Any, namespace: str, path: str) -> AvroNode:
        """Parse a type. `namespace` is the enclosing namespace. `path` names the enclosing field."""
        if isinstance(part, str):
            return self.resolve_name(part, namespace)
        if isinstance(part, list):
            return self.read_union(cast(Any, part), namespace, path)
        if not isinstance(part, dict) or "type" not in part:
            raise self.schema_error(
                cast("object", part),
                f"the Avro type{_of_field(path)} must be a name, a list, or an object with a type",
            )
        definition = cast("dict[str, Any]", part)
        kind: Any = definition["type"]
        if not isinstance(kind, str):
            return self.read(kind, namespace, path)
        if kind in ("record", "error", "enum", "fixed"):
            return self.read_definition(kind, definition, namespace, path)
        if kind in ("array", "map"):
            attribute = "items" if kind == "array" else "values"
            if attribute not in definition:
                raise self.schema_error(definition, f"an Avro {kind} needs the attribute {attribute}")
            return AvroNode(kind, inner=(self.read_item(definition[attribute], namespace, f"{path}[]"),))
        return self.read_logical_type(self.resolve_name(kind, namespace), definition)

    def resolve_name(self, name: str, namespace: str) -> AvroNode:
        """Return a primitive type, or a named type that was defined before."""
        if name in _PRIMITIVES or name == "null":
            return AvroNode(name)
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        if full_name in self.open_records or name in self.open_records:
            raise self.schema_error(name, "Spark has no recursive types; remove the field")
        node = self.names.get(full_name) or self.names.get(name)
        if node is None:
            known = ", ".join([*_PRIMITIVES, "null", *self.names])
            raise self.schema_error(name, f"the Avro type is not defined; the defined types are {known}")
        return node

    def read_union(self, parts: list[Any], namespace: str, path: str) -> AvroNode:
        """Parse a union, which may contain null once."""
        branches = [self.read(part, namespace, path) for part in parts]
        nulls = [n for n, branch in enumerate(branches) if branch.kind == "null"]
        if len(nulls) > 1 or len(nulls) == len(branches):
            raise self.schema_error(
                parts,
                f"the union{_of_field(path)} needs a type other than null, and may contain null only "
                "once; change the union, or remove the field",
            )
        types = tuple(branch for branch in branches if branch.kind != "null")
        return AvroNode("union", inner=types, null=nulls[0] if nulls else -1)

    def read_definition(
        self, kind: str, definition: Mapping[str, Any], namespace: str, path: str
    ) -> AvroNode:
        """Parse the definition of a record, enum or fixed type, and add the type to `names`."""
        name = definition.get("name")
        if not isinstance(name, str) or not name:
            raise self.schema_error(definition, f"an Avro {kind} needs a name")
        namespace = name.rpartition(".")[0] if "." in name else str(definition.get("namespace") or namespace)
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        aliases = tuple(
            alias if "." in alias or not namespace else f"{namespace}.{alias}"
            for alias in map(str, definition.get("aliases") or ())
        )
        node = AvroNode("record" if kind == "error" else kind, name=full_name, aliases=aliases)
        if kind == "enum":
            symbols, default = tuple(map(str, definition.get("symbols") or ())), definition.get("default")
            node = replace(node, symbols=symbols, default_symbol=default if default in symbols else None)
        elif kind == "fixed":
            size = definition.get("size")
            if not isinstance(size, int) or size < 0:
                raise self.schema_error(definition, "a fixed type needs a size of at least 0")
            node = self.read_logical_type(replace(node, size=size), definition)
        else:
            self.open_records.add(full_name)
            node = replace(node, fields=self.read_fields(definition, namespace, path))
            self.open_records.discard(full_name)
        self.names[full_name] = node
        return node

    def read_fields(self, definition: Mapping[str, Any], namespace: str, path: str) -> tuple[AvroField, ...]:
        """Parse the fields of a record's definition."""
        fields: list[AvroField] = []
        for field in cast("list[dict[str, Any]]", definition.get("fields") or ()):
            if not {"name", "type"} <= set(field):
                raise self.schema_error(field, "a field of a record needs a name and a type")
            names = (str(field["name"]), *map(str, field.get("aliases") or ()))
            node = self.read(field["type"], namespace, _field_path(path, names[0]))
            fields.append(AvroField(names, node, field.get("default", ABSENT)))
        return tuple(fields)

    def read_logical_type(self, node: AvroNode, definition: Mapping[str, Any]) -> AvroNode:
        """Return the type `node` with the logical type that its definition names, such as decimal.

        A logical type that Spark ignores is ignored. A type that Spark does not ignore, but that cannot be a
        column, is returned as `unsupported`.
        """
        logical = definition.get("logicalType")
        reason, attribute = _UNSUPPORTED_TYPES.get((node.kind, str(logical)), ""), "logicalType"
        if logical == "decimal" and node.kind in ("bytes", "fixed"):
            precision, scale = definition.get("precision", 0), definition.get("scale", 0)
            if not _is_decimal(node, precision, scale):
                return node  # As Avro specifies, an invalid logical type is ignored.
            if precision > _MAX_PRECISION:
                reason = f"Spark's decimals have at most {_MAX_PRECISION} digits"
            else:
                return replace(node, logical=logical, precision=precision, scale=scale)
        elif (node.kind, str(logical)) in _LOGICAL_TYPES:
            return replace(node, logical=str(logical))
        elif not reason and node.kind in ("int", "long") and definition.get(_CATALYST_TYPE) is not None:
            reason, attribute = f"{_CATALYST_TYPE} is not supported", _CATALYST_TYPE
        if not reason:
            return node
        return replace(node, unsupported=(json.dumps(definition)[:200], reason, attribute))


def _is_decimal(node: AvroNode, precision: object, scale: object) -> bool:
    """Return whether the attributes of a decimal are valid, as Java's LogicalTypes.Decimal checks them."""
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision > 0:
        return False
    return node.kind == "bytes" or precision <= math.floor(math.log10(2) * (8 * node.size - 1))
