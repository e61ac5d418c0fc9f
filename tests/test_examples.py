"""Each program in examples/ runs as it stands, and says what it is for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAYS = {
    "group_with_handler.py": "12 messages",
    "group_with_manual_commit.py": "orders-0: ",
    "group_with_two_loops.py": "consumer quit finish",
    "reader.py": "6 messages",
    "read_message.py": "6 messages",
    "group_that_survives_growth.py": "100 of 100 read, none lost: True",
    "synchronous_producer.py": "k1: partition",
    "one_partition.py": "flight 4 of 5",
}


def test_every_program_is_listed_and_tested() -> None:
    programs = {path.name for path in (ROOT / "examples").glob("*.py")} - {"embedded.py"}
    assert programs == set(SAYS)
    text = (ROOT / "examples" / "README.md").read_text()
    assert all(f"`{name}`" in text for name in programs)


@pytest.mark.parametrize("name", SAYS)
def test_the_program_runs(name: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)], env=env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    assert done.stderr == ""


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


def test_ctrl_c_ends_the_handlers_program() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "examples")])}
    order = [sys.executable, "-c", _STOPPED]
    done = subprocess.run(order, env=env, capture_output=True, text=True, timeout=60)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "Exception in thread" not in done.stderr


def test_a_broker_that_is_not_there_is_told_in_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "reader.py"), "--bootstrap", "127.0.0.1:1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.returncode, done.stderr) == (1, "no broker at 127.0.0.1:1: connection refused\n")
