"""The blocks of the documentation, and how they are run: as tests of what they say.

A page's blocks of Python run in their order, in one namespace. `test_...` functions in them are called with
what pytest would give them: a fresh `kafka`. Of a console block each `$ kproto ...` runs, and prints what
stands below it (`...` is any lines). A comment above a block says what it needs:

    <!-- needs: clients -->     only where these judges are: `clients`, `spark`
    <!-- script -->             a script for sh, which takes a while
    <!-- file: counter.js -->   a whole program of another language, in a file of this name
    <!-- not run: why -->
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kproto import running
from kproto.cli import main
from kproto.testing.certificates import certificates
from kproto.testing.kafka import AsyncKafka, Kafka
from kproto.testing.secured import secured

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "lessons" not in path.parts]
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]+?) -->\n)?```(?P<kind>python|console|sh|go|java|js)\n(?P<code>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced block. `needs` is a judge or "", `kind` what it is written in."""

    page: str
    line: int
    kind: str
    code: str
    mark: str

    @property
    def needs(self) -> str:
        return self.mark.removeprefix("needs: ") if self.mark.startswith("needs: ") else ""

    @property
    def file(self) -> str:
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else ""

    @property
    def runs(self) -> bool:
        return not self.mark.startswith("not run: ")


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code"))
        name = path.relative_to(DOCS.parent).as_posix()
        yield Block(name, line, found["kind"], found["code"], found["mark"] or "")


def with_kproto(folder: Path) -> dict[str, str]:
    """An environment in which `kproto` is this one; `folder` is for the command."""
    command = folder / "bin" / "kproto"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -u -m kproto "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(DOCS.parent)}


def run_python(found: list[Block]) -> dict[str, object]:
    """The blocks of one page, one after the other, and the tests that they declare; returns their names."""
    names: dict[str, object] = {"__name__": "documented"}
    for block in found:
        before = set(names)
        # Lines in a traceback are those of the page.
        source = "\n" * block.line + block.code
        exec(compile(source, block.page, "exec"), names)
        for name in sorted(set(names) - before):
            test = names[name]
            if name.startswith("test_") and callable(test):
                _call(test)
    return names


def _call(test: Callable[..., object]) -> None:
    """As pytest does it: `kafka` is a broker for this test alone, `kafka_secured` makes some."""
    if hasattr(test, "hypothesis") or not inspect.signature(test).parameters:
        test()
        return
    (wanted,) = inspect.signature(test).parameters
    if wanted == "kafka_secured":
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            files = certificates(Path(folder))
            test(lambda *given, **named: stack.enter_context(secured(*given, files, **named)))
        return
    assert wanted in ("kafka", "async_kafka")
    with running(settings={"group.min.session.timeout.ms": "100"}) as server:
        kafka = Kafka(server.bootstrap)
        try:
            test(kafka if wanted == "kafka" else AsyncKafka(kafka))
        finally:
            kafka.close()


def run_console(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """Each `$ kproto ...` of a console block; what is shown below it has to come out, in this order."""
    for part in re.split(r"(?m)^\$ ", block.code)[1:]:
        command, _, shown = part.partition("\n")
        words = shlex.split(command, comments=True)
        assert words[0] == "kproto", f"{block.page}:{block.line}: {command}"
        code = main(words[1:])
        out = capsys.readouterr()
        assert code in (0, 1), out.err
        printed = iter(out.out.splitlines())
        for line in shown.splitlines():
            if line not in ("...", ""):
                assert any(line == other for other in printed), f"{block.page}: {command}: {line!r}"
