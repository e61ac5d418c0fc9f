"""`kproto broker --tls-self-signed` prints what a client needs to connect."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumer import Cluster

pytest.importorskip("trustme")
PASSWORD = "s3cr3t-of-alice"


@contextmanager
def started(folder: Path, *words: str, protocol: str, password: str = PASSWORD) -> Generator[list[str]]:
    """Run the command until the end of the block; yields the lines that it prints."""
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


@pytest.mark.parametrize(
    ("protocol", "words"),
    [("SASL_SSL", []), ("SSL", ["--set", "ssl.client.auth=required"])],
)
def test_the_printed_python_call_connects(tmp_path: Path, protocol: str, words: list[str]) -> None:
    with started(tmp_path / "made", *words, protocol=protocol) as lines:
        assert re.fullmatch(
            rf"listening on PLAINTEXT://127.0.0.1:\d+, {protocol}://localhost:\d+; .*\n", lines[0]
        )
        [line] = [line for line in lines if "kproto " in line]
        call = line.split(maxsplit=1)[1].replace("...", PASSWORD)
        with eval(call, {"Consumer": Cluster}) as cluster:
            assert cluster.topics() == {"flights": 1}
    assert PASSWORD not in "".join(lines)
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0
