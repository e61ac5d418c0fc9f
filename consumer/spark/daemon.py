"""Spark's worker daemon with the filters of `worker_output`. The module `session` sets this module as
``spark.python.daemon.module``.
"""

from __future__ import annotations

from pyspark import daemon

from .worker_output import filter_output

if __name__ == "__main__":
    filter_output(daemon)
    daemon.manager()
