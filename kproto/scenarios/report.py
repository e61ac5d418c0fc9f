"""A scenario for people and for programs: as text, as JSON, as a page with the group's timeline."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, cast

from ..errors import ConfigError
from ..group.subscription import TopicPartition
from ..inspect import diagrams, sequence
from ..inspect.timeline import ownerships
from . import history
from .scenario import Act, Moment, Scenario, ScenarioRun

WIDTH = 80
NARROW = 20  # Lines are not made shorter than this, however narrow the terminal is.
BAR = 60  # Columns of the timeline.
MANY = 60  # Moments that are told; of more, the middle is left out.
AGAIN = 8  # So often one client says one thing, and each is told.
MANY_RUNS = 12  # Runs that are told; of more, the first ones.
FEW_RUNS = 4
NAMES = 44  # Columns that names of results may take.


def line(scenario: Scenario) -> str:
    return f"{scenario.id:<7}{scenario.title}"


def fitted(lines: Iterable[str], width: int | None) -> list[str]:
    """Lines that go on below themselves where they are longer than a terminal of that width."""
    if width is None:
        return list(lines)
    wide = max(width, NARROW)
    return [row for line in lines for row in _folded(line, wide)]


def paragraph(text: str, width: int | None) -> list[str]:
    """Prose, in lines that are never too long to be read."""
    wide = _wide_for(width)
    return textwrap.wrap(text, wide, subsequent_indent="    ", break_on_hyphens=False)


def _wide_for(width: int | None) -> int:
    """Columns for prose in a terminal of that width."""
    return WIDTH if width is None else min(WIDTH, max(NARROW, width))


def _folded(line: str, wide: int) -> list[str]:
    if len(line) <= wide:
        return [line]
    return textwrap.wrap(line, wide, subsequent_indent=" " * 8, break_on_hyphens=False)


def text(scenario: Scenario, run: ScenarioRun, width: int | None = None) -> list[str]:
    """The whole story, for somebody who is tired; `width` is that of the terminal, if there is one."""
    wide = _wide_for(width)
    rows = [
        *_wrapped(f"{scenario.id}  ", scenario.title, wide),
        "",
        *[
            row
            for head, body in (
                ("The document says:", scenario.says),
                ("Given", scenario.given),
                ("When", scenario.when),
                ("Then", scenario.then),
            )
            for row in _paragraph(head, body, width)
        ],
        "",
        *_tables(run, wide),
        "What came out:",
        *[row for name, value in run.results.items() for row in _result(run, name, value, wide)],
        *[
            row
            for claim in run.claims
            for row in _wrapped(f"  {'yes' if claim.holds else 'NO '}  ", claim.text, wide)
        ],
        "",
        *[row for why in run.because for row in _paragraph("Why:", why, width)],
        *[row for number, act in _few(run) for row in _bars(_of(run, number, act), act, width)],
    ]
    return fitted(rows, width)


def json(scenario: Scenario, run: ScenarioRun) -> dict[str, Any]:
    """The same for programs."""
    return {
        "id": scenario.id,
        "title": scenario.title,
        "says": scenario.says,
        "given": scenario.given,
        "when": scenario.when,
        "then": scenario.then,
        "takes": list(scenario.takes),
        "holds": run.holds,
        "results": {name: _plain(value) for name, value in run.results.items()},
        "claims": [{"text": claim.text, "holds": claim.holds} for claim in run.claims],
        "why": run.because,
        "moments": [
            {"ms": moment.at, "who": moment.who, "what": moment.what} for moment in history.moments(run)
        ],
    }


def page(scenario: Scenario, run: ScenarioRun) -> str:
    """The same as a page of its own, with each world's timeline and requests drawn."""
    story = [
        f"<p>{escape(head)} {escape(body)}</p>"
        for head, body in (
            ("The document says:", scenario.says),
            ("Given", scenario.given),
            ("When", scenario.when),
            ("Then", scenario.then),
        )
    ]
    rows = [f"<tr><td>{escape(name)}<td>{escape(_value(value))}</tr>" for name, value in run.results.items()]
    claims = [f"<li>{'yes' if claim.holds else 'NO'}: {escape(claim.text)}</li>" for claim in run.claims]
    parts = [
        *story,
        f"<h2>What came out</h2><div class=table><table>{''.join(rows)}</table></div>",
        f"<ul>{''.join(claims)}</ul>",
        *[f"<p>Why: {escape(why)}</p>" for why in run.because],
        *[part for number, act in enumerate(run.acts) for part in _drawn(run, number, act)],
    ]
    return diagrams.page(f"{scenario.id}  {scenario.title}", [], parts)


def _drawn(run: ScenarioRun, number: int, act: Act) -> list[str]:
    found = history.events(act)
    asked = history.picked(act)
    head = f"<h2>{escape(_head(run, number, act))}</h2>"
    owned = any(one.kind == "assigned" for one in found)
    return [
        head,
        diagrams.section(found) if owned else "",
        diagrams.conversation(asked) if asked is not None else "",
    ]


def svg(run: ScenarioRun) -> str:
    """The requests of the last world as a picture of its own. Raises ConfigError for a story without any."""
    asked = history.picked(run.acts[-1]) if run.acts else None
    if asked is None:
        raise ConfigError("--svg", "this story", "a story in which somebody asks a broker")
    return sequence.picture(asked)


def requests(run: ScenarioRun) -> list[str]:
    """Every request that the picture draws, as a line like those of `kproto watch`."""
    found: list[str] = []
    for number, act in enumerate(run.acts):
        asked = history.picked(act)
        if asked is not None:
            found += [f"{_head(run, number, act)}:"] if len(run.acts) > 1 else []
            found += [row.told.removesuffix("  [0 ms]") for row in asked.rows if row.kind == "ask"]
    return found


# -- inside -----------------------------------------------------------------------------------------------


def _result(run: ScenarioRun, name: str, value: object, wide: int) -> list[str]:
    """In a table; below its name where it is too long for that."""
    names = min(NAMES, max(34, *map(len, run.results))) if wide >= BAR else 0
    row = f"  {name:<{names}} {_value(value)}"
    if len(name) <= names and len(row) <= wide:
        return [row]
    plain: Any = _plain(value)
    several = cast("list[object]", plain) if isinstance(plain, list) else []
    each = any(" " in str(one) for one in several)  # sentences, or rows of a table
    parts = [_within(one) for one in several] if each else [_value(value)]
    below = (line for part in parts for line in _wrapped("      ", part, wide))
    return [*_wrapped("  ", name, wide), *below]


def _wrapped(head: str, body: str, wide: int) -> list[str]:
    """Lines that begin with `head`, and then as far to the right; words stay whole."""
    room = max(NARROW // 2, wide - len(head))
    rows = textwrap.wrap(body, room, break_long_words=False, break_on_hyphens=False)
    return [head + rows[0], *(" " * len(head) + row for row in rows[1:])] if rows else [head.rstrip()]


def _few(run: ScenarioRun) -> list[tuple[int, Act]]:
    """The runs that are told, by number."""
    runs = list(enumerate(run.acts))
    return runs if len(runs) <= MANY_RUNS else runs[:FEW_RUNS]


def _tables(run: ScenarioRun, wide: int) -> list[str]:
    """The moments of what needs no world, and of each world."""
    found = _table(run.moments, wide)
    for number, act in _few(run):
        here = _table(history.counted(history.shortened(history.moments_of(act)), AGAIN), wide)
        found += [f"{_head(run, number, act)}:", *here] if here and len(run.acts) > 1 else here
    left = len(run.acts) - len(_few(run))
    return [*found, f"{left} runs more: --json and --html have them.", ""] if left else found


def _head(run: ScenarioRun, number: int, act: Act) -> str:
    kind = history.name(act)
    which = f"Run {number + 1} of {len(run.acts)}" if len(run.acts) > 1 else "What happened"
    return f"{which}{f', {kind}' if kind else ''}"


def _of(run: ScenarioRun, number: int, act: Act) -> str:
    return f" in run {number + 1}" if len(run.acts) > 1 else ""


def _table(found: Sequence[Moment], columns: int) -> list[str]:
    if not found:
        return []
    told = list(found)
    if len(told) > MANY:
        left = len(told) - MANY
        half = MANY // 2
        told = [*told[:half], Moment(told[half].at, "...", f"{left} more moments"), *told[-half:]]
    wide = max(len(one.who) for one in told)
    heads = [f"  {one.at / 1000:9.3f} s  {one.who:<{wide}}  " for one in told]
    rows = (_wrapped(head, one.what, columns) for head, one in zip(heads, told, strict=True))
    return [*(line for row in rows for line in row), ""]


def _paragraph(head: str, body: str, width: int | None) -> list[str]:
    return paragraph(f"{head} {body}", width) if body else []


def _bars(of: str, act: Act, width: int | None) -> list[str]:
    """Who owned which partition when, in BAR columns or what is left of the line."""
    found = history.events(act)
    if not found:
        return []
    end = max(act.stage.now - act.started, 1)
    owned = ownerships(found)
    if not owned:
        return []
    names = max(len(f"{one.partition} {one.member}") for one in owned)
    bar = min(BAR, max(NARROW // 2, _wide_for(width) - names - 4))
    rows: dict[tuple[TopicPartition, str], list[str]] = {}
    for one in owned:
        row = rows.setdefault((one.partition, one.member), ["."] * bar)
        first, last = one.start * bar // end, min(bar - 1, (one.end or end) * bar // end)
        row[first : last + 1] = ["#"] * (last + 1 - first)
    head = f"Who owned what{of}, {end / 1000:.1f} s from left to right:"
    body = [
        f"  {f'{partition} {member}':<{names}}  {''.join(row)}"
        for (partition, member), row in sorted(rows.items())
    ]
    return [head, *body]


def _value(value: object) -> str:
    plain: Any = _plain(value)
    if isinstance(plain, list):
        return ", ".join(_within(one) for one in cast("list[object]", plain)) or "nothing"
    if isinstance(plain, dict):
        found = cast("dict[str, object]", plain)
        return ", ".join(f"{name} {_within(one)}" for name, one in found.items()) or "nothing"
    return str(plain)


def _within(value: object) -> str:
    """A list in a list: an error's name and its text, a host and its port, or several of them."""
    if not isinstance(value, list):
        return _value(value)
    inner = cast("list[object]", value)
    if any(isinstance(one, list) for one in inner):
        return ", ".join(_within(one) for one in inner)
    if not any(isinstance(one, str) for one in inner):
        return str(inner)
    return (": " if all(isinstance(one, str) for one in inner) else ":").join(map(_value, inner))


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


def grid(head: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None) -> list[str]:
    """A table in plain text, the first column to the left, the others to the right; in a terminal of `width`
    that is too narrow for it a paragraph for each row.
    """
    body = [[_value(one) for one in row] for row in rows]
    table = [list(head), *body]
    wide = [max(len(row[at]) for row in table) for at in range(len(head))]
    if width is not None and sum(wide) + 2 * len(wide) - 2 > width:
        told = [[f"{name} {one}" for name, one in zip(head, row, strict=True)] for row in body]
        return fitted(("; ".join(row) for row in told), width)
    lines = [
        "  ".join(f"{one:<{wide[at]}}" if not at else f"{one:>{wide[at]}}" for at, one in enumerate(row))
        for row in table
    ]
    return [lines[0], "  ".join("-" * one for one in wide), *lines[1:]]
