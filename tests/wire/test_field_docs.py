"""help() shows the comments beside the fields of a declaration."""

from __future__ import annotations

import importlib
import pydoc
import sys
from pathlib import Path

import pytest

from kproto.messages.fetch import FetchResponse
from kproto.messages.headers import RequestHeader
from kproto.messages.index import message_class, names
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kproto.wire.field_docs import describe_field, field_notes, nested_structs, version_range
from kproto.wire.types import Versions

DECLARED = """
from __future__ import annotations
from kproto.wire import Int32, Message, String, Struct, field

class Ask(Message, versions="0-3"):
    # Not of the first field: a line is between them.

    first: Int32
    # In two lines,
    # and KIP-1
    second: Int32 = field(
        "1+",
        default=-1,  # beside, KIP-2 and KIP-1
    )
    third: String  # "# in a text" is none
    text: String = "# no comment"
"""


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type:
    (tmp_path / "declared_here.py").write_text(DECLARED)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "declared_here", raising=False)
    declared: type = importlib.import_module("declared_here").Ask
    return declared


def test_a_comment_belongs_to_the_field_beside_or_below_it(ask: type) -> None:
    assert {name: note.text for name, note in field_notes(ask).items()} == {
        "first": "",
        "second": "In two lines, and KIP-1 beside, KIP-2 and KIP-1",
        "third": '"# in a text" is none',
        "text": "",
    }


def test_each_kip_is_listed_once(ask: type) -> None:
    assert field_notes(ask)["second"].kips == ("KIP-1", "KIP-2")


def test_without_the_source_types_and_versions_are_described(
    ask: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(module: object) -> str:
        raise OSError

    monkeypatch.setattr("inspect.getsource", gone)
    monkeypatch.setitem(sys.modules, "elsewhere", sys.modules["declared_here"])
    ask.__module__ = "elsewhere"
    assert field_notes(ask)["second"].text == ""
    assert "second  int32, versions 1+, default -1" in str(ask.__doc__)


def test_help_shows_fields_with_versions_and_comments() -> None:
    help_text = pydoc.plain(pydoc.render_doc(JoinGroupRequest))
    assert "JoinGroup (key 11): join a group" in help_text
    assert "group_instance_id     string, versions 5+, may be null, default null. The instance" in help_text


def test_the_docstring_of_a_class_comes_first() -> None:
    assert str(RequestHeader.__doc__).startswith("The header of a request")
    assert "correlation_id       int32" in str(RequestHeader.__doc__)


def test_importing_a_message_reads_no_source() -> None:
    import subprocess

    code = "import sys, kproto.messages.join_group; assert 'kproto.wire.field_docs' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_message_can_be_described() -> None:
    for name in names():
        for struct in nested_structs(message_class(name)):
            lines = str(struct.__doc__).splitlines()
            assert len(lines) >= (2 + len(struct.__fields__) if struct.__fields__ else 1)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (Versions(0, 9), ""),
        (Versions(5, 0x7FFF), "5+"),
        (Versions(0, 4), "0-4"),
        (Versions(7, 7), "7"),
        (Versions(12, 14), "none"),
    ],
)
def test_version_ranges_are_limited_to_the_message(of: Versions, expected: str) -> None:
    assert version_range(of, Versions(0, 9)) == expected


def test_nullable_versions_are_described() -> None:
    field = next(field for field in JoinGroupResponse.__fields__ if field.name == "protocol_name")
    assert describe_field(field, JoinGroupResponse.__versions__) == "string, may be null in 7+"


def test_a_tag_is_described() -> None:
    field = next(field for field in FetchResponse.__fields__ if field.name == "node_endpoints")
    assert (
        describe_field(field, FetchResponse.__versions__) == "[]NodeEndpoint, versions 16+, tag 0, default []"
    )
