"""Find and run the code blocks of the documentation.

The Python blocks of a page run in order, in one namespace. Functions `test_...` are called with the fixtures
that pytest would pass, such as a new `kafka`.

Each `$ kproto ...` in a console block runs, and must print the lines that follow it, in this order. The
command may also print other lines, whether or not the block marks their place with `...`.

A comment above a block says what the block needs:

    <!-- needs: clients -->     runs only in tests/conformance, with other clients (`spark`: with PySpark)
    <!-- script -->             a shell script, which bash runs in an empty directory
    <!-- file: counter.js -->   a complete program in another language, in a file of this name
    <!-- not run: REASON -->    never runs, for this reason
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
from kproto.testing.warm_up import warm_up

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if "lessons" not in path.parts]
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]+?) -->\n)?```(?P<kind>python|console|sh|go|java|js)\n(?P<code>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced code block of a page. `kind` is its language."""

    page: str
    line: int
    kind: str
    code: str
    mark: str

    @property
    def needs(self) -> str:
        """Return what the block needs, such as other clients ("clients"), or "" if it needs nothing."""
        return self.mark.removeprefix("needs: ") if self.mark.startswith("needs: ") else ""

    @property
    def file(self) -> str:
        """Return the file name of the block's program, or "" if the block is not a complete program."""
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else ""

    @property
    def runs(self) -> bool:
        """Return whether the block is run."""
        return not self.mark.startswith("not run: ")


def blocks(path: Path) -> Iterator[Block]:
    """Yield the blocks of a page, in order."""
    text = path.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        name = path.relative_to(DOCS.parent).as_posix()
        yield Block(name, line, match["kind"], match["code"], match["mark"] or "")


def with_kproto(folder: Path) -> dict[str, str]:
    """Write a command `kproto` that runs this source. Return an environment with the command in PATH."""
    command = folder / "bin" / "kproto"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -u -m kproto "$@"\n')
    command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(DOCS.parent)}


def run_python(page_blocks: list[Block]) -> dict[str, object]:
    """Run the blocks of one page and the tests that they define. Return the global names of the blocks."""
    names: dict[str, object] = {"__name__": "documented"}
    for block in page_blocks:
        before = set(names)
        # Newlines before the code make tracebacks show the line numbers of the page.
        source = "\n" * block.line + block.code
        exec(compile(source, block.page, "exec"), names)
        for name in sorted(set(names) - before):
            test = names[name]
            if name.startswith("test_") and callable(test):
                _call(test)
    return names


def _call(test: Callable[..., object]) -> None:
    """Call a test with its fixture (`kafka`, `async_kafka` or `kafka_secured`), as pytest does."""
    if hasattr(test, "hypothesis"):
        # Import numpy before the test, as the pytest plugin does. Hypothesis fails if it reads numpy's
        # attributes while a client's thread is importing numpy.
        warm_up()
        test()
        return
    if not inspect.signature(test).parameters:
        test()
        return
    (fixture,) = inspect.signature(test).parameters
    if fixture == "kafka_secured":
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            files = certificates(Path(folder))
            test(lambda *args, **options: stack.enter_context(secured(*args, files, **options)))
        return
    assert fixture in ("kafka", "async_kafka")
    with running(settings={"group.min.session.timeout.ms": "100"}) as server:
        kafka = Kafka(server.bootstrap)
        try:
            test(kafka if fixture == "kafka" else AsyncKafka(kafka))
        finally:
            kafka.close()


def run_console(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """Run each `$ kproto ...` command of a console block, and check the output that follows it."""
    for part in re.split(r"(?m)^\$ ", block.code)[1:]:
        command, _, expected = part.partition("\n")
        words = shlex.split(command, comments=True)
        assert words[0] == "kproto", f"{block.page}:{block.line}: {command}"
        code = main(words[1:])
        out = capsys.readouterr()
        assert code in (0, 1), out.err
        printed = iter(out.out.splitlines())
        for line in expected.splitlines():
            if line not in ("...", ""):
                assert any(line == output for output in printed), f"{block.page}: {command}: {line!r}"
