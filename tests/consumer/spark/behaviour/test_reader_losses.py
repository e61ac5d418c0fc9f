"""A batch whose offsets or records are no longer in the logs raises DataLoss. With failOnDataLoss=false, it
logs a warning instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from consumer.spark.offset_reader import OffsetReader
from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.errors import RequestTimedOut
from tests.consumer.spark.reader_stage import T0, failure, offsets, table
from tests.consumer.spark.stage import HOUR, Filled


def test_an_end_before_the_start_of_the_log_is_data_loss_or_reads_nothing(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    filled.topic("t", 9, 9)
    filled.delete_before(T0, 7)
    end, message = '{"t": {"0": 5, "1": 4}}', "the log of t-0 begins at 7, after the requested end, 5"
    assert message in str(failure(filled, endingOffsets=end))
    assert offsets(filled, endingOffsets=end, failOnDataLoss="false") == [(1, 0, 3)]
    assert caplog.messages == [f"failOnDataLoss=false: {message}"]
    # A batch that requests no record of t-0 raises no error.
    assert offsets(filled, endingOffsets='{"t": {"0": 0, "1": 4}}') == [(1, 0, 3)]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (1, "the log of t-0 begins at 2, after the requested start, 1"),
        (7, "startingOffsets says 7 for t-0, whose log is from 2 to 5"),
    ],
)
def test_a_start_outside_of_its_log_is_data_loss_or_a_warning(
    filled: Filled, start: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled.topic("t", 5, 5)
    filled.delete_before(T0, 2)
    starts = f'{{"t": {{"0": {start}, "1": 3}}}}'
    assert message in str(failure(filled, startingOffsets=starts))
    read = [] if start == 7 else [(0, 2, 4)]
    assert offsets(filled, startingOffsets=starts, failOnDataLoss="false") == [*read, (1, 3, 4)]
    assert caplog.messages == [f"failOnDataLoss=false: {message}"]


def test_a_log_that_changes_during_the_lookup_is_no_data_loss(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.topic("t", 9)

    def meanwhile(name: str, act: Callable[[], None]) -> None:
        """Change the log once, after the first call of this `OffsetReader` method has returned."""
        request, acts = getattr(OffsetReader, name), [act]

        def request_and_act(*arguments: Any, **more: Any) -> Any:
            answer = request(*arguments, **more)
            for act in acts:
                act()
            acts.clear()
            return answer

        monkeypatch.setattr(OffsetReader, name, request_and_act)

    meanwhile("starts", lambda: filled.delete_before(T0, 4))
    assert offsets(filled) == [(0, 4, 8)]
    meanwhile("view", lambda: filled.put("t", 0, 3, at=HOUR + 100))
    assert offsets(filled, endingTimestamp=HOUR + 102) == [(0, 4, 8)]
    meanwhile("view", lambda: filled.put("t", 0, 3, at=HOUR + 200))
    assert offsets(filled, startingTimestamp=HOUR + 201, endingOffsets='{"t": {"0": 12}}') == []


@pytest.mark.parametrize("fail", ["true", "false"])
def test_an_offset_inside_its_log_survives_a_wrong_out_of_range_error(fail: str) -> None:
    """After a wrong OFFSET_OUT_OF_RANGE, the read must not skip the remaining records of its range.

    A new leader may return this error for an offset that is inside its log.
    """
    with running(topics={}) as server:
        filled = Filled(server.bootstrap)
        with filled.cluster:
            filled.topic("t", 5)
            server.fail("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE, 2)
            assert offsets(filled, failOnDataLoss=fail) == [(0, 0, 4)]
            server.fail("Fetch", ErrorCode.OFFSET_OUT_OF_RANGE, 1000)
            message = (
                "t-0 at offset 0, .*OFFSET_OUT_OF_RANGE, although the log is from 0 to 5; "
                "see kafkaConsumer.poll"
            )
            with pytest.raises(RequestTimedOut, match=message):
                table(filled, failOnDataLoss=fail, kafkaConsumer_pollTimeoutMs=2_000)
