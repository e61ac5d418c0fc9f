"""Read Kafka's message definitions from its jars and compare declarations with them.

The module is a helper of `test_against_kafka.py`. tests/conformance downloads the jars.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kproto.messages.index import KAFKA_RELEASE, snake_case
from kproto.wire.message import Array, Field, Message, Struct, fresh
from kproto.wire.types import ZERO_UUID, Primitive, Versions
from tests.conformance import judges

Definition = dict[str, Any]

# A key is a jar with definitions. A value is the topic of the records that the jar defines, or "" if the jar
# defines no records.
JARS = {
    "kafka-clients": "",
    "kafka-group-coordinator": "__consumer_offsets",
    "kafka-transaction-coordinator": "__transaction_state",
    "kafka-share-coordinator": "__share_group_state",
    "kafka-metadata": "__cluster_metadata",
    "kafka-raft": "",
    "kafka-storage": "__remote_log_metadata",
    "kafka-server-common": "",
}

_RECORD_TYPES = ("coordinator-key", "coordinator-value", "metadata")


def jars() -> Path:
    """Return the folder of Kafka's jars.

    If the jars are missing, the test is skipped. With `KPROTO_JUDGES=required` it fails.
    """
    named = os.environ.get("KPROTO_KAFKA_JARS")
    if not named and os.environ.get("KPROTO_JUDGES"):
        return Path(judges.kafka_jars(KAFKA_RELEASE)).parent
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = Path(named) if named else cache_folder / "kproto" / f"kafka-{KAFKA_RELEASE}"
    if not (folder / f"kafka-clients-{KAFKA_RELEASE}.jar").exists():
        judges.missing(f"Kafka's message definitions: no kafka-clients-{KAFKA_RELEASE}.jar in {folder}")
    return folder


@cache
def definitions(folder: Path) -> dict[str, Definition]:
    """Return the definitions, by name, of all messages in Kafka's jars that still have a version.

    The definition of a record has the additional key "topic".
    """
    definitions: dict[str, Definition] = {}
    for jar, topic in JARS.items():
        (path,) = folder.glob(f"{jar}-[0-9]*.jar")
        with zipfile.ZipFile(path) as archive:
            for entry in archive.namelist():
                if re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", entry):
                    definition = json.loads(without_comments(archive.read(entry).decode()))
                    if definition["type"] in _RECORD_TYPES:
                        definition.setdefault("topic", topic)
                    if definition["validVersions"] != "none":
                        definitions[definition["name"]] = definition
    return definitions


def release_of(folder: Path) -> str:
    """Return the Kafka release whose jars are in a folder."""
    (path,) = folder.glob("kafka-clients-[0-9]*.jar")
    return path.stem.removeprefix("kafka-clients-")


def without_comments(text: str) -> str:
    """Remove the // comments from Kafka's JSON."""
    return re.sub(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*', lambda match: match[1] or "", text)


def differences(declared: type[Message], defined: Definition) -> list[str]:
    """Return the differences between a declaration and Kafka's definition, as "field: difference"."""
    return list(_Comparison(declared, defined).all())


class _Comparison:
    def __init__(self, declared: type[Message], defined: Definition) -> None:
        self.declared = declared
        self.defined = defined
        self.valid = _within(Versions.parse(defined["validVersions"]), set(), exact=True)
        self.parts: dict[str, list[Definition]] = {}
        self._collect(defined["fields"])
        for common in defined.get("commonStructs", []):
            self.parts[common["name"]] = common["fields"]
            self._collect(common["fields"])

    def _collect(self, fields: list[Definition]) -> None:
        for field in fields:
            if "fields" in field:
                self.parts[field["type"].removeprefix("[]")] = field["fields"]
                self._collect(field["fields"])

    def all(self) -> Iterator[str]:
        cls, defined = self.declared, self.defined
        key = defined.get("apiKey") if defined["type"] in ("request", "response") else None
        yield from _differ("(name)", cls.__name__, defined["name"])
        yield from _differ("(api key)", cls.__api_key__, key)
        yield from _differ("(versions)", _within(cls.__versions__, self.valid, exact=True), self.valid)
        flexible = _set(defined["flexibleVersions"], self.valid)
        yield from _differ("(flexible)", _within(cls.__flexible__, self.valid), flexible)
        yield from self.struct("", cls, defined["fields"], self.valid)

    def struct(
        self, path: str, cls: type[Struct], fields: list[Definition], present: set[int]
    ) -> Iterator[str]:
        wanted: dict[str, tuple[Definition, set[int]]] = {}
        for definition in fields:
            # A few tagged fields in Kafka's definitions have only "taggedVersions", and no "versions".
            text = definition.get("versions") or definition["taggedVersions"]
            versions = _set(text, self.valid) & present
            if versions:
                wanted[snake_case(definition["name"])] = (definition, versions)
        declared = {f.name: f for f in cls.__fields__}
        for name in [name for name in wanted if name not in declared]:
            yield f"{path}{name}: missing; {cls.__name__} has it in versions {_spell(wanted[name][1])}"
        for name in [name for name in declared if name not in wanted]:
            yield f"{path}{name}: {cls.__name__} has no such field"
        common = [name for name in declared if name in wanted]
        yield from _differ(f"{path}(order)", common, [name for name in wanted if name in declared])
        for name, (definition, versions) in wanted.items():
            if name in declared:
                yield from self.field(path + name, declared[name], definition, versions, present)

    def field(
        self, path: str, f: Field, definition: Definition, versions: set[int], present: set[int]
    ) -> Iterator[str]:
        yield from _differ(f"{path} (versions)", _within(f.versions, present), versions)
        nullable = _set(definition.get("nullableVersions", "none"), self.valid) & versions
        yield from _differ(f"{path} (nullable)", _within(f.nullable, versions), nullable)
        tagged = _set(definition.get("taggedVersions", "none"), self.valid) & versions
        yield from _differ(f"{path} (tagged)", _within(f.tagged, versions), tagged)
        yield from _differ(f"{path} (tag)", f.tag, definition.get("tag", -1))
        if versions != present:
            yield from _differ(f"{path} (ignorable)", f.ignorable, definition.get("ignorable", False))
        yield from _differ(f"{path} (map key)", f.map_key, definition.get("mapKey", False))
        yield from _differ(f"{path} (rigid)", f.always_rigid, definition.get("flexibleVersions") == "none")
        yield from self.kind(path, f.kind, definition["type"], versions)
        yield from _differ(f"{path} (default)", f.initial(), _default(definition, f.kind))

    def kind(
        self, path: str, kind: Primitive | Array | type[Struct], wanted: str, versions: set[int]
    ) -> Iterator[str]:
        if isinstance(kind, Array) != wanted.startswith("[]"):
            yield f"{path} (type): {kind} is not {wanted}"
            return
        element = kind.element if isinstance(kind, Array) else kind
        name = wanted.removeprefix("[]")
        if isinstance(element, Primitive):
            yield from _differ(f"{path} (type)", element.name, name)
        elif name not in self.parts or element.__name__ not in (name, self.defined["name"] + name):
            yield f"{path} (type): {element.__name__} is not {name}"
        else:
            yield from self.struct(f"{path}.", element, self.parts[name], versions)


def _differ(where: str, declared: object, defined: object) -> Iterator[str]:
    if declared != defined or type(declared) is not type(defined):
        yield f"{where}: {declared!r} is declared, {defined!r} is defined"


def _set(text: str, within: set[int]) -> set[int]:
    parsed = Versions.parse(text)
    return {version for version in within if version in parsed}


def _spell(versions: set[int]) -> str:
    first, last = min(versions), max(versions)
    return str(first) if first == last else f"{first}-{last}"


def _within(versions: Versions, present: set[int], exact: bool = False) -> set[int]:
    if exact:
        return set(range(versions.min, versions.max + 1))
    return {version for version in present if version in versions}


def _default(definition: Definition, kind: Primitive | Array | type[Struct]) -> object:
    """Return the value of an unset field in Kafka's generated class.

    In Kafka's definitions the string "null" makes null the default, but JSON's null means "no default".
    """
    default = definition.get("default")
    if default == "null":
        return None
    default = "" if default is None else default
    if isinstance(kind, Array):
        return []
    if isinstance(kind, type):
        return fresh(kind)
    if kind.name == "bool":
        return str(default).lower() == "true"
    if kind.name == "float64":
        return float(default or 0)
    if kind.name.startswith(("int", "uint")):
        return int(str(default), 0) if default != "" else 0
    return {"string": default, "bytes": b"", "records": None, "uuid": ZERO_UUID}[kind.name]


def kind_in_kafka(definition: Definition) -> str:
    """Return a message's kind; `kproto.messages.index.kind_of` must return the same kind."""
    kind: str = definition["type"]
    return "record" if kind in _RECORD_TYPES else kind
