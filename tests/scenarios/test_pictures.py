"""A story's requests: as lines, as a picture, and on its page."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from kproto.cli import main
from kproto.errors import IllegalState
from kproto.scenarios import find, history
from kproto.scenarios.group_life import page
from kproto.scenarios.scenario import Moment
from kproto.testing.world import World
from kproto.testing.world.trace import exchanges

STORY = "S2-37"


def test_a_world_s_trace_is_its_exchanges_with_their_clients_and_brokers() -> None:
    told = find(STORY).run(drawn=True)
    found = list(exchanges(told.acts[0].stage.entries))
    assert {one.client for one in found} == {"a", "b"}
    assert {one.broker for one in found} == {"broker 1"}
    assert {"JoinGroup", "SyncGroup", "Heartbeat", "Fetch", "OffsetCommit"} <= {one.api for one in found}


def test_drawing_a_story_does_not_change_it() -> None:
    plain, drawn = find("S1-20").run(), find("S1-20").run(drawn=True)
    assert plain.results == drawn.results
    assert history.moments(plain) == history.moments(drawn)


def test_generations_in_the_timeline_are_those_of_the_answers() -> None:
    told = find(STORY).run(drawn=True)
    assert {event.generation for event in history.events(told.acts[0]) if event.kind == "assigned"} == {
        1,
        2,
        3,
    }


def test_the_requests_are_lines_in_the_order_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", STORY, "--requests"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("JoinGroup v7" in line and "generation=2" in line for line in lines)
    assert any("REBALANCE_IN_PROGRESS" in line for line in lines)
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


def test_the_picture_is_a_file_of_its_own(tmp_path: Path) -> None:
    assert main(["scenario", STORY, "--svg", str(tmp_path / "story.svg")]) == 0
    root = ElementTree.parse(tmp_path / "story.svg").getroot()
    assert root.tag.endswith("svg")
    assert "rebalance to generation 3" in "".join(root.itertext())


def test_the_page_has_the_picture_wide_and_narrow(tmp_path: Path) -> None:
    assert main(["scenario", STORY, "--html", str(tmp_path / "story.html")]) == 0
    page = (tmp_path / "story.html").read_text()
    assert page.count('class="sequence"') == page.count('class="sequence small"') == 1
    assert "prefers-color-scheme: dark" in page
    assert "<script" not in page


def test_a_story_without_requests_has_no_picture_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", "S2-1", "--svg", str(tmp_path / "story.svg")]) == 2
    assert "somebody asks a broker" in capsys.readouterr().err
    assert main(["scenario", "S2-1", "--html", str(tmp_path / "story.html")]) == 0


def test_each_run_of_a_story_is_told_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "S1-23"]) == 0
    out = capsys.readouterr().out
    assert out.index("Run 1 of 2, librdkafka:") < out.index("Run 2 of 2, kproto:")
    assert "Who owned what in run 2" in out


def test_commits_that_follow_each_other_are_told_once_with_the_last() -> None:
    several = [Moment(at, "g", f"has committed t-0 at {at}") for at in range(4)]
    told = history.shortened([*several, Moment(9, "a", "closing"), several[0]])
    assert [one.what for one in told] == [
        "has committed t-0 at 0",
        "3 times more; the last: t-0 at 3",
        "closing",
        "has committed t-0 at 0",
    ]


def test_reading_from_another_offset_is_told_again() -> None:
    told = [moment.what for moment in history.moments(find("S0-3").run())]
    assert [what for what in told if what.startswith("reads")] == [
        "reads test-0 from offset 2 on",
        "reads test-0 from offset 5 on",
    ]


def test_who_closes_was_not_killed() -> None:
    told = find("S3-21").run()
    assert [moment.what for moment in history.moments(told) if moment.what in ("closed", "killed")] == [
        "closed"
    ]
    assert [event.kind for event in history.events(told.acts[0])][-2:] == ["left", "ended"]


def test_a_world_of_one_s_own_is_drawn() -> None:
    world = World({"flights": 2})
    with pytest.raises(IllegalState, match="nothing happened"):
        page(world)
    member = world.join("a", topics=["flights"], group_id="g")
    world.run(until=lambda: len(member.owned) == 2)
    drawn = page(world, "One <member>")
    assert "<h1>One &lt;member&gt;</h1>" in drawn
    assert "flights-1 owned by a" in drawn
    assert "JoinGroup" in drawn
    assert repr(world).startswith("<World with 1 broker, a; ")
