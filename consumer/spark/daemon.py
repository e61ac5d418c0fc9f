"""Spark's own worker daemon with the filters of `worker_output`; `session` sets it."""

from __future__ import annotations

from pyspark import daemon

from .worker_output import quieten

if __name__ == "__main__":
    quieten(daemon)
    daemon.manager()
