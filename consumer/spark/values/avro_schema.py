"""Avro's schemas, read; and as columns of Spark, by the rules of Spark's own from_avro."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from kproto.errors import ConfigError

ABSENT: Final = object()  # The default of a field that has none.

_PRIMITIVES: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}

# (kind, logical type) -> what Spark makes of it; all others are as without their logical type.
_LOGICAL: Final = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("long", "local-timestamp-millis"): "TIMESTAMP_NTZ",
    ("long", "local-timestamp-micros"): "TIMESTAMP_NTZ",
}


@dataclass(frozen=True, slots=True)
class Field:
    """A record's field. `names` are its own and its aliases; `default` is as in JSON."""

    names: tuple[str, ...]
    node: Node
    default: Any = ABSENT


@dataclass(frozen=True, slots=True)
class Node:
    """A type. `kind` is Avro's word, `inner` an array's or map's type, or a union's without null."""

    kind: str
    logical: str = ""
    name: str = ""
    fields: tuple[Field, ...] = ()
    inner: tuple[Node, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    null: int = -1  # Which of a union's branches is null; -1 for none.

    @property
    def branches(self) -> tuple[Node, ...]:
        """A union's types without null."""
        return self.inner

    @property
    def ddl(self) -> str:
        """As Spark's type."""
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
                one = self.merged
                if one is not None:
                    return one.ddl
                members = (f"member{n}: {branch.ddl}" for n, branch in enumerate(self.inner))
                return f"STRUCT<{', '.join(members)}>"
            case _ if self.logical == "decimal":
                return f"DECIMAL({self.precision}, {self.scale})"
            case "fixed":
                return "BINARY"
            case _:
                return _LOGICAL.get((self.kind, self.logical)) or _PRIMITIVES[self.kind]

    @property
    def merged(self) -> Node | None:
        """The one type that a union's values have, if they can all be of one."""
        kinds = {one.kind for one in self.inner if not one.logical}
        if len(self.inner) == 1:
            return self.inner[0]
        if len(self.inner) == 2 and kinds in ({"int", "long"}, {"float", "double"}):
            return Node(max(kinds) if kinds == {"int", "long"} else "double")
        return None


def quoted(name: str) -> str:
    """A name in DDL."""
    return f"`{name.replace('`', '``')}`"


def parse(option: str, text: str, others: Iterable[str] = ()) -> Node:
    """A schema in JSON; `others` are those that it refers to. Raises ConfigError with what is wrong."""
    names: dict[str, Node] = {}
    for other in others:
        _Reader(option, names).read(_loaded(option, other), "", "")
    return _Reader(option, names).read(_loaded(option, text), "", "")


def _loaded(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        if text.strip().replace(".", "").replace("_", "").isalnum():
            return text.strip()
        raise ConfigError(option, text[:80], f"an Avro schema is JSON ({error})") from None


class _Reader:
    def __init__(self, option: str, names: dict[str, Node]) -> None:
        self.option, self.names = option, names
        self.open: set[str] = set()

    def wrong(self, given: object, why: str) -> ConfigError:
        return ConfigError(self.option, json.dumps(given)[:200], why)

    def read(self, given: Any, space: str, place: str) -> Node:
        if isinstance(given, str):
            return self.named(given, space)
        if isinstance(given, list):
            return self.union(cast(Any, given), space, place)
        if not isinstance(given, dict) or "type" not in given:
            raise self.wrong(
                cast("object", given), f"it is no Avro type{place}: a name, a list or an object with a type"
            )
        made = cast("dict[str, Any]", given)
        kind: Any = made["type"]
        if not isinstance(kind, str):
            return self.read(kind, space, place)
        if kind in ("record", "error", "enum", "fixed"):
            return self.new(kind, made, space, place)
        if kind in ("array", "map"):
            word = "items" if kind == "array" else "values"
            if word not in made:
                raise self.wrong(made, f"an Avro {kind} has {word}")
            return Node(kind, inner=(self.read(made[word], space, f"{place}[]"),))
        return self.logical(self.named(kind, space), made)

    def named(self, name: str, space: str) -> Node:
        if name in _PRIMITIVES or name == "null":
            return Node(name)
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self.open or name in self.open:
            raise self.wrong(name, "Spark has no type that holds itself; leave the field out")
        found = self.names.get(full) or self.names.get(name)
        if found is None:
            known = ", ".join([*_PRIMITIVES, "null", *self.names])
            raise self.wrong(name, f"there is no such Avro type; known here: {known}")
        return found

    def union(self, given: list[Any], space: str, place: str) -> Node:
        branches = [self.read(one, space, place) for one in given]
        null = [n for n, one in enumerate(branches) if one.kind == "null"]
        if len(null) > 1 or len(null) == len(branches):
            raise self.wrong(given, "a union has null at most once, and something else")
        rest = tuple(branch for branch in branches if branch.kind != "null")
        return Node("union", inner=rest, null=null[0] if null else -1)

    def new(self, kind: str, given: Mapping[str, Any], space: str, place: str) -> Node:
        name = given.get("name")
        if not isinstance(name, str) or not name:
            raise self.wrong(given, f"an Avro {kind} has a name")
        space = name.rpartition(".")[0] if "." in name else str(given.get("namespace") or space)
        full = name if "." in name or not space else f"{space}.{name}"
        made = Node("record" if kind == "error" else kind, name=full)
        if kind == "enum":
            made = replace(made, symbols=tuple(map(str, given.get("symbols") or ())))
        elif kind == "fixed":
            size = given.get("size")
            if not isinstance(size, int) or size < 0:
                raise self.wrong(given, "a fixed type has a size")
            made = self.logical(replace(made, size=size), given)
        else:
            self.open.add(full)
            fields: list[Field] = []
            for own in cast("list[dict[str, Any]]", given.get("fields") or ()):
                if not {"name", "type"} <= set(own):
                    raise self.wrong(own, "a record's field has a name and a type")
                names = (str(own["name"]), *map(str, own.get("aliases") or ()))
                node = self.read(own["type"], space, f" of field {place}{names[0]}")
                if node.kind == "null":
                    raise self.wrong(own, "a column that is always null has no type")
                fields.append(Field(names, node, own.get("default", ABSENT)))
            self.open.discard(full)
            made = replace(made, fields=tuple(fields))
        self.names[full] = made
        return made

    def logical(self, node: Node, given: Mapping[str, Any]) -> Node:
        word = given.get("logicalType")
        if word == "decimal" and node.kind in ("bytes", "fixed"):
            precision, scale = given.get("precision"), given.get("scale", 0)
            if not isinstance(precision, int) or not 0 < precision <= 38 or not 0 <= scale <= precision:
                return node  # as Avro says: what isn't valid is ignored
            return replace(node, logical=word, precision=precision, scale=scale)
        if (node.kind, str(word)) in _LOGICAL:
            return replace(node, logical=str(word))
        return node
