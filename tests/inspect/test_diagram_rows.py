"""A diagram draws notable requests with their responses, counts repeated ones, and marks rebalances."""

from __future__ import annotations

import re

import pytest

from kproto.inspect.diagram_rows import Diagram, DiagramBuilder, DiagramRow, Note
from kproto.inspect.exchanges import Exchange
from kproto.inspect.member_names import MemberNames
from kproto.inspect.sequence import NARROW, diagram_svg, picture
from kproto.messages.fetch import FetchRequest, FetchResponse
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kproto.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kproto.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kproto.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kproto.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.inspect.stage import draw_diagram, drawn_apis, exchange

JOIN = JoinGroupRequest(
    group_id="g", session_timeout_ms=1, member_id="a-1", protocol_type="consumer", protocols=[]
)
SYNC = SyncGroupRequest(group_id="g", generation_id=1, member_id="a-1", assignments=[])
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="a-1")
COMMIT = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="a-1", topics=[])


def join_response(generation: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=0,
        generation_id=generation,
        protocol_name="range",
        leader="b-1",
        member_id="a-1",
        members=[],
    )


def metadata_response(topic: str) -> MetadataResponse:
    topic_metadata = MetadataResponseTopic(error_code=0, name=topic, partitions=[])
    return MetadataResponse(brokers=[], topics=[topic_metadata])


def rows_of_kind(diagram: Diagram, kind: str) -> list[DiagramRow]:
    return [row for row in diagram.rows if row.kind == kind]


def join_and_sync(at: int, generation: int = 1) -> list[Exchange]:
    return [
        exchange(at, JOIN, join_response(generation)),
        exchange(at + 10, SYNC, SyncGroupResponse(error_code=0, assignment=b"")),
    ]


def test_a_failure_is_drawn_twice_and_again_when_its_reason_changes() -> None:
    failures: list[Exchange] = []
    for at, trouble in enumerate(
        ["the connection ended", "the connection ended", "the connection ended", "no room"]
    ):
        failures.append(exchange(1_000 * at, HEARTBEAT, None))
        failures[-1].trouble = trouble
    diagram = draw_diagram(*failures)
    assert [row.at for row in diagram.rows if row.kind == "ask"] == [0, 1_000, 3_000]


def test_repeated_exchanges_are_drawn_once_and_counted() -> None:
    commits = [exchange(at, COMMIT, OffsetCommitResponse(topics=[])) for at in (0, 1_000, 2_000)]
    diagram = draw_diagram(*commits)
    assert drawn_apis(diagram) == ["OffsetCommit"]
    assert rows_of_kind(diagram, "quiet")[0].text == "2.0 s later; a: 2 OffsetCommit"


def test_after_a_join_each_api_is_drawn_again() -> None:
    commits = [exchange(at, COMMIT, OffsetCommitResponse(topics=[])) for at in (0, 100)]
    assert drawn_apis(draw_diagram(commits[0], *join_and_sync(50), commits[1])) == [
        "OffsetCommit", "JoinGroup", "SyncGroup", "OffsetCommit",
    ]  # fmt: skip


def test_changed_metadata_is_drawn() -> None:
    first, changed = (metadata_response(name) for name in "tu")
    exchanges = [
        exchange(at, MetadataRequest(topics=[]), response)
        for at, response in enumerate((first, first, changed))
    ]
    assert len(drawn_apis(draw_diagram(*exchanges))) == 2


def test_a_failed_heartbeat_is_drawn_with_its_error() -> None:
    diagram = draw_diagram(
        exchange(0, HEARTBEAT, HeartbeatResponse(error_code=27)),
        exchange(5, HEARTBEAT, HeartbeatResponse(error_code=0)),
    )
    assert drawn_apis(diagram) == ["Heartbeat"]
    assert rows_of_kind(diagram, "error")[0].text == "Heartbeat: REBALANCE_IN_PROGRESS"


def test_the_same_failure_is_drawn_twice_and_then_counted() -> None:
    diagram = draw_diagram(*(exchange(at, HEARTBEAT, HeartbeatResponse(error_code=15)) for at in range(9)))
    assert len(drawn_apis(diagram)) == 2


def test_member_id_required_is_not_drawn_as_an_error() -> None:
    required = JoinGroupResponse(
        error_code=79, generation_id=-1, protocol_name="", leader="", member_id="a-1", members=[]
    )
    assert not rows_of_kind(draw_diagram(exchange(0, JOIN, required)), "error")


def test_a_rebalance_is_marked_from_the_first_join_to_the_last_sync() -> None:
    diagram = draw_diagram(
        exchange(0, HEARTBEAT, HeartbeatResponse(error_code=27)),
        *join_and_sync(100, 7),
        exchange(900, COMMIT, None),
    )
    assert [row.text for row in diagram.rows if row.kind == "rebalance"] == ["rebalance to generation 7"]
    assert {row.at for row in diagram.rows if row.inside} == {100, 101, 110, 111}


def test_a_rebalance_is_marked_with_its_cause_in_its_own_group() -> None:
    builder = DiagramBuilder(lambda request: request.client)
    for step in join_and_sync(100, 7):
        builder.add(step)
    builder.add_cause("another", 7, "b joined")
    builder.add_cause("g", 7, "a joined")
    diagram = builder.diagram()
    assert diagram is not None
    (start,) = rows_of_kind(diagram, "rebalance")
    assert (start.text, start.tooltip) == ("rebalance to generation 7: a joined",) * 2


def test_successful_logins_and_fetches_without_records_are_not_drawn() -> None:
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    diagram = draw_diagram(
        exchange(0, handshake, SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])),
        exchange(10, fetch, FetchResponse(throttle_time_ms=0, responses=[])),
        exchange(20, COMMIT, OffsetCommitResponse(topics=[])),
    )
    assert drawn_apis(diagram) == ["OffsetCommit"]


def test_a_rebalance_ends_when_the_missing_member_dies() -> None:
    diagram = draw_diagram(
        exchange(0, JOIN, join_response(1)),
        exchange(500, COMMIT, None),
        notes=(Note(100, "a", "killed", ends_membership=True),),
    )
    assert not [row for row in diagram.rows if row.at == 500 and row.inside]


def test_a_rebalance_ends_when_the_missing_member_leaves() -> None:
    """The mark of the rebalance shows the generation, even if the member leaves as soon as it has joined."""
    leave = LeaveGroupRequest(group_id="g", member_id="a-1")
    diagram = draw_diagram(
        exchange(0, JOIN, join_response(7), took=40),
        exchange(40, leave, LeaveGroupResponse(error_code=0)),
        exchange(500, COMMIT, None),
    )
    assert [row.text for row in rows_of_kind(diagram, "rebalance")] == ["rebalance to generation 7"]
    assert {row.at for row in diagram.rows if row.inside} == {0, 40}


def test_a_rebalance_ends_only_with_a_successful_sync_of_every_member() -> None:
    failed = exchange(10, SYNC, SyncGroupResponse(error_code=27, assignment=b""))
    later = exchange(30, SYNC, SyncGroupResponse(error_code=0, assignment=b""))
    diagram = draw_diagram(exchange(0, JOIN, join_response(1)), failed, exchange(20, SYNC, None), later)
    assert [row.inside for row in diagram.rows] == [True] * len(diagram.rows)
    end = exchange(50, HEARTBEAT, HeartbeatResponse(error_code=27))
    after = draw_diagram(exchange(0, JOIN, join_response(1)), later, end)
    assert [row.inside for row in after.rows if row.at >= 50] == [False] * 2


def test_a_pause_counts_the_exchanges_before_the_next_row() -> None:
    times = (3_000, 5_000, 7_000, 9_000, 12_000)
    beats = [exchange(at, HEARTBEAT, HeartbeatResponse(error_code=0)) for at in times]
    diagram = draw_diagram(
        *join_and_sync(0),
        *beats,
        exchange(9_000, COMMIT, OffsetCommitResponse(topics=[])),
        exchange(14_000, HEARTBEAT, HeartbeatResponse(error_code=27)),
    )
    assert [(pause.at, pause.text) for pause in rows_of_kind(diagram, "quiet")] == [
        (9_000, "9.0 s later; a: 3 Heartbeat"),
        (14_000, "5.0 s later; a: 2 Heartbeat"),
    ]


def test_an_arrow_has_the_main_fields_of_its_request_without_the_group() -> None:
    beat = exchange(0, HEARTBEAT, HeartbeatResponse(error_code=27))
    unreadable = exchange(5, HEARTBEAT, None)
    unreadable.request = None
    texts = [row.text for row in rows_of_kind(draw_diagram(beat, unreadable), "ask")]
    assert texts == ["Heartbeat v4 generation=1 member=a-1", "Heartbeat v4"]


def test_a_note_follows_the_response_of_the_same_time() -> None:
    diagram = draw_diagram(
        exchange(0, JOIN, join_response(1), took=4), notes=(Note(4, "a", "is assigned t-0"),)
    )
    assert [row.kind for row in diagram.rows][-2:] == ["answer", "note"]


def test_a_member_that_only_a_note_names_has_a_lane() -> None:
    notes = (Note(2, "b", "is killed"), Note(3, "", "the broker restarts"))
    assert draw_diagram(exchange(0, JOIN, None), notes=notes).clients == ["a", "b"]


def test_a_missing_response_is_drawn_as_such() -> None:
    assert rows_of_kind(draw_diagram(exchange(0, JOIN, None)), "silence")[0].text == "no answer"


def test_exchanges_above_the_limit_are_counted_instead_of_drawn() -> None:
    diagram = draw_diagram(*(step for at in range(50) for step in join_and_sync(at * 1_000, at)), most=10)
    assert len(drawn_apis(diagram)) == 10
    assert any("JoinGroup" in row.text for row in rows_of_kind(diagram, "quiet"))


def test_no_requests_give_no_diagram() -> None:
    assert DiagramBuilder(MemberNames().of).diagram() is None


def test_a_member_keeps_its_name_when_its_id_changes_on_its_connection() -> None:
    names = MemberNames()
    rejoin = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="a-2", protocol_type="c", protocols=[]
    )
    assert names.of(exchange(0, JOIN, join_response(1))) == "a"
    assert names.of(exchange(1, rejoin, join_response(2))) == "a"
    assert names.of(exchange(2, rejoin, join_response(2), connection=2)) == "a"


def test_two_members_with_one_client_id_have_two_names() -> None:
    names = MemberNames()
    second_join = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="a-2", protocol_type="c", protocols=[]
    )
    assert names.of(exchange(0, JOIN, join_response(1))) == "a"
    assert names.of(exchange(1, second_join, join_response(1), connection=2)) == "a (2)"
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    assert names.of(exchange(2, fetch, None, connection=2)) == "a (2)"


@pytest.mark.parametrize("width", [1080, NARROW])
def test_the_picture_has_lanes_arrows_and_tooltips(width: int) -> None:
    svg = diagram_svg(
        draw_diagram(*join_and_sync(0), exchange(20, HEARTBEAT, HeartbeatResponse(error_code=27))), width
    )
    for part in (
        ">a<",
        ">broker 1<",
        "REBALANCE_IN_PROGRESS",
        'class="error"',
        'class="rebalance"',
        "<title>",
    ):
        assert part in svg


@pytest.mark.parametrize("width", [1080, 820, NARROW])
def test_texts_stay_inside_the_picture(width: int) -> None:
    long = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="a-1",
        protocol_type="c",
        protocols=[],
        reason="because " * 40,
    )
    svg = diagram_svg(draw_diagram(exchange(0, long, join_response(1))), width)
    texts = re.findall(r'x="([\d.]+)" y="[\d.]+" text-anchor="middle">([^<]*)<', svg)
    assert texts
    for x, text in texts:
        half = len(text) * 6.4 / 2
        assert float(x) - half >= 0
        assert float(x) + half <= width + 1


def test_names_chosen_by_users_are_escaped() -> None:
    svg = picture(draw_diagram(exchange(0, JOIN, join_response(1), client="<b>&")))
    assert "<b>" not in svg
    assert svg.startswith("<svg")
