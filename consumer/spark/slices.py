"""What a task reads: planned on the driver, taken to an executor."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from .offsets import Range


class Slice(InputPartition):
    """One task's part of a batch."""

    def __init__(self, range_: Range) -> None:
        super().__init__(range_)
        self.range = range_

    def __repr__(self) -> str:
        return f"Slice({self.range})"
