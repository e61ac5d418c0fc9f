"""By this module Spark finds ``format("kproto")`` where nobody called `consumer.spark.register`.

When Spark is first asked for a source that it doesn't know, it imports the modules on the path of the
driver's Python whose names begin with ``pyspark_``, and takes from each its `DefaultSource`
(``pyspark.sql.worker.lookup_data_sources``, Spark 4.0 and newer). So this one has a place of its own
beside the packages, and nothing but that name; who writes a program imports `consumer.spark`.
"""

from __future__ import annotations

from consumer.spark.source import KprotoDataSource as DefaultSource

__all__ = ["DefaultSource"]
