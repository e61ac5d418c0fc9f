"""The work of one task, planned on the driver and pickled for an executor.

Spark plans a batch once, at its first action, and reuses the plan for later actions. For a batch that reads
to the end of each log, this has two consequences:

* A later action must read to the current ends, so its tasks look up the ends again.

* The first action must read to the planned ends. If Spark loses an executor and recomputes a range, the range
  must contain the same rows as before. If the rows differ, Spark 4.2 fails the job, and older versions lose
  and duplicate rows.

A task determines whether the plan was made for its own action. In Spark 4.2 and newer, an action's id is a
UUID that begins with its time. The task compares this time with the time of the plan.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from .ranges import Range

# The properties that the driver sets for each action on a DataFrame: SQLExecution.EXECUTION_ID_KEY and
# QUERY_ID_KEY.
EXECUTION, QUERY = "spark.sql.execution.id", "spark.sql.execution.query.id"


class Plan(NamedTuple):
    """The times of `load()` and of planning, in ms since 1970 by the driver's clock."""

    loaded: int
    planned: int

    def is_of_this_action(self) -> bool:
        """Return whether the current task's action began between `load()` and the end of planning.

        The action's time is taken from its id. For an action directly on the DataFrame that `load()`
        returned, such as `collect`, the id contains the creation time of the DataFrame instead. This time is
        not after `loaded`, so the result is False, and tasks look up the ends again.

        Such tasks may safely look up the ends again: the action has no shuffle, so Spark never recomputes a
        range whose rows it has already received.

        The result is False for a job on `df.rdd`, because such a job has no id. Before Spark 4.2, ids contain
        no time. There the result is True for every action with an id, so every such action reads to the ends
        of the plan.
        """
        context = TaskContext.get()
        if context is None or context.getLocalProperty(EXECUTION) is None:
            return False
        action_time = _uuid7_time(context.getLocalProperty(QUERY))
        return action_time is None or self.loaded < action_time <= self.planned


class Slice(InputPartition):
    """The range of a partition that one task reads.

    `plan` contains the times at which the batch was loaded and planned. In a stream `plan` is None.
    """

    def __init__(self, range_: Range, plan: Plan | None = None) -> None:
        super().__init__(range_)
        self.range = range_
        self.plan = plan

    def __repr__(self) -> str:
        return f"Slice({self.range})"


def _uuid7_time(id_: str | None) -> int | None:
    """Return the time (ms since 1970) in a UUID of version 7, or None for any other id."""
    try:
        uuid = UUID(id_ or "")
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == 7 else None
