"""Generate the source of one function and compile it.

The source is kept in `linecache`, so tracebacks, debuggers and `inspect` show its lines.
"""

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

    The source is stored in `linecache` under `filename`, so that a traceback through generated code shows the
    failing line. `filename` must be unique and in angle brackets, as in `attrs`.
    """
    namespace: dict[str, Any] = dict(names)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)
    return namespace


class FunctionSource:
    """The lines of one generated function, its global names and its pending run.

    The pending run is the sequence of fixed-size fields that the next `struct` call reads or writes.
    """

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.__flexible__
        self.lines: list[str] = []
        self.depth = 1  # The indentation of the next line, in levels.
        # Global name -> value.
        self.names: dict[str, object] = {"Malformed": runtime.Malformed, "Unencodable": runtime.Unencodable}
        # The names that no new variable or global may have.
        self.variables: set[str]
        self.variables = {"b", "buf", "end", "item", "len", "map", "n", "p", "q", "tags", "type", "w"}
        # The pending run: the `struct` code and the value of each field.
        self.codes: list[str] = []
        self.values: list[str] = []

    def function(self, name: str) -> Any:
        """Compile the lines and return the function that they define.

        The first word of `name` is the function's name. Tracebacks show all words of `name`.
        """
        label = f"<kproto {self.message.__module__}.{self.message.__qualname__} v{self.version} {name}>"
        return build("\n".join([*self.lines, ""]), label, self.names)[name.split()[0]]

    def line(self, text: str) -> None:
        """Append a line at the current indentation, unless `text` is empty."""
        if text:
            self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Indent the lines that are added within the `with` statement.

        A run of fixed-size fields never extends across the start or the end of a block.
        """
        assert not self.codes
        self.line(head)
        self.depth += 1
        yield
        self.flush()
        self.depth -= 1

    def flush(self) -> None:
        """If the pending run is not empty, append its `struct` call and clear the run."""
        raise NotImplementedError

    def run(self, code: str, value: str) -> None:
        """Add the `struct` code and the value of a fixed-size field to the pending run."""
        self.codes.append(code)
        self.values.append(value)

    def name(self, wanted: str, value: object) -> str:
        """Make `value` a global of the generated function, and return the global's name.

        The name is `wanted`, with a number appended if `wanted` is in use for another value.
        """
        name, number = wanted, 1
        while name in self.variables or self.names.setdefault(name, value) is not value:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def variable(self, wanted: str) -> str:
        """Reserve and return a variable name that is unique in this function.

        The name is `wanted`, with a number appended if `wanted` is already in use or is a keyword.
        """
        name, number = wanted, 1
        while name in self.variables or name in self.names or keyword.iskeyword(name):
            number += 1
            name = f"{wanted}_{number}"
        self.variables.add(name)
        return name

    def object_variable(self, cls: type[Struct]) -> str:
        """Reserve a variable for an instance of `cls`, named as the class in snake_case."""
        return self.variable(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower())

    def is_plain(self, f: Field) -> bool:
        """Return whether the field exists in this version and is not tagged."""
        return self.version in f.versions and not (self.flexible and self.version in f.tagged)

    def is_compact(self, f: Field) -> bool:
        """Return whether the field's lengths are encoded as unsigned varints (KIP-482)."""
        return self.flexible and not f.always_rigid

    def constant(self, f: Field) -> str:
        """Return an expression for the initial value of a field that is neither an array nor a struct."""
        value = f.initial()
        if value is None or isinstance(value, bool | int | str | bytes):
            return repr(value)
        return self.name(f"default_{f.name}", value)


def code_name(codes: list[str]) -> str:
    """Return `struct` codes as text that can be part of a Python name.

    `?` becomes `t`, `16s` becomes `u`, and `*`, which marks an array, becomes `n`.
    """
    return "".join(codes).replace("?", "t").replace("16s", "u").replace("*", "n")
