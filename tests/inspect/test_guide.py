"""`kproto show` prints the tables of the declarations."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from kproto.cli import main
from kproto.inspect import guide
from kproto.messages.fetch import FetchRequest
from kproto.messages.index import message_class, names
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse


def test_a_table_has_every_field_with_its_versions_and_note() -> None:
    lines = guide.text("JoinGroupRequest", width=200).splitlines()
    row = next(line for line in lines if "group_instance_id" in line)
    assert row.split()[:5] == ["group_instance_id", "string", "5+", "yes", "null"]
    assert row.endswith("The instance id of a static member (KIP-345).")
    assert "JoinGroupRequest, versions 0-9, flexible from 6" in lines


def test_a_version_has_only_its_own_fields() -> None:
    assert [row.field.name for row in guide.rows(JoinGroupRequest, 0)] == [
        "group_id",
        "session_timeout_ms",
        "member_id",
        "protocol_type",
        "protocols",
        "name",
        "metadata",
    ]


def test_fields_of_a_struct_follow_it_indented() -> None:
    fields = [(row.depth, row.field.name) for row in guide.rows(JoinGroupRequest)]
    at = fields.index((0, "protocols"))
    assert fields[at + 1 : at + 3] == [(1, "name"), (1, "metadata")]


def test_a_change_is_listed_once_with_its_kip() -> None:
    changes = dict(guide.changes(JoinGroupResponse))
    assert changes["v5"] == ["+ members.group_instance_id (KIP-345)"]
    assert changes["v7"] == ["+ protocol_type (KIP-559)", "protocol_name may be null"]
    assert changes["v3 to v4"] == []


def test_versions_without_a_change_are_one_range() -> None:
    assert dict(guide.changes(JoinGroupRequest))["v2 to v4"] == []


def test_a_new_struct_is_listed_without_its_fields() -> None:
    changes = dict(guide.changes(FetchRequest))
    assert changes["v7"] == ["+ session_id (KIP-227)", "+ session_epoch", "+ forgotten_topics_data (KIP-227)"]


def test_a_removed_field_is_listed() -> None:
    assert "- topics.topic" in dict(guide.changes(FetchRequest))["v13"]


@pytest.mark.parametrize("width", [60, 300])
def test_only_tables_may_be_wider_than_the_page(width: int) -> None:
    for name in names():
        for line in guide.text(name, width=width).splitlines():
            assert len(line) <= max(width, 130), (name, line)


def test_the_text_of_a_message_has_its_fields_and_the_changes_of_its_versions() -> None:
    assert (
        guide.text("HeartbeatRequest", width=100)
        == """\
Heartbeat (key 12): keep the membership alive, and detect a rebalance.

HeartbeatRequest, versions 0-4, flexible from 4
  field              type    versions  null  default
  group_id           string  all
  generation_id      int32   all
  member_id          string  all
  group_instance_id  string  3+        yes   null     The instance id of a static member (KIP-345).

  v1 to v2   no fields added or removed
  v3         + group_instance_id (KIP-345)
  v4         flexible: compact lengths, tagged fields (KIP-482)
"""
    )


def test_the_text_of_one_version_has_neither_versions_nor_changes() -> None:
    assert (
        guide.text("HeartbeatResponse", 3)
        == """\
Heartbeat (key 12): keep the membership alive, and detect a rebalance.

HeartbeatResponse v3, not flexible
  field             type   default
  throttle_time_ms  int32  0
  error_code        int16
"""
    )


def test_a_note_without_room_beside_its_field_is_indented_below_it() -> None:
    for message, field, depth in (
        ("JoinGroupResponse", "protocol_type", 0),
        ("JoinGroupResponse", "group_instance_id", 1),
        ("JoinGroupRequest", "reason", 0),  # The preceding field is indented further.
    ):
        lines = guide.text(message, width=60).splitlines()
        (at,) = (index for index, line in enumerate(lines) if line.split()[:1] == [field])
        names, note = lines[at : at + 2]
        assert len(names) - len(names.lstrip()) == 2 + 2 * depth
        assert len(note) - len(note.lstrip()) == 4 + 2 * depth


class Tags(HTMLParser):
    """An HTML parser that collects links, and fails on an end tag without a start tag."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "html"):
            self.open.append(tag)
        self.links += [value for key, value in attrs if key == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        if tag != "html":
            assert self.open.pop() == tag


def test_every_link_of_the_guide_has_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--html", str(tmp_path / "guide")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'guide' / 'index.html'}\n"
    files = {path.name for path in (tmp_path / "guide").iterdir()}
    reached = set()
    for path in (tmp_path / "guide").iterdir():
        tags = Tags()
        tags.feed(path.read_text())
        assert tags.open == []
        reached |= set(tags.links)
    assert reached == files


def test_every_message_is_in_the_guide() -> None:
    html = "".join(html for _, html in guide.pages())
    for name in names():
        assert name.removesuffix("Request").removesuffix("Response") in html
        assert all(f"<code>{field.name}</code>" in html for field in message_class(name).__fields__)


@pytest.mark.parametrize("name", ["JoinGroup", "joingroup", "11", "JoinGroupRequest", "joingrouprequest"])
def test_a_message_is_found_by_api_key_or_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name]) == 0
    assert "JoinGroupRequest, versions 0-9" in capsys.readouterr().out


def test_messages_without_an_api_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "ConsumerProtocolSubscription", "--version", "3"]) == 0
    assert "owned_partitions" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["JoinGroup", "--version", "12"], "JoinGroup has the versions 0-9"),
        (["JoinGroup", "--html", "guide"], "without a MESSAGE"),
    ],
)
def test_invalid_arguments_of_show_are_reported(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_message_is_reported_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["show"])
    error = capsys.readouterr().err
    assert "error: name a MESSAGE, such as JoinGroup" in error
    assert "''" not in error


def test_an_unwritable_guide_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["show", "--html", str(tmp_path / "file")]) == 2
    assert "a writable directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("sync", "SyncGroupRequest"), ("Joingrup", "JoinGroupRe"), ("x", "JoinGroupRequest")],
)
def test_a_misspelt_name_is_reported_with_similar_names(
    name: str, suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["show", name])
    assert suggestion in capsys.readouterr().err


def test_text_between_backticks_is_code_on_a_page() -> None:
    page = "".join(html for _, html in guide.fragments("Fetch"))
    assert "From v15 on the id is in <code>replica_state</code>" in page


def test_a_page_has_a_section_for_each_message_with_its_fields_and_changes() -> None:
    (_, summary), (title, request), (_, response) = guide.fragments("Heartbeat")
    assert summary == "<p>Heartbeat (key 12): keep the membership alive, and detect a rebalance.</p>"
    assert title == "HeartbeatRequest"
    for part in (
        "<p>Versions 0-4, flexible from 4.</p>",
        "<th>field</th><th>type</th><th>versions</th><th>null</th><th>default</th><th>meaning</th>",
        "<td><code>group_instance_id</code></td><td>string</td><td>3+</td><td>yes</td><td>null</td>",
        "<li>v1 to v2: no fields added or removed</li>",
        "<li>v3: new <code>group_instance_id</code> (KIP-345)</li>",
        "<li>v4: flexible: compact lengths, tagged fields (KIP-482)</li>",
    ):
        assert part in request
    assert "<th>null</th>" not in response
