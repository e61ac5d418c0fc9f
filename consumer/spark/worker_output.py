"""Filters for the output of Spark's Python processes.

A worker that reads for ``limit`` or ``take`` ends when Spark has enough rows and closes its connection. So
does a worker that was idle for a minute. This is normal. But the daemon that forked the worker prints
"PySpark daemon failed to flush the output to the worker process" and the traceback of a BrokenPipeError. It
looks as if the query had failed. These messages are suppressed, and all others are printed. There are two
ways:

* `session` sets the module `daemon` as ``spark.python.daemon.module``. Spark starts it for the workers of
  tasks, also of ``mapInArrow``, but not for the processes that plan.
* A worker of Spark's own daemon installs the filter when it imports this package, in any session.

kproto's errors say in one sentence what is wrong and what to do. Spark's processes print a long traceback
above them, which `hide_traceback` removes. An error of any other class is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, cast


def print_unless_disconnected(*words: object, **options: Any) -> None:
    """Print, unless the current exception is an error of a closed connection."""
    if not isinstance(sys.exception(), (BrokenPipeError, ConnectionResetError)):
        print(*words, **options)


def filter_output(daemon: ModuleType) -> None:
    """Make Spark's daemon print through `print_unless_disconnected`."""
    cast(Any, daemon).print = print_unless_disconnected


def filter_own_output() -> None:
    """Install the filter if this process is a worker of Spark's own daemon."""
    main = sys.modules["__main__"]
    if getattr(main.__spec__, "name", None) == "pyspark.daemon":
        filter_output(main)


def hide_traceback() -> None:
    """Print only the text of the error that is being raised, if this is one of Spark's processes.

    Spark sets the same variable for spark.sql.execution.pyspark.udf.hideTraceback. The process ends with this
    error. No other error therefore loses its traceback.
    """
    name = str(getattr(sys.modules["__main__"].__spec__, "name", ""))
    if name.startswith("pyspark.") or name == f"{__package__}.daemon":
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
