"""The layout of the project: import order, cycles, I/O, the place of tests, and comments of variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("kproto", "consumer")
# The layers of kproto. A package or module may import those of earlier rows. Only modules of the first row
# may import each other.
LAYERS = (
    (
        "version",
        "validation",
        "durations",
        "errors",
        "error_codes",
        "java_numbers",
        "patterns",
        "addresses",
        "deadlines",
        "lazy_imports",
        "printable",
        "http",
        "otlp",
    ),
    ("wire",),
    ("messages",),
    ("records",),
    ("security",),
    ("machine",),
    ("group", "transactions"),
    ("models", "broker"),
    ("inspect",),
    ("testing",),
    ("scenarios",),
    ("demo",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row}
# The client may use the layers of kproto up to `group`. `testing` and later layers may use the client.
LAST_FOR_CONSUMER = LEVEL["group"]
FIRST_WITH_CONSUMER = LEVEL["testing"]
# Imports inside a function that violate the order of the layers: (importing module, imported module).
# BrokerError.text needs kproto.error_codes for the name of an error code.
EXCEPTIONS = {("kproto.errors", "kproto.error_codes")}
# Modules for waiting, clocks, randomness and sockets. Modules of kproto outside MAY_USE_IO do not import
# them.
IO_MODULES = {"time", "random", "socket", "threading", "subprocess", "asyncio", "multiprocessing", "secrets"}
MAY_USE_IO = (
    "http.py",
    "broker/server.py",
    "broker/shell.py",
    "broker/acceptor.py",
    "broker/socket_connection.py",
    "testing/",
    "cli/",
    "demo/",
)


def modules(package: str) -> list[Path]:
    """Return the modules of a package, sorted by path."""
    return sorted((ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return the absolute names of everything that a module imports, including imports for type checkers."""
    return tuple(name for statement in import_statements(path) for name in statement)


@cache
def import_statements(path: Path) -> tuple[tuple[str, ...], ...]:
    """Return the absolute names of each import statement: the module, then the names imported from it."""
    return tuple(parse_imports(path.read_text(), path.relative_to(ROOT).parent.parts))


# Patterns find the imports, because parsing all modules takes seconds. Docstrings are removed first, because
# their examples contain imports.
DOCSTRING = re.compile(r'"""(?:[^"\\]|\\.|""?(?!"))*"""', re.S)
IMPORT = re.compile(r"(?m)^[ \t]*((?:from [\w.]+ )?import (?:\([^)]*\)|[^\n]*))")


def parse_imports(source: str, package: Sequence[str]) -> Iterator[tuple[str, ...]]:
    code = "\n".join(IMPORT.findall(DOCSTRING.sub("", source)))
    for node in ast.parse(code).body:
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield (base, *(f"{base}.{alias.name}" for alias in node.names))


def is_allowed(importer: str, imported: str) -> bool:
    """Return whether the order of the layers allows `importer` to import `imported`."""
    package, *inside = imported.split(".")
    own_package, *own = importer.split(".")
    if package not in PACKAGES or not own or (importer, ".".join(["kproto", *inside[:1]])) in EXCEPTIONS:
        return True
    if own_package == "consumer":
        return package == "consumer" or not inside or LEVEL.get(inside[0], 0) <= LAST_FOR_CONSUMER
    if package == "consumer":
        return LEVEL[own[0]] >= FIRST_WITH_CONSUMER
    if not inside or inside[0] not in LEVEL or inside[0] == own[0]:
        return True
    return LEVEL[inside[0]] < LEVEL[own[0]] or (LEVEL[inside[0]] == LEVEL[own[0]] and own[0] in LAYERS[0])


def test_imports_follow_the_order_of_the_layers() -> None:
    names = {path: module_name(path) for package in PACKAGES for path in modules(package)}
    breaches = [
        (importer, imported)
        for path, importer in names.items()
        for imported in imports(path)
        if not is_allowed(importer, imported)
    ]
    assert breaches == []


def test_every_module_of_kproto_has_a_layer() -> None:
    names = {path.relative_to(ROOT / "kproto").parts[0].removesuffix(".py") for path in modules("kproto")}
    assert names - {"__init__"} == set(LEVEL)


def test_the_import_order_test_sees_a_breach() -> None:
    assert not is_allowed("kproto.wire.frame", "kproto.messages.fetch")
    assert not is_allowed("kproto.wire.frame", "consumer")
    assert not is_allowed("consumer.engine.core", "kproto.broker.server")
    assert is_allowed("kproto.testing.world", "consumer.engine.core")


def test_every_form_of_an_import_is_read() -> None:
    source = '''"""An example: \\"""
    import example
"""
import os, re as regex
from typing import (
    Any,  # A comment.
    Final,
)
if TYPE_CHECKING:
    from . import sibling
def f():
    """Import from elsewhere."""
    from ..errors import ConfigError, KprotoError
    from .frame import *
'''
    assert [*parse_imports(source, ("kproto", "wire"))] == [
        ("os",),
        ("re",),
        ("typing", "typing.Any", "typing.Final"),
        ("kproto.wire", "kproto.wire.sibling"),
        ("kproto.errors", "kproto.errors.ConfigError", "kproto.errors.KprotoError"),
        ("kproto.wire.frame", "kproto.wire.frame.*"),
    ]


# -- import cycles


@cache
def import_graph() -> Mapping[str, set[str]]:
    """Return the modules that each module imports, without the two facades `kproto` and `consumer`."""
    names = {module_name(path): path for package in PACKAGES for path in modules(package)}
    return {
        name: imported_modules(path, names.keys() - set(PACKAGES)) - {name}
        for name, path in names.items()
        if name not in PACKAGES
    }


def imported_modules(path: Path, names: Set[str]) -> set[str]:
    """Return the modules among `names` that a module imports.

    `from package import module` imports the module, not the package. `from package import Class` imports the
    package, even if another statement imports a module of the package.
    """
    return {name for statement in import_statements(path) for name in statement_modules(statement, names)}


def statement_modules(statement: Sequence[str], names: Set[str]) -> list[str]:
    """Return the modules among `names` that an import statement imports.

    `statement` is an element of `import_statements`: a module, then the names imported from it.
    """
    base, *imported = statement
    members = [name for name in imported if name in names]
    return members if imported and len(members) == len(imported) else [*members, *({base} & names)]


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the import cycles: sets of modules that import each other, even indirectly (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    result: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for imported in graph.get(name, ()):
            if imported not in index:
                visit(imported)
                low[name] = min(low[name], low[imported])
            elif imported in stack:
                low[name] = min(low[name], index[imported])
        if low[name] == index[name]:
            component: set[str] = set()
            while name not in component:
                component.add(stack.pop())
            if len(component) > 1:
                result.append(component)

    for name in graph:
        if name not in index:
            visit(name)
    return result


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles(import_graph()) == []


def test_a_class_of_a_package_is_imported_from_the_package() -> None:
    names = {"a", "a.tls", "a.tokens"}
    assert statement_modules(("a", "a.Token"), names) == ["a"]
    assert statement_modules(("a", "a.tls", "a.tokens"), names) == ["a.tls", "a.tokens"]
    assert statement_modules(("a.tls", "a.tls.Tls"), names) == ["a.tls"]
    assert statement_modules(("a", "a.tls", "a.Token"), names) == ["a.tls", "a"]


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]


# -- imports of clocks, threads, sockets and random sources


def test_the_protocol_uses_no_clock_thread_socket_or_random_source() -> None:
    breaches = [
        (module_name(path), imported)
        for path in modules("kproto")
        if not path.relative_to(ROOT / "kproto").as_posix().startswith(MAY_USE_IO)
        for imported in imports(path)
        if imported.split(".")[0] in IO_MODULES
    ]
    assert breaches == []


# -- the places and names of tests


def test_every_folder_of_tests_mirrors_a_package() -> None:
    packages = {path.name for path in (ROOT / "kproto").iterdir() if path.is_dir()}
    without_package = {"consumer", "conformance", "typing", "data", "fuzz"}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert folders <= packages | without_package


# A file without a match imports no test module. It is not parsed, because parsing all files of tests takes
# seconds.
TEST_IN_IMPORT = re.compile(r"(?m)^\s*(?:from|import)\b[^(\n]*(?:\([^)]*)?\btest_")


@pytest.mark.parametrize(
    "text",
    [
        "import tests.group.test_api\n",
        "from tests.group.test_api import Stage\n",
        "def f():\n    from .test_api import Stage\n",
        "from tests.group import test_api\n",
        "import re\n\nfrom tests.group import (\n    stage,\n    test_api,\n)\n",
    ],
)
def test_each_form_of_an_import_of_a_test_module_is_found(text: str) -> None:
    assert TEST_IN_IMPORT.search(text)


def test_nothing_is_imported_from_a_test_module() -> None:
    imported = {
        ".".join(parts[: position + 1])
        for path in modules("tests")
        if TEST_IN_IMPORT.search(path.read_text())
        for name in imports(path)
        if (parts := name.split("."))[0] == "tests"
        for position, part in enumerate(parts[:-1])
        if part.startswith("test_")
    }
    assert imported == set()


def strings_after_assignments(source: str) -> list[int]:
    """Return the lines of strings that document the assignment before them."""
    lines: list[int] = []
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", [])
        for first, second in pairwise(body if isinstance(body, list) else []):
            if isinstance(first, ast.Assign | ast.AnnAssign) and isinstance(second, ast.Expr):
                is_text = isinstance(second.value, ast.Constant) and isinstance(second.value.value, str)
                lines += [second.lineno] if is_text else []
    return lines


def test_variables_are_documented_by_comments() -> None:
    """The documentation of a variable is a comment, not a string below it."""
    folders = (*PACKAGES, "tests", "benchmarks", "examples")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    breaches = {path: lines for path in paths if (lines := strings_after_assignments(path.read_text()))}
    assert breaches == {}


def test_a_string_below_a_variable_is_found() -> None:
    assert strings_after_assignments('class A:\n    a: int\n    "The number of a."\n') == [3]
    assert strings_after_assignments('def f():\n    """Return 1."""\n    a = 1\n    return "b"\n') == []
