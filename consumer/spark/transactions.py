"""Writing what a task has in one transaction, together with a note that it is written.

What it promises: who reads committed records (``isolation.level=read_committed``) sees the rows of each task
of each batch of a stream all together or not at all, and once, also when the task is run again: by
speculation, after an executor was killed, or by a driver that goes on at its checkpoint. It takes for granted
that Spark gives a partition of a repeated batch the rows that it had, as it does while a query depends on
nothing but its input, and what cuts that into partitions is left alone: ``spark.sql.shuffle.partitions``,
minPartitions, maxRecordsPerPartition, the query itself. The tasks of a batch end one by one: for a while some
may be seen and others not. Rules:

* The transactional id is PREFIX-QUERY-PARTITION: one for each of a query's tasks. Whoever begins fences who
  had it before, so that of two who write the same one is refused.
* The note is an offset, the batch's number, of a group of the same name for partition 0 of the topic,
  committed in the same transaction. It is looked up in the transaction, after the fencing: what is there then
  is final.
* The note's text has the number of rows: where a repetition has another, what is taken for granted did not
  hold, and that is told; it is no error, as a query may draw lots for each row.
* A query is known by the id in its checkpoint. A checkpoint that is copied back needs another prefix: the
  batches that it would write again are noted as written.
* Notes are forgotten with the group's offsets, ``offsets.retention.minutes`` (a week) after the last one. A
  query that was killed inside of a batch and goes on later than that writes that batch's rows again.
* A batch that is no stream's is a query of its own, with one batch: each of its tasks is all or nothing, and
  once; the tasks of a job that failed stay written.
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
from ..options import ProducerConfig
from .arrow import RecordBatch
from .offset_reader import connect
from .options import Options

log = logging.getLogger(__name__)

OPTION = "transactionalIdPrefix"
# StreamExecution.QUERY_ID_KEY and MicroBatchExecution.BATCH_ID_KEY: the driver sets them for each batch.
QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
# Kafka's transaction.max.timeout.ms, and not its client's minute: a task writes for as long as it computes.
TIMEOUT_MS = 15 * 60_000


class Task(NamedTuple):
    """What is written once: a partition of a batch. `id` names the transactions and the group."""

    id: str
    batch: int


def task(prefix: str, job: str | None) -> Task:
    """The task that this process runs, of a stream or of a batch with the name `job`. Raises ConfigError
    where Spark doesn't say."""
    context = TaskContext.get()
    if context is None:
        raise ConfigError(OPTION, prefix, "it needs a task of Spark's, and this is none")
    if job is not None:
        return Task(f"{prefix}-{job}-{context.partitionId()}", 0)
    query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
    if query is None or batch is None:
        raise ConfigError(
            OPTION,
            prefix,
            f"this Spark doesn't tell its tasks which query ({QUERY}) and batch ({BATCH}) they are of",
        )
    return Task(f"{prefix}-{query}-{context.partitionId()}", int(batch))


def write(
    given: Task,
    options: Options,
    config: ProducerConfig,
    batches: Iterator[RecordBatch],
    send: Callable[[Producer, RecordBatch], None],
) -> bool:
    """Write a task's rows, unless they are written; returns whether they were not. `send` takes a batch."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return False
    assert options.topic is not None
    place = TopicPartition(options.topic, 0)
    config = config.copy()
    config["transactional_id"] = given.id
    producer = Producer(options.bootstrap_servers, **config)
    rows = 0
    try:
        with producer.transaction():
            noted = _noted(given, options, place)
            for batch in chain([first], batches):
                rows += batch.num_rows
                if noted is None:  # else Spark only wants to be rid of them
                    send(producer, batch)
            if noted is not None:
                log.warning("%s: batch %d is written already", given.id, given.batch)
                _told(given, noted, rows)
                return False
            note = f"batch {given.batch} is written: {rows} rows"
            producer.send_offsets(given.id, {place: (given.batch, note)})
    except BaseException:
        producer.kill()
        raise
    producer.close()
    return True


def _noted(given: Task, options: Options, place: TopicPartition) -> CommittedOffset | None:
    """The note of this batch, or of a later one."""
    with connect(options) as cluster:
        found = cluster.committed_offsets(given.id, [place])[place]
    return found if found is not None and found.offset >= given.batch else None


def _told(given: Task, noted: CommittedOffset, rows: int) -> None:
    """Say where a repetition has other rows than were written, as far as their number tells."""
    before = re.search(r": (\d+) rows$", noted.metadata or "")
    if noted.offset == given.batch and before is not None and int(before[1]) != rows:
        log.warning(
            "%s: batch %d was written with %s rows, and has %d now: if it is cut into other partitions than "
            "it was (minPartitions, maxRecordsPerPartition, spark.sql.shuffle.partitions, the query), some "
            "of its rows are missing or there twice",
            given.id,
            given.batch,
            before[1],
            rows,
        )
