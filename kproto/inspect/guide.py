"""Generate a guide to the protocol from the declarations: the fields of each message in each version.

print(text("JoinGroupRequest"))         # all versions
print(text("JoinGroupRequest", 9))      # the fields of version 9, in wire order
for name, html in pages(): ...          # an HTML page for each API, and index.html
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ..messages.index import API_NAMES, RECORDS_OF, kind_of, message_class, names, topic_of
from ..wire.field_docs import FieldNote, default_name, field_notes, module_summary, type_name, version_range
from ..wire.message import Array, Field, Message, Struct
from ..wire.types import Primitive, Versions

_WIDTH = 110
# The minimum width of a note in characters. On a narrow page, lines of notes may exceed the page's width.
_MIN_NOTE_WIDTH = 20
_NO_CHANGES = "no fields added or removed"
_STYLE = """
:root { color-scheme: light dark } * { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 1.5em auto; padding: 0 1em }
.wide { overflow-x: auto } table { border-collapse: collapse }
td, th { padding: .2em .7em; text-align: left; vertical-align: top; border-bottom: 1px solid #8884 }
td:nth-child(-n+3) { white-space: nowrap } code { font: .92em ui-monospace, monospace }
"""


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A row of the table of fields. `depth` is the number of structs that enclose the field.

    `versions` is "" if all versions have the field.
    """

    depth: int
    field: Field
    type: str
    versions: str
    nullable: str
    default: str
    note: FieldNote


def apis() -> list[str]:
    """Return the names of all APIs, in the order of their keys."""
    return [name for _, name in sorted(API_NAMES.items())]


def messages_of(name: str) -> list[type[Message]]:
    """Return the request and response of an API, or the message with this name.

    Raises KeyError if the name is unknown.
    """
    if name in API_NAMES.values():
        return [message_class(f"{name}Request"), message_class(f"{name}Response")]
    return [message_class(name)]


def rows(message: type[Message], version: int | None = None) -> list[FieldRow]:
    """Return all fields, or only those of `version`, each followed by its nested fields."""
    return list(_field_rows(message, message.__versions__, version, depth=0))


def _field_rows(
    struct: type[Struct], outer_versions: Versions, version: int | None, depth: int
) -> Iterator[FieldRow]:
    """Yield the rows of a struct. `outer_versions` are the versions in which the struct exists."""
    notes = field_notes(struct)
    for field in struct.__fields__:
        if version is not None and version not in field.versions:
            continue
        versions = Versions(
            max(outer_versions.min, field.versions.min), min(outer_versions.max, field.versions.max)
        )
        nullable = version_range(field.nullable, versions) or "yes" if field.nullable else ""
        if version is not None:
            nullable = "yes" if version in field.nullable else ""
        default = default_name(field)
        yield FieldRow(
            depth,
            field,
            type_name(field),
            version_range(field.versions, outer_versions),
            nullable,
            default,
            notes[field.name],
        )
        element = field.kind.element if isinstance(field.kind, Array) else field.kind
        if not isinstance(element, Primitive):
            yield from _field_rows(element, versions, version, depth + 1)


def changes(message: type[Message]) -> list[tuple[str, list[str]]]:
    """Return the changes of each version as pairs, such as ("v5", ["+ group_instance_id (KIP-345)"]).

    The oldest version is left out. Successive versions without changes share one pair, such as
    ("v2 to v4", []).
    """
    message_versions = message.__versions__
    lines_by_version: dict[int, list[str]] = {
        version: [] for version in range(message_versions.min + 1, message_versions.max + 1)
    }

    def add_line(version: int, line: str) -> None:
        if version in lines_by_version:
            lines_by_version[version].append(line)

    if message.__flexible__:
        add_line(message.__flexible__.min, "flexible: compact lengths, tagged fields (KIP-482)")
    enclosing: list[FieldRow] = []
    for row in rows(message):
        del enclosing[row.depth :]
        path = ".".join(outer.field.name for outer in (*enclosing, row))
        kips = f" ({', '.join(row.note.kips)})" if row.note.kips else ""
        versions = row.field.versions
        # A struct that is new in a version is listed without its fields.
        if not enclosing or versions.min > enclosing[-1].field.versions.min:
            add_line(versions.min, f"+ {path}{kips}")
        if not enclosing or versions.max < enclosing[-1].field.versions.max:
            add_line(versions.max + 1, f"- {path}{kips}")
        if row.field.nullable and row.field.nullable.min > max(versions.min, message_versions.min):
            add_line(row.field.nullable.min, f"{path} may be null")
        enclosing.append(row)
    ranges: list[tuple[int, int, list[str]]] = []
    for version, lines in sorted(lines_by_version.items()):
        if ranges and not lines and not ranges[-1][2]:
            ranges[-1] = (ranges[-1][0], version, [])
        else:
            ranges.append((version, version, lines))
    return [(f"v{low}" if low == high else f"v{low} to v{high}", lines) for low, high, lines in ranges]


def _flexible_phrase(message: type[Message]) -> str:
    if not message.__flexible__:
        return ""
    return f", flexible from {max(message.__flexible__.min, message.__versions__.min)}"


# ---- as text


def text(name: str, version: int | None = None, width: int = _WIDTH) -> str:
    """Format a message, or both messages of an API, as text. Raises KeyError if the name is unknown."""
    messages = messages_of(name)
    parts = [f"{module_summary(messages[0])}\n"]
    for message in messages:
        if version is None:
            head = f"{message.__name__}, versions {message.__versions__}{_flexible_phrase(message)}"
        else:
            form = "flexible" if version in message.__flexible__ else "not flexible"
            head = f"{message.__name__} v{version}, {form}"
        parts.append("\n".join([head, *_table_lines(rows(message, version), version, width), ""]))
        if version is None:
            change_lines = [
                f"  {versions:<11}{line}"
                for versions, lines in changes(message)
                for line in (lines or [_NO_CHANGES])
            ]
            parts.append("\n".join([*change_lines, ""]) if change_lines else "")
    return "\n".join(part for part in parts if part)


_Column = tuple[str, Callable[[FieldRow], str]]

_NAME: _Column = ("field", lambda row: "  " * row.depth + row.field.name)
_TAG: _Column = ("tag", lambda row: str(row.field.tag) if row.field.tagged else "")
_COLUMNS: tuple[_Column, ...] = (
    ("type", lambda row: row.type),
    ("versions", lambda row: row.versions or "all"),
    ("null", lambda row: row.nullable),
    ("default", lambda row: row.default),
    _TAG,
)


def _shown_columns(field_rows: Sequence[FieldRow], version: int | None) -> list[_Column]:
    """Return the columns of the table of fields: the name, and each other column that is not empty."""
    columns = [column for column in _COLUMNS if version is None or column[0] != "versions"]
    return [_NAME, *(column for column in columns if any(column[1](row) for row in field_rows))]


def _table_lines(field_rows: Sequence[FieldRow], version: int | None, width: int) -> list[str]:
    """Return the lines of the table of fields.

    Notes are at the right of the table, or below their fields if the space at the right is too narrow.
    """
    if not field_rows:
        return ["  (no fields)"]
    columns = _shown_columns(field_rows, version)
    header = [name for name, _ in columns]
    table = [header, *([cell_text(row) for _, cell_text in columns] for row in field_rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  " + "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True))
        for cells in table
    ]
    margin = len(lines[0]) + 2
    notes = ["", *(row.note.text for row in field_rows)]  # The line of the header has no note.
    # The loop goes from the last line to the first, because a long note inserts lines below its line.
    for index, note in reversed(list(enumerate(notes))):
        if not note:
            continue
        if width - margin >= 30:
            first, *continuation = textwrap.wrap(note, width - margin)
            lines[index : index + 1] = [
                f"{lines[index]}  {first}",
                *(" " * margin + line for line in continuation),
            ]
        else:  # There is no space beside the table, so the note is printed below the field.
            indent = " " * (4 + 2 * field_rows[index - 1].depth)
            lines[index + 1 : index + 1] = textwrap.wrap(
                note,
                max(width, len(indent) + _MIN_NOTE_WIDTH),
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return [line.rstrip() for line in lines]


# ---- as HTML


def fragments(name: str) -> list[tuple[str, str]]:
    """Return the sections of an API's page, as pairs of a title and HTML without a heading."""
    sections = [("", f"<p>{escape(module_summary(messages_of(name)[0]))}</p>")]
    for message in messages_of(name):
        title = message.__name__
        field_rows = rows(message)
        columns = _shown_columns(field_rows, None)
        heads = "".join(f"<th>{name}</th>" for name, _ in columns)
        body = "".join(_html_row(row, columns) for row in field_rows)
        change_items = "".join(
            f"<li>{version}: {'; '.join(map(_change_html, lines)) or _NO_CHANGES}</li>"
            for version, lines in changes(message)
        )
        sections.append(
            (
                title,
                f"<p>Versions {message.__versions__}{_flexible_phrase(message)}.</p>"
                f'<div class="wide"><table><thead><tr>{heads}<th>meaning</th></tr></thead>'
                f"<tbody>{body}</tbody></table></div>"
                + (f"<p>What each version changed:</p><ul>{change_items}</ul>" if change_items else ""),
            )
        )
    return sections


def _change_html(line: str) -> str:
    """Convert a line of `changes` to HTML, with words instead of + and -."""
    sign, _, change = line.partition(" ")
    if sign not in "+-":
        return escape(line)
    path, _, kips = change.partition(" ")
    return f"{'new' if sign == '+' else 'without'} <code>{escape(path)}</code> {escape(kips)}".strip()


def _html_row(row: FieldRow, columns: Sequence[_Column]) -> str:
    indent = "&nbsp;" * 4 * row.depth
    name = f"{indent}<code>{escape(row.field.name)}</code>"
    other_cells = "".join(f"<td>{escape(cell_text(row))}</td>" for _, cell_text in columns[1:])
    return f"<tr><td>{name}</td>{other_cells}<td>{_note_html(row.note.text)}</td></tr>"


def _note_html(text: str) -> str:
    """Convert a note to HTML. Text between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def kinds() -> list[tuple[str, list[str]]]:
    """Return the table of contents: for each kind of message a title, and the names of the pages."""
    titles = {"header": "Headers", "data": "Data inside of messages and files"}
    return [
        ("APIs", apis()),
        *((title, [name for name in names() if kind_of(name) == kind]) for kind, title in titles.items()),
        *(
            (f"Records of {topic}", [name for name in names() if topic_of(name) == topic])
            for topic in RECORDS_OF
        ),
    ]


def pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and the HTML of each page of the guide, index.html first."""
    links = "".join(
        f"<h2>{title}</h2><ul>"
        + "".join(
            f'<li><a href="{name}.html">{name}</a>: {escape(summary(name))}</li>' for name in page_names
        )
        + "</ul>"
        for title, page_names in kinds()
    )
    yield "index.html", _page_html("Kafka's protocol", links)
    for _, page_names in kinds():
        for name in page_names:
            body = "".join((f"<h2>{title}</h2>" if title else "") + html for title, html in fragments(name))
            yield f"{name}.html", _page_html(name, f'<p><a href="index.html">all messages</a></p>{body}')


def summary(name: str) -> str:
    """Return the purpose and the versions of a message."""
    message = messages_of(name)[0]
    text = module_summary(message)
    _, colon, purpose = text.partition("): ")
    return f"{(purpose if colon else text).rstrip('.')} (versions {message.__versions__})"


def _page_html(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>{body}</html>\n"
    )
