"""A scenario for people and for programs: as text, as JSON, as a page with the group's timeline."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ..diagrams import timeline
from ..group.subscription import TopicPartition
from ..testing.world import Seen, World
from ..timeline import GroupEvent, Kind, ownerships
from .frame import Moment, Scenario, Told

WIDTH = 96
BAR = 60
"""Columns of the timeline."""
MANY = 60
"""Moments that are told; of more, the middle is left out."""
_KINDS: dict[str, Kind] = {
    "assigned": "assigned",
    "revoking": "releasing",
    "revoked": "revoked",
    "lost": "lost",
    "closed": "left",
    "killed": "killed",
}


def line(scenario: Scenario) -> str:
    return f"{scenario.id:<7}{scenario.title}"


def text(scenario: Scenario, told: Told) -> list[str]:
    """The whole story, for somebody who is tired."""
    return [
        f"{scenario.id}  {scenario.title}",
        "",
        *_paragraph("The document says:", scenario.says),
        *_paragraph("Given", scenario.given),
        *_paragraph("When", scenario.when),
        *_paragraph("Then", scenario.then),
        "",
        *_table(moments(told)),
        "What came out:",
        *[f"  {name:<34} {_value(value)}" for name, value in told.results.items()],
        *[f"  {'yes' if one.holds else 'NO '}  {one.text}" for one in told.claims],
        "",
        *[row for why in told.because for row in _paragraph("Why:", why)],
        *_bars(told),
    ]


def json(scenario: Scenario, told: Told) -> dict[str, Any]:
    """The same for programs."""
    return {
        "id": scenario.id,
        "title": scenario.title,
        "says": scenario.says,
        "given": scenario.given,
        "when": scenario.when,
        "then": scenario.then,
        "takes": list(scenario.takes),
        "holds": told.holds,
        "results": {name: _plain(value) for name, value in told.results.items()},
        "claims": [{"text": one.text, "holds": one.holds} for one in told.claims],
        "why": told.because,
        "moments": [{"ms": one.at, "who": one.who, "what": one.what} for one in moments(told)],
    }


def page(scenario: Scenario, told: Told) -> str:
    """The same as a page of its own, with the timeline drawn."""
    facts = [
        f"The document says: {scenario.says}",
        *[f"{name}: {_value(value)}" for name, value in told.results.items()],
        *[f"{'yes' if one.holds else 'NO'}: {one.text}" for one in told.claims],
        *told.because,
    ]
    found = events(told)
    begin = GroupEvent(0, "started", "the story")
    return timeline(found or [begin], f"{scenario.id}  {scenario.title}", facts)


def moments(told: Told) -> list[Moment]:
    """What the story says itself and what the applications in it saw, in the order of time."""
    found = list(told.moments)
    if told.stage is not None:
        found += _seen(told.stage, told.started)
    return sorted(found, key=lambda one: one.at)


def events(told: Told) -> list[GroupEvent]:
    """What the group's timeline is drawn from."""
    if told.stage is None:
        return []
    found = [
        GroupEvent(one.at - told.started, _KINDS[one.what], one.who, partitions=one.partitions)
        for one in told.stage.seen
        if one.what in _KINDS
    ]
    return found


# -- inside -----------------------------------------------------------------------------------------------


def _seen(world: World, started: int) -> list[Moment]:
    found: list[Moment] = []
    reading: set[tuple[str, TopicPartition]] = set()
    for one in world.seen:
        what = _said(one, reading)
        if what is not None:
            found.append(Moment(one.at - started, one.who, what))
    return found


def _said(one: Seen, reading: set[tuple[str, TopicPartition]]) -> str | None:
    partitions = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(one.partitions)) or "nothing"
    match one.what:
        case "assigned":
            return f"is assigned {partitions}"
        case "revoked" | "lost":
            reading -= {(one.who, tp) for tp in one.partitions}
            return f"{'gave back' if one.what == 'revoked' else 'lost'} {partitions}"
        case "delivered":
            first = [tp for tp in one.partitions if (one.who, tp) not in reading]
            reading |= {(one.who, tp) for tp in first}
            return f"reads {partitions} from offset {one.detail[0]} on" if first else None
        case "raised":
            return f"poll raises {one.detail}"
        case "sought":
            return f"seeks {partitions} to {one.detail}"
        case "stored":
            offsets = ", ".join(f"{tp.topic}-{tp.partition} at {offset}" for tp, offset in one.detail.items())
            return f"has committed {offsets}"
        case "subscribed" | "unsubscribed" | "closing" | "closed" | "killed" | "paused" | "resumed":
            return one.what
        case "reset":
            return f"starts {partitions} by policy: {one.detail}"
        case _:
            return None


def _table(found: Sequence[Moment]) -> list[str]:
    if not found:
        return []
    told = list(found)
    if len(told) > MANY:
        left = len(told) - MANY
        half = MANY // 2
        told = [*told[:half], Moment(told[half].at, "...", f"{left} more moments"), *told[-half:]]
    wide = max(len(one.who) for one in told)
    rows = [f"  {one.at / 1000:9.3f} s  {one.who:<{wide}}  {one.what}" for one in told]
    return [*rows, ""]


def _paragraph(head: str, body: str) -> list[str]:
    if not body:
        return []
    return textwrap.wrap(f"{head} {body}", WIDTH, subsequent_indent="    ")


def _bars(told: Told) -> list[str]:
    """Who owned which partition when, in BAR columns."""
    found = events(told)
    if told.stage is None or not found:
        return []
    end = max(told.stage.now - told.started, 1)
    owned = ownerships([*found, GroupEvent(end, "grown")])  # who owns something owns it until now
    if not owned:
        return []
    rows: dict[tuple[TopicPartition, str], list[str]] = {}
    for one in owned:
        row = rows.setdefault((one.partition, one.member), ["."] * BAR)
        first, last = one.start * BAR // end, min(BAR - 1, (one.end or end) * BAR // end)
        row[first : last + 1] = ["#"] * (last + 1 - first)
    wide = max(len(str(partition)) + len(member) for partition, member in rows) + 1
    head = f"Who owned what, {end / 1000:.1f} s from left to right:"
    body = [
        f"  {f'{partition} {member}':<{wide}}  {''.join(row)}"
        for (partition, member), row in sorted(rows.items())
    ]
    return [head, *body]


def _value(value: object) -> str:
    plain: Any = _plain(value)
    if isinstance(plain, list):
        return ", ".join(str(one) for one in cast("list[object]", plain)) or "nothing"
    if isinstance(plain, dict):
        found = cast("dict[str, object]", plain)
        return ", ".join(f"{name} {one}" for name, one in found.items()) or "nothing"
    return str(plain)


def _plain(value: object) -> Any:
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return {str(_plain(key)): _plain(found) for key, found in table.items()}
    if isinstance(value, (set, frozenset)):
        return [_plain(one) for one in sorted(cast("set[object]", value), key=str)]
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in cast("list[object]", value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def grid(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A table in plain text, the first column to the left, the others to the right."""
    body = [[_value(one) for one in row] for row in rows]
    table = [list(head), *body]
    wide = [max(len(row[at]) for row in table) for at in range(len(head))]
    lines = [
        "  ".join(f"{one:<{wide[at]}}" if not at else f"{one:>{wide[at]}}" for at, one in enumerate(row))
        for row in table
    ]
    return [lines[0], "  ".join("-" * one for one in wide), *lines[1:]]
