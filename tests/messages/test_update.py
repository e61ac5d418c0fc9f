"""The command that updates the declarations changes only what Kafka has changed."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from kproto.messages import index
from tests.messages.definitions import Definition, definitions, jars
from tests.messages.update import FOLDER, GAP, Report, update, updated_index, updated_module

DECLARED = '''"""Ask (key 7): ask for something."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int32, String


class AskRequest(Message, api_key=7, versions="0-1", flexible="1+"):
    """Kept."""

    # The name of
    # the asker.
    name: String
    retries: Int32 = field("1+", default=3, ignorable=True)  # How often to try again.
    # The old way.
    old_way: Int32
    parts: list[Part]

    def __repr__(self) -> str:
        # Kept, too.
        return "AskRequest"


class Part(Struct):
    id: Int32


# A comment between classes.


class AskResponse(Message, api_key=7, versions="0-1", flexible="1+"):
    error_code: Int32


def helper() -> None:
    """Kept."""
'''


def request(**changes: object) -> Definition:
    """Return the definition of the request that `DECLARED` declares, with these changes."""
    parts = {"name": "Parts", "type": "[]Part", "versions": "0+", "fields": [field("Id")]}
    retries = field("Retries", versions="1+", default="3", ignorable=True)
    return {
        "apiKey": 7,
        "type": "request",
        "name": "AskRequest",
        "validVersions": "0-1",
        "flexibleVersions": "1+",
        "fields": [field("Name", "string"), retries, field("OldWay"), parts],
        **changes,
    }


def field(name: str, kind: str = "int32", *, versions: str = "0+", **options: object) -> Definition:
    return {"name": name, "type": kind, "versions": versions, "about": "Kafka's own words.", **options}


RESPONSE: Definition = request() | {"type": "response", "name": "AskResponse", "fields": [field("ErrorCode")]}


def updated(definition: Definition, report: Report | None = None) -> str:
    return updated_module(
        DECLARED, {"AskRequest": definition, "AskResponse": RESPONSE}, report if report else Report()
    )


def test_an_unchanged_definition_changes_nothing() -> None:
    assert updated(request()) == DECLARED


def test_a_new_version_adds_only_its_fields_and_marks_them() -> None:
    fields = request()["fields"]
    part = fields[3] | {"fields": [field("Id"), field("Rack", "string", versions="2+", default="null")]}
    part["fields"][1]["nullableVersions"] = "2+"
    new = field("TopicId", "uuid", versions="2+", ignorable=True)
    source = updated(request(validVersions="0-2", fields=[fields[0], new, *fields[1:3], part]))
    expected = DECLARED.replace(
        'class AskRequest(Message, api_key=7, versions="0-1"',
        'class AskRequest(Message, api_key=7, versions="0-2"',
    )
    expected = expected.replace(
        "    name: String\n",
        f"    name: String\n    # {GAP}\n"
        '    topic_id: Uuid = field("2+", default=ZERO_UUID, ignorable=True)\n',
    )
    expected = expected.replace(
        "    id: Int32\n",
        f'    id: Int32\n    # {GAP}\n    rack: String | None = field("2+", default=None)\n',
    )
    expected = expected.replace("import Int32, String", "import ZERO_UUID, Int32, String, Uuid")
    assert source == expected
    assert "Kafka's own words" not in source


def test_a_changed_field_keeps_its_comments() -> None:
    fields = request()["fields"]
    longer = fields[0] | {"type": "string", "nullableVersions": "1+"}
    tagged = fields[1] | {"taggedVersions": "1+", "tag": 0, "type": "int64"}
    source = updated(request(fields=[longer, tagged, *fields[2:]]))
    assert '    # The name of\n    # the asker.\n    name: String | None = field(nullable="1+")\n' in source
    assert (
        '    retries: Int64 = field("1+", default=3, tag=0, ignorable=True)  # How often to try again.\n'
        in source
    )
    assert "import Int32, Int64, String" in source


def test_the_comment_of_a_removed_field_is_reported() -> None:
    report = Report()
    fields = request()["fields"]
    source = updated(request(fields=[*fields[:2], fields[3]]), report)
    assert "old_way" not in source
    assert report.dropped == ["AskRequest.old_way: # The old way."]


def test_a_new_struct_follows_the_classes_of_its_message() -> None:
    options = field("Options", "[]Option", versions="0+") | {"fields": [field("Key", "string", mapKey=True)]}
    source = updated(request(fields=[*request()["fields"], options]))
    classes = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert classes == ["AskRequest", "Part", "Option", "AskResponse"]
    assert f"class Option(Struct):\n    # {GAP}\n    key: String = field(map_key=True)\n" in source


def test_a_struct_that_two_messages_declare_differently_gets_the_prefix_of_its_message() -> None:
    part = {"name": "Parts", "type": "[]Part", "versions": "0+", "fields": [field("Other", "bool")]}
    source = updated_module(
        DECLARED, {"AskRequest": request(), "AskResponse": RESPONSE | {"fields": [part]}}, Report()
    )
    assert "class AskResponsePart(Struct):" in source
    assert "    parts: list[AskResponsePart]\n" in source
    assert "    parts: list[Part]\n" in source


def test_a_long_declaration_is_wrapped() -> None:
    long = field("AFieldWithAVeryLongNameThatNeedsALineOfItsOwn", "string", versions="1+", ignorable=True)
    source = updated(request(fields=[*request()["fields"], long | {"default": "a long default" * 2}]))
    assert max(map(len, source.splitlines())) <= 110
    assert '= field(\n        "1+", default="a long' in source


def test_a_new_message_gets_a_module_and_a_row_of_the_index(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "index.py", tmp_path)
    topic: dict[str, object] = {"topic": "__cluster_metadata", "type": "metadata", "fields": []}
    defined: dict[str, Definition] = {
        "NewThingRequest": request(name="NewThingRequest", apiKey=999),
        "NewThingResponse": RESPONSE | {"name": "NewThingResponse", "apiKey": 999},
        "NewRecord": request(name="NewRecord", apiKey=500, **topic),
    }
    report = update(defined, tmp_path, "9.9.9")
    assert report.written == ["metadata_records", "new_thing", "index"]
    source = (tmp_path / "new_thing.py").read_text()
    assert source.startswith(f'"""NewThing (key 999): {GAP}."""\n\nfrom __future__ import annotations\n')
    classes = [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert classes == ["NewThingRequest", "Part", "NewThingResponse"]
    assert f'    """{GAP}"""\n' in (tmp_path / "metadata_records.py").read_text()
    rows = (tmp_path / "index.py").read_text()
    assert '    94: "UnregisterController",\n    999: "NewThing",\n}' in rows
    assert '    29: "UnregisterControllerRecord",\n    500: "NewRecord",\n}' in rows
    assert 'KAFKA_RELEASE: Final = "9.9.9"' in rows
    ast.parse(rows)


def test_an_index_with_every_message_stays() -> None:
    source = (FOLDER / "index.py").read_text()
    assert updated_index(source, {"AskRequest": request(apiKey=0, name="ProduceRequest")}) == source


def test_no_description_is_missing() -> None:
    """The test fails until a maintainer has replaced or deleted each `GAP` that an update has written."""
    gaps = [
        f"{path.name}:{number}"
        for path in sorted(FOLDER.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if GAP in line
    ]
    assert not gaps, f"describe these in plain words, or delete the marks: {', '.join(gaps)}"


def test_the_declarations_are_those_of_the_jars(tmp_path: Path) -> None:
    """With the jars of the release `index.KAFKA_RELEASE` the command changes nothing."""
    for path in FOLDER.glob("*.py"):
        shutil.copy(path, tmp_path)
    assert update(definitions(jars()), tmp_path, index.KAFKA_RELEASE).written == []


@pytest.mark.thorough
def test_all_declarations_are_rebuilt_from_the_jars(tmp_path: Path) -> None:
    """From the jars alone, the command writes modules with the same messages and fields as kproto's."""
    shutil.copy(FOLDER / "index.py", tmp_path)
    update(definitions(jars()), tmp_path)
    for path in tmp_path.glob("*.py"):
        written = ast.parse(path.read_text())
        declared = ast.parse((FOLDER / path.name).read_text())
        assert fields_of(written) == fields_of(declared), path.name


def fields_of(tree: ast.Module) -> dict[str, list[str]]:
    return {
        node.name: [ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)]
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and ast.unparse(node.bases[0]) in ("Message", "Struct")
        and not node.name.startswith("_")
    }
