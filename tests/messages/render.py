"""Render Kafka's message definitions as declarations of `kproto.messages`.

    classes = render({"HeartbeatRequest": definition, ...}, names)       # the messages of one module
    classes["HeartbeatRequest"].header, classes["HeartbeatRequest"].fields

A key of `names` is (message name, struct name). A value is the name of the class that the module already
declares for the struct. `update` puts the rendered fields into the modules.

The comments of Kafka's definitions are not rendered, because declarations have comments of their own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kproto.messages.index import snake_case
from kproto.wire.types import HIGHEST_VERSION, Versions
from tests.messages.definitions import Definition

WIDTH = 110  # The maximum line length of the project.

# Kafka's types and their names in kproto.wire.types.
PRIMITIVES = {
    name.lower(): name
    for name in (
        "Bool",
        "Int8",
        "Int16",
        "UInt16",
        "Int32",
        "UInt32",
        "Int64",
        "Float64",
        "Uuid",
        "String",
        "Bytes",
        "Records",
    )
}

# Maps a Kafka type to the default of a field of this type whose definition declares no default. For integer
# types, which are not listed, this default is 0.
_ZEROS = {
    "bool": "False",
    "float64": "0.0",
    "uuid": "ZERO_UUID",
    "string": '""',
    "bytes": 'b""',
    "records": "None",
}

StructKey = tuple[str, str]  # (name of a message, name of one of its structs)


@dataclass
class RenderedClass:
    """A class of a module: its header, and its fields as (name, annotation, value).

    The value of a field is source code, or "" if the field needs no value.

    `message` is the message to which the class belongs.
    """

    name: str
    header: str
    message: str
    fields: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])


def render(definitions: Mapping[str, Definition], names: Mapping[StructKey, str]) -> dict[str, RenderedClass]:
    """Render the messages of one module, each followed by its structs in the order of their first use."""
    messages = [_Message(definition) for definition in definitions.values()]
    chosen = _class_names(messages, names)
    classes: dict[str, RenderedClass] = {}
    for message in messages:
        for rendered in message.classes(chosen):
            classes.setdefault(rendered.name, rendered)
    return classes


def field_line(name: str, annotation: str, value: str) -> str:
    """Return the statement that declares a field, wrapped as ruff formats it."""
    line = f"    {name}: {annotation}" + (f" = {value}" if value else "")
    if len(line) <= WIDTH or not value.startswith("field("):
        return line + "\n"
    start, arguments = line.split("field(", 1)
    indented = f"        {arguments.removesuffix(')')}"
    if len(indented) > WIDTH:
        indented = ",\n        ".join(indented.split(", ")) + ","
    return f"{start}field(\n{indented}\n    )\n"


def versions_of(definition: Definition) -> set[int]:
    """Return the versions of a message."""
    valid = Versions.parse(definition["validVersions"])
    return set(range(valid.min, valid.max + 1))


class _Message:
    """One definition, with the versions in which each of its structs exists."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.name: str = definition["name"]
        self.is_api = definition["type"] in ("request", "response")
        self.valid = versions_of(definition)
        self.fields_of: dict[str, list[Definition]] = {
            common["name"]: common["fields"] for common in definition.get("commonStructs", [])
        }
        self._collect(definition["fields"])
        for common in definition.get("commonStructs", []):
            self._collect(common["fields"])
        # The versions of each struct, in the order of the structs' first use.
        self.present: dict[str, set[int]] = {}
        self._place(definition["fields"], self.valid)

    def _collect(self, fields: list[Definition]) -> None:
        for definition in fields:
            if "fields" in definition:
                self.fields_of[definition["type"].removeprefix("[]")] = definition["fields"]
                self._collect(definition["fields"])

    def _place(self, fields: list[Definition], present: set[int]) -> None:
        nested: list[tuple[str, set[int]]] = []
        for definition in fields:
            element = definition["type"].removeprefix("[]")
            versions = _field_versions(definition, self.valid) & present
            if element in self.fields_of and versions:
                self.present[element] = self.present.get(element, set()) | versions
                nested.append((element, versions))
        for element, versions in nested:
            self._place(self.fields_of[element], versions)

    def shape(self, struct: str) -> str:
        """Return a text of a struct's fields; structs with the same name and text share a class."""
        keys = ("name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default")
        keys += ("ignorable", "mapKey", "flexibleVersions")
        fields = [
            {key: definition[key] for key in keys if key in definition}
            | {"versions": sorted(_field_versions(definition, self.valid) & self.present[struct])}
            for definition in self.fields_of[struct]
        ]
        nested = [
            self.shape(element)
            for definition in self.fields_of[struct]
            if (element := definition["type"].removeprefix("[]")) in self.present
        ]
        # The text of an API's struct contains the name of the request or response. So a request and its
        # response get separate classes for equal structs.
        return json.dumps([self.name if self.is_api else "", fields, nested])

    def classes(self, chosen: Mapping[StructKey, str]) -> Iterator[RenderedClass]:
        flexible = self.definition["flexibleVersions"]
        keywords = [
            *([f"api_key={self.definition['apiKey']}"] if self.is_api else ()),
            f'versions="{Versions(min(self.valid), max(self.valid))}"',
            *([f'flexible="{flexible}"'] if flexible != "none" else ()),
        ]
        header = f"class {self.name}(Message, {', '.join(keywords)}):"
        yield self._filled(self.name, header, self.definition["fields"], self.valid, chosen)
        for struct, present in self.present.items():
            name = chosen[self.name, struct]
            yield self._filled(name, f"class {name}(Struct):", self.fields_of[struct], present, chosen)

    def _filled(
        self,
        name: str,
        header: str,
        fields: list[Definition],
        present: set[int],
        chosen: Mapping[StructKey, str],
    ) -> RenderedClass:
        rendered = RenderedClass(name, header, self.name)
        for definition in fields:
            versions = _field_versions(definition, self.valid) & present
            if versions:
                annotation, value = self._field(definition, versions, present, chosen)
                rendered.fields.append((snake_case(definition["name"]), annotation, value))
        return rendered

    def _field(
        self, definition: Definition, versions: set[int], present: set[int], chosen: Mapping[StructKey, str]
    ) -> tuple[str, str]:
        """Return a field's annotation, and its value as source code; "" if the field needs no value."""
        kind: str = definition["type"]
        element = kind.removeprefix("[]")
        is_struct = element in self.fields_of
        annotation = chosen[self.name, element] if is_struct else PRIMITIVES[element]
        if kind != element:
            annotation = f"list[{annotation}]"
        nullable = _set(definition.get("nullableVersions", "none"), self.valid) & versions
        tagged = _set(definition.get("taggedVersions", "none"), self.valid) & versions
        if nullable:
            annotation += " | None"
        has_range, has_tag = versions != present, bool(tagged)
        default = definition.get("default")
        arguments: list[str] = []
        if has_range:
            arguments.append(f'"{self._range(versions)}"')
        if has_range or has_tag or default is not None:
            arguments.append(f"default={_default(kind, default, is_struct)}")
        if nullable and nullable != versions:
            arguments.append(f'nullable="{self._range(nullable)}"')
        if has_tag:
            arguments.append(f"tag={definition['tag']}")
            if tagged != versions:
                arguments.append(f'tagged="{self._range(tagged)}"')
        if has_range and definition.get("ignorable"):
            arguments.append("ignorable=True")
        if definition.get("mapKey"):
            arguments.append("map_key=True")
        if definition.get("flexibleVersions") == "none":
            arguments.append('flexible="none"')
        if len(arguments) == 1 and arguments[0].startswith("default="):
            return annotation, arguments[0].removeprefix("default=")
        return annotation, f"field({', '.join(arguments)})" if arguments else ""

    def _range(self, versions: set[int]) -> str:
        """Format a range of versions, which is open-ended if it contains the message's last version."""
        last = HIGHEST_VERSION if max(versions) == max(self.valid) else max(versions)
        return str(Versions(min(versions), last))


def _class_names(messages: list[_Message], names: Mapping[StructKey, str]) -> dict[StructKey, str]:
    """Return the class name of each struct: Kafka's name, if needed after the message's name.

    Messages of one module share a class for equal structs of the same name. If structs of the same name
    differ, each has its own class, whose name starts with the name of the message.

    A struct keeps the name that the module already declares for it. The exception is a name that the module
    also declares for a different struct of another message.
    """
    shapes: dict[str, set[str]] = defaultdict(set)
    for message in messages:
        for struct in message.present:
            for name in {struct, names.get((message.name, struct), struct)}:
                shapes[name].add(message.shape(struct))
    chosen: dict[StructKey, str] = {}
    for message in messages:
        for struct in message.present:
            name = names.get((message.name, struct), struct)
            prefixed = message.name + struct
            reserved = {declared for key, declared in names.items() if key[0] != message.name}
            keeps = (message.name, struct) in names and (name not in reserved or len(shapes[name]) == 1)
            chosen[message.name, struct] = name if keeps or len(shapes[name]) == 1 else prefixed
    return chosen


def _field_versions(definition: Definition, valid: set[int]) -> set[int]:
    # A few tagged fields in Kafka's definitions have only "taggedVersions", and no "versions".
    return _set(definition.get("versions") or definition["taggedVersions"], valid)


def _set(text: str, within: set[int]) -> set[int]:
    parsed = Versions.parse(text)
    return {version for version in within if version in parsed}


def _default(kind: str, default: object, is_struct: bool) -> str:
    if default == "null":
        return "None"
    if kind.startswith("[]"):
        return "[]"
    if is_struct:
        return "FRESH"
    if default is None or default == "":
        return _ZEROS.get(kind, "0")
    if kind == "bool":
        return str(str(default).lower() == "true")
    if kind == "float64":
        return repr(float(str(default)))
    if kind == "string":
        return json.dumps(default)
    return str(int(str(default), 0))
