"""A `World` in a notebook: the timeline of its group, and a slider over its time."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from ..errors import MissingExtra
from ..inspect import diagrams
from ..inspect.notebook import image
from ..inspect.timeline import GroupEvent
from ..printable import escape_lines
from ..testing.world import World
from ..testing.world.state import START
from . import history
from .scenario import Act

# The width of a timeline in pixels.
_WIDTH: Final = 820


def timeline(world: World) -> str:
    """Draw the timeline of the group in a world, and list how long each partition had no reader."""
    return _timeline_html(history.events(Act(world, START)))


def slider(world: World) -> Any:
    """Return a slider over the virtual time of a world, with the timeline up to the chosen time."""
    try:
        widgets: Any = import_module("ipywidgets")
    except ImportError:
        raise MissingExtra("World.play", "ipywidgets", "notebook") from None

    events = history.events(Act(world, START))
    elapsed_ms = world.now - START
    picture = widgets.HTML()
    time = widgets.IntSlider(
        elapsed_ms, min=0, max=elapsed_ms, step=max(elapsed_ms // 200, 1), description="time (ms)"
    )

    def draw(_: object = None) -> None:
        picture.value = _timeline_html(until(events, time.value))

    time.observe(draw, "value")
    draw()
    return widgets.VBox([time, picture])


def until(events: list[GroupEvent], at: int) -> list[GroupEvent]:
    """Return the events of a timeline up to the time `at` (ms), followed by the event "ended" at `at`."""
    past = [event for event in events if event.at <= at and event.kind != "ended"]
    return [*past, GroupEvent(at, "ended")] if past else []


def _timeline_html(events: list[GroupEvent]) -> str:
    if not events:
        return "<p>No member of a group has been started.</p>"
    picture = image(diagrams.picture(events, _WIDTH), "the timeline of the group")
    legend, table = escape_lines(diagrams.legend(events)), escape_lines(diagrams.table(events))
    return f"<div>{legend}{picture}{table}</div>"
