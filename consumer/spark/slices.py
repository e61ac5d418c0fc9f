"""What a task reads: planned on the driver, taken to an executor.

Spark plans a batch once, at its first action, and keeps the plan for later ones. So where a batch ends with
its logs, tasks have to know whether the plan was made for their action: then its ends hold, and what Spark
computes again, as an executor was lost, gives the same rows. (Of a shuffle whose rows changed Spark 4.2 ends
the job, and older ones lose rows and double others.) Spark 4.2 and newer tell: the id of an action is a UUID
that begins with the time.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition

from .offsets import Range

# SQLExecution.EXECUTION_ID_KEY and QUERY_ID_KEY: the driver sets them for each action on a DataFrame.
EXECUTION, QUERY = "spark.sql.execution.id", "spark.sql.execution.query.id"


class Plan(NamedTuple):
    """When a batch was loaded, and when its ends were looked up, in ms since 1970 by the driver's clock."""

    loaded: int
    made: int

    def is_of_this_action(self) -> bool:
        """Whether the action whose task this is began after `load()`, and before the plan.

        To collect what `load()` returned itself is an action that began before, whenever it does: it looks
        anew, and may, as there is no shuffle in it. A job on `df.rdd` has no id. Before Spark 4.2 no action
        has a time: then the plan is that of all.
        """
        context = TaskContext.get()
        if context is None or context.getLocalProperty(EXECUTION) is None:
            return False
        began = _time(context.getLocalProperty(QUERY))
        return began is None or self.loaded < began <= self.made


class Slice(InputPartition):
    """One task's part of a batch; `plan` is that of a batch which is no stream's."""

    def __init__(self, range_: Range, plan: Plan | None = None) -> None:
        super().__init__(range_)
        self.range = range_
        self.plan = plan

    def __repr__(self) -> str:
        return f"Slice({self.range})"


def _time(id_: str | None) -> int | None:
    """When a UUID of version 7 was made, in ms since 1970."""
    try:
        found = UUID(id_ or "")
    except ValueError:
        return None
    return found.int >> 80 if found.version == 7 else None
