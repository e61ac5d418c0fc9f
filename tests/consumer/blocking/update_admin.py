"""Generate the methods of `Admin` from those of `AsyncAdmin`.

    python -m tests.consumer.blocking.update_admin

Each public method of `AsyncAdmin` becomes a method of `Admin` that has the same parameters and docstring, and
that runs the coroutine to its end. The command also updates the imports from `consumer.engine` that the
signatures need. Run `ruff format` afterwards.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
ASYNC = ROOT / "consumer" / "aio" / "admin.py"
BLOCKING = ROOT / "consumer" / "blocking" / "admin.py"

# The command replaces the text between these two lines, which both files contain.
FIRST = "    # ---- any request\n"
LAST = "    # ---- inside\n"


def update(asynchronous: str, blocking: str) -> str:
    """Return the new source of the blocking module. Its methods come from `asynchronous`."""
    lines = blocking.splitlines(keepends=True)
    imports = [node for node in ast.parse(blocking).body if _is_engine_import(node)]
    before = "".join(lines[: imports[0].lineno - 1])
    init = "".join(lines[imports[-1].end_lineno : lines.index(FIRST)])
    body = init + _methods(asynchronous) + "".join(lines[lines.index(LAST) :])
    return before + _imports(asynchronous, body) + body


def _is_engine_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("engine.")


def _methods(source: str) -> str:
    """Return the methods of `Admin`, with the comments that divide them into sections."""
    (cls,) = [node for node in ast.parse(source).body if getattr(node, "name", "") == "AsyncAdmin"]
    assert isinstance(cls, ast.ClassDef)
    lines = source.splitlines(keepends=True)
    first, last = lines.index(FIRST), lines.index(LAST)
    parts = {
        number: line + "\n"
        for number, line in enumerate(lines[first:last], first)
        if line.startswith("    # ---- ")
    }
    for node in cls.body:
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and first < node.lineno <= last
            and not node.name.startswith("_")
        ):
            parts[node.lineno] = _method(node, lines)
    return "".join(parts[number] for number in sorted(parts))


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> str:
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    docstring = node.body[0]
    assert docstring.end_lineno is not None
    head = "".join(lines[node.lineno - 1 : docstring.end_lineno]).replace("async def", "def", 1)
    call = f"self._operations.{node.name}"
    if "property" not in decorators:
        names = [argument.arg for argument in node.args.args if argument.arg != "self"]
        names += [f"{argument.arg}={argument.arg}" for argument in node.args.kwonlyargs]
        call += f"({', '.join(names)})"
    if isinstance(node, ast.AsyncFunctionDef):
        call = f"run_to_end({call})"
    if ast.unparse(node.returns or ast.Constant(None)) != "None":
        call = f"return {call}"
    return "".join(f"    @{name}\n" for name in decorators) + f"{head}        {call}\n\n"


def _imports(source: str, body: str) -> str:
    """Return the imports from `consumer.engine` in `source`, reduced to the names that `body` uses."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    imports = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and _is_engine_import(node):
            names = [alias.name for alias in node.names if (alias.asname or alias.name) in used]
            if names:
                imports.append(f"from ..{node.module} import {', '.join(names)}\n")
    return "".join(imports)


if __name__ == "__main__":
    BLOCKING.write_text(update(ASYNC.read_text(), BLOCKING.read_text()))
