"""An asyncio producer runs its engine at each deadline. If the engine fails, all futures fail."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from consumer import AsyncProducer, GroupChange, clock
from consumer.engine import events as ev
from kproto.errors import IllegalState

NOWHERE = "127.0.0.1:1"


def run(story: Callable[[AsyncProducer, Any], Coroutine[Any, Any, None]]) -> None:
    """Call `story` with a producer and its runtime, and kill the producer when `story` has returned."""

    async def main() -> None:
        producer = AsyncProducer(NOWHERE, max_block_ms=50)
        try:
            await story(producer, producer._runtime)
        finally:
            producer.kill()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_the_timer_fires_when_the_engine_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(producer: AsyncProducer, runtime: Any) -> None:
        due: list[int | None] = [clock.now() + 5_000]
        monkeypatch.setattr(runtime.engine, "due", lambda: due[0])
        runtime._set_timer()
        timer = runtime._timer
        assert 4 < timer.when() - runtime.loop.time() <= 5.001
        runtime._set_timer()
        assert runtime._timer is timer  # The deadline is unchanged, so the timer is kept.
        due[0] = clock.now() - 5_000
        runtime._set_timer()
        assert timer.cancelled()
        assert runtime._timer.when() <= runtime.loop.time()
        due[0] = None
        runtime._set_timer()
        assert runtime._timer is None

    run(story)


def test_a_tick_has_the_time_at_which_it_was_due_and_follows_the_responses_of_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a blockage, the event loop reads the responses that have arrived before it runs the tick."""

    async def story(producer: AsyncProducer, runtime: Any) -> None:
        events: list[tuple[Any, int | None]] = []
        monkeypatch.setattr(runtime, "on_event", lambda event, at=None: events.append((event, at)))
        before = clock.now()
        runtime.on_timer()
        assert events == []
        while not events:
            await asyncio.sleep(0)
        ((event, at),) = events
        assert event == ev.Tick()
        assert at is not None
        assert before <= at <= clock.now()

    run(story)


def test_a_tick_before_its_time_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop may run a timer up to one clock tick too early. The client then sets the timer again."""

    async def story(producer: AsyncProducer, runtime: Any) -> None:
        due = clock.now() + 5_000
        monkeypatch.setattr(runtime.engine, "due", lambda: due)
        runtime._set_timer()
        fired = runtime._timer
        runtime.on_tick(due - 1)
        assert runtime._timer is not fired
        assert not runtime._timer.cancelled()

    run(story)


def test_a_failure_of_the_engine_ends_every_delivery(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(producer: AsyncProducer, runtime: Any) -> None:
        runtime.records.set_route("t", 1, [0])
        delivery = await producer.send("t", b"x")

        def fail(*arguments: Any) -> Any:
            raise ZeroDivisionError("broken")

        monkeypatch.setattr(runtime, "_perform", fail)
        runtime.on_event(ev.Tick())
        with pytest.raises(IllegalState, match="the producer failed; see the log; this record was not ack"):
            await delivery
        assert runtime._timer is None
        assert runtime._keep_alive == []

    run(story)
    (record,) = [record for record in caplog.records if record.getMessage() == "the producer failed"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_only_a_producer_with_open_records_is_kept_alive_by_its_timer() -> None:
    async def story(producer: AsyncProducer, runtime: Any) -> None:
        runtime._set_timer()
        assert runtime._keep_alive == []
        runtime.records.set_route("t", 1, [0])
        await producer.send("t", b"x")
        assert runtime._keep_alive == [runtime]

    run(story)


def test_a_result_of_a_delivery_must_be_awaited() -> None:
    async def story(producer: AsyncProducer, runtime: Any) -> None:
        runtime.records.set_route("t", 1, [0])
        delivery = await producer.send("t", b"x")
        with pytest.raises(IllegalState, match=r"await the delivery; result\(\) would block the event loop"):
            delivery.result(1)

    run(story)


def test_a_producer_needs_a_running_event_loop() -> None:
    with pytest.raises(IllegalState, match="an AsyncProducer needs a running event loop of asyncio"):
        AsyncProducer(NOWHERE)


def test_records_that_are_not_delivered_at_the_end_of_the_interpreter_are_reported() -> None:
    async def story(producer: AsyncProducer, runtime: Any) -> None:
        assert runtime.on_exit() == ""
        assert runtime.closing

    async def with_records(producer: AsyncProducer, runtime: Any) -> None:
        runtime.records.set_route("t", 1, [0])
        delivery = await producer.send("t", b"x")
        lost = runtime.on_exit()
        assert lost.startswith("the producer 'kproto' was not closed, and ")
        assert "1 record" in lost
        with pytest.raises(IllegalState, match="the process ends"):
            await delivery

    run(story)
    run(with_records)


def test_reports_and_callbacks_of_the_engine_reach_the_application() -> None:
    async def story(producer: AsyncProducer, runtime: Any) -> None:
        changes: list[GroupChange] = []
        called: list[str] = []
        producer.events(changes.append)
        change = GroupChange(at=5, kind="fenced", reason="another producer")
        before = runtime.changes
        runtime._perform([ev.Report(change), ev.CallBack(lambda: called.append("called"))])
        assert called == ["called"]
        assert runtime.changes == before
        runtime._perform([ev.Wake()])
        assert runtime.changes == before + 1
        await asyncio.sleep(0)
        assert changes == [change]

    run(story)


def test_the_end_of_a_producer_closes_its_connections() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            host, port = server.getsockname()
            producer = AsyncProducer(f"{host}:{port}")
            task = asyncio.create_task(producer.send("t", b"x"))
            while producer.metrics().value("connection-count") == 0:
                await asyncio.sleep(0.001)
            peer, _ = server.accept()
            with peer:
                producer.kill()
                with pytest.raises(IllegalState, match="this producer is closed"):
                    await task
                peer.settimeout(10)
                while peer.recv(4096):
                    pass
            assert producer.metrics().value("connection-count") == 0

    asyncio.run(asyncio.wait_for(main(), 30))
