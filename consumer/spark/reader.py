"""``spark.read.format("kproto")``: reads the records between two bounds as one batch.

Spark plans a batch once per ``load()``, at the first action. It reuses the plan for later actions, such as a
second `count`, or the next micro-batch of a stream that is joined with the batch.

The first action reads exactly the planned ranges, however often Spark recomputes them. The module `slices`
describes how a task determines whether the plan was made for the task's action.

In later actions (Spark 4.2 and newer), a task whose range extends to the end of the log looks up the current
end. So a later action also reads newer records, as with Spark's own source. If the range is the whole log and
the topic was re-created, the task reads the new log.

A later action does not read partitions that were added after the first action. If a task of a later action is
retried, it reads to the end of the log at the time of the retry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..clock import wall
from .offset_reader import OffsetReader, report_losses
from .options import Options
from .ranges import batch_ranges, split
from .schema import checked
from .security import kafka_option_names_in_errors
from .selection import LogEdge
from .slices import Plan, Slice

if TYPE_CHECKING:
    from .arrow import RecordBatch


class KprotoReader(DataSourceReader):
    """Reads a batch from startingOffsets (default: earliest) to endingOffsets (default: latest).

    `loaded` is the time (ms) at which ``load()`` requested the columns, or 0 if the user has passed a schema.
    """

    def __init__(self, schema: StructType, options: Options, loaded: int = 0) -> None:
        self.schema = checked(schema, options)
        self.options = options.for_batch()
        self.loaded = loaded

    def partitions(self) -> list[InputPartition]:
        """Return the slices that the batch reads. Raises UnknownTopic, ConfigError or DataLoss."""
        plan = Plan(self.loaded, wall())
        with kafka_option_names_in_errors():
            offset_reader = OffsetReader(self.options)
            try:
                view = offset_reader.view()
                starts = offset_reader.resolve(
                    self.options.starting or LogEdge("earliest"), "starting", view.ends
                )
                ends = offset_reader.resolve(self.options.ending or LogEdge("latest"), "ending", view.ends)
                log_starts = offset_reader.starts(view.ends)
            finally:
                offset_reader.close()
            ranges, losses = batch_ranges(
                starts.positions,
                ends.positions,
                log_starts,
                view.ends,
                view.ids,
                open_starts=starts.edges,
                open_ends=ends.edges,
                explicit_starts=starts.explicit,
                explicit_ends=ends.explicit,
            )
            report_losses(losses, self.options)
        max_records = self.options.max_records_per_partition
        return [
            Slice(range_, plan)
            for range_ in split(ranges, least=self.options.min_partitions, most_records=max_records)
        ]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield the records of one slice as Arrow batches. Runs on an executor."""
        from .partition_reader import read

        return read(partition, self.schema, self.options)
