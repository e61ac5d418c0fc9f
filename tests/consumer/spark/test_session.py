"""Which Python, and which settings, a session gets; asked without a JVM."""

from __future__ import annotations

import shlex
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from consumer.spark.session import _choose_python, _warn_of_others


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
