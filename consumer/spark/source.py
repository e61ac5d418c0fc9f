"""``format("kproto")``: Kafka in Spark without a jar. The options are in `options`, the columns in
`schema`.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from . import schema as columns
from .options import parse
from .reader import KprotoReader
from .stream import KprotoStreamReader
from .writer import KprotoStreamWriter, KprotoWriter


class KprotoDataSource(DataSource):
    """Spark makes one for every ``load()``, ``save()`` and ``start()``. Raises ConfigError for a wrong
    option.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.parsed = parse(options)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``. (``kafka`` is reserved by Spark for its own.)"""
        return "kproto"

    def schema(self) -> StructType:
        """All columns; a schema given by the user takes its place."""
        self.parsed.for_reading()
        return columns.full(self.parsed)

    def reader(self, schema: StructType) -> KprotoReader:
        """For ``spark.read``."""
        return KprotoReader(schema, self.parsed)

    def streamReader(self, schema: StructType) -> KprotoStreamReader:
        """For ``spark.readStream``."""
        return KprotoStreamReader(schema, self.parsed)

    def writer(self, schema: StructType, overwrite: bool) -> KprotoWriter:
        """For ``df.write``; say ``.mode("append")``."""
        return KprotoWriter(schema, self.parsed, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> KprotoStreamWriter:
        """For ``df.writeStream``."""
        return KprotoStreamWriter(schema, self.parsed, overwrite)
