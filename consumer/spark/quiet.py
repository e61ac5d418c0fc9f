"""What Spark's daemon, which forks its Python workers, prints of a door that is closed.

A worker that reads for ``limit`` or ``take``, which had rows enough, finds the door closed and ends, as it
shall; so does one that was idle for a minute. But the daemon prints "PySpark daemon failed to flush the
output to the worker process" and a traceback that ends in BrokenPipeError: who sees that thinks that the
query broke. What else goes wrong there is printed as ever. Two ways in:

* `session` names the module `daemon` as ``spark.python.daemon.module``. Spark asks it for the workers of
  tasks, also those of ``mapInArrow``, and not for the processes that plan.
* A worker of Spark's own daemon that imports this package is as quiet, in any session.
"""

from __future__ import annotations

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
