"""``format("kproto")``: Kafka in Spark without a jar. The options are in `options`, the columns in
`schema`.

Spark starts a process for each thing that it does here: for what the others do nothing is imported, as who
starts a stream waits for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kproto.errors import ConfigError, KprotoError, MissingExtra

from ..clock import wall
from . import schema as columns
from .options import parse
from .security import said_in_kafkas_words
from .worker_output import only_the_sentence

if TYPE_CHECKING:
    from .reader import KprotoReader
    from .stream import KprotoStreamReader
    from .writer import KprotoStreamWriter, KprotoWriter


@contextmanager
def _since(version: str, what: str) -> Generator[None]:
    """What an older PySpark lacks is said in one sentence."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("pyspark."):
            raise
        raise MissingExtra(what, f"PySpark {version} or newer", "spark") from None


class Refused(DataSourceStreamReader):
    """Raises when it is first asked something: until a reader is there, the process that plans streams
    answers an error with one of its own (``cannot access local variable 'reader'``).
    """

    def __init__(self, error: KprotoError) -> None:
        self.error = error

    @said_in_kafkas_words()
    def initialOffset(self) -> dict[str, object]:
        raise self.error

    @said_in_kafkas_words()
    def latestOffset(self) -> dict[str, object]:  # type: ignore[override]
        """What a new query is asked for first, without a start."""
        raise self.error

    @said_in_kafkas_words()
    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """What a query is asked for first that repeats its last batch."""
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        raise self.error


class KprotoDataSource(DataSource):
    """Spark makes one for every ``load()``, ``save()`` and ``start()``. Raises ConfigError for a wrong
    option.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.loaded = 0
        try:
            self.parsed = parse(options)
        except ConfigError as error:
            # Spark shows the whole way through our code, longer than what is wrong.
            only_the_sentence()
            raise error.with_traceback(None) from None

    @classmethod
    def name(cls) -> str:
        """The name for ``format``. (``kafka`` is reserved by Spark for its own.)"""
        return "kproto"

    @said_in_kafkas_words()
    def schema(self) -> StructType | str:
        """All columns; a schema given by the user takes its place. What a registry says of them holds for the
        queries on what was loaded: Spark takes this very source to whoever reads.
        """
        self.loaded = wall()
        self.parsed.for_reading()
        self.parsed = self.parsed.with_latest_schemas()
        return columns.ddl(self.parsed) if self.parsed.formats else columns.full(self.parsed)

    @said_in_kafkas_words()
    def reader(self, schema: StructType) -> KprotoReader:
        """For ``spark.read``."""
        from .reader import KprotoReader

        return KprotoReader(schema, self.parsed.with_latest_schemas(), self.loaded)

    def streamReader(self, schema: StructType) -> KprotoStreamReader | Refused:
        """For ``spark.readStream``. What is wrong with the options of a stream ends the query, as
        does a Spark before 4.2, whose sources know no start (MissingExtra).
        """
        try:
            with _since("4.2", "a stream of kproto"):
                from .stream import KprotoStreamReader
            return KprotoStreamReader(schema, self.parsed.with_latest_schemas())
        except KprotoError as error:
            return Refused(error)

    @said_in_kafkas_words()
    def writer(self, schema: StructType, overwrite: bool) -> KprotoWriter:
        """For ``df.write``; say ``.mode("append")``."""
        with _since("4.1", "writing to kproto"):
            from .writer import KprotoWriter

        return KprotoWriter(schema, self.parsed, overwrite)

    @said_in_kafkas_words()
    def streamWriter(self, schema: StructType, overwrite: bool) -> KprotoStreamWriter:
        """For ``df.writeStream``."""
        with _since("4.1", "writing to kproto"):
            from .writer import KprotoStreamWriter

        return KprotoStreamWriter(schema, self.parsed, overwrite)
