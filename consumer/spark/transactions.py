"""Writes each task's rows exactly once, in one transaction with a marker of the batch.

The marker is a committed offset, not one of Kafka's transaction markers. A task that runs again reads the
marker, and so does not write its rows of this batch a second time.

A consumer with ``isolation.level=read_committed`` reads either all rows that a task writes for a batch, each
row once, or none of them. This holds even if the task runs again because of speculative execution, the loss
of an executor, or a restart of the driver from its checkpoint.

A repeated batch must have the same rows in each partition. Spark ensures this if the query depends only on
its input, and if its partitioning does not change. The partitioning depends on
``spark.sql.shuffle.partitions``, minPartitions, maxRecordsPerPartition and the query itself.

The tasks of a batch commit one by one, so the rows of some tasks may be visible before the rows of others.

Rules:

* The transactional id is PREFIX-QUERY-PARTITION, so each task of a query has its own. A new attempt of a task
  fences the earlier attempts. If two attempts write the same rows at the same time, one of them fails.

* The marker is the number of the last written batch. It is committed as an offset for partition 0 of the
  topic, in a group whose id is the transactional id, and in the same transaction as the rows.

* A task reads the marker after it has fenced earlier attempts, so no earlier attempt can still change the
  marker.

* The marker's metadata contains the number of rows. If a repeated batch has a different number of rows, its
  rows have changed, and a warning is logged. This is not an error, because a query may select rows at random.

* A query is identified by the id in its checkpoint. A query that starts from a restored copy of a checkpoint
  needs a different PREFIX. Otherwise it would skip the batches after the restored state, because they are
  already marked as written.

* A marker expires like any committed offset: ``offsets.retention.minutes`` (by default a week) after its
  commit. If a query is killed during a batch and restarts after the marker has expired, it writes the rows of
  this batch again.

* A batch query counts as a query with one batch. The rows of each of its tasks are written atomically, and
  only once. If the job fails, the rows of its finished tasks remain.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from pyspark import TaskContext

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from ..blocking.producer import Producer
from ..engine.requests import CommittedOffset
from ..producer_options import ProducerConfig
from .arrow import RecordBatch
from .offset_reader import connect
from .options import Options

log = logging.getLogger(__name__)

OPTION = "transactionalIdPrefix"
# The properties that the driver sets for each batch: StreamExecution.QUERY_ID_KEY and
# MicroBatchExecution.BATCH_ID_KEY.
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
# The transaction timeout: 15 minutes, the brokers' default of transaction.max.timeout.ms. The default of
# Kafka's producer, one minute, is too short, because a task may compute for longer.
TIMEOUT_MS = 15 * 60_000


class Task(NamedTuple):
    """A task: one partition of one batch. Its rows are written once.

    `id` is both the transactional id and the group id.
    """

    id: str
    batch: int


def task(prefix: str, job: str | None) -> Task:
    """Return the task that this process runs.

    The task belongs to the batch query `job` or, if `job` is None, to a streaming query.

    Raises ConfigError if the code does not run in a task, or if Spark does not provide the task's ids.
    """
    context = TaskContext.get()
    if context is None:
        raise ConfigError(OPTION, prefix, "it works only in a Spark task, and this process does not run one")
    if job is not None:
        return Task(f"{prefix}-{job}-{context.partitionId()}", 0)
    query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
    if query is None or batch is None:
        raise ConfigError(
            OPTION,
            prefix,
            f"this version of Spark does not give its tasks the ids of their query ({QUERY}) and batch "
            f"({BATCH})",
        )
    return Task(f"{prefix}-{query}-{context.partitionId()}", int(batch))


def write(
    task: Task,
    options: Options,
    config: ProducerConfig,
    batches: Iterator[RecordBatch],
    send: Callable[[Producer, RecordBatch], None],
) -> bool:
    """Write the rows of a task, unless its committed marker says that they are already written.

    `send` is called for each Arrow batch. Returns whether rows were written.
    """
    first_batch = next((batch for batch in batches if batch.num_rows), None)
    if first_batch is None:
        return False
    assert options.topic is not None
    marker_partition = TopicPartition(options.topic, 0)
    config = config.copy()
    config["transactional_id"] = task.id
    producer = Producer(options.bootstrap_servers, **config)
    row_count = 0
    try:
        with producer.transaction():
            marker = _find_marker(task, options, marker_partition)
            for batch in chain([first_batch], batches):
                row_count += batch.num_rows
                # Spark expects a writer to read all rows, so the iterator is consumed even if the rows are
                # already written.
                if marker is None:
                    send(producer, batch)
            if marker is not None:
                log.warning("%s: batch %d is written already", task.id, task.batch)
                _warn_of_different_rows(task, marker, row_count)
                return False
            metadata = f"batch {task.batch} is written: {row_count} rows"
            producer.send_offsets(task.id, {marker_partition: (task.batch, metadata)})
    except BaseException:
        producer.kill()
        raise
    producer.close()
    return True


def _find_marker(task: Task, options: Options, marker_partition: TopicPartition) -> CommittedOffset | None:
    """Return the committed marker if it is for this batch or a later one, or else None."""
    with connect(options) as cluster:
        marker = cluster.committed_offsets(task.id, [marker_partition], require_stable=True)[marker_partition]
    return marker if marker is not None and marker.offset >= task.batch else None


def _warn_of_different_rows(task: Task, marker: CommittedOffset, row_count: int) -> None:
    """Log a warning if the task's number of rows differs from the number in the batch's marker."""
    match = re.search(r": (\d+) rows$", marker.metadata or "")
    if marker.offset == task.batch and match is not None and int(match[1]) != row_count:
        log.warning(
            "%s: batch %d was written with %s rows, and has %d now. If its partitions changed "
            "(minPartitions, maxRecordsPerPartition, spark.sql.shuffle.partitions, the query), some of "
            "its rows are missing or duplicated",
            task.id,
            task.batch,
            match[1],
            row_count,
        )
