"""The application's plugins: interceptors and custom assignors.

`ModelConfig.extra` contains the plugins, under the names of Java's options "interceptor.classes" and
"partition.assignment.strategy".

* onConsume is the last step of poll, after the positions have advanced. Records that onConsume removes are
  committed as if the application had read them.

* onCommit runs for successful commits, before the commit's own callback.

* An exception that an interceptor raises is logged and ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ...group.assignors import Assignor
from ...group.subscription import TopicPartition
from ..contract import ModelAction, ModelRecord, Notify


class Interceptor(Protocol):
    """The methods of ConsumerInterceptor."""

    def on_consume(self, records: tuple[ModelRecord, ...]) -> tuple[ModelRecord, ...]: ...

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> object: ...


def _ignore_assignment(assigned: tuple[TopicPartition, ...], generation: int) -> None:
    """Do nothing. This is the onAssignment of assignors that do not define one."""


class CustomAssignor(Assignor, frozen=True):
    """A ConsumerPartitionAssignor of the application, with its own onAssignment.

    An exception that onAssignment raises is thrown from poll.
    """

    on_assignment: Callable[[tuple[TopicPartition, ...], int], object] = _ignore_assignment


def on_consume(
    interceptors: tuple[Interceptor, ...], records: tuple[ModelRecord, ...], out: list[ModelAction]
) -> tuple[ModelRecord, ...]:
    """Pass records through all interceptors in turn (ConsumerInterceptors.onConsume).

    If an interceptor raises an exception, the next interceptor gets the records that the last successful one
    returned.
    """
    for interceptor in interceptors:
        try:
            records = interceptor.on_consume(records)
        except Exception as error:
            out.append(Notify("log", "WARN", f"Error executing interceptor onConsume callback: {error}"))
    return records


def on_commit(
    interceptors: tuple[Interceptor, ...], offsets: Mapping[TopicPartition, int], out: list[ModelAction]
) -> None:
    """Report committed offsets to all interceptors (ConsumerInterceptors.onCommit)."""
    for interceptor in interceptors:
        try:
            interceptor.on_commit(offsets)
        except Exception as error:
            out.append(Notify("log", "WARN", f"Error executing interceptor onCommit callback: {error}"))
