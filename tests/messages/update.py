"""Update the declarations of `kproto.messages` from the definitions in the jars of a Kafka release.

    python -m tests.messages.update 4.5.0     # Maven fetches the jars of this version
    python -m tests.messages.update FOLDER    # a folder with the jars

The command changes only declarations that differ from Kafka's definitions. It adds messages, structs, fields
and versions, and removes what Kafka removed. Comments and unchanged declarations stay.

New messages are added to `index`. A new request and its response share a new module; each other new message
gets its own. A new record of one of Kafka's topics is declared in the topic's module.

The descriptions in Kafka's definitions are not copied. Each new field and module gets a line with `GAP`. The
maintainer replaces the line with a description, or deletes it if the name says enough.

tests/messages/test_update.py fails as long as a line with `GAP` is left.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

from kproto.messages import index
from kproto.testing.brokers import kafka_jars
from tests.messages.definitions import Definition, definitions, release_of
from tests.messages.render import PRIMITIVES, WIDTH, RenderedClass, StructKey, field_line, render

FOLDER = Path(index.__file__).parent

# Marks a place where a maintainer has to add a description.
GAP = "(describe this, or delete the line)"

FUTURE = "from __future__ import annotations\n"
EMPTY = f'    """{GAP}"""\n'  # The body of a class without fields.

# Topic -> the name of the table in `index` that lists the topic's record types.
_TABLES = {
    "__consumer_offsets": "RECORDS",
    "__transaction_state": "TRANSACTION_RECORDS",
    "__share_group_state": "SHARE_RECORDS",
    "__cluster_metadata": "METADATA_RECORDS",
    "__remote_log_metadata": "REMOTE_LOG_RECORDS",
}

_NAME = re.compile(r"\w+")

# The names that declarations may import from each module.
_IMPORTED = {
    "wire.message": {"FRESH", "Message", "Struct", "field"},
    "wire.types": {"ZERO_UUID", *PRIMITIVES.values()},
}


@dataclass
class Report:
    """What an update did: the modules that it wrote, and the comments of fields that Kafka removed."""

    written: list[str] = field(default_factory=list[str])
    dropped: list[str] = field(default_factory=list[str])


def update(defined: Mapping[str, Definition], folder: Path = FOLDER, release: str | None = None) -> Report:
    """Write the definitions into the modules of `folder`; `release` becomes the index's KAFKA_RELEASE."""
    report = Report()
    index_path = folder / "index.py"
    modules: dict[str, dict[str, Definition]] = defaultdict(dict)
    for name, definition in sorted(defined.items(), key=lambda item: _place(*item)):
        modules[_module(name, definition)][name] = definition
    for module, messages in modules.items():
        path = folder / f"{module}.py"
        old = path.read_text() if path.exists() else _new_module(module, messages)
        new = updated_module(old, messages, report)
        if not path.exists() or new != old:
            path.write_text(new)
            report.written.append(module)
    old = index_path.read_text()
    new = updated_index(old, defined, release)
    if new != old:
        index_path.write_text(new)
        report.written.append("index")
    return report


def updated_module(source: str, messages: Mapping[str, Definition], report: Report) -> str:
    """Return the source of a module with the declarations of these messages."""
    module = _Module(source)
    module.update(render(messages, module.struct_names(messages)), report)
    return module.source()


def updated_index(source: str, defined: Mapping[str, Definition], release: str | None = None) -> str:
    """Return the source of index.py with a row for each message.

    `release` replaces the value of `KAFKA_RELEASE` in index.py; None keeps the value.
    """
    rows: dict[str, dict[int | str, str]] = defaultdict(dict)
    for name, definition in defined.items():
        table, key, value = _row(name, definition)
        if table:
            rows[table][key] = value
    for table, wanted in rows.items():
        source = _with_rows(source, table, wanted)
    if release is not None:
        source = re.sub(r'(?m)^(KAFKA_RELEASE: .* = )"[^"]*"', rf'\1"{release}"', source)
    return source


def _row(name: str, definition: Definition) -> tuple[str, int | str, str]:
    """Return the index table to which a message belongs, and the key and value of the message's row."""
    kind = definition["type"]
    if kind in ("request", "response"):
        return "API_NAMES", definition["apiKey"], re.sub("(Request|Response)$", "", name)
    if kind == "header":
        return "", 0, ""
    if kind == "metadata":
        return _TABLES[definition["topic"]], definition["apiKey"], name
    if "topic" in definition:
        return _TABLES[definition["topic"]], definition["apiKey"], re.sub("(Key|Value)$", "", name)
    return "_DATA", name, _module(name, definition)


def _with_rows(source: str, table: str, wanted: Mapping[int | str, str]) -> str:
    """Add the missing rows to a dict in kproto/messages/index.py. Numeric keys stay sorted."""
    assigned = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == table
    )
    assert assigned.value is not None
    rows: dict[int | str, str] = ast.literal_eval(assigned.value)
    missing = {key: value for key, value in wanted.items() if key not in rows}
    if not missing:
        return source
    rows |= missing
    keys = sorted(rows, key=lambda key: key if isinstance(key, int) else 0)
    lines = source.splitlines(keepends=True)
    opening = lines[assigned.lineno - 1].partition("{")[0]
    body = [f"    {json.dumps(key)}: {json.dumps(rows[key])},\n" for key in keys]
    return "".join([*lines[: assigned.lineno - 1], opening, "{\n", *body, "}\n", *lines[_end(assigned) :]])


def _place(name: str, definition: Definition) -> tuple[int, int]:
    """Return a message's sort key in its module: API key, then request before response, key before value."""
    known = list(index.names())
    key = definition.get("apiKey", known.index(name) if name in known else len(known))
    return key, name.endswith(("Response", "Value"))


def _module(name: str, definition: Definition) -> str:
    """Return the module of a message."""
    try:
        return index.module_of(name)
    except KeyError:
        if "topic" in definition:
            return index.record_module(name, definition["topic"])
        return index.snake_case(re.sub("(Request|Response)$", "", name))


def _new_module(module: str, messages: Mapping[str, Definition]) -> str:
    api = {definition["apiKey"] for definition in messages.values() if definition["type"] == "request"}
    title = re.sub("(Request|Response)$", "", next(iter(messages))) if api else module
    key = f" (key {api.pop()})" if api else ""
    return f'"""{title}{key}: {GAP}."""\n\nfrom __future__ import annotations\n\n'


class _Module:
    """The source of a module, and the edits to it: line ranges with their new text."""

    def __init__(self, source: str) -> None:
        self.lines = source.splitlines(keepends=True)
        self.classes = {
            node.name: node
            for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef) and ast.unparse(node.bases[0]) in ("Message", "Struct")
        }
        self.edits: list[tuple[int, int, str]] = []

    def struct_names(self, messages: Iterable[str]) -> dict[StructKey, str]:
        """Return the class that the module declares for each struct of these messages."""
        names: dict[StructKey, str] = {}
        for message in messages:
            pending = [message]
            while pending:
                node = self.classes.get(pending.pop())
                fields = [part for part in node.body if isinstance(part, ast.AnnAssign)] if node else []
                for name in _NAME.findall(" ".join(ast.unparse(part.annotation) for part in fields)):
                    if name in self.classes and name not in names.values():
                        names[message, name.removeprefix(message)] = name
                        pending.append(name)
        return names

    def update(self, rendered: Mapping[str, RenderedClass], report: Report) -> None:
        """Change the classes that differ, add the missing ones, and remove those that Kafka removed."""
        end_of: dict[str, int] = {}
        for name, node in self.classes.items():
            start, end = node.lineno - 1, _end(node)
            if name in rendered:
                end_of[rendered[name].message] = end
                text = self._updated_class(node, rendered[name], report)
            elif name.startswith("_"):
                continue
            else:
                report.dropped += _comments(name, "".join(self.lines[start:end]))
                text = ""
            self.edits.append((start, end, text))
        added: dict[int, str] = defaultdict(str)
        for name, wanted in rendered.items():
            if name not in self.classes:
                fields = "".join(f"    # {GAP}\n{field_line(*parts)}" for parts in wanted.fields)
                at = end_of.get(wanted.message, len(self.lines))
                added[at] += f"\n\n{wanted.header}\n{fields or EMPTY}"
        self.edits += [(at, at, text) for at, text in added.items()]

    def _updated_class(self, node: ast.ClassDef, wanted: RenderedClass, report: Report) -> str:
        """Return the source of a class with the fields of `wanted`. Equal fields keep their source."""
        at = next(n for n in range(node.lineno, _end(node) + 1) if self.lines[n - 1].rstrip().endswith(":"))
        header = "".join(self.lines[node.lineno - 1 : at])
        # The statements of the class that are not fields: `docstring` precedes the fields, and `trailer` is
        # written after them.
        docstring, trailer = "", ""
        # Maps a field to (the comments above it, its statement).
        declared: dict[str, tuple[str, str]] = {}
        for part in node.body:
            start, end = part.lineno - 1, part.end_lineno or 0
            above, statement = "".join(self.lines[at:start]), "".join(self.lines[start:end])
            if isinstance(part, ast.AnnAssign):
                declared[ast.unparse(part.target)] = above, statement
            elif declared:
                trailer += above + statement
            else:
                docstring += above + statement
            at = end
        if not _is_same(f"{header} pass", f"{wanted.header} pass"):
            header = f"{wanted.header}\n"
        text = header + docstring
        for name, annotation, value in wanted.fields:
            line = field_line(name, annotation, value)
            above, statement = declared.pop(name, (f"    # {GAP}\n", line))
            text += above + (statement if _is_same(statement, line) else _with_comment(line, statement))
        for name, (above, statement) in declared.items():
            report.dropped += _comments(f"{wanted.name}.{name}", above + statement)
        return text + trailer

    def source(self) -> str:
        """Return the source with the edits, and with the imports that it needs."""
        lines = list(self.lines)
        for start, end, text in sorted(self.edits, reverse=True):
            lines[start:end] = [text]
        source = re.sub(r"\n{4,}", "\n\n\n", "".join(lines)).rstrip("\n") + "\n"
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        for module, names in _IMPORTED.items():
            source = _with_import(source, module, names & used)
        return source


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _comments(where: str, text: str) -> list[str]:
    return [f"{where}: {comment}" for comment in re.findall("# .*", text)]


def _is_same(old: str, new: str) -> bool:
    """Return whether two statements are equal, except for comments, spaces and the order of keyword
    arguments.
    """

    def normal(text: str) -> str:
        tree = ast.parse(dedent(text))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Call, ast.ClassDef)):
                node.keywords.sort(key=lambda keyword: keyword.arg or "")
        return ast.dump(tree)

    return normal(old) == normal(new)


def _with_comment(line: str, old: str) -> str:
    """Return the new statement `line` with the comment that stands beside `old`, if `old` has a comment.

    The comment stands beside the new statement if it fits there, and otherwise on the line above.
    """
    comment = re.search(r"  (# .*)$", old.rstrip("\n"))
    if comment is None:
        return line
    beside = f"{line.rstrip()}  {comment[1]}\n"
    return beside if len(beside) <= WIDTH + 1 and line.count("\n") == 1 else f"    {comment[1]}\n{line}"


def _with_import(source: str, module: str, names: set[str]) -> str:
    """Return the source with an import of exactly these names."""
    old = re.search(rf"(?m)^from \.\.{re.escape(module)} import (\([^)]*\)|.*)\n", source)
    if old is not None:
        # Keep imported names that are not in `_IMPORTED`, such as functions.
        names = names | (set(re.findall(r"\w+", old[1])) - _IMPORTED[module])
    in_order = sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), _natural(name)))
    line = f"from ..{module} import {', '.join(in_order)}\n"
    if len(line) > WIDTH + 1:
        line = f"from ..{module} import (\n" + "".join(f"    {name},\n" for name in in_order) + ")\n"
    if not names:
        line = ""
    if old is not None:
        return source[: old.start()] + line + source[old.end() :]
    imports = list(re.finditer(r"(?m)^from \.\..*\n", source))
    future = source.index(FUTURE) + len(FUTURE)
    at = max((match.end() for match in imports), default=future)
    return source[:at] + ("" if imports else "\n") + line + source[at:]


def _natural(name: str) -> list[object]:
    """Return the key by which ruff sorts names. Numbers in a name are compared by value."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def main(arguments: list[str]) -> int:
    """Run the command, and print the modules that it wrote and the remaining work."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    folder = Path(arguments[0])
    if not folder.is_dir():
        folder = Path(kafka_jars(arguments[0])).parent
    report = update(definitions(folder), release=release_of(folder))
    for module in report.written:
        gaps = (FOLDER / f"{module}.py").read_text().count(GAP)
        print(f"wrote kproto/messages/{module}.py" + (f", with {gaps} descriptions to write" if gaps else ""))
    for comment in report.dropped:
        print(f"dropped the comment of {comment}")
    print("Next: see 'Update to a new Kafka' in CONTRIBUTING.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
