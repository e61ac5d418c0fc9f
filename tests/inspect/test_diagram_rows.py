"""Which exchanges are drawn, where a rebalance is marked, and the drawing itself."""

from __future__ import annotations

import re

import pytest

from kproto.inspect.diagram_rows import Diagram, DiagramBuilder, DiagramRow, Note
from kproto.inspect.exchanges import Exchange
from kproto.inspect.member_names import MemberNames
from kproto.inspect.sequence import NARROW, diagram_svg, picture
from kproto.messages.fetch import FetchRequest
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kproto.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kproto.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.inspect.stage import apis, exchange, picked

JOIN = JoinGroupRequest(
    group_id="g", session_timeout_ms=1, member_id="a-1", protocol_type="consumer", protocols=[]
)
SYNC = SyncGroupRequest(group_id="g", generation_id=1, member_id="a-1", assignments=[])
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="a-1")
COMMIT = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=1, member_id="a-1", topics=[])


def joined(generation: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=0,
        generation_id=generation,
        protocol_name="range",
        leader="b-1",
        member_id="a-1",
        members=[],
    )


def metadata(topic: str) -> MetadataResponse:
    found = MetadataResponseTopic(error_code=0, name=topic, partitions=[])
    return MetadataResponse(brokers=[], topics=[found])


def only(found: Diagram, kind: str) -> list[DiagramRow]:
    return [row for row in found.rows if row.kind == kind]


def join(at: int, generation: int = 1) -> list[Exchange]:
    return [
        exchange(at, JOIN, joined(generation)),
        exchange(at + 10, SYNC, SyncGroupResponse(error_code=0, assignment=b"")),
    ]


def test_repeated_exchanges_are_drawn_once_and_counted() -> None:
    commits = [exchange(at, COMMIT, OffsetCommitResponse(topics=[])) for at in (0, 1_000, 2_000)]
    found = picked(*commits)
    assert apis(found) == ["OffsetCommit"]
    assert only(found, "quiet")[0].text == "2.0 s later; a: 2 OffsetCommit"


def test_after_a_join_each_api_is_drawn_again() -> None:
    commits = [exchange(at, COMMIT, OffsetCommitResponse(topics=[])) for at in (0, 100)]
    assert apis(picked(commits[0], *join(50), commits[1])) == [
        "OffsetCommit", "JoinGroup", "SyncGroup", "OffsetCommit",
    ]  # fmt: skip


def test_changed_metadata_is_drawn() -> None:
    one, other = (metadata(name) for name in "tu")
    found = [exchange(at, MetadataRequest(topics=[]), said) for at, said in enumerate((one, one, other))]
    assert len(apis(picked(*found))) == 2


def test_a_failed_heartbeat_is_drawn_with_its_error() -> None:
    found = picked(
        exchange(0, BEAT, HeartbeatResponse(error_code=27)),
        exchange(5, BEAT, HeartbeatResponse(error_code=0)),
    )
    assert apis(found) == ["Heartbeat"]
    assert only(found, "error")[0].text == "Heartbeat: REBALANCE_IN_PROGRESS"


def test_the_same_failure_is_drawn_twice_and_then_counted() -> None:
    found = picked(*(exchange(at, BEAT, HeartbeatResponse(error_code=15)) for at in range(9)))
    assert len(apis(found)) == 2


def test_member_id_required_is_not_drawn_as_an_error() -> None:
    required = JoinGroupResponse(
        error_code=79, generation_id=-1, protocol_name="", leader="", member_id="a-1", members=[]
    )
    assert not only(picked(exchange(0, JOIN, required)), "error")


def test_a_rebalance_is_marked_from_the_first_join_to_the_last_sync() -> None:
    found = picked(
        exchange(0, BEAT, HeartbeatResponse(error_code=27)), *join(100, 7), exchange(900, COMMIT, None)
    )
    assert [row.text for row in found.rows if row.kind == "rebalance"] == ["rebalance to generation 7"]
    assert {row.at for row in found.rows if row.inside} == {100, 101, 110, 111}


def test_a_rebalance_ends_when_the_missing_member_dies() -> None:
    found = picked(
        exchange(0, JOIN, joined(1)),
        exchange(500, COMMIT, None),
        notes=(Note(100, "a", "killed", gone=True),),
    )
    assert not [row for row in found.rows if row.at == 500 and row.inside]


def test_a_note_follows_the_response_of_the_same_time() -> None:
    found = picked(exchange(0, JOIN, joined(1), took=4), notes=(Note(4, "a", "is assigned t-0"),))
    assert [row.kind for row in found.rows][-2:] == ["answer", "note"]


def test_a_missing_response_is_drawn_as_such() -> None:
    assert only(picked(exchange(0, JOIN, None)), "silence")[0].text == "no answer"


def test_beyond_the_limit_the_middle_is_counted() -> None:
    found = picked(*(one for at in range(50) for one in join(at * 1_000, at)), most=10)
    assert len(apis(found)) == 10
    assert any("JoinGroup" in row.text for row in only(found, "quiet"))


def test_no_requests_give_no_diagram() -> None:
    assert DiagramBuilder(MemberNames().of).diagram() is None


def test_a_member_keeps_its_name_when_its_id_changes_on_its_connection() -> None:
    names = MemberNames()
    again = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="a-2", protocol_type="c", protocols=[]
    )
    assert names.of(exchange(0, JOIN, joined(1))) == "a"
    assert names.of(exchange(1, again, joined(2))) == "a"
    assert names.of(exchange(2, again, joined(2), connection=2)) == "a"


def test_two_members_with_one_client_id_have_two_names() -> None:
    names = MemberNames()
    other = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="a-2", protocol_type="c", protocols=[]
    )
    assert names.of(exchange(0, JOIN, joined(1))) == "a"
    assert names.of(exchange(1, other, joined(1), connection=2)) == "a (2)"
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    assert names.of(exchange(2, fetch, None, connection=2)) == "a (2)"


@pytest.mark.parametrize("width", [1080, NARROW])
def test_the_picture_has_lanes_arrows_and_tooltips(width: int) -> None:
    told = diagram_svg(picked(*join(0), exchange(20, BEAT, HeartbeatResponse(error_code=27))), width)
    for part in (
        ">a<",
        ">broker 1<",
        "REBALANCE_IN_PROGRESS",
        'class="error"',
        'class="rebalance"',
        "<title>",
    ):
        assert part in told


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
    told = diagram_svg(picked(exchange(0, long, joined(1))), width)
    texts = re.findall(r'x="([\d.]+)" y="[\d.]+" text-anchor="middle">([^<]*)<', told)
    assert texts
    for x, text in texts:
        half = len(text) * 6.4 / 2
        assert float(x) - half >= 0
        assert float(x) + half <= width + 1


def test_names_chosen_by_users_are_escaped() -> None:
    told = picture(picked(exchange(0, JOIN, joined(1), client="<b>&")))
    assert "<b>" not in told
    assert told.startswith("<svg")
