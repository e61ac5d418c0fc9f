"""Objects are shown as HTML, in which text from other programs is escaped."""

from __future__ import annotations

from html import escape
from types import SimpleNamespace
from uuid import UUID

import pytest

from kproto.group.classic import coordinator
from kproto.group.classic.coordinator.state import ClassicGroup, ClassicGroupMember, ClassicGroupState
from kproto.group.classic.member import Member
from kproto.group.protocol import MemberConfig
from kproto.group.subscription import Assignment, TopicPartition
from kproto.inspect import notebook
from kproto.messages.fetch import FetchRequest, FetchTopic
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kproto.messages.sync_group import SyncGroupResponse
from kproto.records import Record, encode_batch

HOSTILE = "<script>\x1b[31m\u202e"
ESCAPED = "&lt;script&gt;\\u001b[31m\\u202e"


def html(value: object) -> str:
    text = value._repr_html_()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script" not in text
    return text


def test_a_message_shows_its_fields_and_their_bytes() -> None:
    text = html(HeartbeatRequest(group_id="g", generation_id=7, member_id=HOSTILE))
    assert "HeartbeatRequest v4, " in text
    assert "<td style='text-align: left'>02 67</td><td style='text-align: left'>group_id</td>" in text
    assert "00 00 00 07" in text
    assert ESCAPED in text


def test_a_message_is_shown_in_the_highest_version_that_encodes_all_values() -> None:
    """Fetch requests name topics up to v12, and use topic ids from v13 on."""
    fields = {"max_wait_ms": 1, "min_bytes": 1}
    named = FetchRequest(topics=[FetchTopic(topic="t", partitions=[])], **fields)  # type: ignore[arg-type]
    by_id = FetchRequest(topics=[FetchTopic(topic_id=UUID(int=5), partitions=[])], **fields)  # type: ignore[arg-type]
    assert "FetchRequest v12" in html(named)
    assert f"FetchRequest v{FetchRequest.__versions__.max}" in html(by_id)


def test_a_message_that_no_version_can_encode_is_shown_as_text() -> None:
    text = html(HeartbeatRequest(group_id=HOSTILE, generation_id=1 << 40, member_id="m"))
    assert text.startswith("<pre>HeartbeatRequest(")
    long = HeartbeatRequest(group_id="x" * 3_000, generation_id=1 << 40, member_id="m")
    assert html(long) == f"<pre>{escape(repr(long)[:2_000])}…</pre>"


def test_of_a_message_with_many_fields_only_the_start_is_decoded_for_display() -> None:
    request = LeaveGroupRequest(
        group_id="g", members=[MemberIdentity(member_id=f"m{number}") for number in range(2_000)]
    )
    text = html(request)
    assert "the first 200 fields" in text
    assert text.count("<tr>") == 201


def test_a_long_message_with_few_fields_shows_all_of_them() -> None:
    text = html(SyncGroupResponse(error_code=0, assignment=b"x" * 100_000))
    assert "78 78 78" in text
    assert "assignment" in text
    assert "(tags)" in text


def test_columns_show_the_first_rows_and_the_number_of_rows() -> None:
    columns = pytest.importorskip("kproto.records.columns").columns
    records = [Record(index, 1_700_000_000_000, HOSTILE.encode(), b"\xff\x00") for index in range(25)]
    text = html(columns(encode_batch(records)))
    assert "25 records" in text
    assert "the first 10 of 25 records" in text
    assert text.count("2023-11-14 22:13:20.000+00:00") == 10
    assert ESCAPED in text
    assert "ff 00" in text


def test_columns_with_a_timestamp_that_is_no_date_are_shown() -> None:
    columns = pytest.importorskip("kproto.records.columns").columns
    assert str(1 << 62) in html(columns(encode_batch([Record(0, 1 << 62, None, None)])))
    assert "1970-01-01 00:00:00.000+00:00" in html(columns(encode_batch([Record(0, 0, None, None)])))
    assert "<td style='text-align: left'>-1</td>" in html(columns(encode_batch([Record(0, -1, None, None)])))


def test_a_machine_is_drawn_with_its_events() -> None:
    text = html(coordinator.TABLE)
    assert "data:image/svg+xml;base64," in text
    assert "the session timeout of a member has passed" in text


def test_a_member_shows_its_state_and_what_each_event_would_do() -> None:
    text = html(Member(MemberConfig(group_id=HOSTILE, client_id="c", assignors=("range",))))
    assert "owns no partition" in text
    assert "in state idle" in text
    assert "the application subscribes" in text


def test_a_classic_group_shows_its_members_and_their_partitions() -> None:
    assignment = Assignment(partitions=(TopicPartition("t", 0), TopicPartition("t", 1))).encode()
    group = ClassicGroup("g", ClassicGroupState.STABLE, generation=3, protocol_name="range", leader="m1")
    for member_id, data in (("m1", assignment), (HOSTILE, b"\xff")):
        group.add(ClassicGroupMember(member_id, None, "c", "/::1", 10_000, 60_000, (("range", b""),), data))
    text = html(group)
    assert "Stable, generation 3, assignor range" in text
    assert "t-0, t-1" in text
    # The second member's assignment, 0xff, cannot be decoded, so only its size is shown.
    assert "1 bytes" in text
    assert "in state Stable" in text
    leader_row, other_row = (row for row in text.split("<tr>") if "/::1" in row)
    assert (">yes<" in leader_row, ">yes<" in other_row) == (True, False)


def test_a_described_group_shows_owners_and_lag() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    member = SimpleNamespace(member_id=HOSTILE, client_id="c", host="/::1", partitions=(first,))
    idle = SimpleNamespace(member_id="idle", client_id="c", host="/::1", partitions=())
    group = SimpleNamespace(
        name="g",
        state="Stable",
        members=(member, idle),
        committed={first: 4},
        lag={first: 1, second: 6},
        total_lag=7,
    )
    text = notebook.group(group)
    assert "2 members, total lag 7" in text
    assert ESCAPED in text
    assert "members without partitions: idle" in text
    rows = text.split("<tr>")[2:]
    assert [("t-0" in row, "t-1" in row) for row in rows] == [(True, False), (False, True)]
    # The second partition has neither a committed offset nor an owner, so four cells are empty.
    assert rows[1].count("<td style='text-align: left'></td>") == 4


def test_a_snapshot_of_metrics_is_a_table() -> None:
    metric = SimpleNamespace(
        name="records-lag-max",
        tags={"client-id": "c", "topic": "t"},
        value=None,
        unit="records",
        description=HOSTILE,
    )
    text = notebook.metrics([metric])
    assert "topic=t" in text
    assert "client-id" not in text
    assert ESCAPED in text
