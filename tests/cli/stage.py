"""Helpers of the command line's tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "s3cr3t-of-alice"


@contextmanager
def running_broker(
    folder: Path, *words: str, protocol: str, password: str = PASSWORD
) -> Generator[list[str]]:
    """Run `kproto broker` until the end of the block, and yield its first printed lines."""
    command = [
        sys.executable,
        "-m",
        "kproto",
        "broker",
        "--listen",
        f"PLAINTEXT://127.0.0.1:0,{protocol}://localhost:0",
    ]
    command += ["--tls-self-signed", str(folder), "--topic", "flights:1", *words]
    command += ["--user", f"alice:{password}"] if protocol.startswith("SASL") else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [next(process.stdout)]
            while "sarama" not in lines[-1]:
                lines.append(next(process.stdout).rstrip("\n"))
            yield lines
        finally:
            process.terminate()
