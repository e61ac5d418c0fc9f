"""What Spark's own processes say that helps nobody: of a door that is closed, and of the way to an error.

A worker that reads for ``limit`` or ``take``, which had rows enough, finds the door closed and ends, as it
shall; so does one that was idle for a minute. But the daemon that forked it prints "PySpark daemon failed to
flush the output to the worker process" and a traceback that ends in BrokenPipeError: who sees that thinks
that the query broke. What else goes wrong there is printed as ever. Two ways in:

* `session` names the module `daemon` as ``spark.python.daemon.module``. Spark asks it for the workers of
  tasks, also those of ``mapInArrow``, and not for the processes that plan.
* A worker of Spark's own daemon that imports this package is as quiet, in any session.

An error of ours says in a sentence what is wrong and what helps. Spark's processes put the way through their
code and ours above it, a screen of it; see `only_the_sentence`. An error that is none of ours, which is a
bug, keeps it.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any, cast


def told(*words: object, **where: Any) -> None:
    """`print`, but of a closed door."""
    if not isinstance(sys.exception(), (BrokenPipeError, ConnectionResetError)):
        print(*words, **where)


def quieten(daemon: ModuleType) -> None:
    """Let Spark's daemon print by `told`."""
    cast(Any, daemon).print = told


def quieten_this_process() -> None:
    """If this is a worker of Spark's own daemon, and nowhere else."""
    main = sys.modules["__main__"]
    if getattr(main.__spec__, "name", None) == "pyspark.daemon":
        quieten(main)


def only_the_sentence() -> None:
    """For whom Spark called, while an error of ours goes up to it: if this is a process of Spark's, its
    account of that error is the error's text alone. The process ends with it, so no other is meant.
    """
    name = str(getattr(sys.modules["__main__"].__spec__, "name", ""))
    if name.startswith("pyspark.") or name == f"{__package__}.daemon":
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # what spark.sql.execution.pyspark.udf.hideTraceback sets
