"""A timeline contains the ownerships of partitions, their overlaps, and the standstills between them."""

from __future__ import annotations

import re

import pytest

from kproto.group.subscription import TopicPartition
from kproto.inspect.diagrams import picture, section, timeline
from kproto.inspect.timeline import (
    GroupEvent,
    Kind,
    Ownership,
    cause,
    overlapping_ownerships,
    ownership_verdict,
    ownerships,
    replacements,
    standstills,
)

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


def event(
    at: int, kind: Kind, member: str = "a", *partitions: TopicPartition, generation: int = 1, reason: str = ""
) -> GroupEvent:
    return GroupEvent(at, kind, member, generation, partitions, reason)


def test_an_ownership_lasts_from_assigned_to_revoked() -> None:
    events = [event(10, "assigned", "a", T0), event(30, "revoked", "a", T0)]
    assert ownerships(events) == [Ownership(T0, "a", 1, 10, 30)]


def test_a_kill_ends_every_ownership_of_the_member() -> None:
    events = [event(10, "assigned", "a", T0, T1), event(25, "killed", "a"), event(60, "left", "b")]
    assert [(o.partition, o.end) for o in ownerships(events)] == [(T0, 25), (T1, 25)]


def test_an_ownership_that_never_ends_lasts_until_the_last_event() -> None:
    assert ownerships([event(10, "assigned", "a", T0), event(99, "started", "b")])[0].end == 99


def test_overlapping_ownerships_are_found() -> None:
    events = [event(0, "assigned", "a", T0), event(5, "assigned", "b", T0), event(9, "revoked", "a", T0)]
    assert [
        (first.member, second.member) for first, second in overlapping_ownerships(ownerships(events))
    ] == [("a", "b")]


def test_an_ownership_ends_when_the_coordinator_removes_the_member() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(4, "removed", "a", reason="a sent nothing for 6000 ms"),
        event(5, "assigned", "b", T0, generation=2),
        event(9, "lost", "a", T0),
    ]
    assert [(o.member, o.end) for o in ownerships(events)] == [("a", 4), ("b", 9)]
    assert ownership_verdict(events) == (
        "no partition ever had two owners (1 times a removed member did not know yet that it was removed "
        "when another member got the partition)"
    )


def test_a_late_report_of_lost_partitions_is_no_second_owner() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(5, "assigned", "b", T0, generation=2),
        event(9, "lost", "a", T0),
    ]
    assert [(o.member, o.end) for o in ownerships(events)] == [("a", 5), ("b", 9)]
    assert ownership_verdict(events).startswith("no partition ever had two owners (1 times")


def test_two_owners_of_one_generation_are_reported() -> None:
    events = [event(0, "assigned", "a", T0), event(5, "assigned", "b", T0), event(9, "lost", "a", T0)]
    assert ownership_verdict(events) == "a partition had two owners 1 times"


def test_a_partition_of_a_silent_member_stands_still_from_its_last_request() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(3, "silent", "a"),
        event(4, "resumed", "a"),
        event(10, "silent", "a"),
        event(16, "removed", "a"),
        event(20, "assigned", "b", T0, generation=2),
    ]
    assert [(s.start, s.end) for s in standstills(events)] == [(10, 20)]


def test_the_coordinators_cause_replaces_the_inferred_one() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(5, "killed", "b"),
        event(8, "generation", "", generation=2, reason="c joined"),
        event(9, "assigned", "a", T1, generation=2),
    ]
    assert cause(events, 2) == "c joined"


def test_a_generation_without_known_cause_says_so() -> None:
    assert cause([event(0, "assigned", "a", T0)], 1).startswith("not seen")


def test_all_parts_of_a_page_can_share_a_clock() -> None:
    events = [event(4_000, "assigned", "a", T0), event(9_000, "left", "a")]
    assert "4.000 s to 9.000 s" in section(events, 0)
    assert "0.000 s to 5.000 s" in section(events)


def test_faults_have_marks() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(3, "silent", "a", reason="frozen for 9 s"),
        event(5, "fault", "", reason="broker 2 stops"),
        event(6, "removed", "a", reason="a sent nothing"),
    ]
    page = section(events)
    assert all(word in page for word in (">frozen for 9 s<", ">broker 2 stops<", ">removed<"))


def test_a_handover_at_one_time_does_not_overlap() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(5, "revoked", "a", T0),
        event(5, "assigned", "b", T0, generation=2),
    ]
    assert overlapping_ownerships(ownerships(events)) == []


def test_a_partition_stands_still_between_two_owners() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(5, "revoked", "a", T0),
        event(12, "assigned", "b", T0, generation=2),
    ]
    (standstill,) = standstills(events)
    assert (standstill.partition, standstill.ms, standstill.generation, standstill.is_new_partition) == (
        T0,
        7,
        2,
        False,
    )


def test_a_standstill_begins_when_the_owner_starts_to_release() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(3, "releasing", "a", T0),
        event(8, "revoked", "a", T0),
        event(9, "assigned", "b", T0, generation=2),
    ]
    (standstill,) = standstills(events)
    assert (standstill.start, standstill.end) == (3, 9)
    assert ownerships(events)[0].end == 8


def test_a_kept_partition_does_not_stand_still() -> None:
    events = [
        event(0, "assigned", "a", T0, T1),
        event(5, "revoked", "a", T1),
        event(9, "assigned", "b", T1, generation=2),
    ]
    assert [standstill.partition for standstill in standstills(events)] == [T1]


def test_a_new_partition_stands_still_from_its_creation() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(50, "grown", "", T2),
        event(80, "assigned", "a", T2, generation=2),
    ]
    (standstill,) = standstills(events)
    assert (standstill.partition, standstill.ms, standstill.is_new_partition) == (T2, 30, True)


def test_the_cause_names_the_events_since_the_previous_generation() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(5, "started", "b"),
        event(6, "rejoining", "a", reason="cached metadata has changed"),
        event(9, "assigned", "b", T0, generation=2),
        event(10, "started", "c"),
    ]
    assert cause(events, 2) == "b joins; a: cached metadata has changed"


@pytest.mark.parametrize(
    ("happened", "reason"),
    [
        (event(5, "left", "b"), "b leaves"),
        (event(5, "killed", "b"), "b is killed"),
        (event(5, "disconnected", "b"), "the connection of b ends"),
        (event(5, "removed", "b", reason="b sent nothing"), "b sent nothing"),
        (event(5, "grown", "", T1), "the topic grows"),
        (event(5, "rejoining", "b"), "not seen: nothing that was observed explains it"),
        (
            event(5, "rejoining", "b", reason="group is already rebalancing"),
            "b: group is already rebalancing",
        ),
        (event(5, "fault", "b"), "not seen: nothing that was observed explains it"),
        (event(0, "left", "b"), "not seen: nothing that was observed explains it"),
        (event(9, "left", "b"), "b leaves"),
        (event(10, "left", "b"), "not seen: nothing that was observed explains it"),
        (event(12, "generation", "", generation=2, reason="b joined"), "b joined"),
    ],
)
def test_each_kind_of_event_between_two_generations_is_a_cause(happened: GroupEvent, reason: str) -> None:
    assigned = [event(0, "assigned", "a", T0), event(9, "assigned", "a", T0, generation=2)]
    assert cause([*assigned, happened], 2) == reason


def test_the_cause_of_the_first_generation_includes_the_first_event() -> None:
    assert cause([event(3, "started", "a"), event(3, "assigned", "a", T0)], 1) == "a joins"
    assert cause([event(3, "started", "a"), event(4, "started", "a")], 1) == "a joins"


def test_the_cause_leaves_out_consequences() -> None:
    events = [
        event(0, "assigned", "a", T0),
        event(5, "started", "b"),
        event(6, "rejoining", "b"),
        event(7, "rejoining", "b", reason="need to re-join with the given member-id: b-1"),
        event(8, "rejoining", "a", reason="group is already rebalancing"),
        event(9, "assigned", "b", T0, generation=2),
    ]
    assert cause(events, 2) == "b joins"


def test_the_picture_names_members_and_partitions_escaped() -> None:
    page = timeline(
        [event(0, "started", "<a>"), event(3, "assigned", "<a>", T0), event(9, "killed", "<a>")],
        "a & b",
        ["x < y"],
    )
    for part in (
        "&lt;a&gt;",
        "a &amp; b",
        "x &lt; y",
        "t-0 owned by",
        "gen 1",
        "killed",
        "<svg",
        "no partition ever had two owners",
    ):
        assert part in page
    assert "<a>" not in page


def test_generations_a_moment_apart_share_a_label() -> None:
    moments = (0, 500, 502, 505, 1000)
    page = timeline([event(at, "assigned", "a", T0, generation=n) for n, at in enumerate(moments, 1)], "g")
    wide, narrow = (re.findall(">(gen [^<]*)<", part) for part in page.split("class=narrow"))
    assert wide == ["gen 1", "gen 2 to 4", "gen 5"]
    assert len(narrow) <= len(wide)


def test_a_picture_needs_events() -> None:
    with pytest.raises(ValueError, match="at least one event"):
        timeline([], "empty")


def restarted(*between: GroupEvent) -> list[GroupEvent]:
    """Return events of a group in which b2 replaces b as the owner of t-0, within generation 2.

    Generation 2 starts when member a joins. The events in `between` happen before t-0 is assigned to b2.
    """
    return [
        event(0, "started", "a"),
        event(10, "assigned", "b", T0, generation=2),
        *between,
        event(4_000, "assigned", "b2", T0, generation=2),
        event(5_000, "ended", "", generation=-1),
    ]


@pytest.mark.parametrize(
    ("between", "ms", "why"),
    [
        ([event(1_000, "killed", "b")], 3_000, "b is killed; b2 takes its place"),
        ([event(1_000, "left", "b")], 3_000, "b leaves; b2 takes its place"),
        ([event(3_000, "lost", "b", T0)], 1_000, "b2 takes the place of b"),
        (
            [event(3_000, "removed", "b"), event(4_500, "killed", "b")],
            1_000,
            "b is removed; b2 takes its place",
        ),
        ([event(3_000, "lost", "b", T0), event(4_500, "killed", "b")], 1_000, "b2 takes the place of b"),
    ],
)
def test_a_replacement_without_a_rebalance_has_its_own_row(
    between: list[GroupEvent], ms: int, why: str
) -> None:
    rows = re.findall(r"<tr><td>(\d+)(.*?)</tr>", timeline(restarted(*between), "a restart"))
    assert rows == [("2", "<td>·<td>a joins"), ("2", f"<td>{ms} ms<td>{why}")]


def test_a_new_generation_is_not_a_replacement() -> None:
    events = [
        event(10, "assigned", "b", T0),
        event(20, "killed", "b"),
        event(90, "assigned", "c", T0, generation=2),
    ]
    assert replacements(events) == {}


def test_the_picture_of_a_group_is_a_complete_svg_document() -> None:
    svg = picture([event(0, "started", "a"), event(3, "assigned", "a", T0), event(9, "grown", "", T1, T2)])
    assert svg.startswith("<svg")
    assert svg.endswith("</svg>\n")
    for part in ('xmlns="http://www.w3.org/2000/svg"', "<style>", "topic grows by 2"):
        assert part in svg
    with pytest.raises(ValueError, match="at least one event"):
        picture([])
