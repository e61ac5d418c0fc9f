"""The checks of the demo detect every kind of fault in its results."""

from __future__ import annotations

import pytest

pd = pytest.importorskip("pandas")

from kproto.demo.checks import GroupReports, check_results  # noqa: E402
from kproto.demo.flights import ORIGINS, Total, hourly  # noqa: E402
from kproto.demo.member import ReadBatch  # noqa: E402
from kproto.group.subscription import TopicPartition  # noqa: E402
from kproto.inspect.timeline import GroupEvent  # noqa: E402

P0 = TopicPartition("flights", 0)
HOUR = 3_600_000


def frame() -> pd.DataFrame:
    rows = [("EWR", 5.0, 10), ("EWR", float("nan"), HOUR), ("JFK", -2.0, HOUR + 1)]
    return pd.DataFrame(rows, columns=["origin", "dep_delay", "event_time"])


def reports(*, skip: int | None = None, wrong: bool = False, twice: bool = False) -> GroupReports:
    collected = GroupReports()
    collected.add(GroupEvent(0, "assigned", "a", 1, (P0,)))
    if twice:
        collected.add(GroupEvent(1, "assigned", "b", 2, (P0,)))
    collected.add(GroupEvent(9, "left", "a"))
    rows = [(0, 0, 5), (1, 0, None), (2, 1, 7 if wrong else -2)]
    for offset, origin, delay in rows:
        if offset != skip:
            collected.add([ReadBatch(0, [offset], [origin], [delay])])
    return collected


def faults(collected: GroupReports, **changed: object) -> list[str]:
    data = frame()
    arguments = {"produced": 3, "ends": {P0: 3}, "committed": {P0: 3}, "hourly": hourly(data)} | changed
    return check_results(data, reports=collected, **arguments).faults  # type: ignore[arg-type]


def test_a_correct_run_has_no_fault() -> None:
    assert faults(reports()) == []


def test_a_record_that_is_read_twice_counts_once() -> None:
    collected = reports()
    assert collected.add([ReadBatch(0, [1], [ORIGINS.index("EWR")], [None])]) == 0
    assert collected.reread_count == 1
    assert faults(collected) == []


def test_a_lost_record_is_a_fault() -> None:
    assert any("lost, by partition: {'flights-0': 1}" in fault for fault in faults(reports(skip=1)))


def test_a_changed_value_is_a_fault() -> None:
    assert any(fault.startswith("JFK") for fault in faults(reports(wrong=True)))


def test_two_owners_are_a_fault() -> None:
    assert any("two owners" in fault for fault in faults(reports(twice=True)))


def test_a_removed_member_that_learns_of_it_late_is_not_a_second_owner() -> None:
    """A removed member is not a second owner, even if its `lost` event arrives late.

    A member whose heartbeats get no response may learn of its removal after the new owner has received the
    partitions.
    """
    collected = GroupReports()
    collected.add(GroupEvent(0, "assigned", "a", 1, (P0,)))
    collected.add(GroupEvent(5, "assigned", "b", 2, (P0,)))
    collected.add(GroupEvent(9, "lost", "a", 1, (P0,)))
    collected.add([ReadBatch(0, [0, 1, 2], [0, 0, 1], [5, None, -2])])
    assert faults(collected) == []
    collected.events[-1] = GroupEvent(9, "revoked", "a", 1, (P0,))
    assert any("two owners" in fault for fault in faults(collected))


def test_a_lagging_commit_is_a_fault() -> None:
    assert any("{'flights-0': 1}" in fault for fault in faults(reports(), committed={P0: 2}))


def test_an_unacknowledged_record_is_a_fault() -> None:
    assert any("produced 2 of 3" in fault for fault in faults(reports(), produced=2))


def test_a_wrong_row_of_spark_is_a_fault() -> None:
    wrong = hourly(frame()) | {("JFK", HOUR): Total(1, 1, 0)}
    assert any("1 rows differ" in fault for fault in faults(reports(), hourly=wrong))
