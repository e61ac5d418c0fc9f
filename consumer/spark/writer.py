"""``df.write.format("kproto")`` and ``df.writeStream.format("kproto")``: writes rows as records.

Rules, as in Spark's own sink unless a rule says otherwise:

* The column `value` is required. `key`, `topic`, `partition` and `headers` are written if they exist, and
  other columns are ignored.

* A column name with capital letters is accepted unless another column has the name in lowercase. Spark's own
  sink ignores every column whose name has capital letters.

* Keys and values are strings or binary. A null value is a tombstone.

* The option `topic` takes precedence over the column. If `partition` is null, the murmur2 hash of the key
  selects the partition. Rows with neither a partition nor a key go to any partition.

* A wrong column, type or mode raises an error before anything is written. A query that has no option `topic`
  also raises an error if it has no column `topic`. A row fails its task if its topic is null, or names no
  topic of the cluster (see ``kafka.allow.auto.create.topics``).

* Without ``transactionalIdPrefix``, delivery is at least once: a retried task writes its rows again, and the
  rows of a failed task remain. A task ends when every record has been acknowledged.

* With ``transactionalIdPrefix``, delivery is exactly once (see `transactions`).

* Batch writes need ``.mode("append")``, because Spark rejects its own default mode, ``errorifexists``, for
  all Python sinks.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, TypeAlias, cast
from uuid import uuid4

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from kproto.errors import BrokerError, ConfigError, NotDelivered, RequestTimedOut, UnknownTopic

from ..blocking.producer import Producer
from ..delivery import Delivery
from ..options import producer_options
from ..producer_options import ProducerConfig
from .arrow import RecordBatch
from .options import Options
from .schema import HEADERS
from .security import config_error_with_kafka_names, kafka_option_names_in_errors, with_kafka_names
from .transactions import OPTION, TIMEOUT_MS, task
from .transactions import write as write_once

pa: Any = pyarrow  # pyarrow is imported as Any, because it has no type stubs.
pc: Any = import_module("pyarrow.compute")
Table: TypeAlias = Any

_ALLOWED_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
}

# The ``kafka.*`` options that the producer supports, under Kafka's names. (The producer's own names have
# underscores instead of dots.)
_PRODUCER_OPTIONS = frozenset(name.replace("_", ".") for name in ProducerConfig.__annotations__)

_IN_FLIGHT_OPTION = "max_in_flight_requests_per_connection"

# The hints that are added to the error if a topic or a partition does not exist.
_TOPIC_HINT = "Create it first, or let the brokers do so: kafka.allow.auto.create.topics=true."
_PARTITION_HINT = "The column partition selects the partition. Where it is null, the key does."

_DELIVERY_HINT = "A record is retried for kafka.delivery.timeout.ms. Acknowledged records stay in the topic."

# As soon as a task holds this number of deliveries, the finished deliveries are checked and removed.
_MAX_UNCHECKED_DELIVERIES = 1_000


class KprotoWriter(DataSourceArrowWriter):
    """Writes a batch query."""

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("mode", "overwrite", 'kproto can only append to a topic; use .mode("append")')
        # The unique name of this job, which is the same in all attempts of its tasks.
        self.rows = RowWriter(schema, options.for_sink(), job=uuid4().hex)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, and wait until all of them are acknowledged."""
        return self.rows.write(iterator)


class KprotoStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream. The output mode does not matter: every row is written."""

    def __init__(self, schema: StructType, options: Options, overwrite: bool) -> None:
        self.rows = RowWriter(schema, options.for_sink())

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, and wait until all of them are acknowledged."""
        return self.rows.write(iterator)


class RowWriter:
    """Converts the rows of a schema to records. Raises ConfigError for a schema that cannot be written."""

    def __init__(self, schema: StructType, options: Options, job: str | None = None) -> None:
        self.options = options
        self.job = job
        self.columns = _column_indexes(schema, options)
        if "value" not in self.columns:
            names = ", ".join(schema.fieldNames())
            raise ConfigError("schema", names, "add a column named value, of type string or binary")
        if options.topic is None and "topic" not in self.columns:
            raise ConfigError("topic", None, "set the option topic, or add a column named topic")
        if options.transactional_id_prefix is not None and options.topic is None:
            reason = "set the option topic as well: the marker of written batches belongs to a topic"
            raise ConfigError(OPTION, options.transactional_id_prefix, reason)
        try:
            producer_options({**self.config, "transactional_id": options.transactional_id_prefix})
        except ConfigError as error:
            raise config_error_with_kafka_names(error, ProducerConfig.__annotations__) from None

    @property
    def config(self) -> ProducerConfig:
        """Return the producer's options."""
        producer_config = {
            name.replace(".", "_"): value
            for name, value in self.options.client.items()
            if name in _PRODUCER_OPTIONS
        }
        level = self.options.client.get(
            f"compression.{producer_config.get('compression_type', 'none')}.level"
        )
        if level is not None:
            producer_config["compression_level"] = level
        if "enable_idempotence" not in producer_config and producer_config.get("acks", "all") == "all":
            # If more than 5 requests may be in flight and enable.idempotence is not set, Java's producer
            # before Kafka 4.0 disables idempotence, and later ones raise an error. kproto's producer keeps
            # idempotence and limits the requests to 5, which preserves the order of records.
            producer_config[_IN_FLIGHT_OPTION] = min(
                5, self.options.number("max.in.flight.requests.per.connection", 5)
            )
        if self.options.transactional_id_prefix is not None:
            producer_config.setdefault("transaction_timeout_ms", TIMEOUT_MS)
        security_options = self.options.access.options
        return cast(ProducerConfig, {"client_id": "kproto-spark", **producer_config, **security_options})

    def write(self, batches: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, and wait until all are acknowledged.

        Raises the error of the first failed record, with Kafka's option names in its text.
        """
        with kafka_option_names_in_errors():
            try:
                return self._write(batches)
            except (BrokerError, RequestTimedOut, NotDelivered) as error:
                first_error = error.first if isinstance(error, NotDelivered) else error
                if isinstance(first_error, (BrokerError, RequestTimedOut)):
                    first_error.detail = with_kafka_names(first_error.detail, ProducerConfig.__annotations__)
                if isinstance(first_error, RequestTimedOut) and first_error.request == "Produce":
                    error.add_note(_DELIVERY_HINT)
                raise

    def _write(self, batches: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, in a transaction if the options contain a transactional id prefix.

        Without a transaction, an error closes the process's producer and discards its buffered records.
        """
        prefix = self.options.transactional_id_prefix
        if prefix is not None:
            write_once(task(prefix, self.job), self.options, self.config, batches, self._send_all)
            return WriterCommitMessage()
        producer = _shared_producer(self.options, self.config)
        try:
            deliveries: list[Delivery] = []
            for batch in batches:
                self._send(producer, batch, deliveries)
            producer.flush()
            _drop_finished(deliveries)
        except BaseException as error:
            if isinstance(error, UnknownTopic):
                partition_is_unknown = "partition" in self.columns and error.request == "Produce"
                error.add_note(_PARTITION_HINT if partition_is_unknown else _TOPIC_HINT)
            # Records that are still buffered belong to this failed task, and must not be sent with the rows
            # of the next task.
            _producers.pop(self.options.key, None)
            producer.kill()
            raise
        return WriterCommitMessage()

    def _send_all(self, producer: Producer, batch: RecordBatch) -> None:
        """Send an Arrow batch in the transaction. If a record fails, the commit raises its error."""
        self._send(producer, batch, [])

    def _send(self, producer: Producer, batch: RecordBatch, deliveries: list[Delivery]) -> None:
        """Send an Arrow batch as columns, and add the deliveries to `deliveries`.

        If `deliveries` becomes long, finished deliveries are removed. If one of these deliveries has failed,
        its error is raised.
        """
        record_columns = {
            name: batch.column(index) for name, index in self.columns.items() if name != "topic"
        }
        for topic, rows in self._rows_by_topic(batch, pa.table(record_columns)):
            deliveries += producer.send_columns(topic, rows)
        if len(deliveries) >= _MAX_UNCHECKED_DELIVERIES:
            _drop_finished(deliveries)

    def _rows_by_topic(self, batch: RecordBatch, rows: Table) -> Iterator[tuple[str, Table]]:
        """Yield each topic with its rows, which keep their order.

        `rows` has the columns of `batch` except `topic`. Raises ConfigError for a row without a topic.
        """
        if self.options.topic is not None:
            yield self.options.topic, rows
            return
        topics = batch.column(self.columns["topic"]).dictionary_encode()
        if topics.null_count:
            raise ConfigError(
                "topic", None, "a row has no topic; fill the column, or set the option topic for all rows"
            )
        names = topics.dictionary.to_pylist()
        for index, name in enumerate(names):
            yield name, rows if len(names) == 1 else rows.filter(pc.equal(topics.indices, index))


def _column_indexes(schema: StructType, options: Options) -> dict[str, int]:
    """Return the index of each column that is written, by its lower-case name.

    Raises ConfigError for a column of the wrong type, or for two columns of the same name.
    """
    columns: dict[str, int] = {}
    exact_names = set(schema.fieldNames())
    for index, column in enumerate(schema.fields):
        name = column.name.lower()
        allowed = _ALLOWED_TYPES.get(name)
        if allowed is None or (name == "topic" and options.topic is not None):
            continue
        if column.name != name and name in exact_names:
            continue  # Another column is named exactly `name`. Only that column is written.
        if name in columns:
            column_names = f"{schema.fields[columns[name]].name}, {column.name}"
            raise ConfigError(
                "schema", column_names, f"only one column can be named {name}; drop or rename the other"
            )
        type_names = [data_type.simpleString() for data_type in allowed]
        if column.dataType.simpleString() not in type_names:
            typed_column = f"{column.name} {column.dataType.simpleString()}"
            raise ConfigError("schema", typed_column, f"its type must be {' or '.join(type_names)}")
        columns[name] = index
    return columns


def _drop_finished(deliveries: list[Delivery]) -> None:
    """Remove finished deliveries from `deliveries`. Raises the error of a delivery that failed."""
    unfinished: list[Delivery] = []
    for delivery in deliveries:
        if not delivery.done():
            unfinished.append(delivery)
        elif (error := delivery.exception()) is not None:
            raise error
    deliveries[:] = unfinished


_producers: dict[tuple[object, ...], Producer] = {}


def _shared_producer(options: Options, config: ProducerConfig) -> Producer:
    """Return this process's producer. The first call creates it, and later tasks of the worker reuse it."""
    if options.key not in _producers:
        _producers[options.key] = Producer(options.bootstrap_servers, **config)
    return _producers[options.key]
