"""What only the shells do: threads, event loops, sockets. The broker is real here, and the time too."""

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
    AsyncCluster,
    AsyncConsumer,
    AsyncProducer,
    Cluster,
    Consumer,
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


def fill(broker: str, count: int, partition: int = 0) -> None:
    with Producer(broker) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=partition)


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


# ---- the blocking consumer


def test_heartbeats_go_on_while_the_application_computes() -> None:
    beats: list[int] = []

    def count(event: Any, actions: Any, now: int) -> None:
        if isinstance(getattr(event, "request", None), HeartbeatRequest):
            beats.append(now)

    with running({"t": 2}, NO_GROUP_DELAY) as server, Consumer(server.bootstrap, **GROUP) as consumer:
        server.observe(count)
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
        generation = consumer.group_metadata().generation
        before, end = len(beats), time.monotonic() + 20
        while len(beats) < before + 10:  # ten heartbeats without a poll
            sum(range(1000))
            assert time.monotonic() < end
        consumer.poll(0.2)
        assert consumer.group_metadata().generation == generation


# What a poll waits longer than, and what a machine has to be slower than between two of them.
INTERVAL_MS = 3000


def test_a_poll_may_wait_longer_than_max_poll_interval(broker: str) -> None:
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


def test_an_exception_in_a_listener_is_raised_from_poll_and_the_group_goes_on(broker: str) -> None:
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


def test_what_an_iteration_did_not_come_to_is_not_committed(broker: str) -> None:
    fill(broker, 100)
    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        for record in consumer:
            if record.offset == 41:
                break
        assert consumer.position(P0) == 42
        assert consumer.poll(5)[0].offset == 42
        consumer.seek(P0, 42)
    with Cluster(broker) as cluster:
        committed = cluster.committed_offsets("g")[P0]
    assert committed is not None
    assert committed.offset == 42


def test_an_iteration_may_be_mixed_with_commits(broker: str) -> None:
    fill(broker, 30)
    seen = []
    with Consumer(broker, **{**GROUP, "enable_auto_commit": False}) as consumer:
        consumer.subscribe("t")
        for record in consumer:
            seen.append(record.offset)
            consumer.commit()
            if len(seen) == 30:
                break
    assert seen == list(range(30))


def test_kill_says_nothing_to_anybody(broker: str) -> None:
    fill(broker, 10)
    consumer = Consumer(broker, **{**GROUP, "session_timeout_ms": 3000})  # so long the group waits for it
    consumer.subscribe("t")
    assert consumer.poll(10)
    consumer.kill()
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll(0)
    with Cluster(broker) as cluster:
        assert cluster.committed_offsets("g")[P0].offset == 0  # type: ignore[union-attr]
    again = Consumer(broker, **GROUP)
    again.subscribe("t")
    assert len(again.poll(20)) == 10
    again.close()


def test_close_ends_in_its_time_when_the_broker_is_gone() -> None:
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        consumer = Consumer(server.bootstrap, group_id="g")
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.position(P0)  # else close says that the start could not be committed
        consumer.commit()
    start = time.monotonic()
    consumer.close(timeout=0.5)
    assert time.monotonic() - start < 10
    until(lambda: not consumer._runtime.thread.is_alive())


def test_closing_twice_and_polling_after_it(broker: str) -> None:
    consumer = Consumer(broker)
    consumer.close()
    consumer.close()
    with pytest.raises(IllegalState, match="closed"):
        consumer.assign([P0])


def test_position_waits_only_so_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = Consumer(address)
        consumer.assign([P0])
        with pytest.raises(RequestTimedOut):
            consumer.position(P0, timeout=0.2)
        assert consumer.poll(0.1) == []
        consumer.close(timeout=0.2)


def test_a_commit_in_the_background_ends_its_future(broker: str) -> None:
    with Consumer(broker, group_id="g") as consumer:
        consumer.assign({P0: 0})
        futures = [consumer.commit_async({P0: at}) for at in range(1, 20)]
        assert [future.result(5) for future in futures] == [None] * 19
        assert consumer.committed([P0])[P0].offset == 19  # type: ignore[union-attr]


def test_a_broker_that_comes_back_is_found_again(broker: str) -> None:
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
        end = time.monotonic() + 20
        while b"2" not in values and time.monotonic() < end:
            values += [record.value for record in consumer.poll(0.5)]
        consumer.close()
    assert values[-1] == b"2"


# ---- the producer


def test_a_delivery_tells_its_place_and_calls_back(broker: str) -> None:
    called: list[int | None] = []
    with Producer(broker) as producer:
        delivery = producer.send("t", b"x", partition=1, timestamp=77)
        delivery.add_done_callback(lambda done: called.append(done.result().offset))
        place = delivery.result(10)
    assert (place.topic, place.partition, place.offset, place.timestamp) == ("t", 1, 0, 77)
    assert called == [0]
    delivery.add_done_callback(lambda done: called.append(done.result().offset))
    assert called == [0, 0]


def test_many_threads_may_send(broker: str) -> None:
    with Producer(broker) as producer:

        def send(who: int) -> None:
            for number in range(200):
                producer.send("t", b"%d:%d" % (who, number), partition=0)

        threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([P0])
        values: list[bytes] = []
        while len(values) < 800:
            values += [record.value or b"" for record in consumer.poll(5)]
    for who in range(4):
        mine = [value for value in values if value.startswith(b"%d:" % who)]
        assert mine == [b"%d:%d" % (who, number) for number in range(200)]


def test_a_full_buffer_makes_send_wait_and_then_go_on(broker: str) -> None:
    with Producer(broker, buffer_memory=20_000, batch_size=2_000) as producer:
        deliveries = [producer.send("t", b"x" * 1000, partition=0) for _ in range(200)]
    assert [delivery.result().offset for delivery in deliveries] == list(range(200))


def test_a_producer_without_a_broker_says_so_in_time() -> None:
    producer = Producer("127.0.0.1:1", max_block_ms=200)
    with pytest.raises(RequestTimedOut, match="no metadata for topic 't'"):
        producer.send("t", b"x")
    producer.close()


def test_what_is_not_bytes_is_refused(broker: str) -> None:
    with Producer(broker) as producer:
        with pytest.raises(ConfigError, match="value='text' is not allowed; bytes or None"):
            producer.send("t", "text")  # type: ignore[arg-type]
        assert producer.send("t", bytearray(b"x"), memoryview(b"k")).result(10).offset == 0
        delivery = producer.send("t", b"x")
        delivery.result(10)
        for one in (delivery, producer.send("t", b"x")):  # whether it is delivered already or not
            with pytest.raises(IllegalState, match="AsyncProducer"):
                asyncio.run(_await(one))
    with pytest.raises(IllegalState, match="closed"):
        producer.send("t", b"x")


async def _await(delivery: Any) -> Any:
    return await delivery


# ---- clusters


def test_a_cluster_does_admin_work(broker: str) -> None:
    with Cluster(broker) as cluster:
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


def test_offsets_are_committed_without_being_a_member(broker: str) -> None:
    p1 = TopicPartition("t", 1)
    with Cluster(broker) as cluster:
        assert cluster.committed_offsets("g", [P0]) == {P0: None}
        cluster.commit_offsets("g", {P0: 5, p1: (7, "note")})
        found = cluster.committed_offsets("g")
    assert {p: (c.offset, c.metadata) for p, c in found.items() if c} == {P0: (5, ""), p1: (7, "note")}


def test_a_cluster_in_threads(broker: str) -> None:
    fill(broker, 50)
    with Cluster(broker) as cluster:
        found: list[int] = []

        def ask() -> None:
            for at in range(20):
                answer = cluster.fetch({P0: at}, max_wait_ms=1)
                found.append(answer[P0].high_watermark)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [50] * 80


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", "127.0.0.1:1,localhost:2"])
def test_an_unreachable_cluster_is_one_sentence_with_its_address(bootstrap: str) -> None:
    with (
        Cluster(bootstrap) as cluster,
        pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1"),
    ):
        cluster.topics()


def test_a_consumer_whose_cluster_was_never_there_says_so_in_poll() -> None:
    with Consumer("127.0.0.1:1", group_id="g") as consumer:
        consumer.subscribe("t")
        with pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1"):
            consumer.poll(20.0)


def test_a_position_that_nobody_can_tell_says_so() -> None:
    with Consumer("127.0.0.1:1", group_id="g") as consumer:
        consumer.assign([P0])
        with pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1"):
            consumer.position(P0)


def test_a_position_that_nobody_can_tell_says_so_to_asyncio() -> None:
    async def play() -> None:
        async with AsyncConsumer("127.0.0.1:1", group_id="g") as consumer:
            consumer.assign([P0])
            with pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1"):
                await consumer.position(P0)

    asyncio.run(play())


def test_a_silent_cluster_ends_with_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        with Cluster(address) as cluster, pytest.raises(RequestTimedOut, match="Metadata"):
            cluster.topics(timeout=0.3)
        assert time.monotonic() - start < 10


# ---- asyncio


def test_the_asyncio_consumer_iterates_and_commits_what_it_came_to(broker: str) -> None:
    fill(broker, 100)

    async def story() -> None:
        async with AsyncConsumer(broker, **GROUP) as consumer:
            consumer.subscribe("t")
            async for record in consumer:
                if record.offset == 41:
                    break
            assert await consumer.position(P0) == 42
        async with AsyncCluster(broker) as cluster:
            committed = (await cluster.committed_offsets("g"))[P0]
        assert committed is not None
        assert committed.offset == 42

    asyncio.run(story())


def test_an_asyncio_poll_may_wait_longer_than_max_poll_interval(broker: str) -> None:
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


@pytest.mark.parametrize(("breath", "turns"), [(0.0, 20), (3600.0, 0)])
def test_polls_that_find_all_they_want_let_others_have_their_turn_in_time(
    broker: str, monkeypatch: pytest.MonkeyPatch, breath: float, turns: int
) -> None:
    async def run() -> None:
        async with AsyncProducer(broker) as producer:
            for number in range(100):
                await producer.send("t", b"%d" % number, partition=0)
        monkeypatch.setattr("consumer.aio.waiters.MAX_HOG_S", breath)
        async with AsyncConsumer(broker, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert len(await consumer.poll(10, 1)) == 1
            had: list[int] = []

            async def other() -> None:
                while True:
                    had.append(len(had))
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in range(20):
                assert len(await consumer.poll(10, 1)) == 1
            task.cancel()
            assert len(had) == turns

    asyncio.run(run())


def test_a_cancelled_poll_loses_nothing(broker: str) -> None:
    fill(broker, 10)

    async def story() -> list[int]:
        async with AsyncConsumer(broker, auto_offset_reset="latest") as consumer:
            consumer.assign([P0])
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(10), 0.05)
            consumer.seek(P0, 3)
            return [record.offset for record in await consumer.poll(10)]

    assert asyncio.run(story()) == list(range(3, 10))


def test_asyncio_sends_wait_for_room_and_deliveries_are_awaited(broker: str) -> None:
    async def story() -> list[int | None]:
        async with AsyncProducer(broker, buffer_memory=20_000, batch_size=2_000) as producer:
            sent = [await producer.send("t", b"x" * 1000, partition=0) for _ in range(100)]
            with pytest.raises(IllegalState, match="await"):
                (await producer.send("t", b"x", partition=1)).result()
            return [(await request).offset for request in sent]

    assert asyncio.run(story()) == list(range(100))


def test_asyncio_errors_are_the_same(broker: str) -> None:
    async def story() -> None:
        async with AsyncProducer(broker) as producer:
            with pytest.raises(UnknownTopic):
                await producer.send("nowhere", b"x")
        async with AsyncCluster("127.0.0.1:1") as cluster:
            with pytest.raises(ConnectionFailed, match=r"^no broker at 127\.0\.0\.1:1: "):
                await cluster.topics()
        consumer = AsyncConsumer(broker, group_id="g")
        with pytest.raises(IllegalState, match="subscribe"):
            await consumer.poll()
        await consumer.close()
        with pytest.raises(IllegalState, match="closed"):
            await consumer.poll()

    asyncio.run(story())


def test_reports_are_told_once_each_by_whichever_thread_comes_first(broker: str) -> None:
    """Two threads tell, the consumer's own and the application's; here they always meet."""
    failed: list[BaseException] = []

    class Meeting(deque[GroupChange]):
        def __len__(self) -> int:
            found = super().__len__()
            time.sleep(0.002)
            return found

    def tell(consumer: Any) -> None:
        try:
            for _ in range(20):
                consumer._runtime._reports.append(GroupChange(0, "reset"))
                consumer._runtime._publish()
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


def test_a_position_that_was_committed_is_known_without_a_record(broker: str) -> None:
    """Nothing is there to be fetched, so nothing else wakes whoever waits for it."""
    fill(broker, 5)
    with Cluster(broker) as cluster:
        cluster.commit_offsets("g", {P0: 5})
    with Consumer(broker, group_id="g", fetch_max_wait_ms=20_000) as consumer:
        consumer.assign([P0])
        assert consumer.position(P0, timeout=5) == 5


def test_a_clock_that_is_set_anew_is_read_anew(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages are counted from it, and reports bear it; a start is where the records are that young."""
    hour_ms, right = 3_600_000, time.time_ns
    monkeypatch.setattr("time.time_ns", lambda: right() + hour_ms * 1_000_000)  # until somebody sets it right
    changes: list[GroupChange] = []
    with Consumer(broker, **{**GROUP, "auto_offset_reset": "by_duration:PT10M"}) as consumer:
        monkeypatch.setattr("time.time_ns", right)
        fill(broker, 10)
        consumer.events(changes.append)
        consumer.subscribe("t")
        assert len(consumer.poll(10)) == 10
    assert all(abs(change.at - right() // 1_000_000) < hour_ms // 2 for change in changes)
    assert changes


def test_an_unreachable_cluster_is_news_once(caplog: pytest.LogCaptureFixture) -> None:
    with Consumer("127.0.0.1:1", group_id="g") as consumer:
        consumer.subscribe("t")
        with pytest.raises(ConnectionFailed):
            consumer.poll(10)
    assert caplog.text.count("unreachable") == 1


def test_in_asyncio_nobody_there_is_said_in_the_same_words(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> None:
        async with AsyncCluster("127.0.0.1:1") as cluster:
            with pytest.raises(ConnectionFailed, match=r"no broker at 127\.0\.0\.1:1: connection refused"):
                await cluster.topics()

    asyncio.run(ask())


def test_a_send_in_vain_says_that_nobody_answers() -> None:
    producer = Producer("127.0.0.1:1", max_block_ms=300)
    with pytest.raises(RequestTimedOut, match=r"no metadata for topic 't' yet; no broker at 127\.0\.0\.1:1"):
        producer.send("t", b"x")
    producer.close()
