"""Spark's own daemon, as `quiet` as it should be: what ``spark.python.daemon.module`` is in a `session`."""

from __future__ import annotations

from pyspark import daemon

from .quiet import quieten

if __name__ == "__main__":
    quieten(daemon)
    daemon.manager()
