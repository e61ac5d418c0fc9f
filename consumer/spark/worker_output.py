"""Remove messages that look like failures, and long tracebacks, from the output of Spark's Python processes.

A worker ends when Spark has enough rows for ``limit`` or ``take`` and closes the worker's connection. A
worker also ends after a minute without work. Neither is an error.

The worker nevertheless prints "PySpark daemon failed to flush the output to the worker process" and the
traceback of a BrokenPipeError, as if the query had failed: it runs the code of the daemon from which it was
forked. This module suppresses only these messages. The filter is installed in two ways:

* `session` sets the module `daemon` as ``spark.python.daemon.module``. Spark starts this daemon for the
  workers that run tasks (including those of ``mapInArrow``), but not for the processes that plan queries.

* In any other session, a worker of Spark's own daemon installs the filter when it imports this package.

kproto's errors state the problem and the remedy in one sentence. `hide_traceback` removes the long traceback
that Spark's processes print above them. An error of any other class is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, cast


def print_unless_disconnected(*words: object, **options: Any) -> None:
    """Call `print`, unless the exception being handled is due to a closed connection."""
    if not isinstance(sys.exception(), (BrokenPipeError, ConnectionResetError)):
        print(*words, **options)


def filter_output(daemon: ModuleType) -> None:
    """Make Spark's daemon print through `print_unless_disconnected`."""
    cast(Any, daemon).print = print_unless_disconnected


def filter_own_output() -> None:
    """Install the filter if this process is a worker that Spark's own daemon has forked."""
    main = sys.modules["__main__"]
    if getattr(main.__spec__, "name", None) == "pyspark.daemon":
        filter_output(main)


def hide_traceback() -> None:
    """If this is a Spark process, make it print only the text of the error that is being raised.

    The function sets the environment variable for spark.sql.execution.pyspark.udf.hideTraceback. The process
    ends with the error, so no other error loses its traceback.
    """
    name = str(getattr(sys.modules["__main__"].__spec__, "name", ""))
    if name.startswith("pyspark.") or name == f"{__package__}.daemon":
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
