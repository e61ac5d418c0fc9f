"""The requests of a scenario are shown as lines, as a picture, and on its page."""

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


def test_the_trace_of_a_world_yields_its_exchanges() -> None:
    run = find(STORY).run(drawn=True)
    requests = list(exchanges(run.acts[0].stage.entries))
    assert {request.client for request in requests} == {"a", "b"}
    assert {request.broker for request in requests} == {"broker 1"}
    assert {"JoinGroup", "SyncGroup", "Heartbeat", "Fetch", "OffsetCommit"} <= {
        request.api for request in requests
    }


def test_drawing_does_not_change_a_run() -> None:
    plain, drawn = find(STORY).run(), find(STORY).run(drawn=True)
    assert plain.results == drawn.results
    assert history.moments(plain) == history.moments(drawn)


def test_the_timeline_has_the_generations_of_the_responses() -> None:
    run = find(STORY).run(drawn=True)
    assert {event.generation for event in history.events(run.acts[0]) if event.kind == "assigned"} == {
        1,
        2,
        3,
    }


def test_requests_are_listed_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", STORY, "--requests"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("JoinGroup v7" in line and "generation=2" in line for line in lines)
    assert any("REBALANCE_IN_PROGRESS" in line for line in lines)
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)


def test_the_svg_is_written_to_its_own_file(tmp_path: Path) -> None:
    assert main(["scenario", STORY, "--svg", str(tmp_path / "story.svg")]) == 0
    root = ElementTree.parse(tmp_path / "story.svg").getroot()
    assert root.tag.endswith("svg")
    assert "rebalance to generation 3" in "".join(root.itertext())


def test_the_page_has_a_wide_and_a_narrow_picture(tmp_path: Path) -> None:
    assert main(["scenario", STORY, "--html", str(tmp_path / "story.html")]) == 0
    page = (tmp_path / "story.html").read_text()
    assert page.count('class="sequence"') == page.count('class="sequence small"') == 1
    assert "prefers-color-scheme: dark" in page
    assert "<script" not in page


def test_a_scenario_without_requests_has_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scenario", "S2-1", "--svg", str(tmp_path / "story.svg")]) == 2
    assert "a client sends a request" in capsys.readouterr().err
    assert main(["scenario", "S2-1", "--html", str(tmp_path / "story.html")]) == 0


def test_each_run_of_a_scenario_is_shown_separately(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "S1-23"]) == 0
    out = capsys.readouterr().out
    assert out.index("Run 1 of 2, librdkafka:") < out.index("Run 2 of 2, kproto:")
    assert "Who owned what in run 2" in out


def test_consecutive_commits_are_shortened_to_first_and_last() -> None:
    several = [Moment(at, "g", f"has committed t-0 at {at}") for at in range(4)]
    shown = history.shortened([*several, Moment(9, "a", "closing"), several[0]])
    assert [moment.text for moment in shown] == [
        "has committed t-0 at 0",
        "3 times more; the last: t-0 at 3",
        "closing",
        "has committed t-0 at 0",
    ]


def test_a_jump_of_the_read_position_is_shown() -> None:
    texts = [moment.text for moment in history.moments(find("S0-3").run())]
    assert [text for text in texts if text.startswith("reads")] == [
        "reads test-0 from offset 2 on",
        "reads test-0 from offset 5 on",
    ]


def test_a_closing_member_is_not_shown_as_killed() -> None:
    run = find("S3-21").run()
    assert [moment.text for moment in history.moments(run) if moment.text in ("closed", "killed")] == [
        "closed"
    ]
    assert [event.kind for event in history.events(run.acts[0])][-2:] == ["left", "ended"]


def test_a_page_is_drawn_of_any_world() -> None:
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
