"""RecordAccumulator stores records compactly, and its batches have the expected bytes."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from threading import RLock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.engine.producer.accumulator import (
    BATCH_OVERHEAD,
    HEADER_OVERHEAD,
    INITIAL_BATCH_BYTES,
    RECORD_OVERHEAD,
    RecordAccumulator,
)
from consumer.engine.producer.batches import NO_BATCH, ProducerBatch, split_batch
from consumer.engine.timeouts import SENDER_WAKEUP_MS
from consumer.options import producer_options
from kproto.errors import BrokerError, IllegalState
from kproto.records.builder import UnnumberedBatch
from kproto.records.list_encoder import unnumbered

pytestmark = pytest.mark.usefixtures("fast_collections")

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
# The integers are distinct objects even for equal timestamps, as if the clock were read for each record.
MOMENTS = [10**12 + ms for ms in (0, 0, 0, 1, 2, 500, 3)]

ROWS = st.tuples(
    st.sampled_from(MOMENTS),
    st.sampled_from([None] * 5 + [b"k"]),
    st.sampled_from([b"v", b"w", b"longer"] * 3 + [None]),
    st.sampled_from([()] * 5 + [(("h", b"x"),)]),
)


def accumulator(**config: Any) -> RecordAccumulator:
    records = RecordAccumulator(producer_options({**config}), Random(1), lambda: 0, RLock())
    records.set_route("t", 1, [0])
    return records


def put(records: RecordAccumulator, row: Row) -> ProducerBatch:
    timestamp, key, value, headers = row
    delivery = records.append("t", key, value, None, timestamp, headers)
    assert delivery is not None
    assert delivery._index == delivery._batch.count - 1
    return delivery._batch


def holds_rows(batch: ProducerBatch, rows: list[Row]) -> bool:
    """Return whether the batch has the same bytes as a batch that is encoded from these rows."""
    batch.encode("none", None)
    timestamps, keys, values, headers = map(list, zip(*rows, strict=True))
    return (list(batch.timestamps), batch.data) == (
        timestamps,
        unnumbered(timestamps, keys, values, headers).numbered(-1, -1, -1),
    )


@given(st.lists(ROWS, min_size=1, max_size=300))
def test_a_batch_holds_its_records_however_they_were_kept(rows: list[Row]) -> None:
    records = accumulator()
    (batch,) = {put(records, row) for row in rows}
    assert holds_rows(batch, rows)


@pytest.mark.parametrize("last", [(), (("h", b"x"),)])
def test_values_with_few_timestamps_are_kept_without_rows(last: Any) -> None:
    """Records with few timestamps and no keys or headers are stored as a list of values.

    The first record with a header makes the batch store all its records as rows.
    """
    records = accumulator()
    rows: list[Row] = [(MOMENTS[0], None, b"%d" % number, ()) for number in range(1000)]
    rows += [(MOMENTS[-1], None, b"1000", last)]
    (batch,) = {put(records, row) for row in rows}
    assert len(batch.rows) == (4 * len(rows) if last else len(rows))
    assert holds_rows(batch, rows)


def test_many_different_timestamps_are_kept_with_the_records() -> None:
    records = accumulator()
    rows: list[Row] = [(10**12 + number, None, b"x", ()) for number in range(100)]
    (batch,) = {put(records, row) for row in rows}
    assert batch.shared_timestamp is None
    assert len(batch.timestamp_runs) < 20
    assert holds_rows(batch, rows)


def test_a_batch_is_filled_up_to_batch_size() -> None:
    """A batch reserves memory in steps. The last step is smaller, so that the batch ends at batch_size."""
    row: Row = (MOMENTS[0], b"k", b"v" * (100 - RECORD_OVERHEAD - 1), ())
    records = accumulator(batch_size=BATCH_OVERHEAD + 82 * 100)
    batches = [put(records, row) for _ in range(83)]
    assert batches[81] is batches[0]
    assert batches[82] is not batches[0]


def test_a_full_buffer_seals_all_batches_and_frees_their_unused_memory() -> None:
    records = accumulator(buffer_memory=2 * INITIAL_BATCH_BYTES)
    records.set_route("t", 3, [0, 1, 2])
    first, second = (records.append("t", None, b"v", partition, 0, ()) for partition in (0, 1))
    assert first is not None
    assert second is not None
    assert records.append("t", None, b"v", 2, 0, ()) is None
    assert records.why_waiting == f"the buffer of {2 * INITIAL_BATCH_BYTES} bytes is full"
    assert first._batch.sealed
    assert second._batch.sealed
    assert records.append("t", None, b"v", 2, 0, ()) is not None


def test_while_tasks_wait_in_line_for_memory_only_they_receive_memory() -> None:
    records = accumulator()
    first = records.append("t", None, b"v", 0, 0, ())
    assert first is not None
    records.sends_in_line = 1
    large = b"v" * INITIAL_BATCH_BYTES
    assert records.append("t", None, large, 0, 0, ()) is None
    assert records.waits_for_memory
    records.end_batch(first._batch)
    assert records.append("t", None, b"v", 0, 0, ()) is None
    batch = unnumbered([0], [None], [b"v"], [()])
    assert records.append_batch("t", 0, batch, [0]) is None
    records.has_turn = True
    assert records.append_batch("t", 0, batch, [0]) is not None
    assert records.append("t", None, large, 0, 0, ()) is not None


@pytest.mark.parametrize("method", ["end_linger", "seal_all", "_on_buffer_full"])
@pytest.mark.parametrize("moment", range(1, 12))
def test_a_signal_handler_may_start_a_batch_while_batches_are_sealed(method: str, moment: int) -> None:
    records = accumulator()
    records.set_route("t", 3, [0, 1, 2])
    deliveries = [records.append("t", None, b"v", partition, 0, ()) for partition in (0, 1)]
    remaining = moment

    def interrupt(frame: Any, event: str, argument: Any) -> Any:
        nonlocal remaining
        remaining -= event == "line"
        if not remaining:
            sys.settrace(None)
            deliveries.append(records.append("t", None, b"v", 2, 0, ()))
        return interrupt if remaining else None

    previous = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with records.guard:
            getattr(records, method)()
    finally:
        sys.settrace(previous)
    for delivery in deliveries[:2]:
        assert delivery is not None
        assert delivery._batch.sealed or not delivery._batch.lingers


def test_a_full_buffer_lets_batches_grow_in_partitions_that_have_a_sealed_batch() -> None:
    """A full buffer seals only the open batches of partitions without a sealed batch.

    If all batches were sealed, they would become smaller each time that the buffer is full, and each record
    would cost more.
    """
    records = accumulator(buffer_memory=4 * INITIAL_BATCH_BYTES)
    records.set_route("t", 2, [0, 1])
    sealed = records.append("t", None, b"v" * INITIAL_BATCH_BYTES, 0, 0, ())
    assert sealed is not None
    records.seal(sealed._batch)
    growing = records.append("t", None, b"v", 0, 0, ())
    idle = records.append("t", None, b"v", 1, 0, ())
    assert growing is not None
    assert idle is not None
    assert records.append("t", None, b"v" * 2 * INITIAL_BATCH_BYTES, 0, 0, ()) is None
    assert records.waits_for_memory
    assert idle._batch.sealed
    assert not growing._batch.sealed
    again = records.append("t", None, b"v", 0, 0, ())
    assert again is not None
    assert again._batch is growing._batch


def test_a_flush_lets_the_sender_send_a_batch_that_still_accepts_records() -> None:
    """The flush does not seal the batch.

    If it did, concurrent tasks that each send a record and flush would send one record per batch.
    """
    records = accumulator()
    records.set_route("t", 1, [0])
    first = records.append("t", None, b"v", 0, 0, ())
    assert first is not None
    records.take_notifications()
    records.end_linger()
    assert records.needs_sender_now()
    records.take_notifications()
    second = records.append("t", None, b"v", 0, 0, ())
    records.end_linger()
    assert not records.needs_sender_now()
    assert second is not None
    assert second._batch is first._batch
    assert not first._batch.lingers


@pytest.mark.parametrize("character", ["a", "\u00e9", "\u20ac", "\U0001f600"])
def test_a_batch_is_not_larger_than_its_reserved_memory(character: str) -> None:
    """The reserved memory must suffice for characters with 1 to 4 bytes in UTF-8, here in a header's name."""
    records = accumulator()
    batch = put(records, (MOMENTS[0], None, b"v", ((character * 500, b"x"),)))
    records.seal(batch)
    reserved = batch.size
    batch.encode("none", None)
    assert len(batch.data or b"") <= reserved


class Clock:
    """An accumulator's clock, which a test sets."""

    def __init__(self) -> None:
        self.now = 5_000

    def __call__(self) -> int:
        return self.now


def test_an_error_of_a_topic_is_raised_by_all_sends_that_waited_for_it() -> None:
    clock = Clock()
    records = RecordAccumulator(producer_options({}), Random(1), clock, RLock())

    def send(seen_topic_errors: float) -> None:
        """Send as a call that began to wait after `seen_topic_errors` errors of topics.

        Infinity stands for a call that has not waited yet.
        """
        records.seen_topic_errors = seen_topic_errors
        assert records.append("t", None, b"v", None, 0, ()) is None
        assert records.why_waiting == "no metadata for topic 't' yet"
        assert not records.waits_for_memory

    new = math.inf
    error = IllegalState("no such topic")
    records.fail_waiting_sends("t", error)  # No send waits for the topic yet, so the error is dropped.
    assert records.topic_error_count == 0
    send(new)
    records.fail_waiting_sends("t", error)
    for _ in range(2):
        with pytest.raises(IllegalState, match="no such topic"):
            send(seen_topic_errors=0)
    # A later send requests the metadata again.
    send(new)
    send(seen_topic_errors=1)
    # After SENDER_WAKEUP_MS the error is dropped: by the next send, or when another topic fails.
    clock.now += SENDER_WAKEUP_MS + 1
    send(seen_topic_errors=0)
    assert records.topic_errors == {}
    records.fail_waiting_sends("t", error)
    clock.now += SENDER_WAKEUP_MS + 1
    records.fail_waiting_sends("another topic", error)
    assert records.topic_errors == {}


def test_new_metadata_of_a_topic_replaces_its_error() -> None:
    records = RecordAccumulator(producer_options({}), Random(1), Clock(), RLock())
    assert records.append("t", None, b"v", None, 0, ()) is None
    records.fail_waiting_sends("t", IllegalState("no such topic"))
    records.set_route("t", 1, [0])
    records.forget_topic("t")
    records.seen_topic_errors = 0
    assert records.append("t", None, b"v", None, 0, ()) is None
    assert records.why_waiting == "no metadata for topic 't' yet"


def test_a_record_larger_than_an_empty_buffer_is_accepted() -> None:
    records = accumulator(buffer_memory=1_000)
    first = put(records, (MOMENTS[0], None, b"v" * 5_000, ()))
    assert records.buffered_bytes == first.size == 5_000 + RECORD_OVERHEAD + BATCH_OVERHEAD
    assert records.append("t", None, b"v", None, 0, ()) is None
    assert records.waits_for_memory
    first.done = True
    records.end_batch(first)
    assert records.buffered_bytes == 0


def test_the_last_bytes_of_a_buffer_are_used() -> None:
    """A new batch reserves INITIAL_BATCH_BYTES if the buffer has at least so many free bytes.

    Otherwise the batch reserves only the bytes that its first record needs.
    """
    size = 100 + RECORD_OVERHEAD
    records = accumulator(buffer_memory=INITIAL_BATCH_BYTES + size + BATCH_OVERHEAD)
    records.set_route("t", 2, [0, 1])
    assert records.append("t", None, b"v" * 100, 0, 0, ()) is not None
    second = records.append("t", None, b"v" * 100, 1, 0, ())
    assert second is not None
    assert second._batch.size == size + BATCH_OVERHEAD
    assert records.buffered_bytes == INITIAL_BATCH_BYTES + size + BATCH_OVERHEAD
    assert records.append("t", None, b"v" * 100, 1, 0, ()) is None


def test_the_largest_record_is_that_of_max_request_size() -> None:
    records = accumulator(max_request_size=1_000)
    largest = 1_000 - RECORD_OVERHEAD - BATCH_OVERHEAD
    assert put(records, (MOMENTS[0], None, b"v" * largest, ())).count == 1
    with pytest.raises(BrokerError, match=rf"a record of {1_001 - BATCH_OVERHEAD} bytes for 't'"):
        accumulator(max_request_size=1_000).append("t", None, b"v" * (largest + 1), None, 0, ())


def test_a_batch_never_exceeds_max_request_size() -> None:
    records = accumulator(max_request_size=1_000)
    first = put(records, (MOMENTS[0], None, b"v" * 100, ()))
    with pytest.raises(BrokerError, match="max_request_size is 1000"):
        records.append("t", None, b"v" * 1_000, None, 0, ())
    for _ in range(20):
        put(records, (MOMENTS[0], None, b"v" * 100, ()))
    assert len(records.open_batches) > 1
    assert all(batch.size <= 1_000 for batch in records.open_batches)
    assert first.count > 1


def test_the_key_and_the_headers_count_as_bytes_of_a_record() -> None:
    records = accumulator()
    batch = put(records, (MOMENTS[0], b"k" * 7, b"v" * 11, (("name", b"x" * 5), ("n", None))))
    used = RECORD_OVERHEAD + 7 + 11 + (HEADER_OVERHEAD + 4 * 4 + 5) + (HEADER_OVERHEAD + 4)
    assert batch.size - batch.free_bytes == BATCH_OVERHEAD + used


def test_a_partition_check_stalled_after_a_second_beyond_linger_with_half_of_the_buffer_in_use() -> None:
    clock = Clock()
    options = producer_options({"linger_ms": 300, "buffer_memory": 4 * INITIAL_BATCH_BYTES})
    records = RecordAccumulator(options, Random(1), clock, RLock())
    records.set_route("t", 3, [0, 1, 2])
    first, second = (records.append("t", None, b"v" * 4_000, partition, 0, ()) for partition in (0, 1))
    assert first is not None
    assert second is not None
    records.seal_all()
    first._batch.queue.waiting.append(first._batch)
    clock.now += 1_300
    # Not more than half of the buffer is in use, so the next send is accepted.
    assert records.buffered_bytes <= 2 * INITIAL_BATCH_BYTES
    assert records.append("t", None, b"v" * 4_000, 0, 0, ()) is not None
    records.seal_all()
    assert records.append("t", None, b"v" * 4_000, 0, 0, ()) is None
    assert "t-0 has made no progress for 1300 ms, and half of the buffer" in records.why_waiting
    assert records.waits_for_memory
    clock.now -= 1
    assert not records._check_stalled(first._batch.queue)
    assert records.append("t", None, b"v", 2, 0, ()) is not None


def test_a_producer_without_a_sender_thread_is_notified_of_new_and_sealed_batches() -> None:
    """A notification makes an AsyncProducer run its engine. A record in an open batch gives the engine no
    work, so it causes no notification.
    """
    records = accumulator()
    assert not records.sender_notified
    first = put(records, (MOMENTS[0], None, b"v", ()))
    assert records.sender_notified
    # The batch waits for linger.ms, so the sender has nothing to send yet.
    assert not records.needs_sender_now()
    records.sender_notified = False
    assert put(records, (MOMENTS[0], None, b"v", ())) is first
    assert not records.sender_notified
    records.seal(first)
    assert records.sender_notified
    assert records.needs_sender_now()
    notifications = records.take_notifications()
    assert notifications is not None
    assert (notifications.new_batches, notifications.queues_to_visit) == ([first], [first.queue])
    assert records.take_notifications() is None
    assert records.append("unknown", None, b"v", None, 0, ()) is None
    assert records.needs_sender_now()


@pytest.mark.parametrize("key", [None, b"k"])
def test_a_record_goes_to_the_partition_that_the_send_names(key: bytes | None) -> None:
    records = accumulator()
    records.set_route("t", 4, [0, 1, 2, 3])
    for partition in range(4):
        delivery = records.append("t", key, b"v", partition, 0, ())
        assert delivery is not None
        assert delivery._batch.partition.partition == partition
    assert records.append("t", key, b"v", 4, 0, ()) is None
    assert records.why_waiting == "no metadata for t-4 yet"


def test_a_closed_accumulator_keeps_the_first_reason() -> None:
    records = accumulator()
    put(records, (MOMENTS[0], None, b"v", ()))
    for reason in ("the producer was closed", "another reason"):
        records.close(reason)
        records.set_route("t", 1, [0])
        with pytest.raises(IllegalState, match="the producer was closed"):
            records.append("t", None, b"v", None, 0, ())


def test_the_callbacks_of_a_batch_are_called_once_and_failures_without_one_are_counted() -> None:
    records = accumulator()
    batch = put(records, (MOMENTS[0], None, b"0", ()))
    for number in range(1, 4):
        assert put(records, (MOMENTS[0], None, b"%d" % number, ())) is batch
    called: list[str] = []
    assert records.add_callback(batch, 0, lambda: called.append("reports"))
    assert records.add_callback(batch, 1, lambda: called.append("observes"), is_known=False)
    batch.error = IllegalState("failed")
    callbacks = records.end_batch(batch)
    assert called == []
    for callback in callbacks:
        callback()
    assert called == ["reports", "observes"]
    assert not records.add_callback(batch, 2, lambda: called.append("too late"))
    assert (records.delivery_failures.count, records.delivery_failures.first_error) == (3, batch.error)
    for _ in range(2):
        records.mark_failure_known(batch, 3)
        records.mark_failure_known(batch, 0)
    assert records.take_failures().count == 2
    assert (records.take_failures().count, records.open_records, records.buffered_bytes) == (0, 0, 0)


def test_the_callbacks_of_a_split_batch_are_called_with_the_parts_of_their_records() -> None:
    records = accumulator()
    batch = put(records, (MOMENTS[0], None, b"0", ()))
    for number in range(1, 4):
        put(records, (MOMENTS[0], None, b"%d" % number, ()))
    called: list[int] = []
    for number in range(4):
        assert records.add_callback(batch, number, lambda number=number: called.append(number))
    records.seal(batch)
    batch.encode("none", None)
    parts, locations = split_batch(batch, [range(3), range(3, 4)])
    records.replace_split_batch(batch, parts, locations)
    assert list(records.open_batches) == parts
    assert (batch.callbacks, batch.data, batch.record_locations) == (None, None, locations)
    first, last = parts
    for part in (last, first):
        for callback in records.end_batch(part):
            callback()
    assert called == [3, 0, 1, 2]
    assert (records.open_records, records.buffered_bytes) == (0, 0)


class SendingFinalizer:
    """Calls `send` in its finalizer, which the garbage collector may run at any allocation."""

    def __init__(self, send: Any) -> None:
        self.me, self.send = self, send

    def __del__(self) -> None:
        self.send()


@contextmanager
def collecting_often(objects: int) -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(objects)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.thorough if seed > 3 else []) for seed in range(20)]
)
def test_finalizers_may_send_during_a_send(seed: int) -> None:
    random = Random(seed)
    records = accumulator()
    sent: dict[tuple[ProducerBatch, int], Row] = {}

    def send(kinds: tuple[int, ...] = (0, 0, 0, 1)) -> None:
        key = (None, b"k")[random.choice(kinds)]
        row = 10**12 + random.randrange(3), key, b"%d" % random.randrange(1000), ()
        delivery = records.append("t", row[1], row[2], None, row[0], row[3])
        assert delivery is not None
        sent[delivery._batch, delivery._index] = row

    with collecting_often(seed % 10 + 1):
        for _ in range(400):
            for _ in range(random.randrange(4)):
                SendingFinalizer(send)
            send()
    gc.collect()
    (batch,) = {batch for batch, _ in sent}
    assert len(sent) == batch.count > 600
    rows = [sent[batch, index] for index in range(batch.count)]
    batch.encode("none", None)
    contents = [(record.key, record.value) for record in read(batch)]
    assert contents == [(key, value) for _, key, value, _ in rows]


class InterruptedTimestamps(list[tuple[int, int]]):
    """A batch's list of timestamp runs: series of records with the same timestamp.

    The first call of `append` calls `send` before it appends, like a signal handler that interrupts a send
    and sends a record itself.
    """

    def __init__(self, before: list[tuple[int, int]], send: Any) -> None:
        super().__init__(before)
        self.send = send

    def append(self, moment: tuple[int, int]) -> None:
        send, self.send = self.send, None
        if send is not None:
            send()
        super().append(moment)


def test_sends_may_interrupt_the_start_of_a_timestamp_run() -> None:
    records = accumulator()
    first, second, third, fourth = (10**12 + ms for ms in range(4))
    batch = put(records, (first, None, b"1", ()))

    def send() -> None:
        for moment, value in ((third, b"2"), (fourth, b"3"), (fourth, b"4")):
            put(records, (moment, None, value, ()))

    batch.timestamp_runs = InterruptedTimestamps(batch.timestamp_runs, send)
    put(records, (second, None, b"5", ()))
    batch.encode("none", None)
    assert [record.value for record in read(batch)] == [b"1", b"2", b"3", b"4", b"5"]
    assert {record.timestamp for record in read(batch)} <= {first, second, third, fourth}


def read(batch: ProducerBatch) -> list[Any]:
    from kproto.records import rows

    assert batch.data is not None
    return rows(batch.data)


# ---- whole batches


def test_the_number_of_partitions_of_an_unknown_topic_is_requested() -> None:
    records = accumulator()
    assert records.partition_count("t") == 1
    assert records.partition_count("u") is None
    assert records.has_notifications()
    assert records.why_waiting == "no metadata for topic 'u' yet"
    records.why_closed = "the producer is closed"
    with pytest.raises(IllegalState, match="the producer is closed"):
        records.partition_count("u")


def whole(*values: bytes) -> UnnumberedBatch:
    moments = [5] * len(values)
    return unnumbered(moments, [None] * len(values), list(values), [()] * len(values))


def test_a_whole_batch_follows_the_records_before_it() -> None:
    records = accumulator()
    records.set_route("t", 3, [0, 1, 2])
    first = put(records, (5, None, b"a", ()))
    queue = first.queue
    batch = records.append_batch("t", queue.partition.partition, whole(b"b", b"c"), [5, 5])
    assert batch is not None
    assert first.sealed
    assert queue.filling is NO_BATCH
    assert (batch.queue, len(batch), batch.sealed, batch.order > first.order) == (queue, 2, True, True)
    assert list(records.open_batches) == [first, batch]
    assert records.buffered_bytes == first.size + batch.size
    assert batch.deadline - batch.created == producer_options({}).delivery_timeout_ms


def test_a_whole_batch_without_a_partition_goes_to_the_sticky_one_which_then_changes() -> None:
    records = accumulator()
    records.set_route("t", 3, [0, 1, 2])
    partitions = [records.append_batch("t", None, whole(b"x" * 20_000), [5]) for _ in range(12)]
    chosen = [batch.partition.partition for batch in partitions if batch is not None]
    assert len(chosen) == 12
    assert set(chosen) == {0, 1, 2}
    assert records.append_batch("t", 1, whole(b"x"), [5]) is not None


def test_a_whole_batch_waits_for_metadata_and_memory() -> None:
    records = accumulator(buffer_memory=40_000)
    assert records.append_batch("u", None, whole(b"x"), [5]) is None
    assert "no metadata for topic 'u'" in records.why_waiting
    assert records.append_batch("t", 7, whole(b"x"), [5]) is None
    assert "no metadata for t-7" in records.why_waiting
    assert records.append_batch("t", 0, whole(b"x" * 50_000), [5]) is not None
    assert records.append_batch("t", 0, whole(b"x" * 50_000), [5]) is None
    assert records.waits_for_memory


def test_a_whole_batch_above_max_request_size_is_rejected() -> None:
    records = accumulator(max_request_size=100)
    batch = whole(b"x" * 100)
    with pytest.raises(BrokerError, match=rf"a batch of {len(batch)} bytes for 't'; max_request_size is 100"):
        records.append_batch("t", 0, batch, [5])
    exact = whole(b"x")
    assert accumulator(max_request_size=len(exact)).append_batch("t", 0, exact, [5]) is not None
