"""Read the documentation of messages from their source: the comments beside fields.

    field_notes(JoinGroupRequest)["member_id"].text      # "The member id assigned by ..."
    describe(JoinGroupRequest)                           # what help() shows

* The comment of a field is beside it or directly above it. Other comments are ignored.

* If the source is missing, as in a frozen application, only types, versions and defaults are shown.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import textwrap
import tokenize
from dataclasses import dataclass
from functools import cache

from .fields import REQUIRED
from .message import FRESH, Array, Field, Message, Struct
from .types import ALL_VERSIONS, ZERO_UUID, Primitive, Versions


@dataclass(frozen=True, slots=True)
class FieldNote:
    """The comment on one field, joined into one line."""

    text: str = ""

    @property
    def kips(self) -> tuple[str, ...]:
        """The KIPs that the comment mentions, in order and without repetitions, such as ("KIP-394",)."""
        return tuple(dict.fromkeys(re.findall(r"KIP-\d+", self.text)))


def field_notes(struct: type[Struct]) -> dict[str, FieldNote]:
    """Map each field, in declared order, to its note. The note of a field without a comment is empty."""
    comments = class_comments(struct.__module__).get(struct.__name__, {})
    return {field.name: FieldNote(comments.get(field.name, "")) for field in struct.__fields__}


def module_summary(struct: type[Struct]) -> str:
    """Return the first line of the docstring of the struct's module, such as "JoinGroup (key 11): ..."."""
    return (inspect.getdoc(sys.modules[struct.__module__]) or "").partition("\n")[0]


def nested_structs(message: type[Struct]) -> list[type[Struct]]:
    """Return the classes of a message and of all structs within it, once each, outer classes first."""
    structs = [message]
    for struct in structs:  # The loop also visits the structs that it appends.
        for field in struct.__fields__:
            kind = field.kind.element if isinstance(field.kind, Array) else field.kind
            if not isinstance(kind, Primitive) and kind not in structs:
                structs.append(kind)
    return structs


def type_name(field: Field) -> str:
    """Return the type of a field as Kafka's message JSON writes it: "int32", "[]JoinGroupRequestProtocol"."""
    kind = field.kind
    return f"[]{_kind_name(kind.element)}" if isinstance(kind, Array) else _kind_name(kind)


def default_name(field: Field) -> str:
    """Return the default of a field as JSON would write it, or "" for a required field."""
    if field.default is REQUIRED:
        return ""
    if field.default is FRESH:
        return "{}"
    if field.default == ZERO_UUID:
        return "zero"
    words = {None: "null", True: "true", False: "false", "": '""', b"": "no bytes"}
    if isinstance(field.default, (bool, str, bytes, type(None))) and field.default in words:
        return words[field.default]
    return str(field.default)


def version_range(versions: Versions, within: Versions) -> str:
    """Return a field's versions, limited to those of its message: "5+", "4-12", or "" for all."""
    low, high = max(versions.min, within.min), min(versions.max, within.max)
    if (low, high) == (within.min, within.max):
        return ""
    if low > high:
        return "none"
    if high == within.max:
        return f"{low}+"
    return str(low) if low == high else f"{low}-{high}"


def describe(struct: type[Struct], own: str = "") -> str:
    """Return what `help` shows for a struct. `own` is the docstring of its class in the source."""
    versions = ALL_VERSIONS
    summary = inspect.cleandoc(own) if own else module_summary(struct)
    if issubclass(struct, Message):
        versions = struct.__versions__
        summary += f" Versions {versions}"
        if struct.__flexible__:
            summary += f", flexible from {max(struct.__flexible__.min, versions.min)}"
        summary += "."
    lines = [summary, ""]
    notes = field_notes(struct)
    width = max((len(field.name) for field in struct.__fields__), default=0) + 2
    for field in struct.__fields__:
        text = f"{field.name:<{width}}{describe_field(field, versions)}"
        if notes[field.name].text:
            text += f". {notes[field.name].text}"
        lines += textwrap.wrap(text, 96, subsequent_indent=" " * width, break_long_words=False)
    return "\n".join(lines)


def describe_field(field: Field, whole: Versions) -> str:
    """Describe the declaration of a field, as in "int32, versions 1+, default -1".

    `whole` contains the versions of the message. If the field exists in all of these versions, its versions
    are omitted.
    """
    parts = [type_name(field)]
    range_ = version_range(field.versions, whole)
    if range_:
        parts.append(f"versions {range_}")
    if field.nullable:
        nullable_range = version_range(field.nullable, whole)
        has_own_range = nullable_range not in ("", range_)
        parts.append(f"may be null in {nullable_range}" if has_own_range else "may be null")
    if field.tagged:
        parts.append(f"tag {field.tag}")
    if default := default_name(field):
        parts.append(f"default {default}")
    return ", ".join(parts)


def _kind_name(kind: Primitive | type[Struct]) -> str:
    return kind.name if isinstance(kind, Primitive) else kind.__name__


@cache
def class_comments(module: str) -> dict[str, dict[str, str]]:
    """Return the comments in the classes of a module, as class name -> field name -> comment.

    Returns an empty dict if the source of the module is missing.
    """
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    inline_comments: dict[int, str] = {}
    full_line_comments: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            by_line = inline_comments if token.line[:column].strip() else full_line_comments
            by_line[line] = token.string.lstrip("#").strip()
    comments: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            field_comments = comments[node.name] = {}
            for statement in node.body:
                for target in _assignment_targets(statement):
                    if isinstance(target, ast.Name):
                        comment = _join_comments(statement, inline_comments, full_line_comments)
                        field_comments[target.id] = comment
    return comments


def _assignment_targets(statement: ast.stmt) -> list[ast.expr]:
    """Return the targets of an assignment; an empty list for any other statement."""
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []


def _join_comments(
    statement: ast.stmt, inline_comments: dict[int, str], full_line_comments: dict[int, str]
) -> str:
    """Join the comments directly above a field and on the field's own lines into one string.

    Both dicts map line numbers to comments.
    """
    above: list[str] = []
    line = statement.lineno - 1
    while line in full_line_comments:
        above.insert(0, full_line_comments[line])
        line -= 1
    last_line = statement.end_lineno or statement.lineno
    lines = range(statement.lineno, last_line + 1)
    within = [inline_comments.get(line) or full_line_comments.get(line, "") for line in lines]
    return " ".join(comment for comment in [*above, *within] if comment)
