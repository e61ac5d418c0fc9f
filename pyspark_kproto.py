"""Let Spark find ``format("kproto")`` where `consumer.spark.register` was not called.

On the first lookup of an unknown source, Spark imports the modules on the path of the driver's Python whose
names begin with ``pyspark_``, and registers the `DefaultSource` of each
(``pyspark.sql.worker.lookup_data_sources``, Spark 4.0 and newer). This module therefore stands beside the
packages and exports only that name. Programs import `consumer.spark`.
"""

from __future__ import annotations

from consumer.spark.source import KprotoDataSource as DefaultSource

__all__ = ["DefaultSource"]
