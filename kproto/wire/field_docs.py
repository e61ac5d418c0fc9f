"""What a declaration says besides its bytes: the comments beside its fields, and since which version.

    field_notes(JoinGroupRequest)["member_id"].text      # "Empty on the first attempt. ..."
    describe(JoinGroupRequest)                    # what help() shows

Rules of this file:

* The source is the only place where a field is explained. A comment belongs to the field that it is beside
  or right above of.
* Without the source (a frozen application) there are no comments, and the rest is told all the same.
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
    """What the comments of one field say, as one line of text, and the KIPs that they name."""

    text: str = ""

    @property
    def kips(self) -> tuple[str, ...]:
        """Such as ("KIP-394",), in the order of the text, each once."""
        return tuple(dict.fromkeys(re.findall(r"KIP-\d+", self.text)))


def field_notes(struct: type[Struct]) -> dict[str, FieldNote]:
    """The note of every field, in declared order; an empty one where the source says nothing."""
    said = class_comments(struct.__module__).get(struct.__name__, {})
    return {field.name: FieldNote(said.get(field.name, "")) for field in struct.__fields__}


def module_summary(struct: type[Struct]) -> str:
    """The first sentence of its module: "JoinGroup (key 11): ask to be a member, ..."."""
    return (inspect.getdoc(sys.modules[struct.__module__]) or "").partition("\n")[0]


def nested_structs(message: type[Struct]) -> list[type[Struct]]:
    """A message and all of its parts, outer ones first, each once."""
    found = [message]
    for struct in found:
        for field in struct.__fields__:
            part = field.kind.element if isinstance(field.kind, Array) else field.kind
            if not isinstance(part, Primitive) and part not in found:
                found.append(part)
    return found


def type_name(field: Field) -> str:
    """The type as Kafka's message JSON writes it: "int32", "[]JoinGroupRequestProtocol"."""
    kind = field.kind
    return f"[]{_kind_name(kind.element)}" if isinstance(kind, Array) else _kind_name(kind)


def default_name(field: Field) -> str:
    """What the field is when nobody says, as JSON would write it; empty if it has to be said."""
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
    """In which versions of those of the message a field is: "" for all of them, "5+", "4-12", "7"."""
    low, high = max(versions.min, within.min), min(versions.max, within.max)
    if (low, high) == (within.min, within.max):
        return ""
    if low > high:
        return "none"
    if high == within.max:
        return f"{low}+"
    return str(low) if low == high else f"{low}-{high}"


def describe(struct: type[Struct], own: str = "") -> str:
    """What `help` says of a message or of a part of one; `own` is the docstring of its class."""
    whole = ALL_VERSIONS
    first = inspect.cleandoc(own) if own else module_summary(struct)
    if issubclass(struct, Message):
        whole = struct.__versions__
        flexible = max(struct.__flexible__.min, whole.min)
        first += (
            f" Versions {whole}, flexible from {flexible}." if struct.__flexible__ else f" Versions {whole}."
        )
    lines = [first, ""]
    said = field_notes(struct)
    width = max((len(field.name) for field in struct.__fields__), default=0) + 2
    for field in struct.__fields__:
        text = f"{field.name:<{width}}{describe_field(field, whole)}"
        if said[field.name].text:
            text += f". {said[field.name].text}"
        lines += textwrap.wrap(text, 96, subsequent_indent=" " * width, break_long_words=False)
    return "\n".join(lines)


def describe_field(field: Field, whole: Versions) -> str:
    """All that a declaration says of a field: "int32, versions 1+, default -1"."""
    found = [type_name(field)]
    range_ = version_range(field.versions, whole)
    if range_:
        found.append(f"versions {range_}")
    if field.nullable:
        when = version_range(field.nullable, whole)
        found.append(f"may be null in {when}" if when not in ("", range_) else "may be null")
    if field.tagged:
        found.append(f"tag {field.tag}")
    if default := default_name(field):
        found.append(f"default {default}")
    return ", ".join(found)


def _kind_name(kind: Primitive | type[Struct]) -> str:
    return kind.name if isinstance(kind, Primitive) else kind.__name__


@cache
def class_comments(module: str) -> dict[str, dict[str, str]]:
    """Class -> name -> what the comments say, for all that the classes of a module declare or assign."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return {}
    beside: dict[int, str] = {}
    alone: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            where = beside if token.line[: token.start[1]].strip() else alone
            where[token.start[0]] = token.string.lstrip("#").strip()
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            of = found[node.name] = {}
            for part in node.body:
                for target in _targets(part):
                    if isinstance(target, ast.Name):
                        of[target.id] = _said(part, beside, alone)
    return found


def _targets(part: ast.stmt) -> list[ast.expr]:
    if isinstance(part, ast.AnnAssign):
        return [part.target]
    return part.targets if isinstance(part, ast.Assign) else []


def _said(part: ast.stmt, beside: dict[int, str], alone: dict[int, str]) -> str:
    """Above and beside of one field, as one text."""
    above: list[str] = []
    line = part.lineno - 1
    while line in alone:
        above.insert(0, alone[line])
        line -= 1
    last = part.end_lineno or part.lineno
    inside = [beside.get(at) or alone.get(at, "") for at in range(part.lineno, last + 1)]
    return " ".join(text for text in [*above, *inside] if text)
