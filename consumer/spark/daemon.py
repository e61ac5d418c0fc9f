"""Spark's own daemon, which forks its Python workers, but for what it prints of a door that is closed.

`session` names this module as ``spark.python.daemon.module``. A worker that reads for ``limit`` or
``take``, which had rows enough, finds the door closed and ends, as it shall; but the daemon prints
"PySpark daemon failed to flush the output to the worker process" and a traceback that ends in
BrokenPipeError: who sees that thinks that the query broke. What else goes wrong there is printed as
ever.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from pyspark import daemon


def told(*words: object, **where: Any) -> None:
    """`print`, but of a closed door."""
    if not isinstance(sys.exception(), (BrokenPipeError, ConnectionResetError)):
        print(*words, **where)


cast(Any, daemon).print = told

if __name__ == "__main__":
    daemon.manager()
