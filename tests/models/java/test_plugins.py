"""If an interceptor raises an exception, the next interceptor is still called (ConsumerInterceptors)."""

from __future__ import annotations

from collections.abc import Mapping

from kproto.group.subscription import TopicPartition
from kproto.models.contract import ModelAction, ModelRecord, Notify
from kproto.models.java.plugins import on_commit, on_consume

T0 = TopicPartition("t", 0)


class Tap:
    """An interceptor that removes the last record, or raises an exception."""

    def __init__(self, why: str = "") -> None:
        self.why = why
        self.commits: list[Mapping[TopicPartition, int]] = []

    def on_consume(self, records: tuple[ModelRecord, ...]) -> tuple[ModelRecord, ...]:
        if self.why:
            raise ValueError(self.why)
        return records[:-1]

    def on_commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.why:
            raise ValueError(self.why)
        self.commits.append(offsets)


def test_an_exception_of_an_interceptor_is_logged_and_the_next_one_is_called() -> None:
    records = tuple(ModelRecord(T0, offset, 0, None, None) for offset in range(3))
    first, broken, last = Tap(), Tap("broken"), Tap()
    out: list[ModelAction] = []
    assert on_consume((first, broken, last), records, out) == records[:1]
    on_commit((first, broken, last), {T0: 3}, out)
    assert out == [
        Notify("log", "WARN", "Error executing interceptor onConsume callback: broken"),
        Notify("log", "WARN", "Error executing interceptor onCommit callback: broken"),
    ]
    assert first.commits == last.commits == [{T0: 3}]
