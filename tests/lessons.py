"""Run the commands of docs/lessons, and update their outputs and pictures.

    python -m tests.lessons [001 ...]      # updates all pages, or those with these numbers

In a `console` block, a line that begins with "$ " is a command, and the lines that follow are its output. A
command is `kproto ...`, possibly followed by a pipe. Commands with `--svg NAME.svg` write the pictures of the
pages.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kproto.cli import main

LESSONS = Path(__file__).resolve().parents[1] / "docs" / "lessons"
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


def pages() -> list[Path]:
    """Return the lessons, sorted by name."""
    return sorted(LESSONS.glob("*.md"))


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each command of a page, and the output that the page shows for it."""
    for block in BLOCK.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            yield command, expected


def output(command: str, folder: Path) -> str:
    """Run a command in a folder, and return its output."""
    first, _, pipe = command.partition(" | ")
    words = shlex.split(first)
    if words[0] != "kproto":
        raise ValueError(f"{command!r} is not a kproto command")
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out):
        code = main(words[1:])
    if code:
        raise ValueError(f"{command!r} exited with {code}: {out.getvalue()[-300:]}")
    text = out.getvalue()
    if pipe:
        text = subprocess.run(pipe, shell=True, check=True, input=text, text=True, capture_output=True).stdout
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def write(prefixes: tuple[str, ...]) -> None:
    """Run the commands of the pages with these prefixes, and write their outputs into the pages."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for page in (page for page in pages() if page.name.startswith(prefixes or ("",))):
            text = page.read_text()
            for block in BLOCK.findall(text):
                lines = [part.partition("\n")[0] for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
                session = "".join(f"$ {command}\n{output(command, folder)}" for command in lines)
                text = text.replace(block, session, 1)
            page.write_text(text)
            print(page.name, flush=True)
        for picture in folder.glob("*.svg"):
            (LESSONS / picture.name).write_bytes(picture.read_bytes())


if __name__ == "__main__":
    write(tuple(sys.argv[1:]))
