"""A session warns about an unsuitable Python and about settings without effect. No JVM runs here."""

from __future__ import annotations

import os
import shlex
import socket
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException

from consumer.spark.session import ROOT, _choose_worker_python, _warn_of_differing_settings, register


def spark(python: str, path: str | None) -> Any:
    """Return a simulated local session whose workers run `python`, and whose JVM has this PYTHONPATH."""
    system = SimpleNamespace(getenv=lambda _: path)
    jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    context = SimpleNamespace(master="local[2]", pythonExec=python, _jvm=jvm)
    return SimpleNamespace(_sc=context, sparkContext=context)


def test_a_workers_python_without_kproto_causes_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make kproto appear to be installed, next to the other packages of this Python."""
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="No module named 'kproto'"):
        _choose_worker_python(spark(str(bare), None))


@pytest.mark.parametrize("refusal", ["DATA_SOURCE_ALREADY_EXISTS", "DATA_SOURCE_NOT_FOUND"])
def test_registering_the_source_again_is_not_an_error(refusal: str) -> None:
    """The user may register the source even if Spark has already found it.

    Spark 4.0 finds the source through `pyspark_kproto`, and raises an error if it is registered again.
    `register` ignores this error.
    """

    def refuse(source: object) -> None:
        raise AnalysisException(f"[{refusal}] 'kproto'")

    session = spark(sys.executable, str(ROOT))
    session.dataSource = SimpleNamespace(register=refuse)
    if refusal == "DATA_SOURCE_ALREADY_EXISTS":
        register(session)
    else:
        with pytest.raises(AnalysisException, match=refusal):
            register(session)


def test_an_existing_session_warns_about_differing_settings() -> None:
    session: Any = SimpleNamespace(conf={"spark.sql.shuffle.partitions": "2"})
    with pytest.warns(UserWarning, match=r"keeps its own values of spark\.sql\.shuffle\.partitions"):
        _warn_of_differing_settings(session, {"spark.sql.shuffle.partitions": "7"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _warn_of_differing_settings(session, {"spark.sql.shuffle.partitions": "2"})


@pytest.mark.parametrize(
    ("daemon", "imported", "is_printed"),
    [
        ("pyspark.daemon", "pickle", True),
        ("pyspark.daemon", "consumer.spark", False),
        ("consumer.spark.daemon", "pickle", False),
    ],
)
def test_a_worker_whose_connection_closed_ends_silently(
    daemon: str, imported: str, is_printed: bool, tmp_path: Path
) -> None:
    """A worker whose connection was closed ends without output.

    As in Spark, a daemon forks the worker. Spark's own daemon, which lacks kproto's filters, prints a
    traceback when a worker cannot flush its output.
    """
    (tmp_path / "pyspark_work.py").write_text(
        f"import {imported}\n\n\ndef main(door, rows):\n    door.read()\n    rows.write(b'rows')\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        # This folder's path is short: the path of a socket is limited to 107 characters.
        "PYTHON_WORKER_FACTORY_SOCK_DIR": tempfile.gettempdir(),
    }
    run = [sys.executable, "-m", daemon, "pyspark_work"]
    pipe = subprocess.PIPE
    with (tmp_path / "said").open("w+b") as output:
        with subprocess.Popen(run, stdin=pipe, stdout=pipe, stderr=output, env=environment) as started:
            assert started.stdout is not None
            (size,) = struct.unpack(">i", started.stdout.read(4))
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(started.stdout.read(size))
                (worker,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            while Path(f"/proc/{worker}").exists():
                time.sleep(0.01)
        output.seek(0)
        text = output.read()
    assert (b"PySpark daemon failed to flush" in text) is is_printed
    assert bool(text) is is_printed
