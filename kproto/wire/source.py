"""Generated source: the lines of a function in the making, and how they become one whose lines tracebacks,
debuggers and `inspect` see."""

from __future__ import annotations

import keyword
import linecache
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from . import runtime
from .message import Field, Message, Struct


def build(source: str, filename: str, names: Mapping[str, object]) -> dict[str, Any]:
    """Run `source` with `names` as its globals and return these globals.

    The text is filed in `linecache` as `filename`, which has to be unique and in angle brackets, as `attrs`
    does: a traceback through generated code then shows the failing line.
    """
    namespace: dict[str, Any] = dict(names)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    return namespace


class FunctionSource:
    """Lines of a function in the making, the names they use, and the run of fixed fields not yet written."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.__flexible__
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[str, object] = {"Malformed": runtime.Malformed, "Unencodable": runtime.Unencodable}
        self.variables: set[str]
        self.variables = {"b", "buf", "end", "item", "len", "map", "n", "p", "q", "tags", "type", "w"}
        self.codes: list[str] = []
        self.values: list[str] = []

    def function(self, name: str) -> Any:
        label = f"<kproto {self.message.__module__}.{self.message.__qualname__} v{self.version} {name}>"
        return build("\n".join([*self.lines, ""]), label, self.names)[name.split()[0]]

    def line(self, text: str) -> None:
        if text:
            self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Indent what is written inside. A run never crosses the edge of a block."""
        assert not self.codes
        self.line(head)
        self.depth += 1
        yield
        self.flush()
        self.depth -= 1

    def flush(self) -> None:
        raise NotImplementedError

    def run(self, code: str, value: str) -> None:
        """Add a fixed field to the pending run."""
        self.codes.append(code)
        self.values.append(value)

    def name(self, wanted: str, value: object) -> str:
        """A name under which the function finds `value`."""
        found, number = wanted, 1
        while found in self.variables or self.names.setdefault(found, value) is not value:
            number += 1
            found = f"{wanted}_{number}"
        return found

    def variable(self, wanted: str) -> str:
        """A name that no other variable of this function has."""
        found, number = wanted, 1
        while found in self.variables or found in self.names or keyword.iskeyword(found):
            number += 1
            found = f"{wanted}_{number}"
        self.variables.add(found)
        return found

    def object_variable(self, cls: type[Struct]) -> str:
        return self.variable(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower())

    def is_plain(self, f: Field) -> bool:
        """The field stands at its place in this version: it exists, and isn't tagged."""
        return self.version in f.versions and not (self.flexible and self.version in f.tagged)

    def is_compact(self, f: Field) -> bool:
        return self.flexible and not f.always_rigid

    def constant(self, f: Field) -> str:
        """An expression for the initial value of a field that is neither a list nor a struct."""
        value = f.initial()
        if value is None or isinstance(value, bool | int | str | bytes):
            return repr(value)
        return self.name(f"default_{f.name}", value)


def code_name(codes: list[str]) -> str:
    """`struct` codes as a part of a name; `t` is for truth, `n` for a list."""
    return "".join(codes).replace("?", "t").replace("16s", "u").replace("*", "n")
