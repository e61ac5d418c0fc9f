"""A task reads to the planned end offsets unless its properties show another Spark action, or none."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import StructType

from consumer.clock import wall
from consumer.spark.schema import full_schema
from consumer.spark.slices import EXECUTION, QUERY, Plan, Slice
from consumer.spark.source import KprotoDataSource
from tests.consumer.spark.reader_stage import read_offsets, reader
from tests.consumer.spark.stage import Filled


@pytest.fixture
def action() -> Iterator[Callable[..., None]]:
    """Give this process a task as in a Spark worker. Yield a function that sets the task's Spark action."""
    before, TaskContext._taskContext = TaskContext._taskContext, None
    context: Any = TaskContext._getOrCreate()

    def of(began: int | None, **properties: str) -> None:
        id_ = {} if began is None else {QUERY: str(UUID(int=began << 80 | 7 << 76 | 2 << 62))}
        context._localProperties = {EXECUTION: "0", **id_, **properties}

    yield of
    TaskContext._taskContext = before


def test_the_planned_action_always_reads_the_planned_ranges(
    filled: Filled, action: Callable[..., None]
) -> None:
    filled.topic("t", 4)
    planned = reader(filled)
    action(wall())
    slices = planned.partitions()
    for _ in range(2):
        assert read_offsets(planned, slices) == [(0, n) for n in range(4)]
        filled.put("t", 0, 1)
    action(wall() + 1)
    assert read_offsets(planned, slices) == [(0, n) for n in range(6)]


def test_a_plan_applies_to_actions_that_begin_between_load_and_plan(action: Callable[..., None]) -> None:
    plan = Plan(100, 200)
    for began, applies in ((99, False), (100, False), (101, True), (200, True), (201, False)):
        action(began)
        assert plan.is_of_this_action() is applies


def test_a_plan_applies_to_actions_whose_time_is_unknown(
    action: Callable[..., None],
) -> None:
    action(None)
    assert Plan(100, 200).is_of_this_action()
    action(None, **{QUERY: "an older kind"})
    assert Plan(100, 200).is_of_this_action()


def test_a_job_outside_of_an_action_looks_up_its_ends(action: Callable[..., None]) -> None:
    action(None)
    TaskContext._getOrCreate()._localProperties = {}
    assert not Plan(100, 200).is_of_this_action()


def test_the_time_of_load_is_passed_to_the_plan(filled: Filled) -> None:
    filled.topic("t", 1)
    source = KprotoDataSource(filled.options())
    with_schema = source.reader(full_schema(source.parsed))
    schema = source.schema()
    assert isinstance(schema, StructType)
    without_schema = pickle.loads(pickle.dumps(source)).reader(schema)
    [first], [second] = with_schema.partitions(), without_schema.partitions()
    assert isinstance(first, Slice)
    assert isinstance(second, Slice)
    assert first.plan is not None
    assert second.plan is not None
    assert first.plan.loaded == 0 < second.plan.loaded <= second.plan.planned
