"""The pages of docs/lessons as they are run: each `console` block is a session, each picture a command's.

    python -m tests.lessons [001 ...]      # writes the outputs and pictures anew, of all pages or these

A line that begins with "$ " is a command, what follows is its output. It is `kproto ...`, perhaps with a pipe
behind it. What a command writes is kept when a page shows it (`--svg NAME.svg`).
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

ROOM = Path(__file__).resolve().parents[1] / "docs" / "lessons"
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


def pages() -> list[Path]:
    return sorted(ROOM.glob("*.md"))


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of a page, and the output that stands there."""
    for block in BLOCK.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def output(command: str, room: Path) -> str:
    """What a command prints, run in a folder."""
    first, _, pipe = command.partition(" | ")
    words = shlex.split(first)
    if words[0] != "kproto":
        raise ValueError(f"{command!r} is no command of kproto")
    out = io.StringIO()
    with contextlib.chdir(room), contextlib.redirect_stdout(out):
        code = main(words[1:])
    if code:
        raise ValueError(f"{command!r} ended with {code}: {out.getvalue()[-300:]}")
    told = out.getvalue()
    if pipe:
        told = subprocess.run(pipe, shell=True, check=True, input=told, text=True, capture_output=True).stdout
    return "".join(f"{line.rstrip()}\n" for line in told.rstrip().splitlines())


def write(begins: tuple[str, ...]) -> None:
    """Run what stands on these pages, and write what came out into them."""
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        for page in (one for one in pages() if one.name.startswith(begins or ("",))):
            text = page.read_text()
            for block in BLOCK.findall(text):
                said = [part.partition("\n")[0] for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
                text = text.replace(block, "".join(f"$ {one}\n{output(one, room)}" for one in said), 1)
            page.write_text(text)
            print(page.name, flush=True)
        for picture in room.glob("*.svg"):
            (ROOM / picture.name).write_bytes(picture.read_bytes())


if __name__ == "__main__":
    write(tuple(sys.argv[1:]))
