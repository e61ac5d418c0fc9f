"""Each program in examples/ runs and prints its result."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import OUTPUTS

ROOT = Path(__file__).resolve().parents[1]


def test_every_program_is_listed_and_tested() -> None:
    programs = {path.name for path in (ROOT / "examples").glob("*.py")} - {"embedded.py"}
    assert programs == set(OUTPUTS)
    text = (ROOT / "examples" / "README.md").read_text()
    assert all(f"`{name}`" in text for name in programs)


# The quick tests run only these two programs, because each program takes more than a second.
QUICK = {"reader.py", "group_with_two_loops.py"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.thorough) for name in OUTPUTS]
)
def test_the_program_runs(name: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)], env=env, capture_output=True, text=True, timeout=100
    )
    assert process.returncode == 0, process.stderr
    assert OUTPUTS[name] in process.stdout
    assert process.stderr == ""


@pytest.mark.parametrize("name", ["kafka_python_json.py", "lag_exporter.py"])
def test_the_program_runs_in_this_process(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Running the program in this process saves the half second that another process takes to start."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(sys, "argv", [name])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert OUTPUTS[name] in capsys.readouterr().out


_STOPPED = """
import group_with_handler as program

class Printer(program.Printer):
    def __init__(self):
        super().__init__()
        self.done.wait = self.stopped

    def consume_claim(self, session, claim):
        for message in claim:
            session.mark_message(message)

    def stopped(self, seconds):
        raise KeyboardInterrupt

program.Printer = Printer
program.main()
"""


def test_ctrl_c_ends_the_program_with_a_handler() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")])}
    command = [sys.executable, "-c", _STOPPED]
    process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert process.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "Exception in thread" not in process.stderr


def test_a_missing_broker_is_reported_in_one_line() -> None:
    process = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "reader.py"), "--bootstrap", "127.0.0.1:1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (process.returncode, process.stderr) == (1, "no broker at 127.0.0.1:1: connection refused\n")
