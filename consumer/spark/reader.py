"""``spark.read.format("kproto")``: the records between two bounds, as one batch.

Spark plans a batch once per ``load()``, at the first action, and keeps the plan for the others: the second
`count`, or the next micro-batch of a stream that is joined with it. What the action reads for which it was
planned is what was planned, however often Spark computes a part of it again (`slices` has how a task knows).
For later ones it is left to each task where a batch begins or ends that does so with the log itself: they see
what there is by then, as with Spark's own source, also in a topic made anew; but no partition that came since
the first, and a task that is run again reads to the end of then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..clock import wall
from .offset_reader import Logs, lose
from .offsets import bounded, split
from .options import Options
from .schema import checked
from .security import said_in_kafkas_words
from .selection import Everywhere
from .slices import Plan, Slice

if TYPE_CHECKING:
    from .arrow import RecordBatch


class KprotoReader(DataSourceReader):
    """Reads from startingOffsets (earliest) to endingOffsets (latest). `loaded` is when ``load()`` asked for
    the columns, in ms; a user who gives them isn't asked.
    """

    def __init__(self, schema: StructType, options: Options, loaded: int = 0) -> None:
        self.schema = checked(schema, options)
        self.options = options.for_batch()
        self.loaded = loaded

    def partitions(self) -> list[InputPartition]:
        """The slices that the batch reads, as of now. Raises UnknownTopic, ConfigError, DataLoss."""
        plan = Plan(self.loaded, wall())
        with said_in_kafkas_words():
            logs = Logs(self.options)
            try:
                view = logs.view()
                starts = logs.resolve(self.options.starting or Everywhere("earliest"), "starting", view.ends)
                ends = logs.resolve(self.options.ending or Everywhere("latest"), "ending", view.ends)
                first = logs.starts(view.ends)
            finally:
                logs.close()
            whole, losses = bounded(
                starts.positions,
                ends.positions,
                first,
                view.ends,
                view.ids,
                open_starts=starts.edges,
                open_ends=ends.edges,
                given_starts=starts.given,
                given_ends=ends.given,
            )
            lose(losses, self.options)
        most = self.options.max_records_per_partition
        return [Slice(r, plan) for r in split(whole, least=self.options.min_partitions, most_records=most)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """The records of one slice as Arrow batches; runs on an executor."""
        from .partition_reader import read

        return read(partition, self.schema, self.options)
