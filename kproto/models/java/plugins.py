"""What an application brings into a KafkaConsumer beside a listener: interceptors, assignors of its own.

`Config.extra` holds them under Java's names, "interceptor.classes" and "partition.assignment.strategy".

* onConsume comes last in poll: positions stand behind the records already, so what it takes away is
  committed like what was read.
* onCommit hears of commits that were taken, before whoever asked for them does.
* An interceptor that raises is logged, and passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ...group.assignors import Assignor
from ...group.subscription import TopicPartition
from ..contract import ModelAction, ModelRecord, Notify


class Interceptor(Protocol):
    """ConsumerInterceptor."""

    def on_consume(self, records: tuple[ModelRecord, ...]) -> tuple[ModelRecord, ...]: ...

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> object: ...


def _ignore_assignment(assigned: tuple[TopicPartition, ...], generation: int) -> None:
    """What Kafka's own assignors do with it is kept by the machine."""


class CustomAssignor(Assignor, frozen=True):
    """ConsumerPartitionAssignor with an onAssignment of its own; what that raises, poll throws."""

    on_assignment: Callable[[tuple[TopicPartition, ...], int], object] = _ignore_assignment


def on_consume(
    interceptors: tuple[Interceptor, ...], records: tuple[ModelRecord, ...], out: list[ModelAction]
) -> tuple[ModelRecord, ...]:
    """ConsumerInterceptors.onConsume: each gets what the one before it left."""
    for one in interceptors:
        try:
            records = one.on_consume(records)
        except Exception as error:
            out.append(Notify("log", "WARN", f"Error executing interceptor onConsume callback: {error}"))
    return records


def on_commit(
    interceptors: tuple[Interceptor, ...], offsets: Mapping[TopicPartition, int], out: list[ModelAction]
) -> None:
    """ConsumerInterceptors.onCommit."""
    for one in interceptors:
        try:
            one.on_commit(offsets)
        except Exception as error:
            out.append(Notify("log", "WARN", f"Error executing interceptor onCommit callback: {error}"))
