"""Runs `kproto watch` as a separate process, as the proxy of a cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def watching(bootstrap: str, output: Path, *options: str) -> Iterator[str]:
    """Run `kproto watch --json --all` for a cluster, and yield the address of the proxy.

    After the block, `output` contains the lines that `kproto watch` has printed.
    """
    command = [
        sys.executable,
        "-m",
        "kproto",
        "watch",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--all",
        *options,
        bootstrap,
    ]
    with output.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[3]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=20)
