"""`store_offsets` with `enable_auto_offset_store=False`: only stored offsets are committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import (
    Admin,
    AsyncConsumer,
    CommittedOffset,
    Consumer,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from consumer.engine import events as ev
from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.errors import CommitFailed, ConfigError, IllegalState
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from tests.consumer.engine.stage import (
    AUTO,
    answer_commits,
    caught_up_member,
    forget_member,
    world_with_records,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SECONDS = 60.0
OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_offset_store": False,
    "heartbeat_interval_ms": 50,
}


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with running(topics={"t": 2}) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(5):
                producer.send("t", b"%d" % number, partition=0)
        yield server.bootstrap


def subscribed(bootstrap: str, **options: Any) -> Consumer:
    consumer = Consumer(bootstrap, **{**OPTIONS, **options})
    consumer.subscribe(["t"])
    return consumer


def read(consumer: Consumer, count: int = 5) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        records += consumer.poll(SECONDS)
    return records


def committed(bootstrap: str, partition: TopicPartition = P0) -> CommittedOffset | None:
    with Admin(bootstrap) as admin:
        return admin.committed_offsets("g").get(partition)


def committed_number(bootstrap: str, partition: TopicPartition = P0) -> int | None:
    answer = committed(bootstrap, partition)
    return None if answer is None else answer.offset


def test_returned_records_alone_are_not_committed(bootstrap: str) -> None:
    with subscribed(bootstrap, auto_commit_interval_ms=1) as consumer:
        read(consumer)
        consumer.poll(0.05)
        consumer.commit()
    # 0 is the member's start offset, which it commits before it reads the first record.
    assert committed_number(bootstrap) == 0


def test_close_commits_the_last_stored_offset(bootstrap: str) -> None:
    with subscribed(bootstrap) as consumer:
        records = read(consumer)
        consumer.store_offsets(records[3])
        consumer.store_offsets({P0: CommittedOffset(2, "note", 0)})
    assert committed(bootstrap) == CommittedOffset(2, "note", 0)


def test_a_record_stores_the_offset_after_it_with_its_leader_epoch(bootstrap: str) -> None:
    with subscribed(bootstrap) as consumer:
        consumer.store_offsets(read(consumer)[3])
        consumer.commit()
        assert committed(bootstrap) == CommittedOffset(4, "", 0)


def test_new_metadata_of_the_same_offset_is_committed(bootstrap: str) -> None:
    with subscribed(bootstrap) as consumer:
        read(consumer)
        for note in ("a", "b"):
            consumer.store_offsets({P0: CommittedOffset(2, note, 0)})
            consumer.commit()
            assert committed(bootstrap) == CommittedOffset(2, note, 0)


def test_the_interval_commits_stored_offsets(bootstrap: str) -> None:
    with subscribed(bootstrap, auto_commit_interval_ms=1) as consumer:
        read(consumer)
        consumer.store_offsets({P0: 3})
        while committed_number(bootstrap) != 3:
            consumer.poll(0.01)


def test_without_auto_commit_only_commit_sends_stored_offsets(bootstrap: str) -> None:
    with subscribed(bootstrap, enable_auto_commit=False) as consumer:
        read(consumer)
        consumer.store_offsets({P0: 3})
        consumer.commit()
        consumer.store_offsets({P0: 4})
    assert committed_number(bootstrap) == 3


def test_a_seek_keeps_the_stored_offset(bootstrap: str) -> None:
    with subscribed(bootstrap) as consumer:
        read(consumer)
        consumer.store_offsets({P0: 4})
        consumer.seek(P0, 1)
        read(consumer, 4)
    assert committed_number(bootstrap) == 4


def test_a_later_commit_replaces_the_stored_offset(bootstrap: str) -> None:
    with subscribed(bootstrap) as consumer:
        read(consumer)
        consumer.store_offsets({P0: 2})
        consumer.commit({P0: 4})
    assert committed_number(bootstrap) == 4


def test_offsets_stored_in_the_revoked_callback_are_committed(bootstrap: str) -> None:
    class Stores(RebalanceListener):
        def revoked(self, partitions: Any) -> None:
            consumer.store_offsets({P0: 3})

    consumer = Consumer(bootstrap, **OPTIONS)
    consumer.subscribe(["t"], listener=Stores())
    read(consumer)
    consumer.close()
    assert committed_number(bootstrap) == 3


def test_a_revoked_partition_forgets_its_stored_offset(bootstrap: str) -> None:
    with subscribed(bootstrap, partition_assignment_strategy="range") as first:
        read(first)
        first.store_offsets({P0: 2, P1: 0})
        with subscribed(bootstrap, partition_assignment_strategy="range") as second:
            # Both members must have the new assignment: during the rebalance the first one owns no partition.
            while len(second.assignment()) != 1 or len(first.assignment()) != 1:
                first.poll(0.01)
                second.poll(0.01)
            [moved] = second.assignment()
            with pytest.raises(IllegalState, match=f"^{moved}: not assigned"):
                first.store_offsets({P0: 3, P1: 9})
        [kept] = {P0, P1} - {moved}
        first.commit()
        assert committed_number(bootstrap, kept) == {P0: 3, P1: 9}[kept]
        assert committed_number(bootstrap, moved) == {P0: 2, P1: 0}[moved]


def test_partitions_that_are_assigned_by_hand_have_stored_offsets_too(bootstrap: str) -> None:
    with Consumer(bootstrap, **OPTIONS) as consumer:
        consumer.assign({P0: 0})
        read(consumer)
        consumer.store_offsets({P0: 3})
        consumer.unsubscribe()
    assert committed_number(bootstrap) == 3


def test_invalid_calls_store_nothing(bootstrap: str) -> None:
    with subscribed(bootstrap) as consumer:
        read(consumer)
        for wrong in ({P0: 3, P1: -1}, {P0: "3"}, {"t": 3}, 3):
            with pytest.raises(ConfigError, match="offsets"):
                consumer.store_offsets(wrong)  # type: ignore[arg-type]
    assert committed_number(bootstrap) == 0
    with (
        Consumer(bootstrap, group_id="g") as consumer,
        pytest.raises(IllegalState, match="enable_auto_offset"),
    ):
        consumer.store_offsets({P0: 3})
    without_group = {name: value for name, value in OPTIONS.items() if name != "group_id"}
    with Consumer(bootstrap, **without_group) as consumer:
        consumer.assign({P0: 0})
        with pytest.raises(IllegalState, match="has no group_id"):
            consumer.store_offsets({P0: 3})
    with pytest.raises(ConfigError, match=r"^enable_auto_offset_store=False"):
        Consumer(bootstrap, policy="java", **OPTIONS)


def test_an_exception_commits_what_was_stored_before_it(bootstrap: str) -> None:
    def work() -> None:
        with subscribed(bootstrap) as consumer:
            for record in read(consumer):
                if record.value == b"3":
                    raise LookupError
                consumer.store_offsets(record)

    with pytest.raises(LookupError):
        work()
    assert committed_number(bootstrap) == 3


def test_the_asyncio_consumer_stores_offsets_without_await(bootstrap: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap, **OPTIONS) as consumer:
            consumer.subscribe(["t"])
            records: list[Any] = []
            while len(records) < 5:
                records += await consumer.poll(SECONDS)
            consumer.store_offsets(records[1])

    asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert committed_number(bootstrap) == 2


# ---- stored offsets during faults, in virtual time

STORED: dict[str, Any] = {**AUTO, "enable_auto_offset_store": False, "auto_commit_interval_ms": 1_000}


def store(member: Any, offset: int) -> None:
    member.do(ev.StoreOffsets({P0: (offset, None, "")}))


def test_a_commit_that_fails_is_repeated_after_the_interval() -> None:
    world = world_with_records()
    a = caught_up_member(world, **STORED)
    answer_commits(world, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    store(a, 7)
    world.run(1_500)
    assert a.changes_of("uncommitted")
    assert world.committed("g", P0) == 0
    world.tamper = None
    assert world.run(2_000, until=lambda: world.committed("g", P0) == 7)


def test_the_last_stored_offset_counts_also_while_a_commit_is_open() -> None:
    world = world_with_records()
    a = caught_up_member(world, **STORED)
    store(a, 7)
    a.commit({P0: 9})
    store(a, 8)
    assert world.run(3_000, until=lambda: world.committed("g", P0) == 8)
    store(a, 5)
    assert world.run(3_000, until=lambda: world.committed("g", P0) == 5)


def test_offsets_stored_after_the_commit_of_a_revocation_are_an_error() -> None:
    world = world_with_records()
    a = caught_up_member(world, **STORED)
    store(a, 7)
    a.unsubscribe()
    assert world.run(until=lambda: a.engine.group.is_committing_revoked)
    with pytest.raises(IllegalState, match="t-0: being revoked; the final commit of stored offsets was"):
        store(a, 9)
    world.run(3_000)
    assert world.committed("g", P0) == 7


def test_each_stored_offset_is_committed_once() -> None:
    world = world_with_records()
    a = caught_up_member(world, **STORED)
    notes: list[str | None] = []

    def tamper(client: Any, request: Any, version: int) -> None:
        if isinstance(request, OffsetCommitRequest):
            notes.append(request.topics[0].partitions[0].committed_metadata)

    world.tamper = tamper
    for note in ("a", "a", "b"):
        for _ in range(2):
            a.do(ev.StoreOffsets({P0: (7, None, note)}))
            world.run(1_500)
    a.do(ev.Commit("token", {P0: (7, None, "c")}, 1_000))
    a.do(ev.StoreOffsets({P0: (7, None, "d")}))  # The commit with the metadata "c" is still pending.
    world.run(3_000)
    assert notes == ["a", "b", "c", "d"]


@pytest.mark.parametrize("stores", [False, True])
def test_a_lost_partition_fails_a_commit_only_if_a_stored_offset_was_lost(stores: bool) -> None:
    world = world_with_records()
    a = caught_up_member(world, **{**STORED, "enable_auto_commit": False})
    if stores:
        store(a, 7)
    a.pause_polling()
    forget_member(world)
    world.run(600)
    token = a.commit()
    world.run(100)
    error = a.done[token][1]
    assert isinstance(error, CommitFailed) if stores else error is None
    a.resume_polling()
    # After the new assignment the member reads all ten records again from the committed offset, 0.
    assert world.run(until=lambda: len(a.records) == 20)
    world.run(3_000)
    assert world.committed("g", P0) == 0


def test_a_lost_partition_without_a_position_fails_a_commit() -> None:
    world = world_with_records()
    a = caught_up_member(world, **{**STORED, "enable_auto_commit": False})
    store(a, 7)

    def tamper(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, ListOffsetsRequest):
            world.cut(client)
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return None

    world.tamper = tamper
    a.seek_to("earliest", P0)
    a.pause_polling()
    assert world.run(3_000, until=lambda: not a.engine.partitions)
    token = a.commit()
    world.run(100)
    assert isinstance(a.done[token][1], CommitFailed)
