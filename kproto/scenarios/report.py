"""Render the run of a scenario as text, as JSON, or as an HTML page with the group's timeline."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import Any, cast

from ..errors import ConfigError
from ..group.subscription import TopicPartition
from ..inspect import diagrams, sequence
from ..inspect.timeline import ownerships
from . import history
from .parameters import PARAMETERS, as_options, written
from .scenario import Act, Moment, Scenario, ScenarioClaim, ScenarioRun, scenarios

WIDTH = 80
# The minimum width of a line in columns, however narrow the terminal is.
NARROW = 20
# The width of the timeline in columns.
BAR = 60
# The maximum number of moments in a table; a longer table omits the moments in the middle.
MANY = 60
# Up to this number, successive identical moments of a client are all shown. A longer sequence shows only its
# first and its last moment, with the number of moments between them.
AGAIN = 8
# Up to this number, all runs are shown. If there are more runs, only the first `FEW_RUNS` are shown.
MANY_RUNS = 12
FEW_RUNS = 4
# The maximum width of the column with the names of results.
NAMES = 44


def line(scenario: Scenario) -> str:
    return f"{scenario.id:<7}{scenario.title}"


def parameter_lines(width: int | None) -> list[str]:
    """List the scenarios of each parameter, then the scenarios without parameters, by reason."""
    all_scenarios = scenarios()
    lines = [
        f"{row.option}: {_ranges([(name in story.takes, story.id) for story in all_scenarios])}"
        for name, row in PARAMETERS.items()
    ]
    for reason in dict.fromkeys(story.fixed for story in all_scenarios if story.fixed):
        lines.append(
            f"none: {_ranges([(story.fixed == reason, story.id) for story in all_scenarios])} ({reason})"
        )
    return [row for line in lines for row in paragraph(line, width)]


def _ranges(marked: Iterable[tuple[bool, str]]) -> str:
    """Return the marked ids as text. Three or more successive ids of one document become "A to B"."""
    parts: list[str] = []
    for (is_marked, _), group in groupby(marked, lambda pair: (pair[0], pair[1].partition("-")[0])):
        ids = [id_ for _, id_ in group]
        if is_marked:
            parts += [f"{ids[0]} to {ids[-1]}"] if len(ids) > 2 else ids
    return ", ".join(parts)


def fitted(lines: Iterable[str], width: int | None) -> list[str]:
    """Fold the lines that are longer than the terminal's `width`."""
    if width is None:
        return list(lines)
    wide = max(width, NARROW)
    return [row for line in lines for row in _folded(line, wide)]


def paragraph(text: str, width: int | None) -> list[str]:
    """Wrap prose to at most `WIDTH` columns."""
    wide = _prose_width(width)
    return textwrap.wrap(text, wide, subsequent_indent="    ", break_on_hyphens=False)


def _prose_width(width: int | None) -> int:
    """Return the line width of prose, for a terminal of `width` columns."""
    return WIDTH if width is None else min(WIDTH, max(NARROW, width))


def _folded(line: str, wide: int) -> list[str]:
    if len(line) <= wide:
        return [line]
    return textwrap.wrap(line, wide, subsequent_indent=" " * 8, break_on_hyphens=False)


def text(scenario: Scenario, run: ScenarioRun, width: int | None = None) -> list[str]:
    """Render the whole run as lines of text. `width` is the terminal's width, or None without a terminal."""
    wide = _prose_width(width)
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
        *([*paragraph(changes(run), width), ""] if run.changes else []),
        *_tables(run, wide),
        "What came out:",
        *[row for name, value in run.results.items() for row in _result_rows(run, name, value, wide)],
        *[
            row
            for claim in run.claims
            for row in _wrapped(f"  {_verdict(claim)}  ", _claim_text(run, claim), wide)
        ],
        "",
        *[row for why in run.because for row in _paragraph("Why:", why, width)],
        *[
            row
            for number, act in _shown_runs(run)
            for row in _bars(_run_suffix(run, number, act), act, width)
        ],
    ]
    return fitted(rows, width)


def changes(run: ScenarioRun) -> str:
    """Describe the parameters that the run changed, with their new values and those of the scenario."""
    parts: list[str] = []
    for name, value in run.parameters.changed().items():
        values = [_written(name, known) for known in run.replaced.get(name, ())]
        before = f" (as written: {', '.join(dict.fromkeys(values))})" if values else ""
        parts.append(f"{as_options({name: value})}{before}")
    return f"Changed: {', '.join(parts)}. The text above describes the scenario as written."


def _written(name: str, value: object) -> str:
    """Format a scenario's own value, which a parameter replaced. None stands for the client's default."""
    if isinstance(value, tuple):
        return " and ".join(map(str, cast("tuple[object, ...]", value)))
    if name == "static":
        return "no" if value is None else "yes"
    return "the client's default" if value is None else written(name, value)


def _verdict(claim: ScenarioClaim) -> str:
    return "yes" if claim.holds else "NO "


def _claim_text(run: ScenarioRun, claim: ScenarioClaim) -> str:
    """Return the text of a claim, after the changed parameters with which the claim fails."""
    if claim.holds or not run.changes:
        return claim.text
    return f"does not hold with {run.changes}: {claim.text}"


def json(scenario: Scenario, run: ScenarioRun) -> dict[str, Any]:
    """Render the run as JSON."""
    return {
        "id": scenario.id,
        "title": scenario.title,
        "says": scenario.says,
        "given": scenario.given,
        "when": scenario.when,
        "then": scenario.then,
        "takes": list(scenario.takes),
        "changed": run.parameters.changed(),
        "holds": run.holds,
        "results": {name: _json_value(value) for name, value in run.results.items()},
        "claims": [{"text": claim.text, "holds": claim.holds} for claim in run.claims],
        "why": run.because,
        "moments": [
            {"ms": moment.at, "who": moment.who, "what": moment.text} for moment in history.moments(run)
        ],
    }


def page(scenario: Scenario, run: ScenarioRun) -> str:
    """Render the run as an HTML page with drawings of each world's timeline and requests."""
    story = [
        f"<p>{escape(head)} {escape(body)}</p>"
        for head, body in (
            ("The document says:", scenario.says),
            ("Given", scenario.given),
            ("When", scenario.when),
            ("Then", scenario.then),
        )
    ]
    rows = [
        f"<tr><td>{escape(name)}<td>{escape(_value_text(value))}</tr>" for name, value in run.results.items()
    ]
    claims = [
        f"<li>{_verdict(claim).strip()}: {escape(_claim_text(run, claim))}</li>" for claim in run.claims
    ]
    parts = [
        *story,
        *([f"<p>{escape(changes(run))}</p>"] if run.changes else []),
        f"<h2>What came out</h2><div class=table><table>{''.join(rows)}</table></div>",
        f"<ul>{''.join(claims)}</ul>",
        *[f"<p>Why: {escape(why)}</p>" for why in run.because],
        *[part for number, act in enumerate(run.acts) for part in _run_drawings(run, number, act)],
    ]
    return diagrams.page(f"{scenario.id}  {scenario.title}", [], parts)


def _run_drawings(run: ScenarioRun, number: int, act: Act) -> list[str]:
    events = history.events(act)
    conversation = history.picked(act)
    head = f"<h2>{escape(_run_heading(run, number, act))}</h2>"
    owned = any(event.kind == "assigned" for event in events)
    return [
        head,
        diagrams.section(events, 0) if owned else "",
        diagrams.conversation(conversation) if conversation is not None else "",
    ]


def svg(run: ScenarioRun) -> str:
    """Draw the requests to the scenario's last cluster as SVG. Raises ConfigError if there are none."""
    conversation = history.picked(run.acts[-1]) if run.acts else None
    if conversation is None:
        raise ConfigError("--svg", "this scenario", "choose a scenario in which a client sends a request")
    return sequence.picture(conversation)


def requests(run: ScenarioRun) -> list[str]:
    """Return each request of the sequence diagrams as a line, in the format of `kproto watch`."""
    lines: list[str] = []
    for number, act in enumerate(run.acts):
        conversation = history.picked(act)
        if conversation is not None:
            lines += [f"{_run_heading(run, number, act)}:"] if len(run.acts) > 1 else []
            lines += [row.tooltip.removesuffix("  [0 ms]") for row in conversation.rows if row.kind == "ask"]
    return lines


# -- layout -------------------------------------------------------------------------------------------------


def _result_rows(run: ScenarioRun, name: str, value: object, wide: int) -> list[str]:
    """Render a result as a table row. If the row is too long, the value is written on the line below the
    name.
    """
    name_width = min(NAMES, max(34, *map(len, run.results))) if wide >= BAR else 0
    row = f"  {name:<{name_width}} {_value_text(value)}"
    if len(name) <= name_width and len(row) <= wide:
        return [row]
    plain: Any = _json_value(value)
    items = cast("list[object]", plain) if isinstance(plain, list) else []
    # Items that contain spaces are sentences or table rows, so each gets its own line.
    has_item_lines = any(" " in str(item) for item in items)
    parts = [_item_text(item) for item in items] if has_item_lines else [_value_text(value)]
    below = (line for part in parts for line in _wrapped("      ", part, wide))
    return [*_wrapped("  ", name, wide), *below]


def _wrapped(head: str, body: str, wide: int) -> list[str]:
    """Wrap `body` after `head`, with further lines indented by the width of `head`. Words are not split."""
    body_width = max(NARROW // 2, wide - len(head))
    rows = textwrap.wrap(body, body_width, break_long_words=False, break_on_hyphens=False)
    return [head + rows[0], *(" " * len(head) + row for row in rows[1:])] if rows else [head.rstrip()]


def _shown_runs(run: ScenarioRun) -> list[tuple[int, Act]]:
    """Return the runs to show, with their numbers from 0."""
    runs = list(enumerate(run.acts))
    return runs if len(runs) <= MANY_RUNS else runs[:FEW_RUNS]


def _tables(run: ScenarioRun, wide: int) -> list[str]:
    """Render a table of the moments before the first world, and one for each run that is shown."""
    rows = _table(run.moments, wide)
    for number, act in _shown_runs(run):
        table = _table(history.counted(history.shortened(history.moments_of(act)), AGAIN), wide)
        rows += [f"{_run_heading(run, number, act)}:", *table] if table and len(run.acts) > 1 else table
    hidden = len(run.acts) - len(_shown_runs(run))
    return [*rows, f"{hidden} runs more: --json and --html have them.", ""] if hidden else rows


def _run_heading(run: ScenarioRun, number: int, act: Act) -> str:
    kind = history.name(act)
    which = f"Run {number + 1} of {len(run.acts)}" if len(run.acts) > 1 else "What happened"
    return f"{which}{f', {kind}' if kind else ''}"


def _run_suffix(run: ScenarioRun, number: int, act: Act) -> str:
    return f" in run {number + 1}" if len(run.acts) > 1 else ""


def _table(moments: Sequence[Moment], columns: int) -> list[str]:
    """Render moments with their times, at most `MANY` of them."""
    if not moments:
        return []
    shown = list(moments)
    if len(shown) > MANY:
        hidden = len(shown) - MANY
        half = MANY // 2
        shown = [*shown[:half], Moment(shown[half].at, "...", f"{hidden} more moments"), *shown[-half:]]
    wide = max(len(moment.who) for moment in shown)
    heads = [f"  {moment.at / 1000:9.3f} s  {moment.who:<{wide}}  " for moment in shown]
    rows = (_wrapped(head, moment.text, columns) for head, moment in zip(heads, shown, strict=True))
    return [*(line for row in rows for line in row), ""]


def _paragraph(head: str, body: str, width: int | None) -> list[str]:
    return paragraph(f"{head} {body}", width) if body else []


def _bars(run_suffix: str, act: Act, width: int | None) -> list[str]:
    """Draw the partitions that each member owned over time, in at most `BAR` columns."""
    events = history.events(act)
    if not events:
        return []
    end = max(act.stage.now - act.started, 1)
    owned = ownerships(events)
    if not owned:
        return []
    label_width = max(len(f"{ownership.partition} {ownership.member}") for ownership in owned)
    bar = min(BAR, max(NARROW // 2, _prose_width(width) - label_width - 4))
    rows: dict[tuple[TopicPartition, str], list[str]] = {}
    for ownership in owned:
        row = rows.setdefault((ownership.partition, ownership.member), ["."] * bar)
        first, last = ownership.start * bar // end, min(bar - 1, (ownership.end or end) * bar // end)
        row[first : last + 1] = ["#"] * (last + 1 - first)
    head = f"Who owned what{run_suffix}, {end / 1000:.1f} s from left to right:"
    body = [
        f"  {f'{partition} {member}':<{label_width}}  {''.join(row)}"
        for (partition, member), row in sorted(rows.items())
    ]
    return [head, *body]


def _value_text(value: object) -> str:
    plain: Any = _json_value(value)
    if isinstance(plain, list):
        return ", ".join(_item_text(item) for item in cast("list[object]", plain)) or "nothing"
    if isinstance(plain, dict):
        table = cast("dict[str, object]", plain)
        return ", ".join(f"{name} {_item_text(item)}" for name, item in table.items()) or "nothing"
    return str(plain)


def _item_text(value: object) -> str:
    """Render an item of a list. The item may itself be a list, such as an error's name and text."""
    if not isinstance(value, list):
        return _value_text(value)
    inner = cast("list[object]", value)
    if any(isinstance(item, list) for item in inner):
        return ", ".join(_item_text(item) for item in inner)
    if not any(isinstance(item, str) for item in inner):
        return str(inner)
    return (": " if all(isinstance(item, str) for item in inner) else ":").join(map(_value_text, inner))


def _json_value(value: object) -> Any:
    """Return a result as values for JSON. Partitions become text, and sets become sorted lists."""
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, dict):
        table = cast("dict[object, object]", value)
        return {str(_json_value(key)): _json_value(item) for key, item in table.items()}
    if isinstance(value, (set, frozenset)):
        return [_json_value(item) for item in sorted(cast("set[object]", value), key=str)]
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in cast("list[object]", value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def grid(head: Sequence[str], rows: Iterable[Sequence[object]], width: int | None = None) -> list[str]:
    """Render a plain-text table: the first column left-aligned, the others right-aligned.

    If the terminal's `width` is too small for the table, each row becomes a paragraph.
    """
    body = [[_value_text(cell) for cell in row] for row in rows]
    table = [list(head), *body]
    wide = [max(len(row[at]) for row in table) for at in range(len(head))]
    if width is not None and sum(wide) + 2 * len(wide) - 2 > width:
        paragraphs = [[f"{name} {cell}" for name, cell in zip(head, row, strict=True)] for row in body]
        return fitted(("; ".join(row) for row in paragraphs), width)
    lines = [
        "  ".join(f"{cell:<{wide[at]}}" if not at else f"{cell:>{wide[at]}}" for at, cell in enumerate(row))
        for row in table
    ]
    return [lines[0], "  ".join("-" * cell for cell in wide), *lines[1:]]
