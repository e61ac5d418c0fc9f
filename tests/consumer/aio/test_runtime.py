"""An asyncio client runs its engine at each deadline, and ends calls when the client fails or is closed."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from consumer import AsyncAdmin, AsyncConsumer, TopicPartition, clock, lifecycle
from consumer.engine import events as ev
from consumer.engine.network.transport import Open, Write
from kproto.errors import IllegalState, WokenUp

NOWHERE = "127.0.0.1:1"


def run(story: Callable[[AsyncConsumer, Any], Coroutine[Any, Any, None]]) -> None:
    """Call `story` with a consumer and its runtime, and kill the consumer when `story` has returned."""

    async def main() -> None:
        reader = AsyncConsumer(NOWHERE, group_id="g")
        try:
            await story(reader, reader._runtime)
        finally:
            reader.kill()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_the_timer_fires_when_the_engine_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([])  # The client now knows its event loop.
        due: list[int | None] = [clock.now() + 5_000]
        monkeypatch.setattr(runtime.driver, "due", lambda: due[0])
        runtime._set_timer()
        timer = runtime._timer
        assert 4 < timer.when() - asyncio.get_running_loop().time() <= 5.001
        runtime._set_timer()
        assert runtime._timer is timer  # The deadline is unchanged, so the timer is kept.
        due[0] = clock.now() - 5_000
        runtime._set_timer()
        assert timer.cancelled()
        assert runtime._timer.when() <= asyncio.get_running_loop().time()
        timer = runtime._timer
        due[0] = None
        runtime._set_timer()
        assert timer.cancelled()
        assert runtime._timer is None

    run(story)


def test_the_timer_passes_a_tick_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([])
        events: list[Any] = []
        monkeypatch.setattr(runtime.driver, "step", lambda event, at: events.append(event) or [])
        monkeypatch.setattr(runtime.driver, "due", lambda: None if events else clock.now())
        runtime._set_timer()
        while not events:
            await asyncio.sleep(0)
        assert events == [ev.Tick()]
        assert runtime._timer is None

    run(story)


def test_a_tick_before_its_time_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop may run a timer up to one clock tick too early. The client then sets the timer again."""

    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([])
        due = clock.now() + 5_000
        monkeypatch.setattr(runtime.driver, "due", lambda: due)
        runtime._set_timer()
        fired = runtime._timer
        runtime.on_timer()
        assert runtime._timer is not fired
        assert not runtime._timer.cancelled()

    run(story)


def test_a_failure_of_the_engine_fails_the_client_and_closes_its_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([])
        future = runtime._new_future()

        def fail(event: Any, at: int) -> Any:
            raise ZeroDivisionError("broken")

        monkeypatch.setattr(runtime.driver, "step", fail)
        runtime.on_event(ev.Tick())
        with pytest.raises(IllegalState, match=r"this consumer failed \(ZeroDivisionError\('broken'\)\)"):
            await future
        runtime.on_event(ev.Tick())  # A client that has failed ignores events.
        assert runtime._timer is None
        with pytest.raises(IllegalState, match="close it, and make a new one"):
            reader.assign([])

    run(story)
    assert [record.levelname for record in caplog.records if "failed" in record.getMessage()] == ["CRITICAL"]


@pytest.mark.parametrize("state", [{"closed": True}, {"forked": True}, {"failure": ZeroDivisionError()}])
def test_the_engine_of_a_client_that_has_ended_gets_no_event(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]
) -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([])
        events: list[Any] = []
        monkeypatch.setattr(runtime.driver, "step", lambda event, at: events.append(event) or [])
        with monkeypatch.context() as patch:
            for name, value in state.items():
                patch.setattr(runtime, name, value)
            runtime.on_event(ev.Tick())
        assert events == []
        runtime.on_event(ev.Tick())
        assert events == [ev.Tick()]

    run(story)


def test_a_client_that_has_ended_starts_no_timer() -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([TopicPartition("t", 0)])
        timer = runtime._timer
        runtime.end()
        assert timer.cancelled()
        runtime._set_timer()
        assert runtime._timer is None

    run(story)


def test_ctrl_c_in_an_event_fails_the_client_and_ends_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([])
        future = runtime._new_future()

        def interrupt(event: Any, at: int) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(runtime.driver, "step", interrupt)
            with pytest.raises(KeyboardInterrupt):
                runtime.on_event(ev.Tick())
        assert isinstance(runtime.failure, KeyboardInterrupt)
        with pytest.raises(IllegalState, match="this consumer failed"):
            await future

    run(story)


def test_a_call_needs_the_running_event_loop_in_which_the_client_was_first_used() -> None:
    admin = AsyncAdmin(NOWHERE)
    with pytest.raises(
        IllegalState, match=r"topics\(\) needs a running event loop of asyncio \(trio is not supported\)"
    ):
        admin.topics().send(None)

    async def use() -> None:
        with pytest.raises(IllegalState, match="this admin client belongs to another event loop"):
            await admin.topics()

    async def close() -> None:
        await admin.close()

    asyncio.run(close())
    asyncio.run(use())


def test_one_task_at_a_time_may_poll_and_any_task_may_close() -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([])
        with runtime.call("poll", serves=True):
            assert runtime.is_callers()

            async def other() -> None:
                assert not runtime.is_callers()
                with pytest.raises(IllegalState, match=r"another task is inside poll\(\) of this consumer"):
                    runtime.call("poll", serves=True)
                with runtime.call("position"), runtime.call("close", serves=True):
                    pass

            await asyncio.create_task(other())
        assert runtime.is_callers()
        with runtime.call("poll", serves=True):
            pass

    run(story)


def test_the_end_of_a_client_fails_its_open_futures_and_wakes_waiting_tasks() -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([])
        future, changes = runtime._new_future(), runtime.changes
        assert runtime in lifecycle._open_clients
        runtime.end()
        assert runtime.closed
        assert runtime not in lifecycle._open_clients
        assert runtime.changes > changes
        with pytest.raises(IllegalState, match="this consumer was closed during the call"):
            await future
        assert runtime._timer is None

    run(story)


def test_a_wakeup_is_noticed_in_the_next_turn_of_the_loop() -> None:
    """Threads and signal handlers may call `wakeup`, so only the loop's next turn wakes the waiting tasks."""

    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        reader.assign([TopicPartition("t", 0)])
        for _ in range(3):
            await asyncio.sleep(0)
        changes = runtime.changes
        reader.wakeup()
        assert (runtime.woken, runtime.changes) == (True, changes)
        await asyncio.sleep(0)
        assert runtime.changes == changes + 1
        with pytest.raises(WokenUp):
            await reader.poll(0)
        assert not runtime.woken

    run(story)


def test_a_killed_client_ends_at_once_and_the_child_of_a_fork_kills_nothing() -> None:
    async def main() -> None:
        reader = AsyncConsumer("127.0.0.1:1", group_id="g")
        runtime: Any = reader._runtime
        runtime.forked = True
        reader.kill()
        assert not runtime.closed
        runtime.forked = False
        reader.kill()
        assert runtime.closed

    asyncio.run(main())


def test_a_callback_that_is_cancelled_before_it_begins_is_closed() -> None:
    """If the coroutine were not closed, Python would warn that it was never awaited."""

    async def callback() -> None: ...

    async def main() -> None:
        reader = AsyncConsumer("127.0.0.1:1", group_id="g")
        runtime: Any = reader._runtime
        answer, ended = callback(), list[str]()
        finish = asyncio.ensure_future(runtime.finish_callback(answer, lambda: ended.append("end"), None))
        while runtime.callback_task is None:
            await asyncio.sleep(0)
        runtime.callback_task.cancel()
        with pytest.raises(IllegalState, match=r"^a callback was cancelled before it ended"):
            await finish
        assert inspect.getcoroutinestate(answer) == inspect.CORO_CLOSED
        assert ended == ["end"]
        reader.kill()

    asyncio.run(main())


def test_a_callback_continues_after_the_deadline_of_a_wait_and_the_next_wait_raises_its_error() -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        released = asyncio.Event()

        async def callback() -> None:
            await released.wait()
            raise ZeroDivisionError("broken")

        await runtime.finish_callback(callback(), lambda: None, clock.now())
        assert not await runtime.callback_finished(clock.now())
        released.set()
        with pytest.raises(ZeroDivisionError, match="broken"):
            await runtime.callback_finished()
        assert await runtime.callback_finished()

    run(story)


def test_the_result_of_a_cancelled_call_or_of_a_call_in_a_closed_loop_is_dropped() -> None:
    unfinished: list[tuple[Any, asyncio.Future[Any]]] = []

    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        cancelled, waiting = runtime._new_future(), runtime._new_future()
        cancelled.cancel()
        for error in (None, IllegalState("failed")):
            runtime._complete(cancelled, "result", error)
        assert cancelled.cancelled()
        unfinished.append((runtime, waiting))
        # Make the client forget the future `waiting`. Otherwise, when the client ends, it fails the future.
        runtime._open_futures.clear()

    run(story)
    ((runtime, future),) = unfinished
    future.add_done_callback(print)  # A closed event loop cannot call the callback.
    runtime._complete(future, "result", None)
    assert not future.done()


def test_the_child_of_a_fork_may_close_without_an_event_loop() -> None:
    reader = AsyncConsumer(NOWHERE, group_id="g")
    runtime: Any = reader._runtime
    runtime.forked = True
    with runtime.call("close", serves=True):
        pass
    with pytest.raises(IllegalState, match="fork"):
        runtime.call("poll", serves=True)
    runtime.forked = False
    reader.kill()


def received_by(peer: socket.socket) -> int:
    """Return how many bytes a socket receives until the end of the connection. Close the socket."""
    size = 0
    with peer, contextlib.suppress(ConnectionResetError):
        peer.settimeout(10)
        while data := peer.recv(1 << 20):
            size += len(data)
    return size


@pytest.mark.parametrize("end", ["end", "kill", "failure"])
def test_the_end_of_a_client_closes_its_connections(end: str) -> None:
    async def story(reader: AsyncConsumer, runtime: Any) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            runtime.streams.perform(Open(9, *server.getsockname()))
            while 9 not in runtime.streams._transports:
                await asyncio.sleep(0.001)
            peer, _ = server.accept()
            size = 1 << 24  # More bytes than the socket buffers hold.
            runtime.streams.perform(Write(9, bytes(size)))
            if end == "failure":
                runtime._fail_client(ZeroDivisionError("broken"))
            else:
                getattr(runtime, end)()
            received = await asyncio.to_thread(received_by, peer)
            # Only `end` sends the bytes that are still in the write buffer.
            assert (received == size) == (end == "end")

    run(story)
