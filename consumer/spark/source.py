"""``format("kproto")``: Kafka in Spark without a jar.

The module `options` defines the options, and `schema` the columns. Spark runs each method of a data source in
a new Python process, and starts several processes before a stream begins. So this module imports only what
all methods need.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kproto.errors import KprotoError, MissingExtra

from ..clock import wall
from ..security.option_names import mask_secret
from ..security.secret import HiddenText
from . import schema as columns
from .options import parse
from .security import kafka_option_names_in_errors
from .worker_output import hide_traceback

if TYPE_CHECKING:
    from .reader import KprotoReader
    from .stream import KprotoStreamReader
    from .writer import KprotoStreamWriter, KprotoWriter


@contextmanager
def _requires_pyspark(version: str, feature: str) -> Generator[None]:
    """Raise MissingExtra, with the required version, if PySpark lacks a module."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("pyspark."):
            raise
        raise MissingExtra(feature, f"PySpark {version} or newer", "spark") from None


def _hide_secrets(options: MutableMapping[str, str]) -> None:
    """Mask the secrets in the repr of `options`, because tracebacks may show Spark's local variables."""
    for name, value in list(options.items()):
        if mask_secret(name, value) != value:
            options[name] = HiddenText(value)


class FailedStreamReader(DataSourceStreamReader):
    """Replaces a stream reader whose creation failed with `error`. Each method raises `error`.

    An error that `streamReader` itself raised would be hidden: the process that plans streams replaces it
    with its own error (``cannot access local variable 'reader'``).
    """

    def __init__(self, error: KprotoError) -> None:
        self.error = error

    @kafka_option_names_in_errors()
    def initialOffset(self) -> dict[str, object]:
        """Raise `error`. In a new query, Spark calls `latestOffset` before this method."""
        raise self.error

    @kafka_option_names_in_errors()
    def latestOffset(self) -> dict[str, object]:  # type: ignore[override]
        """Raise `error`. In a new query, Spark calls this method before the others."""
        raise self.error

    @kafka_option_names_in_errors()
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """Raise `error`. If a query repeats its last batch, Spark calls this method before the others."""
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Raise `error`, on an executor."""
        raise self.error


class KprotoDataSource(DataSource):
    """The data source that Spark creates for every ``load()``, ``save()`` and ``start()``.

    The constructor raises ConfigError for an invalid option.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        _hide_secrets(options)
        super().__init__(options)
        self.loaded = 0  # The time (ms) of `load()`, which calls `schema`.
        try:
            self.parsed = parse(options)
        except KprotoError as error:
            # Hide kproto's stack frames. Spark would print them, and they are longer than the error message.
            # Local variables of these frames, and of the error's context, may contain secrets.
            hide_traceback()
            error.__context__ = None
            raise error.with_traceback(None) from None

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``. (Spark reserves ``kafka`` for its own source.)"""
        return "kproto"

    @kafka_option_names_in_errors()
    def schema(self) -> StructType | str:
        """Return the schema of all columns, which applies unless the user has set a schema.

        The schemas of a registry are requested once. Spark pickles this object, including the schemas, for
        the process that creates the reader.
        """
        self.loaded = wall()
        self.parsed.for_reading()
        self.parsed = self.parsed.with_latest_schemas()
        return columns.ddl(self.parsed) if self.parsed.formats else columns.full_schema(self.parsed)

    @kafka_option_names_in_errors()
    def reader(self, schema: StructType) -> KprotoReader:
        """Return the reader of ``spark.read``."""
        from .reader import KprotoReader

        return KprotoReader(schema, self.parsed.with_latest_schemas(), self.loaded)

    def streamReader(self, schema: StructType) -> KprotoStreamReader | FailedStreamReader:
        """Return the reader of ``spark.readStream``.

        Errors are raised by the returned reader when the query starts: ConfigError for invalid options, and
        MissingExtra if Spark is older than 4.2. Such a Spark passes no start offset to Python sources.
        """
        try:
            with _requires_pyspark("4.2", "a kproto stream"):
                from .stream import KprotoStreamReader
            return KprotoStreamReader(schema, self.parsed.with_latest_schemas())
        except KprotoError as error:
            return FailedStreamReader(error)

    @kafka_option_names_in_errors()
    def writer(self, schema: StructType, overwrite: bool) -> KprotoWriter:
        """Return the writer of ``df.write``, which needs ``.mode("append")``."""
        with _requires_pyspark("4.1", "writing to kproto"):
            from .writer import KprotoWriter

        return KprotoWriter(schema, self.parsed, overwrite)

    @kafka_option_names_in_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> KprotoStreamWriter:
        """Return the writer of ``df.writeStream``."""
        with _requires_pyspark("4.1", "writing to kproto"):
            from .writer import KprotoStreamWriter

        return KprotoStreamWriter(schema, self.parsed, overwrite)
