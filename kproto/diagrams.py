"""Pictures of the protocol, drawn from what runs: a group's timeline as one HTML file with inline SVG.

`timeline` takes the events of `kproto.timeline`. A lane is a member, a bar is a partition that it owned, a
partition keeps its colour wherever it goes, and a gap in a colour is a partition that stood still.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .group.subscription import TopicPartition
from .timeline import GroupEvent, Standstill, ownerships, shared, standstills

_COLOURS = ("#3b7dd8", "#e07b39", "#3a9e6e", "#b8529b", "#c9a227", "#5fa8b8", "#8a6fd1", "#c4524f", "#7c8f3d", "#8c6d53")
_LEFT, _RIGHT, _TOP, _BAR, _GAP = 130, 24, 64, 9, 22
_STYLE = """
:root { color-scheme: light dark }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.4em; margin-bottom: 0 } svg { width: 100%; height: auto }
svg text { font: 12px system-ui, sans-serif; fill: currentColor } .dim { opacity: .65 }
.lane { fill: currentColor; opacity: .05 } .generation { stroke: currentColor; opacity: .3 }
.grown { stroke: #3a9e6e; stroke-width: 1.5; stroke-dasharray: 5 4 } .kill { stroke: #c4524f; stroke-width: 2.5 }
table { border-collapse: collapse; margin: 1em 0 } td, th { padding: .15em .8em; text-align: right }
th { border-bottom: 1px solid #8888 } td:first-child, td:last-child { text-align: left }
i { display: inline-block; width: .9em; height: .9em; border-radius: 2px; margin: 0 .35em -.1em 1em }
"""


def timeline(events: Sequence[GroupEvent], title: str, facts: Sequence[str] = ()) -> str:
    """The group's life as a complete HTML page. `facts` are lines of plain text that stand under the title."""
    if not events:
        raise ValueError("a timeline needs at least one event")
    drawing = _Drawing(events)
    partitions = drawing.partitions
    legend = "".join(f'<i style="background:{drawing.colour(p)}"></i>{escape(_name(p))}' for p in partitions)
    lines = "".join(f"<li>{escape(fact)}</li>" for fact in facts)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1><ul>{lines}</ul><p class=dim>A bar is a partition that the member owns; "
        "a gap in a colour is a partition that stands still. Point at anything to read it.</p>"
        f"<p>{legend}</p>{drawing.svg()}{_table(events, partitions)}</html>\n"
    )


class _Drawing:
    """Where things are: one lane per member, one row per partition in it, time from left to right."""

    def __init__(self, events: Sequence[GroupEvent], width: int = 1120) -> None:
        self.events = sorted(events, key=lambda event: event.at)
        self.owned = ownerships(events)
        self.partitions = sorted({p for event in events for p in event.partitions})
        self.members = list(dict.fromkeys(event.member for event in self.events if event.member))
        self.start, end = self.events[0].at, self.events[-1].at
        self.span = max(end - self.start, 1)
        self.width = width
        self.lane = _BAR * max(len(self.partitions), 1) + 8
        self.height = _TOP + len(self.members) * (self.lane + _GAP) + 30

    def colour(self, partition: TopicPartition) -> str:
        return _COLOURS[self.partitions.index(partition) % len(_COLOURS)]

    def x(self, at: int) -> float:
        return round(_LEFT + (at - self.start) / self.span * (self.width - _LEFT - _RIGHT), 1)

    def y(self, member: str) -> int:
        return _TOP + self.members.index(member) * (self.lane + _GAP)

    def svg(self) -> str:
        parts = [*self._axis(), *self._generations(), *self._lanes(), *self._bars(), *self._marks()]
        return f'<svg viewBox="0 0 {self.width} {self.height}" role="img">{"".join(parts)}</svg>'

    def _axis(self) -> list[str]:
        step = next(s for s in (100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 600000) if self.span / s <= 14 or s == 600000)
        bottom = self.height - 8
        return [
            f'<text class=dim x="{self.x(self.start + at)}" y="{bottom}" text-anchor="middle">{at / 1000:g} s</text>'
            for at in range(0, self.span + 1, step)
        ]

    def _generations(self) -> list[str]:
        first: dict[int, GroupEvent] = {}
        for event in self.events:
            if event.kind == "assigned" and event.generation >= 0:
                first.setdefault(event.generation, event)
        parts = []
        labelled = -1e9
        for generation, event in sorted(first.items()):
            x = self.x(event.at)
            parts.append(
                f'<line class=generation x1="{x}" x2="{x}" y1="{_TOP - 14}" y2="{self.height - 24}">'
                f"<title>generation {generation}</title></line>"
            )
            row = 0 if x - labelled > 46 else 1
            labelled = x if row == 0 else labelled
            parts.append(f'<text class=dim x="{x}" y="{_TOP - 18 - 14 * row}" text-anchor="middle">gen {generation}</text>')
        return parts

    def _lanes(self) -> list[str]:
        parts = []
        for member in self.members:
            y = self.y(member)
            parts.append(f'<rect class=lane x="{_LEFT}" y="{y}" width="{self.width - _LEFT - _RIGHT}" height="{self.lane}"/>')
            parts.append(f'<text x="{_LEFT - 10}" y="{y + self.lane / 2 + 4}" text-anchor="end">{escape(member)}</text>')
        return parts

    def _bars(self) -> list[str]:
        parts = []
        for one in self.owned:
            y = self.y(one.member) + 4 + _BAR * self.partitions.index(one.partition)
            x, width = self.x(one.start), max(self.x(one.end) - self.x(one.start), 1)
            told = (
                f"{_name(one.partition)} owned by {one.member}, generation {one.generation}, "
                f"{(one.start - self.start) / 1000:.3f} s to {(one.end - self.start) / 1000:.3f} s"
            )
            parts.append(
                f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{_BAR - 2}" rx="1.5" fill="{self.colour(one.partition)}">'
                f"<title>{escape(told)}</title></rect>"
            )
        return parts

    def _marks(self) -> list[str]:
        parts = []
        for event in self.events:
            x = self.x(event.at)
            told = escape(f"{event.kind} at {(event.at - self.start) / 1000:.3f} s: {event.reason or event.member}")
            if event.kind == "grown":
                names = ", ".join(_name(p) for p in event.partitions)
                parts.append(
                    f'<line class=grown x1="{x}" x2="{x}" y1="14" y2="{self.height - 24}"><title>{told} ({escape(names)})</title></line>'
                    f'<text x="{x + 4}" y="12">topic grows by {len(event.partitions)}</text>'
                )
                continue
            y = self.y(event.member) if event.member else 0
            if event.kind in ("started", "left"):
                side = 1 if event.kind == "started" else -1
                word = "joins" if event.kind == "started" else "leaves"
                parts.append(
                    f'<path d="M{x} {y} l{6 * side} -5 v10 z" fill="currentColor"><title>{told}</title></path>'
                    f'<text x="{x}" y="{y + self.lane + 13}" text-anchor="{"start" if side > 0 else "end"}">{word}</text>'
                )
            elif event.kind == "killed":
                half = self.lane / 2
                parts.append(
                    f'<path class=kill d="M{x - 6} {y + half - 6} l12 12 m0 -12 l-12 12"><title>{told}</title></path>'
                    f'<text x="{x + 10}" y="{y + half + 4}">killed</text>'
                )
            elif event.kind == "rejoining":
                parts.append(
                    f'<circle cx="{x}" cy="{y + self.lane + 4}" r="2.5" fill="currentColor" opacity=".5"><title>{told}</title></circle>'
                )
        return parts


def _table(events: Sequence[GroupEvent], partitions: Sequence[TopicPartition]) -> str:
    still: dict[int, dict[TopicPartition, Standstill]] = {}
    for one in standstills(events):
        still.setdefault(one.generation, {})[one.partition] = one
    ordered = sorted(events, key=lambda event: event.at)
    generations = sorted({e.generation for e in ordered if e.kind == "assigned" and e.generation >= 0})
    head = "".join(f"<th>{escape(_name(p))}" for p in partitions)
    rows = []
    for generation in generations:
        cells = []
        for partition in partitions:
            found = still.get(generation, {}).get(partition)
            cells.append(f"<td>{f'{found.ms} ms' + (' (new)' if found.found else '') if found else '·'}")
        rows.append(f"<tr><td>{generation}{''.join(cells)}<td>{escape(cause(ordered, generation))}")
    overlaps = shared(ownerships(events))
    verdict = f"{len(overlaps)} times two members owned one partition" if overlaps else "no partition ever had two owners"
    return (
        f"<table><caption>How long each partition stood still, by the generation that ended it (· = it never stopped); {verdict}"
        f"</caption><tr><th>generation{head}<th>why</tr>{''.join(rows)}</table>"
    )


def cause(events: Sequence[GroupEvent], generation: int) -> str:
    """Why `generation` came to be: what happened between the generation before it and its first assignment."""
    ordered = sorted(events, key=lambda event: event.at)
    mine = [event.at for event in ordered if event.kind == "assigned" and event.generation == generation]
    before = [event.at for event in ordered if event.kind == "assigned" and 0 <= event.generation < generation]
    since, until = (max(before) if before else ordered[0].at - 1), min(mine)
    told = []
    for event in ordered:
        if since < event.at <= until and event.kind in ("started", "left", "killed", "grown", "rejoining"):
            what = {"started": "joins", "left": "leaves", "killed": "is killed", "grown": "the topic grows"}.get(event.kind)
            told.append(f"{event.member} {what}".strip() if what else f"{event.member}: {event.reason}")
    return "; ".join(dict.fromkeys(told))


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
