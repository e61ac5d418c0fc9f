"""Blocking and asyncio clients poll, commit and close correctly with real threads, loops and sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Delivery,
    GroupChange,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from kproto.broker.server import NO_GROUP_DELAY, running
from kproto.errors import (
    BrokerError,
    ConfigError,
    ConnectionFailed,
    IllegalState,
    RequestTimedOut,
    UnknownTopic,
)
from kproto.messages.heartbeat import HeartbeatRequest

P0 = TopicPartition("t", 0)
GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 30_000,
    "heartbeat_interval_ms": 100,
}


@pytest.fixture
def broker() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with running(topics={"t": 2}, settings=settings) as server:
        yield server.bootstrap


@pytest.fixture
def early_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients report an unreachable cluster after 0.2 s instead of 2 s."""
    monkeypatch.setattr("consumer.engine.metadata.updater.BOOTSTRAP_REPORT_DELAY_MS", 200)


def fill(broker: str, count: int, partition: int = 0) -> None:
    with Producer(broker) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=partition)


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# ---- the blocking consumer


def test_heartbeats_continue_while_the_application_computes() -> None:
    heartbeats: list[int] = []

    def count(event: Any, actions: Any, now: int) -> None:
        if isinstance(getattr(event, "request", None), HeartbeatRequest):
            heartbeats.append(now)

    with running({"t": 2}, NO_GROUP_DELAY) as server, Consumer(server.bootstrap, **GROUP) as consumer:
        server.observe(count)
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
        generation = consumer.group_metadata().generation
        earlier, deadline = len(heartbeats), time.monotonic() + 20
        # Until the consumer has sent five heartbeats, the application computes instead of polling.
        while len(heartbeats) < earlier + 5:
            sum(range(1000))
            assert time.monotonic() < deadline
        consumer.poll(0.2)
        assert consumer.group_metadata().generation == generation


# max.poll.interval.ms is longer than the time between two polls on a slow computer, and shorter than a
# blocking poll of the tests.
INTERVAL_MS = 3000


def test_a_poll_may_last_longer_than_max_poll_interval_ms(broker: str) -> None:
    with Consumer(broker, **{**GROUP, "max_poll_interval_ms": INTERVAL_MS}) as consumer:
        lost: list[GroupChange] = []
        consumer.events(lambda change: lost.append(change) if change.kind == "lost" else None)
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
        generation = consumer.group_metadata().generation
        assert consumer.poll(INTERVAL_MS / 1000 + 0.7) == []
        assert lost == []
        assert consumer.group_metadata().generation == generation


def test_callbacks_run_on_the_callers_thread(broker: str) -> None:
    threads: set[threading.Thread] = set()
    changes: list[GroupChange] = []

    class Listener(RebalanceListener):
        def assigned(self, partitions: Any) -> None:
            threads.add(threading.current_thread())

        def revoked(self, partitions: Any) -> None:
            threads.add(threading.current_thread())

    with Consumer(broker, **GROUP) as consumer:
        consumer.events(lambda change: (threads.add(threading.current_thread()), changes.append(change))[1])
        consumer.subscribe("t", Listener())
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.poll(0.1)
    assert threads == {threading.current_thread()}
    kinds = [change.kind for change in changes]
    assert [kind for kind in kinds if kind != "reset"] == [
        "coordinator", "rejoining", "rejoining", "assigned", "revoked", "left", "closed"
    ]  # fmt: skip
    assert abs(changes[0].at - time.time() * 1000) < 60_000


def test_an_exception_in_a_listener_is_raised_from_poll_and_the_member_continues(broker: str) -> None:
    class Listener(RebalanceListener):
        def assigned(self, partitions: Any) -> None:
            raise RuntimeError("no")

    fill(broker, 3)
    consumer = Consumer(broker, **GROUP)
    consumer.subscribe("t", Listener())
    with pytest.raises(RuntimeError, match="no"):
        consumer.poll(10)
    assert [record.value for record in consumer.poll(10)] == [b"0", b"1", b"2"]
    consumer.close()


def test_records_that_an_iteration_did_not_return_are_not_committed(broker: str) -> None:
    fill(broker, 100)
    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        for record in consumer:
            if record.offset == 41:
                break
        assert consumer.position(P0) == 42
        assert consumer.poll(5)[0].offset == 42
        consumer.seek(P0, 42)
    with Admin(broker) as cluster:
        committed = cluster.committed_offsets("g")[P0]
    assert committed is not None
    assert committed.offset == 42


def test_commits_are_allowed_inside_an_iteration(broker: str) -> None:
    fill(broker, 30)
    offsets = []
    with Consumer(broker, **{**GROUP, "enable_auto_commit": False}) as consumer:
        consumer.subscribe("t")
        for record in consumer:
            offsets.append(record.offset)
            consumer.commit()
            if len(offsets) == 30:
                break
    assert offsets == list(range(30))


def test_kill_sends_neither_commit_nor_leave(broker: str) -> None:
    fill(broker, 10)
    # The group keeps the killed member until the member's session timeout has passed.
    consumer = Consumer(broker, **{**GROUP, "session_timeout_ms": 3000})
    consumer.subscribe("t")
    assert consumer.poll(10)
    consumer.kill()
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll(0)
    with Admin(broker) as cluster:
        assert cluster.committed_offsets("g")[P0].offset == 0  # type: ignore[union-attr]
    second = Consumer(broker, **GROUP)
    second.subscribe("t")
    assert len(second.poll(20)) == 10
    second.close()


def test_close_without_a_broker_ends_within_its_timeout() -> None:
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        consumer = Consumer(server.bootstrap, group_id="g")
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
        # The position is committed while the broker runs. Otherwise `close` would try to commit it
        # without a broker, and report the failure.
        consumer.position(P0)
        consumer.commit()
    started_at = time.monotonic()
    consumer.close(timeout=0.5)
    assert time.monotonic() - started_at < 10
    until(lambda: not consumer._runtime.thread.is_alive())


def test_close_may_be_called_twice_and_later_calls_raise(broker: str) -> None:
    consumer = Consumer(broker)
    consumer.close()
    consumer.close()
    with pytest.raises(IllegalState, match="closed"):
        consumer.assign([P0])


def test_position_waits_no_longer_than_its_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = Consumer(address)
        consumer.assign([P0])
        with pytest.raises(RequestTimedOut):
            consumer.position(P0, timeout=0.2)
        assert consumer.poll(0.1) == []
        consumer.close(timeout=0.2)


def test_commit_async_resolves_its_future(broker: str) -> None:
    with Consumer(broker, group_id="g") as consumer:
        consumer.assign({P0: 0})
        futures = [consumer.commit_async({P0: offset}) for offset in range(1, 20)]
        assert [future.result(5) for future in futures] == [None] * 19
        assert consumer.committed([P0])[P0].offset == 19  # type: ignore[union-attr]


def test_a_restarted_broker_is_reconnected(broker: str) -> None:
    with running(topics={"t": 1}) as server:
        port = int(server.bootstrap.rpartition(":")[2])
        consumer = Consumer(server.bootstrap, auto_offset_reset="earliest", reconnect_backoff_max_ms=100)
        consumer.assign([P0])
        fill(server.bootstrap, 1)
        assert len(consumer.poll(10)) == 1
    assert consumer.poll(0.3) == []
    with running(topics={"t": 1}, port=port) as server:
        fill(server.bootstrap, 3)
        values: list[bytes | None] = []
        deadline = time.monotonic() + 20
        while b"2" not in values and time.monotonic() < deadline:
            values += [record.value for record in consumer.poll(0.5)]
        consumer.close()
    assert values[-1] == b"2"


# ---- the producer


def test_a_delivery_has_offset_and_timestamp_and_runs_callbacks(broker: str) -> None:
    called: list[int | None] = []
    with Producer(broker) as producer:
        delivery = producer.send("t", b"x", partition=1, timestamp=77)
        delivery.add_done_callback(lambda done: called.append(done.result().offset))
        metadata = delivery.result(10)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == ("t", 1, 0, 77)
    assert called == [0]
    delivery.add_done_callback(lambda done: called.append(done.result().offset))
    assert called == [0, 0]


def test_several_threads_may_send(broker: str) -> None:
    with Producer(broker) as producer:

        def send(sender: int) -> None:
            for number in range(200):
                producer.send("t", b"%d:%d" % (sender, number), partition=0)

        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([P0])
        values: list[bytes] = []
        while len(values) < 800:
            values += [record.value or b"" for record in consumer.poll(5)]
    for sender in range(4):
        sender_values = [value for value in values if value.startswith(b"%d:" % sender)]
        assert sender_values == [b"%d:%d" % (sender, number) for number in range(200)]


def test_send_waits_while_the_buffer_is_full(broker: str) -> None:
    with Producer(broker, buffer_memory=20_000, batch_size=2_000) as producer:
        deliveries = [producer.send("t", b"x" * 1000, partition=0) for _ in range(200)]
    assert [delivery.result().offset for delivery in deliveries] == list(range(200))


def test_send_without_a_broker_times_out() -> None:
    producer = Producer("127.0.0.1:1", max_block_ms=200)
    with pytest.raises(RequestTimedOut, match="no metadata for topic 't'"):
        producer.send("t", b"x")
    producer.close()


def test_a_value_that_is_not_bytes_is_rejected(broker: str) -> None:
    with Producer(broker) as producer:
        with pytest.raises(ConfigError, match="value='text' is not allowed; bytes or None"):
            producer.send("t", "text")  # type: ignore[arg-type]
        assert producer.send("t", bytearray(b"x"), memoryview(b"k")).result(10).offset == 0
        delivery = producer.send("t", b"x")
        delivery.result(10)
        # One delivery has completed, and the other may still be pending.
        for pending in (delivery, producer.send("t", b"x")):
            with pytest.raises(IllegalState, match="AsyncProducer"):
                asyncio.run(_await(pending))
    with pytest.raises(IllegalState, match="closed"):
        producer.send("t", b"x")


async def _await(delivery: Any) -> Any:
    return await delivery


# ---- clusters


def test_a_cluster_creates_describes_and_deletes_topics(broker: str) -> None:
    with Admin(broker) as cluster:
        cluster.create_topics({"new": 2}, configs={"retention.ms": "1000"})
        cluster.create_topics({"new": 2}, exist_ok=True)
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            cluster.create_topics({"new": 2})
        cluster.create_partitions({"new": 4})
        assert cluster.topics()["new"] == 4
        assert cluster.leader(TopicPartition("new", 3)) == cluster.coordinator("g")
        with pytest.raises(UnknownTopic, match="the topic has 4 partitions"):
            cluster.leader(TopicPartition("new", 4))
        cluster.delete_topics(["new"])
        assert "new" not in cluster.topics()
        with pytest.raises(ConfigError, match="latest"):
            cluster.list_offsets({P0: "last"})
    with pytest.raises(IllegalState, match="closed"):
        cluster.topics()


def test_offsets_are_committed_without_membership(broker: str) -> None:
    p1 = TopicPartition("t", 1)
    with Admin(broker) as cluster:
        assert cluster.committed_offsets("g", [P0]) == {P0: None}
        cluster.commit_offsets("g", {P0: 5, p1: (7, "note")})
        committed = cluster.committed_offsets("g")
    assert {p: (c.offset, c.metadata) for p, c in committed.items() if c} == {P0: (5, ""), p1: (7, "note")}


def test_several_threads_may_use_a_cluster(broker: str) -> None:
    fill(broker, 50)
    with Admin(broker) as cluster:
        high_watermarks: list[int] = []

        def call_cluster() -> None:
            for offset in range(20):
                response = cluster.fetch({P0: offset}, max_wait_ms=1)
                high_watermarks.append(response[P0].high_watermark)

        threads = [threading.Thread(target=call_cluster) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert high_watermarks == [50] * 80


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "127.0.0.1:1,localhost:2"])
def test_an_unreachable_cluster_raises_an_error_with_its_address(bootstrap: str) -> None:
    with (
        Admin(bootstrap) as cluster,
        pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1"),
    ):
        cluster.topics()


def test_poll_raises_if_no_broker_is_reachable() -> None:
    with Consumer("127.0.0.1:1", group_id="g") as consumer:
        consumer.subscribe("t")
        with pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1"):
            consumer.poll(20.0)


@pytest.mark.usefixtures("early_reports")
def test_position_raises_if_no_broker_is_reachable() -> None:
    with Consumer("127.0.0.1:1", group_id="g") as consumer:
        consumer.assign([P0])
        with pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1"):
            consumer.position(P0)


@pytest.mark.usefixtures("early_reports")
def test_position_raises_if_no_broker_is_reachable_in_asyncio() -> None:
    async def main() -> None:
        async with AsyncConsumer("127.0.0.1:1", group_id="g") as consumer:
            consumer.assign([P0])
            with pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1"):
                await consumer.position(P0)

    asyncio.run(main())


def test_a_call_to_a_silent_broker_ends_with_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        started_at = time.monotonic()
        with Admin(address) as cluster, pytest.raises(RequestTimedOut, match="Metadata"):
            cluster.topics(timeout=0.3)
        assert time.monotonic() - started_at < 10


# ---- asyncio


def test_an_asyncio_iteration_commits_only_returned_records(broker: str) -> None:
    fill(broker, 100)

    async def main() -> None:
        async with AsyncConsumer(broker, **GROUP) as consumer:
            consumer.subscribe("t")
            async for record in consumer:
                if record.offset == 41:
                    break
            assert await consumer.position(P0) == 42
        async with AsyncAdmin(broker) as cluster:
            committed = (await cluster.committed_offsets("g"))[P0]
        assert committed is not None
        assert committed.offset == 42

    asyncio.run(main())


def test_an_asyncio_poll_may_last_longer_than_max_poll_interval_ms(broker: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(broker, **{**GROUP, "max_poll_interval_ms": INTERVAL_MS}) as consumer:
            consumer.subscribe("t")
            while not consumer.assignment():
                await consumer.poll(0.1)
            generation = consumer.group_metadata().generation
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(INTERVAL_MS / 1000 + 0.7):
                    await anext(consumer)
            assert consumer.group_metadata().generation == generation

    asyncio.run(main())


@pytest.mark.parametrize(("max_hog_s", "turns"), [(0.0, 20), (3600.0, 0)])
def test_polls_that_return_at_once_yield_to_other_tasks_in_time(
    broker: str, monkeypatch: pytest.MonkeyPatch, max_hog_s: float, turns: int
) -> None:
    async def run() -> None:
        async with AsyncProducer(broker) as producer:
            for number in range(100):
                await producer.send("t", b"%d" % number, partition=0)
        monkeypatch.setattr("consumer.aio.waiters.MAX_HOG_S", max_hog_s)
        async with AsyncConsumer(broker, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert len(await consumer.poll(10, 1)) == 1
            turns_of_task: list[int] = []

            async def other() -> None:
                while True:
                    turns_of_task.append(len(turns_of_task))
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in range(20):
                assert len(await consumer.poll(10, 1)) == 1
            task.cancel()
            assert len(turns_of_task) == turns

    asyncio.run(run())


def test_a_cancelled_poll_loses_no_record(broker: str) -> None:
    fill(broker, 10)

    async def main() -> list[int]:
        async with AsyncConsumer(broker, auto_offset_reset="latest") as consumer:
            consumer.assign([P0])
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(10), 0.05)
            consumer.seek(P0, 3)
            return [record.offset for record in await consumer.poll(10)]

    assert asyncio.run(main()) == list(range(3, 10))


def test_asyncio_sends_wait_for_buffer_memory_and_deliveries_can_be_awaited(broker: str) -> None:
    async def main() -> list[int | None]:
        async with AsyncProducer(broker, buffer_memory=20_000, batch_size=2_000) as producer:
            sent = [await producer.send("t", b"x" * 1000, partition=0) for _ in range(100)]
            with pytest.raises(IllegalState, match="await"):
                (await producer.send("t", b"x", partition=1)).result()
            return [(await request).offset for request in sent]

    assert asyncio.run(main()) == list(range(100))


def test_sends_of_many_tasks_that_wait_for_memory_are_attempted_only_a_few_times_each(broker: str) -> None:
    """A response must not wake all waiting tasks.

    Otherwise the number of attempts to append a record would grow with the square of the number of tasks.
    """

    async def main() -> int:
        attempts = 0
        async with AsyncProducer(broker, buffer_memory=20_000, linger_ms=0) as producer:
            append = producer._records.append

            def count_attempt(*record: Any) -> Any:
                nonlocal attempts
                attempts += 1
                return append(*record)

            await (await producer.send("t", b"x"))
            setattr(producer._records, "append", count_attempt)  # noqa: B010
            sends = [producer.send("t", b"x" * 1000, partition=number % 2) for number in range(500)]
            for delivery in await asyncio.gather(*sends):
                await delivery
        return attempts

    assert asyncio.run(main()) < 5 * 500


def test_tasks_that_wait_for_memory_send_before_tasks_that_send_again(broker: str) -> None:
    """No task sends more than 3 records before each of the 20 tasks has sent one.

    If a task could reuse the memory of its delivered record immediately, the waiting tasks would time out.
    """

    async def main() -> list[int]:
        counts = [0] * 20

        async def work(worker: int, producer: AsyncProducer) -> None:
            while min(counts) == 0 and counts[worker] < 50:
                await (await producer.send("t", b"x" * 9_000, partition=0))
                counts[worker] += 1

        async with AsyncProducer(broker, buffer_memory=30_000, batch_size=1) as producer:
            await asyncio.gather(*[work(worker, producer) for worker in range(20)])
        return counts

    assert max(asyncio.run(main())) <= 3


def test_a_send_that_waits_for_memory_lets_the_next_ones_continue_when_it_is_cancelled(broker: str) -> None:
    async def main() -> list[object]:
        async with AsyncProducer(broker, buffer_memory=20_000, linger_ms=60_000) as producer:
            await producer.send("t", b"x" * 9_000, partition=0)
            sends = [asyncio.create_task(producer.send("t", b"x" * 9_000, partition=0)) for _ in range(9)]
            await asyncio.sleep(0)
            for send in sends[2:6]:
                send.cancel()
            return await asyncio.gather(*sends, return_exceptions=True)

    results = asyncio.run(main())
    assert [type(result).__name__ for result in results[2:6]] == ["CancelledError"] * 4
    assert sum(isinstance(result, Delivery) for result in results) == 5


def test_flushes_of_many_tasks_are_woken_only_a_few_times_each(broker: str) -> None:
    """A response wakes only some of the waiting tasks.

    If it woke all of them, the number of wakes would grow with the square of the number of tasks.
    """

    async def main() -> int:
        checks = 0
        async with AsyncProducer(broker) as producer:
            runtime = producer._runtime
            wait_for_batch = runtime.wait_for_batch

            async def count_check(*arguments: Any) -> bool:
                nonlocal checks
                checks += 1
                return await wait_for_batch(*arguments)

            setattr(runtime, "wait_for_batch", count_check)  # noqa: B010

            async def send_and_flush() -> None:
                delivery = await producer.send("t", b"x")
                await producer.flush()
                assert delivery.done()

            await asyncio.gather(*[send_and_flush() for _ in range(200)])
        return checks

    assert asyncio.run(main()) < 4 * 200


def test_the_records_of_tasks_that_send_and_flush_share_requests(broker: str) -> None:
    async def main() -> float:
        async with AsyncProducer(broker) as producer:
            await (await producer.send("t", b"x", partition=0))

            async def send_and_flush() -> None:
                await producer.send("t", b"x", partition=0)
                await producer.flush()

            await asyncio.gather(*[send_and_flush() for _ in range(200)])
            return sum(
                metric.value
                for metric in producer.metrics()
                if metric.name == "request-total" and len(metric.tags) < 2
            )

    assert asyncio.run(main()) < 50


def test_asyncio_clients_raise_the_same_errors(broker: str) -> None:
    async def main() -> None:
        async with AsyncProducer(broker) as producer:
            with pytest.raises(UnknownTopic):
                await producer.send("nowhere", b"x")
        async with AsyncAdmin("127.0.0.1:1") as cluster:
            with pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1: "):
                await cluster.topics()
        consumer = AsyncConsumer(broker, group_id="g")
        with pytest.raises(IllegalState, match="subscribe"):
            await consumer.poll()
        await consumer.close()
        with pytest.raises(IllegalState, match="closed"):
            await consumer.poll()

    asyncio.run(main())


def test_each_report_is_delivered_once_by_either_thread(broker: str) -> None:
    """Each report reaches its callback once, although two threads publish reports.

    The test makes several threads publish reports at the same time, as the consumer's thread and the
    application's thread may.
    """
    failed: list[BaseException] = []

    class Meeting(deque[GroupChange]):
        def __len__(self) -> int:
            length = super().__len__()
            time.sleep(0.002)
            return length

    def tell(consumer: Any) -> None:
        try:
            for _ in range(20):
                consumer._runtime._reports.append(GroupChange(0, "reset"))
                consumer._runtime._report_and_complete()
        except BaseException as error:
            failed.append(error)

    with Consumer(broker) as consumer:
        consumer._runtime._reports = Meeting()
        threads = [threading.Thread(target=tell, args=(consumer,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []


def test_a_committed_position_is_known_before_any_record(broker: str) -> None:
    """`position` returns a committed offset without waiting for a record.

    The committed offset is the end of the log, so no record arrives during the call.
    """
    fill(broker, 5)
    with Admin(broker) as cluster:
        cluster.commit_offsets("g", {P0: 5})
    with Consumer(broker, group_id="g", fetch_max_wait_ms=20_000) as consumer:
        consumer.assign([P0])
        assert consumer.position(P0, timeout=5) == 5


def test_a_corrected_clock_is_read_again(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a correction of the system clock, by_duration and events use the corrected time.

    The consumer starts at the first record of the last ten minutes of the corrected clock. By the fast clock,
    all records would be too old.
    """
    hour_ms, original = 3_600_000, time.time_ns
    # The clock is an hour fast until the test corrects it.
    monkeypatch.setattr("time.time_ns", lambda: original() + hour_ms * 1_000_000)
    changes: list[GroupChange] = []
    with Consumer(broker, **{**GROUP, "auto_offset_reset": "by_duration:PT10M"}) as consumer:
        monkeypatch.setattr("time.time_ns", original)
        fill(broker, 10)
        consumer.events(changes.append)
        consumer.subscribe("t")
        assert len(consumer.poll(10)) == 10
    assert all(abs(change.at - original() // 1_000_000) < hour_ms // 2 for change in changes)
    assert changes


@pytest.mark.usefixtures("early_reports")
def test_an_unreachable_cluster_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with Consumer("127.0.0.1:1", group_id="g") as consumer:
        consumer.subscribe("t")
        with pytest.raises(ConnectionFailed):
            consumer.poll(10)
    assert caplog.text.count("unreachable") == 1


def test_asyncio_reports_an_unreachable_broker_in_the_same_words(caplog: pytest.LogCaptureFixture) -> None:
    async def call_cluster() -> None:
        async with AsyncAdmin("127.0.0.1:1") as cluster:
            with pytest.raises(ConnectionFailed, match=r"no broker at 127\.0\.0\.1:1: connection refused"):
                await cluster.topics()

    asyncio.run(call_cluster())


def test_a_send_that_times_out_names_the_unreachable_broker() -> None:
    producer = Producer("127.0.0.1:1", max_block_ms=300)
    with pytest.raises(RequestTimedOut, match=r"no metadata for topic 't' yet; no broker at 127\.0\.0\.1:1"):
        producer.send("t", b"x")
    producer.close()
