"""Objects as HTML for notebooks: messages, columns, state machines, groups and metrics.

The objects' `_repr_html_` methods call this module through `kproto.lazy_imports.render_html`. So a program
without a notebook never imports this module.

The HTML needs no script and no style sheet. Tables have the notebook's style. A drawing is an <img> that
contains the SVG document. Its colours follow the system's light or dark theme.

Names, keys and values are escaped, because they come from other programs.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

from ..errors import KprotoError
from ..group.classic import coordinator
from ..group.subscription import Assignment
from ..machine import Drawing, Table, draw, label
from ..printable import escape_lines, escape_unprintable
from ..wire.message import Message
from ..wire.spans import annotate, value_text
from . import machines

if TYPE_CHECKING:
    from ..group.classic.coordinator.state import ClassicGroup
    from ..group.classic.member.state import Member
    from ..records.columns import Columns

# The maximum number of records, fields of a message, bytes of a field, and characters of a key or value that
# are shown.
_MAX_ROWS: Final = 10
_MAX_FIELDS: Final = 200
_MAX_BYTES: Final = 16
_MAX_CHARACTERS: Final = 60
# The number of bytes at the start of a message that are decoded first.
_PREFIX_SIZE: Final = 64 * 1024
# The maximum number of characters of the repr of a message that no version can encode.
_MAX_REPR_CHARACTERS: Final = 2000


def table(heading: str, columns: Sequence[str], rows: Iterable[Sequence[object]], below: str = "") -> str:
    """Return an HTML table, with the text `heading` above it and the text `below` below it.

    All texts are escaped. A cell whose value is None is empty.
    """
    head = "".join(f"<th style='text-align: left'>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(map(_render_cell, row))}</tr>" for row in rows)
    return (
        f"<div><p><b>{_escape_text(heading)}</b></p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{f'<p>{_escape_text(below)}</p>' if below else ''}</div>"
    )


def image(svg: str, alt: str) -> str:
    """Return an <img> element that embeds the SVG document.

    Characters that XML does not allow are escaped, because names in the document may contain them.
    """
    data = b64encode(escape_lines(svg).encode()).decode()
    return f'<img alt="{escape(alt)}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'


def message(value: Message) -> str:
    """Render the fields of a message and their bytes.

    The message is encoded in the highest version that loses none of its values. If there is no such version,
    it is encoded in the highest version that raises no error, and the fields that this version lacks are
    omitted.
    """
    encoding = _best_encoding(value)
    if encoding is None:
        return f"<pre>{_escape_text(_shorten(repr(value), _MAX_REPR_CHARACTERS))}</pre>"
    version, data = encoding
    name = type(value).__name__
    # If the first bytes of a long message contain fewer fields than the table can show, the whole message is
    # decoded.
    spans = annotate(type(value), data[:_PREFIX_SIZE], 0, version).spans
    if len(data) > _PREFIX_SIZE and len(spans) < _MAX_FIELDS:
        spans = annotate(type(value), data, 0, version).spans
    rows = [
        (
            span.start,
            _format_hex(data[span.start : span.end]),
            ".".join(span.path),
            span.type,
            _shorten(value_text(span.value)),
        )
        for span in spans[:_MAX_FIELDS]
    ]
    below = f"the first {len(rows)} fields" if len(spans) > len(rows) else ""
    return table(
        f"{name} v{version}, {len(data)} bytes", ("offset", "bytes", "field", "type", "value"), rows, below
    )


def _best_encoding(value: Message) -> tuple[int, bytes] | None:
    """Return the highest version that encodes all values of the message, and the encoded bytes.

    If no version encodes all values, return the highest version that can encode the message without the
    fields that the version lacks. Return None if no version can encode the message.
    """
    highest = None
    for version, data in _encodings(value):
        highest = highest or (version, data)
        if type(value).decode(data, version) == value:
            return version, data
    return highest


def _encodings(value: Message) -> Iterator[tuple[int, bytes]]:
    """Yield each version that can encode a message, with the encoding. The highest version is first."""
    versions = type(value).__versions__
    for version in range(versions.max, versions.min - 1, -1):
        with suppress(KprotoError):
            yield version, value.encode(version)


def columns(value: Columns) -> str:
    """Render the first rows of record columns, and the total number of rows."""
    rows = [
        (int(offset), _format_time(int(timestamp)), _format_bytes(key), _format_bytes(content))
        for offset, timestamp, key, content in zip(
            value.offset[:_MAX_ROWS],
            value.timestamp[:_MAX_ROWS],
            value.key[:_MAX_ROWS].to_pylist(),
            value.value[:_MAX_ROWS].to_pylist(),
            strict=True,
        )
    ]
    count = len(value)
    below = f"the first {len(rows)} of {count} records" if count > len(rows) else ""
    return table(_format_count(count, "record"), ("offset", "timestamp", "key", "value"), rows, below)


def machine(value: Table[Any, Any]) -> str:
    """Draw the states and transitions of a state machine, and list its events below."""
    drawing = draw(value)
    rows = [(kind, meaning) for kind, meaning, _ in drawing.rows]
    picture = image(machines.picture("the machine", drawing), "states and transitions")
    return picture + table(f"{len(drawing.columns)} states", ("event", "meaning"), rows)


def member(value: Member) -> str:
    """Render a group member: the partitions that it owns, and its state in the state machine of members."""
    owned = ", ".join(map(str, value.owned)) or "no partition"
    heading = f"member of {value.config.group_id!r}, {label(value.state)}; owns {owned}"
    return _render_current_state(heading, machines.TABLES["member"], label(value.state))


def classic_group(value: ClassicGroup) -> str:
    """Render a classic group as its coordinator stores it: its state, its members and their partitions."""
    rows = [
        (
            member.label,
            member.client_id,
            member.client_host,
            "yes" if member.member_id == value.leader else "",
            _format_assignment(member.assignment),
        )
        for member in value.members.values()
    ]
    heading = (
        f"group {value.group_id!r}, {label(value.state)}, generation {value.generation}, "
        f"assignor {value.protocol_name or 'none'}"
    )
    members = table(heading, ("member", "client id", "host", "leader", "partitions"), rows)
    return members + _render_current_state("what each event does", coordinator.TABLE, label(value.state))


def group(value: Any) -> str:
    """Render a group as `Admin.group` describes it: its members, and the lag of each partition.

    `value` is a `consumer.Group`, which this package cannot import.
    """
    owners = {partition: member for member in value.members for partition in member.partitions}
    partitions = sorted({*owners, *value.committed, *value.lag})
    rows = [
        (
            str(partition),
            value.committed.get(partition),
            value.lag.get(partition),
            owners[partition].member_id if partition in owners else None,
            owners[partition].client_id if partition in owners else None,
            owners[partition].host if partition in owners else None,
        )
        for partition in partitions
    ]
    idle = [member.member_id for member in value.members if not member.partitions]
    members = _format_count(len(value.members), "member")
    heading = f"group {value.name!r}, {value.state}, {members}, total lag {value.total_lag}"
    names = ("partition", "committed", "lag", "member", "client id", "host")
    return table(heading, names, rows, f"members without partitions: {', '.join(idle)}" if idle else "")


def metrics(value: Iterable[Any]) -> str:
    """Render a snapshot of metrics (`consumer.Metric`)."""
    rows = [
        (
            metric.name,
            ", ".join(f"{tag}={text}" for tag, text in metric.tags.items() if tag != "client-id"),
            None if metric.value is None else f"{metric.value:g}",
            metric.unit,
            metric.description,
        )
        for metric in value
    ]
    return table(_format_count(len(rows), "metric"), ("metric", "tags", "value", "unit", "meaning"), rows)


def _render_current_state(heading: str, machine_table: Table[Any, Any], state: str) -> str:
    """Draw a state machine with its current state, and list what each event would do in this state."""
    drawing = draw(machine_table)
    picture = image(machines.picture("the machine", drawing, state), f"the current state is {state}")
    reactions = table(
        heading, ("event", f"in state {state}", "may move to", "rules"), _reaction_rows(drawing, state)
    )
    return f"{reactions}<details><summary>all states and transitions</summary>{picture}</details>"


def _reaction_rows(drawing: Drawing, state: str) -> list[tuple[str, str, str, str]]:
    """Return (event, action, next states, rules) for each event that has an action in `state`."""
    index = drawing.columns.index(state)
    return [
        (meaning, cells[index].action, ", ".join(cells[index].to), ", ".join(cells[index].rules))
        for _, meaning, cells in drawing.rows
        if cells[index].action
    ]


def _format_assignment(assignment: bytes) -> str:
    """Return the partitions of an encoded assignment, or its size if it cannot be decoded."""
    try:
        return ", ".join(map(str, Assignment.decode(assignment).partitions))
    except KprotoError:  # The group's protocol type is not "consumer" but, for example, "connect".
        return f"{len(assignment)} bytes"


def _render_cell(value: object) -> str:
    return f"<td style='text-align: left'>{'' if value is None else _escape_text(str(value))}</td>"


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _escape_text(text: str) -> str:
    return escape(escape_unprintable(text))


def _shorten(text: str, max_length: int = _MAX_CHARACTERS) -> str:
    return text if len(text) <= max_length else f"{text[:max_length]}…"


def _format_bytes(data: bytes | None) -> str | None:
    """Return a key or value as text if it is UTF-8, otherwise in hexadecimal."""
    if data is None:
        return None
    try:
        return _shorten(data.decode())
    except UnicodeDecodeError:
        return _format_hex(data)


def _format_hex(data: bytes) -> str:
    return data[:_MAX_BYTES].hex(" ") + ("…" if len(data) > _MAX_BYTES else "")


def _format_time(milliseconds: int) -> str:
    """Format a time in UTC with +00:00, or as milliseconds if it is negative or too large for a date."""
    if milliseconds < 0:
        return str(milliseconds)
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
