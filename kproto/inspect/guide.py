"""The guide to the protocol: what each message holds, version by version, made from the declarations.

print(text("JoinGroupRequest"))              # all versions
print(text("JoinGroupRequest", 9))           # what stands in version 9, in the order of the wire
for name, html in pages(): ...               # an HTML page for each API, and index.html
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ..messages.index import API_NAMES, kind_of, message_class, names
from ..wire.field_docs import FieldNote, default_name, field_notes, module_summary, type_name, version_range
from ..wire.message import Array, Field, Message, Struct
from ..wire.types import Primitive, Versions

_WIDTH = 110
_LEAST = 20  # letters of a note in a line, however narrow the page is
_SAME = "no other fields than the version before"
_STYLE = """
:root { color-scheme: light dark } * { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 1.5em auto; padding: 0 1em }
.wide { overflow-x: auto } table { border-collapse: collapse }
td, th { padding: .2em .7em; text-align: left; vertical-align: top; border-bottom: 1px solid #8884 }
td:nth-child(-n+3) { white-space: nowrap } code { font: .92em ui-monospace, monospace }
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A field in a table. `depth` counts the structs around it; `versions` is "" if it is in all of them."""

    depth: int
    field: Field
    type: str
    versions: str
    nullable: str
    default: str
    note: FieldNote


def apis() -> list[str]:
    """The names of all APIs, in the order of their keys."""
    return [name for _, name in sorted(API_NAMES.items())]


def messages_of(name: str) -> list[type[Message]]:
    """An API's request and response, or the one message of that name. Raises KeyError for an unknown name."""
    if name in API_NAMES.values():
        return [message_class(f"{name}Request"), message_class(f"{name}Response")]
    return [message_class(name)]


def rows(message: type[Message], version: int | None = None) -> list[Row]:
    """Every field, parts below their whole; of one version only if that is given, and then as that has it."""
    return list(_rows(message, message.__versions__, version, 0))


def _rows(struct: type[Struct], whole: Versions, version: int | None, depth: int) -> Iterator[Row]:
    said = field_notes(struct)
    for field in struct.__fields__:
        if version is not None and version not in field.versions:
            continue
        within = Versions(max(whole.min, field.versions.min), min(whole.max, field.versions.max))
        null = version_range(field.nullable, within) or "yes" if field.nullable else ""
        if version is not None:
            null = "yes" if version in field.nullable else ""
        default = default_name(field)
        yield Row(
            depth,
            field,
            type_name(field),
            version_range(field.versions, whole),
            null,
            default,
            said[field.name],
        )
        part = field.kind.element if isinstance(field.kind, Array) else field.kind
        if not isinstance(part, Primitive):
            yield from _rows(part, within, version, depth + 1)


def changes(message: type[Message]) -> list[tuple[str, list[str]]]:
    """What each version brought or took away, from the second one on: "v5", and a line for each thing.

    Versions in a row without news have one entry, without lines: "v2 to v4".
    """
    whole = message.__versions__
    found: dict[int, list[str]] = {version: [] for version in range(whole.min + 1, whole.max + 1)}

    def tell(version: int, news: str) -> None:
        if version in found:
            found[version].append(news)

    if message.__flexible__:
        tell(message.__flexible__.min, "flexible: compact lengths, tagged fields (KIP-482)")
    above: list[Row] = []
    for row in rows(message):
        del above[row.depth :]
        path = ".".join(outer.field.name for outer in (*above, row))
        kips = f" ({', '.join(row.note.kips)})" if row.note.kips else ""
        versions = row.field.versions
        if not above or versions.min > above[-1].field.versions.min:  # a new whole is told without its parts
            tell(versions.min, f"+ {path}{kips}")
        if not above or versions.max < above[-1].field.versions.max:
            tell(versions.max + 1, f"- {path}{kips}")
        if row.field.nullable and row.field.nullable.min > max(versions.min, whole.min):
            tell(row.field.nullable.min, f"{path} may be null")
        above.append(row)
    told: list[tuple[int, int, list[str]]] = []
    for version, news in sorted(found.items()):
        if told and not news and not told[-1][2]:
            told[-1] = (told[-1][0], version, [])
        else:
            told.append((version, version, news))
    return [(f"v{low}" if low == high else f"v{low} to v{high}", news) for low, high, news in told]


def _flexible(message: type[Message]) -> str:
    if not message.__flexible__:
        return ""
    return f", flexible from {max(message.__flexible__.min, message.__versions__.min)}"


# ---- as text


def text(name: str, version: int | None = None, width: int = _WIDTH) -> str:
    """A message, or both of an API, for a terminal. Raises KeyError for an unknown name."""
    found = messages_of(name)
    parts = [f"{module_summary(found[0])}\n"]
    for message in found:
        if version is None:
            head = f"{message.__name__}, versions {message.__versions__}{_flexible(message)}"
        else:
            form = "flexible" if version in message.__flexible__ else "not flexible"
            head = f"{message.__name__} v{version}, {form}"
        parts.append("\n".join([head, *_table(rows(message, version), version, width), ""]))
        if version is None:
            told = [f"  {at:<11}{line}" for at, news in changes(message) for line in (news or [_SAME])]
            parts.append("\n".join([*told, ""]) if told else "")
    return "\n".join(part for part in parts if part)


_Column = tuple[str, Callable[[Row], str]]

_NAME: _Column = ("field", lambda row: "  " * row.depth + row.field.name)
_TAG: _Column = ("tag", lambda row: str(row.field.tag) if row.field.tagged else "")
_COLUMNS: tuple[_Column, ...] = (
    ("type", lambda row: row.type),
    ("versions", lambda row: row.versions or "all"),
    ("null", lambda row: row.nullable),
    ("default", lambda row: row.default),
    _TAG,
)


def _columns(found: Sequence[Row], version: int | None) -> list[_Column]:
    """Those that say anything."""
    columns = [column for column in _COLUMNS if version is None or column[0] != "versions"]
    return [_NAME, *(column for column in columns if any(column[1](row) for row in found))]


def _table(found: Sequence[Row], version: int | None, width: int) -> list[str]:
    if not found:
        return ["  (no fields)"]
    columns = _columns(found, version)
    cells = [[name for name, _ in columns], *([tell(row) for _, tell in columns] for row in found)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    lines = [
        "  " + "  ".join(cell.ljust(size) for cell, size in zip(line, widths, strict=True)) for line in cells
    ]
    margin = len(lines[0]) + 2
    told = ["", *(row.note.text for row in found)]
    for at, note in reversed(list(enumerate(told))):
        if not note:
            continue
        if width - margin >= 30:
            first, *rest = textwrap.wrap(note, width - margin)
            lines[at : at + 1] = [f"{lines[at]}  {first}", *(" " * margin + line for line in rest)]
        else:  # the table is as wide as the page: below the field
            indent = " " * (4 + 2 * found[at - 1].depth)
            lines[at + 1 : at + 1] = textwrap.wrap(
                note,
                max(width, len(indent) + _LEAST),
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
    return [line.rstrip() for line in lines]


# ---- as HTML


def fragments(name: str) -> list[tuple[str, str]]:
    """The sections of an API's or a message's page: a title, and HTML without a heading."""
    found = [("", f"<p>{escape(module_summary(messages_of(name)[0]))}</p>")]
    for message in messages_of(name):
        title = message.__name__
        told = rows(message)
        columns = _columns(told, None)
        heads = "".join(f"<th>{head}</th>" for head, _ in columns)
        body = "".join(_html_row(row, columns) for row in told)
        news = "".join(
            f"<li>{at}: {'; '.join(map(_code, lines)) or _SAME}</li>" for at, lines in changes(message)
        )
        found.append(
            (
                title,
                f"<p>Versions {message.__versions__}{_flexible(message)}.</p>"
                f'<div class="wide"><table><thead><tr>{heads}<th>meaning</th></tr></thead>'
                f"<tbody>{body}</tbody></table></div>"
                + (f"<p>What each version changed:</p><ul>{news}</ul>" if news else ""),
            )
        )
    return found


def _code(line: str) -> str:
    sign, _, rest = line.partition(" ")
    if sign not in "+-":
        return escape(line)
    path, _, kips = rest.partition(" ")
    return f"{'new' if sign == '+' else 'without'} <code>{escape(path)}</code> {escape(kips)}".strip()


def _html_row(row: Row, columns: Sequence[_Column]) -> str:
    told = [tell(row) for _, tell in columns]
    indent = "&nbsp;" * 4 * row.depth
    first = f"{indent}<code>{escape(row.field.name)}</code>"
    rest = "".join(f"<td>{escape(cell)}</td>" for cell in told[1:])
    return f"<tr><td>{first}</td>{rest}<td>{_prose(row.note.text)}</td></tr>"


def _prose(text: str) -> str:
    """A note: what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def kinds() -> list[tuple[str, list[str]]]:
    """What the guide has, kind by kind: a title, and the names that `fragments` knows."""
    others = {
        "header": "Headers",
        "data": "Data inside of messages",
        "record": "Records of __consumer_offsets",
    }
    return [
        ("APIs", apis()),
        *((title, [name for name in names() if kind_of(name) == kind]) for kind, title in others.items()),
    ]


def pages() -> Iterator[tuple[str, str]]:
    """The whole guide: the name of a file and its HTML, index.html first."""
    links = "".join(
        f"<h2>{title}</h2><ul>"
        + "".join(f'<li><a href="{name}.html">{name}</a>: {escape(summary(name))}</li>' for name in listed)
        + "</ul>"
        for title, listed in kinds()
    )
    yield "index.html", _page("Kafka's protocol", links)
    for _, listed in kinds():
        for name in listed:
            body = "".join((f"<h2>{title}</h2>" if title else "") + html for title, html in fragments(name))
            yield f"{name}.html", _page(name, f'<p><a href="index.html">all messages</a></p>{body}')


def summary(name: str) -> str:
    """What it is for, and its versions."""
    message = messages_of(name)[0]
    said = module_summary(message)
    _, colon, rest = said.partition("): ")
    return f"{(rest if colon else said).rstrip('.')} (versions {message.__versions__})"


def _page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style><h1>{escape(title)}</h1>{body}</html>\n"
    )
