"""Run the commands of docs/lessons, and update their outputs and pictures.

    python -m tests.lessons [001 ...]      # updates all pages and notebooks, or those with these numbers

In a `console` block, a line that begins with "$ " is a command. The lines below it are its output. A command
is `kproto ...`, possibly followed by a pipe.

Commands with `--svg NAME.svg` write the pictures of the pages.

The first lesson also exists as a notebook, which is generated from its page. The notebook has no outputs,
because its reader runs the commands.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kproto.cli import main

LESSONS = Path(__file__).resolve().parents[1] / "docs" / "lessons"
BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOTEBOOK = LESSONS / "000-offset-minus-1000.ipynb"
ANCHOR = re.compile(r"\]\(#([^)]+)\)")
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


def notebook(page: str) -> str:
    """Return the notebook of a page.

    A cell contains a piece of text, a Python example, or the commands of a block.
    """
    cells: list[dict[str, Any]] = []
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    # The page links to anchors in lower case, but JupyterLab's anchors keep the case of the heading.
    anchors = {heading.lower().replace(" ", "-"): heading.replace(" ", "-") for heading in headings}

    def anchor(link: re.Match[str]) -> str:
        return f"](#{anchors[link[1]]})"

    # The parts repeat in this order: a text, the language of a code block, the content of the block.
    parts = CODE.split(page)
    for text, language, block in zip(parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True):
        if text.strip():
            cells.append({"cell_type": "markdown", "source": ANCHOR.sub(anchor, text.strip())})
        if language == "console":
            block = "\n".join(f"!{command}" for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE))
        if block:
            cells.append(
                {"cell_type": "code", "source": block.strip(), "execution_count": None, "outputs": []}
            )
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": [{"id": f"cell-{number}", "metadata": {}, **cell} for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def write(prefixes: tuple[str, ...]) -> None:
    """Run the commands of each page whose name starts with a prefix, and write the outputs into the page."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for page in (page for page in pages() if page.name.startswith(prefixes or ("",))):
            text = page.read_text()
            for block in BLOCK.findall(text):
                lines = [part.partition("\n")[0] for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
                session = "".join(f"$ {command}\n{output(command, folder)}" for command in lines)
                text = text.replace(block, session, 1)
            page.write_text(text)
            if page.stem == NOTEBOOK.stem:
                NOTEBOOK.write_text(notebook(text))
            print(page.name, flush=True)
        for picture in folder.glob("*.svg"):
            (LESSONS / picture.name).write_bytes(picture.read_bytes())


if __name__ == "__main__":
    write(tuple(sys.argv[1:]))
