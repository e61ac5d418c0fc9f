"""Every declaration equals Kafka's definition, and each kind of difference is reported.

The tests need no Java, only Kafka's jars, which contain the definitions as JSON.
"""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kproto.messages import index
from kproto.wire import Struct
from tests.bundles import bundles, check_each
from tests.messages.definitions import JARS, Definition, definitions, differences, jars, kind_in_kafka


@pytest.fixture(scope="module")
def kafka() -> dict[str, Definition]:
    return definitions(jars())


def test_exactly_kafkas_messages_are_declared(kafka: dict[str, Definition]) -> None:
    assert sorted(index.names()) == sorted(kafka)


def test_all_278_messages_of_kafka_4_4_are_declared() -> None:
    assert index.KAFKA_RELEASE == "4.4.0"
    assert len(index.API_NAMES) == 91
    assert len(index.names()) == 278


@pytest.mark.parametrize("names", bundles(index.names()))
def test_each_declaration_equals_kafkas_definition(
    names: Sequence[str], kafka: dict[str, Definition]
) -> None:
    check_each(names, lambda name: check_declaration(name, kafka[name]))


def check_declaration(name: str, definition: Definition) -> None:
    reported = differences(index.message_class(name), definition)
    assert not reported, "\n".join(reported)
    assert index.kind_of(name) == kind_in_kafka(definition)


def test_record_types_are_kafkas(kafka: dict[str, Definition]) -> None:
    defined = {
        (name, definition["apiKey"], definition["topic"])
        for name, definition in kafka.items()
        if "topic" in definition
    }
    records = [name for name in index.names() if index.kind_of(name) == "record"]
    assert {(name, index.key_of(name), index.topic_of(name)) for name in records} == defined
    for name, record_type, topic in defined:
        assert index.message_class(name) in record_classes(record_type, topic)


def record_classes(record_type: int, topic: str) -> tuple[type[Struct], ...]:
    try:
        return index.record_classes(record_type, topic)
    except KeyError:  # The records of this topic have no keys.
        return (index.record_value_class(record_type, topic),)


# Mutants: each changes one of Kafka's definitions, and states the difference that must be reported.


def change(*path: str, **to: Any) -> Callable[[Definition], None]:
    """Change the field at `path` (Kafka's names), or the message itself if the path is empty."""

    def mutate(definition: Definition) -> None:
        target = definition
        for name in path:
            (target,) = (field for field in target["fields"] if field["name"] == name)
        for key, value in to.items():
            if value is None:
                del target[key]
            else:
                assert target.get(key) != value, "the mutant changes nothing"
                target[key] = value

    return mutate


def swap_first_two_fields(definition: Definition) -> None:
    fields = definition["fields"]
    fields[0], fields[1] = fields[1], fields[0]


def drop_last_field(definition: Definition) -> None:
    definition["fields"].pop()


def add_field(definition: Definition) -> None:
    definition["fields"].append({"name": "Surprise", "type": "int32", "versions": "9+"})


MUTANTS: dict[str, tuple[str, Callable[[Definition], None], str]] = {
    "another API key": ("JoinGroupRequest", change(apiKey=12), "(api key)"),
    "one version more": ("JoinGroupRequest", change(validVersions="0-10"), "(versions)"),
    "one version less": ("JoinGroupRequest", change(validVersions="1-9"), "(versions)"),
    "flexible later": ("JoinGroupRequest", change(flexibleVersions="7+"), "(flexible)"),
    "never flexible": ("JoinGroupRequest", change(flexibleVersions="none"), "(flexible)"),
    "two fields swapped": ("JoinGroupRequest", swap_first_two_fields, "(order)"),
    "a field less": ("JoinGroupRequest", drop_last_field, "reason: JoinGroupRequest has no such field"),
    "a field more": ("JoinGroupRequest", add_field, "surprise: missing"),
    "another name": ("JoinGroupRequest", change("GroupId", name="GroupsId"), "groups_id: missing"),
    "another type": (
        "JoinGroupRequest",
        change("SessionTimeoutMs", type="int64"),
        "timeout_ms (type)",
    ),
    "an array": ("JoinGroupRequest", change("GroupId", type="[]string"), "group_id (type)"),
    "not an array": (
        "JoinGroupRequest",
        change("Protocols", type="JoinGroupRequestProtocol"),
        "protocols (type)",
    ),
    "later": ("JoinGroupRequest", change("Reason", versions="9+"), "reason (versions)"),
    "earlier": ("JoinGroupRequest", change("Reason", versions="7+"), "reason (versions)"),
    "no longer": (
        "OffsetCommitRequest",
        change("RetentionTimeMs", versions="2-5"),
        "time_ms (versions)",
    ),
    "not nullable": ("JoinGroupRequest", change("Reason", nullableVersions=None), "reason (nullable)"),
    "nullable later": ("JoinGroupResponse", change("ProtocolName", nullableVersions="8+"), "(nullable)"),
    "another default": ("JoinGroupRequest", change("RebalanceTimeoutMs", default="0"), "(default)"),
    "default not null": ("JoinGroupRequest", change("Reason", default=None), "reason (default)"),
    "not ignorable": ("JoinGroupRequest", change("Reason", ignorable=False), "reason (ignorable)"),
    "ignorable": (
        "JoinGroupRequest",
        change("GroupInstanceId", ignorable=True),
        "instance_id (ignorable)",
    ),
    "deep inside": (
        "JoinGroupRequest",
        change("Protocols", "Metadata", type="string"),
        "protocols.metadata (type)",
    ),
    "no map key": ("JoinGroupRequest", change("Protocols", "Name", mapKey=False), "protocols.name (map key)"),
    "another tag": ("FetchRequest", change("ClusterId", tag=5), "cluster_id (tag)"),
    "tagged later": ("FetchRequest", change("ClusterId", taggedVersions="13+"), "cluster_id (tagged)"),
    "not tagged": ("FetchRequest", change("ClusterId", tag=None, taggedVersions=None), "cluster_id (tag"),
    "a flexible client id": ("RequestHeader", change("ClientId", flexibleVersions=None), "client_id (rigid)"),
    "another struct": ("FetchRequest", change("Topics", type="[]ForgottenTopic"), "topics (type)"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_notices_each_mutation(mutant: str, kafka: dict[str, Definition]) -> None:
    name, mutate, named = MUTANTS[mutant]
    definition = copy.deepcopy(kafka[name])
    mutate(definition)
    reported = differences(index.message_class(name), definition)
    assert any(named in difference for difference in reported), reported


# With the jars of a newer Kafka the same checks fail, and name the missing messages and fields.


def newer(definition: Definition) -> Definition:
    """Add a version to a message, with a new field in the message and in each of its structs."""
    newer_definition = copy.deepcopy(definition)
    first, _, last = newer_definition["validVersions"].partition("-")
    new = int(last or first) + 1
    newer_definition["validVersions"] = f"{first}-{new}"

    def extend(fields: list[Definition]) -> None:
        for field in fields:
            if field.get("versions") == definition["validVersions"]:
                field["versions"] = f"{first}+"
            if "fields" in field:
                extend(field["fields"])
        fields.append({"name": "AddedField", "type": "int32", "versions": f"{new}+", "ignorable": True})

    extend(newer_definition["fields"])
    for common in newer_definition.get("commonStructs", []):
        extend(common["fields"])
    return newer_definition


@pytest.fixture(scope="module")
def newer_jars(tmp_path_factory: pytest.TempPathFactory, kafka: dict[str, Definition]) -> Path:
    """Write jars of a newer Kafka: every message has a new version, and one API is new."""
    api = kafka["HeartbeatRequest"] | {"name": "TomorrowRequest", "apiKey": 999}
    definitions = [api, *(newer(definition) for definition in kafka.values())]
    folder = tmp_path_factory.mktemp("jars")
    for jar in JARS:
        with zipfile.ZipFile(folder / f"{jar}-9.9.9.jar", "w") as archive:
            for definition in definitions if jar == "kafka-clients" else []:
                archive.writestr(f"common/message/{definition['name']}.json", json.dumps(definition))
    return folder


def test_a_new_api_is_reported_by_name(newer_jars: Path) -> None:
    assert set(definitions(newer_jars)) - set(index.names()) == {"TomorrowRequest"}
    with pytest.raises(AssertionError, match="TomorrowRequest"):
        test_exactly_kafkas_messages_are_declared(definitions(newer_jars))


def test_new_fields_are_reported_by_name_at_every_depth(newer_jars: Path) -> None:
    tomorrow = definitions(newer_jars)
    for name in index.names():
        cls = index.message_class(name)
        reported = differences(cls, tomorrow[name])
        missing = {path for path, _, text in (line.partition(": ") for line in reported) if "missing" in text}
        assert missing == set(paths_of("added_field", cls, cls.__versions__.max)), name


def paths_of(name: str, cls: type[Struct], version: int, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields named `name` that `newer` adds to a message and its structs."""
    yield path + name
    for f in cls.__fields__:
        part = getattr(f.kind, "element", f.kind)
        if isinstance(part, type) and version in f.versions:
            yield from paths_of(name, part, version, f"{path}{f.name}.")


def test_the_comparison_with_a_newer_kafka_fails_with_the_field(newer_jars: Path) -> None:
    with pytest.raises(AssertionError, match=r"protocols\.added_field: missing; JoinGroupRequestProtocol"):
        check_declaration("JoinGroupRequest", definitions(newer_jars)["JoinGroupRequest"])


def test_without_jars_the_test_is_skipped_with_their_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KPROTO_KAFKA_JARS", str(tmp_path))
    monkeypatch.delenv("KPROTO_JUDGES", raising=False)
    with pytest.raises(pytest.skip.Exception, match=str(tmp_path)):
        jars()


def test_without_jars_the_test_fails_if_judges_are_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KPROTO_KAFKA_JARS", str(tmp_path))
    monkeypatch.setenv("KPROTO_JUDGES", "required")
    with pytest.raises(pytest.fail.Exception, match=str(tmp_path)):
        jars()
