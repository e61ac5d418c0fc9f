"""A timeline draws members (lanes), their partitions (bars) and generations at the x of their times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from kproto.group.subscription import TopicPartition
from kproto.inspect.diagrams import page, picture, section, table, timeline
from kproto.inspect.sequence import NARROW, WIDE
from kproto.inspect.timeline import GroupEvent, Kind

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SVG = "{http://www.w3.org/2000/svg}"
# The height of a member's lane with two partitions, and the top of lane number n.
LANE = 2 * 9 + 8


def top(number: int, lane: int = LANE) -> int:
    return 64 + number * (lane + 22)


def event(
    at: int,
    kind: Kind,
    member: str = "a",
    *partitions: TopicPartition,
    generation: int = -1,
    reason: str = "",
) -> GroupEvent:
    return GroupEvent(at, kind, member, generation, partitions, reason)


# The events last for 2 s. At a width of 1080 pixels, the labels take 130 pixels and the right margin 24. A
# second therefore takes (1080 - 130 - 24) / 2 = 463 pixels.
EVENTS = [
    event(1_000, "started", "a"),
    event(1_000, "assigned", "a", T0, T1, generation=1),
    event(2_000, "revoked", "a", T1),
    event(2_500, "assigned", "b", T1, generation=2),
    event(3_000, "left", "b"),
]


def drawn(*events: GroupEvent, width: int = WIDE) -> Element:
    return fromstring(picture(events or EVENTS, width))


def shapes(svg: Element, tag: str, kind: str | None = None) -> list[Element]:
    return [e for e in svg.iter(SVG + tag) if kind is None or e.get("class") == kind]


def numbers(element: Element, *names: str) -> list[float]:
    return [float(element.get(name) or "nan") for name in names]


def title(element: Element) -> str:
    return element.findtext(SVG + "title") or ""


def texts(svg: Element) -> dict[str, tuple[float, float, str]]:
    return {
        e.text or "": (*(float(e.get(name) or "nan") for name in ("x", "y")), e.get("text-anchor") or "")  # type: ignore[misc]
        for e in shapes(svg, "text")
    }


def test_every_member_and_the_standstills_have_a_lane() -> None:
    svg = drawn()
    height = 64 + 3 * (LANE + 22) + 30
    assert svg.get("viewBox") == f"0 0 {WIDE} {height}"
    lanes = [numbers(lane, "x", "y", "width", "height") for lane in shapes(svg, "rect", "lane")]
    assert lanes == [[130, top(number), WIDE - 130 - 24, LANE] for number in range(3)]
    for number, name in enumerate(("standing still", "a", "b")):
        assert texts(svg)[name] == (120, top(number) + LANE / 2 + 4, "end")
    assert numbers(shapes(drawn(width=NARROW), "rect", "lane")[0], "x") == [92]


def test_a_bar_lasts_from_the_assignment_to_the_end_of_the_ownership() -> None:
    bars = [bar for bar in shapes(drawn(), "rect") if title(bar)]
    assert [(title(bar), *numbers(bar, "x", "y", "width", "height")) for bar in bars] == [
        ("t-0 owned by a, generation 1, 0.000 s to 2.000 s", 130, top(1) + 4, 926, 7),
        ("t-1 owned by a, generation 1, 0.000 s to 1.000 s", 130, top(1) + 13, 463, 7),
        ("t-1 owned by b, generation 2, 1.500 s to 2.000 s", 824.5, top(2) + 13, 231.5, 7),
        ("t-1 stood still for 500 ms, until generation 2, 1.000 s to 1.500 s", 593, top(0) + 13, 231.5, 7),
    ]
    colours = {title(bar)[:3]: bar.get("fill") for bar in bars}
    assert len(set(colours.values())) == 2
    assert all(bar.get("fill") == colours[title(bar)[:3]] for bar in bars)


def test_a_bar_is_visible_however_short_it_is() -> None:
    svg = drawn(
        event(0, "assigned", "a", T0, generation=1),
        event(1, "revoked", "a", T0),
        event(60_000, "left", "a"),
    )
    (bar,) = [bar for bar in shapes(svg, "rect") if "owned by" in title(bar)]
    assert numbers(bar, "width") == [1.5]


def test_a_generation_is_a_line_with_its_cause_and_a_label() -> None:
    svg = drawn()
    bottom = 64 + 3 * (LANE + 22) + 30 - 24
    lines = [(title(e), *numbers(e, "x1", "x2", "y1", "y2")) for e in shapes(svg, "line", "generation")]
    assert [line[1:] for line in lines] == [(130, 130, 50, bottom), (824.5, 824.5, 50, bottom)]
    assert [line[0].partition(":")[0] for line in lines] == ["generation 1", "generation 2"]
    assert texts(svg)["gen 1"] == (130, 46, "middle")
    assert texts(svg)["gen 2"] == (824.5, 46, "middle")


def test_the_axis_has_about_one_label_for_80_pixels() -> None:
    svg = drawn()
    height = 64 + 3 * (LANE + 22) + 30
    labels = {text: place for text, place in texts(svg).items() if text.endswith(" s")}
    assert list(labels) == [f"{number / 5:g} s" for number in range(11)]
    assert labels["0.2 s"] == (222.6, height - 8, "middle")
    for span, step in ((2_700, "0.2 s"), (2_701, "0.5 s")):
        first, second, *_ = (
            text for text in texts(drawn(event(0, "started"), event(span, "left"))) if " s" in text
        )
        assert (first, second) == ("0 s", step)
    long = drawn(event(0, "started"), event(3_600_000, "left"))
    assert [text for text in texts(long) if text.endswith(" s")] == [f"{600 * n} s" for n in range(7)]


@pytest.mark.parametrize(
    ("hours", "labels"), [(10, range(11)), (24, range(0, 25, 6)), (24 * 40, range(0, 24 * 40 + 1, 72))]
)
def test_the_axis_of_a_long_timeline_shows_hours(hours: int, labels: range) -> None:
    svg = drawn(event(0, "started"), event(hours * 3_600_000, "left"))
    assert [text for text in texts(svg) if text.endswith(" h")] == [f"{hour} h" for hour in labels]


def test_a_long_name_is_shown_by_its_end_and_a_tooltip() -> None:
    names = [f"consumer-payment-service-readers-{number}" for number in (1, 2)]
    svg = drawn(*(event(at, "started", name) for at, name in enumerate(names)), event(9, "left", names[0]))
    labels = [(e.text, title(e)) for e in shapes(svg, "text") if (e.text or "").startswith("…")]
    assert labels == [("…rvice-readers-1", names[0]), ("…rvice-readers-2", names[1])]
    narrow = drawn(*(event(at, "started", name) for at, name in enumerate(names)), width=NARROW)
    assert {"standing still", "…-readers-1"} <= texts(narrow).keys()


def test_labels_at_the_right_edge_are_within_the_drawing() -> None:
    late = [event(1_998, "grown", "", T1), event(1_999, "started", "b"), event(2_000, "killed")]
    svg = drawn(event(0, "started"), *late)
    assert texts(svg)["killed"] == (1056 - 10, top(1, 9 + 8) + (9 + 8) / 2 + 4, "end")
    assert texts(svg)["topic grows by 1"][2] == texts(svg)["▸ joins"][2] == "end"
    generations = [event(at, "generation", "", generation=at) for at in (1_990, 2_000)]
    label = texts(drawn(event(0, "started"), *generations))["gen 1990 to 2000"]
    assert label[0] + len("gen 1990 to 2000") * 7 / 2 == WIDE


@pytest.mark.parametrize(
    ("kind", "label", "offset"),
    [("killed", "killed", 4), ("disconnected", "disconnected", 4), ("removed", "removed", -8)],
)
def test_the_end_of_a_member_is_a_cross(kind: Any, label: str, offset: int) -> None:
    svg = drawn(event(0, "started"), event(1_000, kind, reason="why"), event(2_000, "left"))
    lane = 9 + 8
    middle = top(1, lane) + lane / 2
    (cross,) = shapes(svg, "path", "killed")
    assert cross.get("d") == f"M{593.0 - 6} {middle - 6} l12 12 m0 -12 l-12 12"
    assert title(cross) == f"{kind} at 1.000 s: why"
    assert texts(svg)[label] == (603, middle + offset, "start")


def test_joins_and_leaves_are_edges_of_the_lane() -> None:
    svg = drawn(event(0, "started"), event(2_000, "left"))
    lane = 9 + 8
    y = top(1, lane)
    assert [numbers(e, "x1", "x2", "y1", "y2") for e in shapes(svg, "line", "edge")] == [
        [130, 130, y, y + lane],
        [1056, 1056, y, y + lane],
    ]
    assert [title(e) for e in shapes(svg, "line", "edge")] == ["started at 0.000 s: a", "left at 2.000 s: a"]
    assert texts(svg)["▸ joins"] == (130, y + lane + 17, "start")
    assert texts(svg)["leaves ▸"] == (1056, y + lane + 17, "end")


@pytest.mark.parametrize("kind", ["silent", "fault", "resumed"])
@pytest.mark.parametrize("member", ["a", ""])
def test_a_fault_is_a_line_in_the_lane_of_its_member(kind: Any, member: str) -> None:
    svg = drawn(event(0, "started"), event(1_000, kind, member, reason="frozen"), event(2_000, "left"))
    lane = 9 + 8
    y = top(1, lane) if member else 64
    (mark,) = shapes(svg, "line", "fault")
    assert numbers(mark, "x1", "y1", "y2") == [593, y, y + lane]
    assert texts(svg)["frozen"] == (593, y + lane + 17, "start")


def test_a_topic_that_grows_and_a_rejoin_have_marks() -> None:
    svg = drawn(
        event(0, "started"),
        event(1_000, "grown", "", T0, T1),
        event(1_000, "rejoining"),
        event(2_000, "left"),
    )
    height = 64 + 2 * (LANE + 22) + 30
    (grown,) = shapes(svg, "line", "grown")
    assert numbers(grown, "x1", "y1", "y2") == [593, 14, height - 24]
    assert texts(svg)["topic grows by 2"] == (597, 12, "start")
    (circle,) = shapes(svg, "circle", "rejoining")
    assert numbers(circle, "cx", "cy", "r") == [593, top(1) + LANE + 4, 2.5]


def test_a_common_start_moves_all_events_to_the_right() -> None:
    html = section([event(1_000, "started"), event(2_000, "left")], began=0, heading="a < b")
    assert "<h2>a &lt; b</h2>" in html
    assert "started at 1.000 s: a" in html
    assert "started at 0.000 s: a" in section([event(1_000, "started"), event(2_000, "left")], began=5_000)


def test_the_table_has_a_row_per_generation_and_replacement() -> None:
    html = section(EVENTS)
    assert "<tr><th>generation<th>t-0<th>t-1<th>why</tr>" in html
    rows = html.split("<tr>")[2:]
    assert [row.split("<td>")[1:4] for row in rows] == [["1", "·", "·"], ["2", "·", "500 ms"]]
    grown = section(
        [
            event(0, "assigned", "a", T0, generation=1),
            event(100, "grown", "", T1),
            event(400, "assigned", "a", T1, generation=2),
        ]
    )
    assert "<td>300 ms (new)" in grown


def test_a_table_without_events_has_only_its_header() -> None:
    assert table([]).count("<tr>") == 1


class CountedEvents(list[GroupEvent]):
    """A list of events that counts how often it is read from start to end."""

    iterations = 0

    def __iter__(self) -> Iterator[GroupEvent]:
        self.iterations += 1
        return super().__iter__()


def test_the_time_to_draw_grows_linearly_with_the_generations() -> None:
    counts = []
    for generations in (10, 200):
        events = CountedEvents()
        for generation in range(generations):
            at = 1_000 * generation
            events.append(event(at, "releasing", "a", T0))
            events.append(event(at + 1, "revoked", "a", T0))
            events.append(event(at + 2, "rejoining", "a", reason="again"))
            events.append(event(at + 3, "assigned", "a", T0, generation=generation))
        assert timeline(events, "g").count("a: again") == 3 * generations  # two drawings and the table
        counts.append(events.iterations)
    assert counts[0] == counts[1]


def test_a_page_has_escaped_facts_and_its_parts() -> None:
    html = page("a & b", ["x < y"], ["<p>part</p>"])
    assert html.startswith("<!doctype html>")
    assert html.endswith("</main></html>\n")
    assert "<title>a &amp; b</title>" in html
    assert "<h1>a &amp; b</h1><ul><li>x &lt; y</li></ul><p>part</p>" in html
    assert "<ul>" not in page("a", [], []).split("<main>")[1]
    assert timeline(EVENTS, "g").count("<svg") == 2
