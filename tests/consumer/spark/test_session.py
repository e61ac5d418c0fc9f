"""Which Python, and which settings, a session gets; asked without a JVM."""

from __future__ import annotations

import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from consumer.spark.session import ROOT, _choose_python, _warn_of_others


def spark(python: str, path: str | None) -> Any:
    """A local session whose workers run `python`, and whose JVM has this PYTHONPATH: what Spark knows."""
    system = SimpleNamespace(getenv=lambda _: path)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    context = SimpleNamespace(master="local[2]", pythonExec=python, _jvm=jvm)
    return SimpleNamespace(_sc=context, sparkContext=context)


def test_a_python_of_the_workers_without_kproto_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever this Python finds: an installed kproto lies among its other packages."""
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="No module named 'kproto'"):
        _choose_python(spark(str(bare), None))


def test_a_session_that_is_there_says_what_it_was_not_given() -> None:
    there: Any = SimpleNamespace(conf={"spark.sql.shuffle.partitions": "2"})
    with pytest.warns(UserWarning, match=r"keeps its own spark\.sql\.shuffle\.partitions"):
        _warn_of_others(there, {"spark.sql.shuffle.partitions": "7"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_of_others(there, {"spark.sql.shuffle.partitions": "2"})


@pytest.mark.parametrize(("module", "says"), [("pyspark.daemon", True), ("consumer.spark.daemon", False)])
def test_a_worker_whose_rows_nobody_wants_any_more_ends_without_a_word(module: str, says: bool) -> None:
    """Spark's own daemon prints a traceback."""
    program = (
        "import importlib, socket, sys\n"
        f"importlib.import_module({module!r})\n"
        "from pyspark import daemon, worker\n"
        "ours, door = socket.socketpair()\n"
        "worker.main = lambda rows, out: (out.write(b'rows'), door.close())\n"
        "daemon.worker(ours, True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ("PySpark daemon failed to flush" in done.stderr) is says
