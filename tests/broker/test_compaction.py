"""Compaction: a log keeps only the last value of each key (Kafka's LogCleaner)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kproto.broker import compaction
from kproto.broker.machine import CleanLogs
from kproto.broker.topics import Topic
from kproto.broker.transaction_index import AbortedTransactionRange
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import Batch, batches, encode_batch, rows
from kproto.records.batch import crc32c
from kproto.records.record import Record
from tests.broker.behaviour.stage import TransactionalProducer
from tests.broker.stage import Client, Stage, fetch_request, fetch_topic

POLICY = "compact"
Pair = tuple[str, str | None]


@pytest.fixture
def stage() -> Stage:
    return compacted_stage()


def compacted_stage() -> Stage:
    stage = Stage({"t": 1})
    stage.topic("t").configs["cleanup.policy"] = POLICY
    return stage


def set_configs(stage: Stage, **configs: object) -> Topic:
    topic = stage.topic("t")
    topic.configs.update({name.replace("_", "."): str(value) for name, value in configs.items()})
    return topic


def batch_of_pairs(now: int, pairs: Iterable[Pair], compression: str = "none", **fields: object) -> bytes:
    records = [
        Record(n, now, key.encode(), None if value is None else value.encode())
        for n, (key, value) in enumerate(pairs)
    ]
    return encode_batch(records, compression=compression, **fields)  # type: ignore[arg-type]


def write(client: Client, *pairs: Pair, compression: str = "none", **fields: object) -> None:
    batch = batch_of_pairs(client.stage.now, pairs, compression, **fields)
    assert client.produce(batch).error_code == 0


def records_of(stage: Stage) -> list[tuple[int, str, str | None]]:
    """Return the records of the log: offset, key and value."""
    log = stage.log("t")
    data = b"".join(log.read(log.start_offset, 1 << 30, at_least_one=True))
    return [
        (record.offset, record.key.decode(), None if record.value is None else record.value.decode())
        for record in rows(data)
        if record.key is not None
    ]


def test_the_last_value_of_each_key_keeps_its_offset(stage: Stage, client: Client) -> None:
    write(client, ("a", "1"), ("b", "1"), ("a", "2"))
    write(client, ("c", "1"), ("a", "3"))
    stage.step(CleanLogs())
    assert records_of(stage) == [(1, "b", "1"), (3, "c", "1"), (4, "a", "3")]
    assert (stage.log("t").start_offset, stage.log("t").end_offset) == (0, 5)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_compacted_batch_keeps_its_header(stage: Stage, client: Client, compression: str) -> None:
    write(client, ("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), compression=compression)
    write(client, ("c", "2"))
    stage.step(CleanLogs())
    first, second = stage.log("t").all_batches()
    assert (first.base_offset, first.last_offset, first.count, first.compression) == (0, 3, 2, compression)
    assert (second.base_offset, second.last_offset, second.count) == (4, 4, 1)
    assert first.crc_ok


def test_an_empty_batch_is_removed_and_a_fetch_skips_it(stage: Stage, client: Client) -> None:
    for value in "123":
        write(client, ("a", value))
    write(client, ("b", "1"))
    stage.step(CleanLogs())
    assert records_of(stage) == [(2, "a", "3"), (3, "b", "1")]
    for offset in (0, 1, 2):
        data = client.fetch(fetch_request(fetch_topic(offset))).responses[0].partitions[0]
        assert data.error_code == 0
        assert [record.offset for record in rows(data.records or b"")] == [2, 3]


def test_the_active_segment_is_not_compacted(stage: Stage, client: Client) -> None:
    """The active segment is not compacted by the periodic check. `CleanLogs` rolls it and then cleans it."""
    set_configs(stage, min_cleanable_dirty_ratio=0)
    for value in "123":
        write(client, ("a", value))
    stage.wait(60_000)
    stage.client()
    assert len(records_of(stage)) == 3
    stage.step(CleanLogs())
    assert records_of(stage) == [(2, "a", "3")]


def test_the_dirty_ratio_is_checked_at_every_backoff(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_ms=10)
    for value in "12345":
        stage.now += 20
        write(client, ("a", value))
    stage.now += 15_000
    stage.client()
    # The last record remains, because the active segment is not compacted.
    assert records_of(stage) == [(3, "a", "4"), (4, "a", "5")]
    # One of the two inactive segments is clean, so the dirty ratio does not exceed 0.5.
    write(client, ("a", "6"))
    stage.now += 15_000
    stage.client()
    assert len(records_of(stage)) == 3
    write(client, ("a", "7"))
    stage.now += 15_000
    stage.client()
    assert records_of(stage) == [(5, "a", "6"), (6, "a", "7")]


def test_the_minimum_lag_delays_and_the_maximum_lag_forces_compaction(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_ms=10, min_compaction_lag_ms=1_000, min_cleanable_dirty_ratio=1)
    for value in "123":
        stage.now += 20
        write(client, ("a", value))
    stage.step(CleanLogs())
    assert len(records_of(stage)) == 3
    set_configs(stage, min_compaction_lag_ms=0)
    stage.now += 15_000
    stage.client()
    assert len(records_of(stage)) == 3
    set_configs(stage, max_compaction_lag_ms=15_000)
    stage.now += 15_000
    stage.client()
    assert len(records_of(stage)) == 1


def test_a_tombstone_is_kept_until_its_delete_horizon(stage: Stage, client: Client) -> None:
    set_configs(stage, delete_retention_ms=1_000)
    write(client, ("a", "1"), ("b", "1"))
    write(client, ("a", None), ("c", "1"))
    stage.step(CleanLogs())
    assert records_of(stage) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    assert [batch.delete_horizon_ms for batch in stage.log("t").all_batches()] == [None, stage.now + 1_000]
    stage.now += 999
    stage.step(CleanLogs())
    assert len(records_of(stage)) == 3
    stage.now += 1
    stage.step(CleanLogs())
    assert records_of(stage) == [(1, "b", "1"), (3, "c", "1")]


def test_a_delete_horizon_beyond_int64_is_never_set(stage: Stage, client: Client) -> None:
    """A delete horizon beyond int64 is never set, so tombstones are kept.

    With the largest delete.retention.ms the horizon would exceed int64.
    """
    set_configs(stage, delete_retention_ms=2**63 - 1)
    write(client, ("a", "1"))
    write(client, ("a", None))
    for _ in range(2):
        stage.step(CleanLogs())
        stage.now += 10**12
    assert records_of(stage) == [(1, "a", None)]
    assert [batch.delete_horizon_ms for batch in stage.log("t").all_batches()] == [None]


def test_a_batch_that_cannot_be_encoded_again_is_kept(stage: Stage, client: Client) -> None:
    """Compaction keeps a batch unchanged if two of its records have the same offset.

    The broker accepts the batch, because its CRC is valid. But compaction cannot encode it again: kproto's
    encoder rejects offsets that do not increase.
    """
    batch = bytearray(batch_of_pairs(stage.now, [("a", "1"), ("a", "2"), ("b", "1")]))
    first, second = (at for at in range(len(batch)) if batch.startswith(b"\2a", at))
    batch[second - 1] = batch[first - 1] = 0  # The two bytes are the records' offset deltas.
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    assert client.produce(bytes(batch)).error_code == 0
    for value in "234":
        write(client, ("b", value))
    stage.step(CleanLogs())
    assert records_of(stage) == [(0, "a", "1"), (0, "a", "2"), (2, "b", "1"), (5, "b", "4")]


def test_the_last_compacted_batch_is_kept_without_records(stage: Stage, client: Client) -> None:
    set_configs(stage, delete_retention_ms=0)
    write(client, ("a", None), ("b", None))
    write(client, ("c", None))
    stage.step(CleanLogs())
    stage.step(CleanLogs())
    (batch,) = stage.log("t").all_batches()
    assert (batch.base_offset, batch.last_offset, batch.count) == (2, 2, 0)
    write(client, ("d", "1"))
    assert records_of(stage) == [(3, "d", "1")]


def test_the_last_batch_of_a_producer_is_kept_without_records(stage: Stage, client: Client) -> None:
    write(client, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    write(client, ("a", "2"), producer_id=7, producer_epoch=0, base_sequence=1)
    write(client, ("a", "3"))
    stage.step(CleanLogs())
    assert [
        (batch.base_offset, batch.count, batch.base_sequence) for batch in stage.log("t").all_batches()
    ] == [
        (1, 0, 1),
        (2, 1, -1),
    ]


def test_records_without_a_key_are_removed(stage: Stage, client: Client) -> None:
    set_configs(stage, cleanup_policy="delete")
    batch = encode_batch([Record(0, stage.now, None, b"x"), Record(1, stage.now, b"a", b"1")])
    assert client.produce(batch).error_code == 0
    set_configs(stage, cleanup_policy=POLICY)
    stage.step(CleanLogs())
    assert records_of(stage) == [(1, "a", "1")]


def write_transaction(stage: Stage, producer: TransactionalProducer, *values: str, commits: bool) -> None:
    """Write a transaction with one batch for each of `values`. Each batch has one record with the key "a"."""
    for number, value in enumerate(values):
        batch = batch_of_pairs(
            stage.now,
            [("a", value)],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=number,
            is_transactional=True,
        )
        request = ProduceRequest(
            transactional_id=producer.name,
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
            ],
        )
        (response,) = producer.client.ask(request, 12).responses[0].partition_responses
        assert response.error_code == 0
    assert producer.end(committed=commits) == 0


def shape(stage: Stage) -> list[tuple[int, str]]:
    """Return the offset and the kind of each batch: marker, empty or data."""
    return [
        (batch.base_offset, "marker" if batch.is_control else "data" if batch.count else "empty")
        for batch in stage.log("t").all_batches()
    ]


def test_unstable_records_are_not_compacted(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_ms=10)
    write(client, ("a", "1"))
    stage.now += 20
    write(client, ("a", "2"))
    partition = stage.topic("t").partitions[0]
    partition.transactions.on_batch_appended(99, 1)
    stage.step(CleanLogs())
    assert len(records_of(stage)) == 2
    partition.transactions.on_marker_appended(99, 1, committed=True)
    stage.step(CleanLogs())
    assert records_of(stage) == [(1, "a", "2")]


def test_aborted_records_are_removed_and_hide_no_value(stage: Stage, client: Client) -> None:
    write(client, ("a", "1"))
    write_transaction(stage, TransactionalProducer(stage), "2", "3", commits=False)
    write(client, ("b", "1"))
    stage.step(CleanLogs())
    assert shape(stage) == [(0, "data"), (3, "marker"), (4, "data")]
    assert records_of(stage) == [(0, "a", "1"), (4, "b", "1")]


@pytest.mark.parametrize("commits", [True, False])
def test_a_marker_is_removed_after_its_delete_horizon(stage: Stage, client: Client, commits: bool) -> None:
    set_configs(stage, delete_retention_ms=1_000)
    producer = TransactionalProducer(stage)
    write_transaction(stage, producer, "1", commits=commits)
    write(client, ("a", "2"))
    stage.step(CleanLogs())
    assert shape(stage) == [(1, "marker"), (2, "data")]
    # Another transaction of the producer follows, so that its first marker is no longer its last batch.
    write_transaction(stage, producer, "3", commits=True)
    write(client, ("b", "1"))
    stage.step(CleanLogs())
    first = stage.log("t").all_batches()[0]
    assert (first.base_offset, first.delete_horizon_ms) == (1, stage.now + 1_000)
    assert stage.topic("t").partitions[0].transactions.aborted(0, 99) == []
    stage.now += 1_000
    stage.step(CleanLogs())
    assert shape(stage) == [(3, "data"), (4, "marker"), (5, "data")]


def test_a_truncation_after_compacted_markers_finds_ongoing_transactions(
    stage: Stage, client: Client
) -> None:
    set_configs(stage, delete_retention_ms=0)
    write_transaction(stage, TransactionalProducer(stage), "1", commits=False)
    for _ in range(3):
        stage.step(CleanLogs())
    write(client, ("a", "2"))
    log = stage.log("t")
    partition = stage.topic("t").partitions[0]
    partition.truncate(2)
    assert (log.end_offset, partition.stable_offset) == (2, 2)


WRITTEN = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.sampled_from("xy"))),
        min_size=1,
        max_size=4,
    ),
    max_size=8,
)
CLEANINGS = st.lists(st.integers(0, 8), max_size=3)


@given(WRITTEN, CLEANINGS)
def test_compaction_does_not_change_the_table_of_a_reader(
    written: list[list[Pair]], cleanings: list[int]
) -> None:
    """A reader of a compacted log gets the last value of each key. Remaining records keep their offsets."""
    check_table(written, cleanings)


def check_table(written: list[list[Pair]], cleanings: list[int]) -> None:
    stage = compacted_stage()
    set_configs(stage, delete_retention_ms=5)
    client = stage.client()
    offset = 0
    all_of_them: dict[int, Pair] = {}
    table: dict[str, str] = {}
    for number, pairs in enumerate(written):
        write(client, *pairs)
        for key, value in pairs:
            all_of_them[offset] = key, value
            offset += 1
            table.pop(key, None)
            if value is not None:
                table[key] = value
        for _ in range(cleanings.count(number)):
            stage.step(CleanLogs())
            stage.now += 5
    records = records_of(stage)
    assert [at for at, _, _ in records] == sorted({at for at, _, _ in records})
    assert all(all_of_them[at] == (key, value) for at, key, value in records)
    read: dict[str, str | None] = {key: value for _, key, value in records}
    assert {key: value for key, value in read.items() if value is not None} == table
    log = stage.log("t")
    for at in range(log.end_offset):
        got = [batch for chunk in log.read(at, 1 << 20, at_least_one=True) for batch in batches(chunk)]
        assert all(entry.last_offset >= at for entry in got)
        assert [record for record in rows(b"".join(bytes(b.data) for b in got)) if record.offset >= at] == [
            record
            for record in rows(b"".join(log.read(0, 1 << 20, at_least_one=True)))
            if record.offset >= at
        ]


def first_of_each_key(old: Iterable[Batch], aborted: Iterable[AbortedTransactionRange]) -> dict[bytes, int]:
    latest: dict[bytes, int] = {}
    for batch in old:
        for record in batch.records():
            latest.setdefault(record.key or b"", record.offset)
    return latest


def without_tombstones(old: Iterable[Batch], aborted: Iterable[AbortedTransactionRange]) -> dict[bytes, int]:
    records = [record for batch in old for record in batch.records() if record.value is not None]
    return {record.key or b"": record.offset for record in records}


def renumbered(batch: Batch, before: list[Record], remaining: list[Record], horizon: int | None) -> Batch:
    closer = [replace(record, offset=batch.base_offset + number) for number, record in enumerate(remaining)]
    return WHOLE(batch, before, closer, horizon)


def everything_stays(record: Record, latest: dict[bytes, int], *, keeps_tombstones: bool) -> bool:
    return keeps_tombstones or record.value is not None


def tombstones_go_first(record: Record, latest: dict[bytes, int], *, keeps_tombstones: bool) -> bool:
    return record.value is not None


WHOLE = compaction._with_records
# The quick tests kill only the first two mutants, because the others survive several hundred examples.
MUTANTS: list[tuple[str, Any]] = [
    ("_with_records", renumbered),
    ("_is_kept", tombstones_go_first),
    ("_last_offsets", first_of_each_key),
    ("_last_offsets", without_tombstones),
    ("_is_kept", everything_stays),
]


@pytest.mark.parametrize(
    ("where", "mutant"),
    [pytest.param(*mutant, marks=pytest.mark.thorough if n > 1 else []) for n, mutant in enumerate(MUTANTS)],
)
def test_mutants_of_the_cleaner_are_killed(monkeypatch: pytest.MonkeyPatch, where: str, mutant: Any) -> None:
    @settings(
        phases=[Phase.generate],
        database=None,
        derandomize=True,  # Every run draws the same examples.
        report_multiple_bugs=False,
        max_examples=1000,
    )
    @given(WRITTEN, CLEANINGS)
    def drawn(written: list[list[Pair]], cleanings: list[int]) -> None:
        check_table(written, cleanings)

    monkeypatch.setattr(compaction, where, mutant)
    with pytest.raises(AssertionError):
        drawn()
