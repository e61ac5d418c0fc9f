"""A notebook shows a world (a simulated cluster) as a timeline, with the cause of each generation."""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from types import ModuleType
from typing import Any

import pytest

from kproto.errors import MissingExtra
from kproto.inspect.timeline import GroupEvent
from kproto.scenarios.group_life import play_group_life
from kproto.scenarios.notebook import until
from kproto.testing.world import World


@pytest.fixture(scope="module")
def world() -> World:
    return play_group_life().stage


def test_a_world_shows_its_timeline_and_why_each_generation_began(world: World) -> None:
    html = world._repr_html_()
    assert "data:image/svg+xml;base64," in html
    assert "b sent nothing for 3000 ms (killed)" in html
    # The legend has one entry for each of the eight partitions.
    assert html.count('<span style="color:#') == 8
    assert "<style" not in html  # Notebooks remove style sheets from old outputs.


def test_a_world_without_members_says_so() -> None:
    assert "No member" in World({"t": 1})._repr_html_()


def test_the_name_of_a_member_is_escaped_in_texts_and_in_the_drawing() -> None:
    """An SVG document with an escape character is not shown at all."""
    world = World({"t": 1})
    world.join("<b>\x1b", topics=["t"], group_id="g")
    world.run(3_000)
    html = world._repr_html_()
    drawing = re.search(r"base64,([^\"]+)", html)
    assert drawing is not None
    for text in (html, b64decode(drawing[1]).decode()):
        assert "<b>" not in text
        assert "\x1b" not in text
        assert "\\u001b" in text


def test_events_after_the_chosen_time_are_left_out() -> None:
    events = [GroupEvent(0, "joined", "a"), GroupEvent(900, "killed", "a"), GroupEvent(950, "ended")]
    assert until(events, 500) == [events[0], GroupEvent(500, "ended")]
    assert until(events, 920) == [*events[:2], GroupEvent(920, "ended")]
    assert until(events[1:], 500) == []


class _Widget:
    """Replaces a widget of ipywidgets. `move` sets the value and calls the observers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments = arguments
        self.options = options
        self.value = arguments[0] if arguments else ""
        self.observers: list[Any] = []

    def observe(self, function: Any, name: str) -> None:
        assert name == "value"
        self.observers.append(function)

    def move(self, value: int) -> None:
        self.value = value
        for observer in self.observers:
            observer({"new": value})


def test_the_slider_redraws_the_timeline(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    widgets = ModuleType("ipywidgets")
    vars(widgets).update(HTML=_Widget, IntSlider=_Widget, VBox=_Widget)
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)
    slider, picture = world.play().arguments[0]
    assert (slider.options["min"], slider.options["max"], slider.value) == (0, 15_000, 15_000)
    assert "(killed)" in picture.value
    slider.move(3_000)
    assert "(killed)" not in picture.value
    assert "b joined" in picture.value
    slider.move(0)
    assert "b joined" not in picture.value


def test_play_without_ipywidgets_names_the_extra(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(MissingExtra, match=r"World.play needs ipywidgets: pip install 'kproto\[notebook\]'"):
        world.play()
