"""Give AsyncProducer the blocking methods of Producer, so that one test covers both producers."""

from __future__ import annotations

import inspect
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from consumer import AsyncProducer, Delivery, Producer, RecordMetadata
from consumer.sarama.loop_thread import LoopThread
from tests.consumer.scripted_coordinator import Coordinator


class SynchronousProducer:
    """An AsyncProducer with the blocking methods of a Producer. Its event loop runs in a thread."""

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self.loop_thread = LoopThread("awaited", lambda: AsyncProducer(bootstrap, **options))
        self.producer = self.loop_thread.client

    def do(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def work() -> Any:
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return self.loop_thread.run(work())

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.producer, name)
        return lambda *args, **kwargs: self.do(method, *args, **kwargs)

    def send(self, *args: Any, **kwargs: Any) -> Sent:
        return Sent(self, self.do(self.producer.send, *args, **kwargs))

    @contextmanager
    def transaction(self) -> Generator[None]:
        block = self.producer.transaction()
        self.do(block.__aenter__)
        try:
            yield
        except BaseException as error:
            self.do(block.__aexit__, type(error), error, None)
            raise
        self.do(block.__aexit__, None, None, None)

    def end(self) -> None:
        """Close the producer and its event loop."""

        async def loop_thread() -> None:
            self.producer.kill()

        self.loop_thread.close(loop_thread())

    def __enter__(self) -> SynchronousProducer:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        finally:
            self.end()


class Sent:
    """A delivery of a SynchronousProducer. `result` blocks until the delivery has ended."""

    def __init__(self, producer: SynchronousProducer, delivery: Delivery) -> None:
        self.producer, self.delivery = producer, delivery

    def result(self) -> RecordMetadata:
        async def there() -> RecordMetadata:
            return await self.delivery

        metadata: RecordMetadata = self.producer.loop_thread.run(there())
        return metadata

    def done(self) -> bool:
        return self.delivery.done()


# The producers under test by name. Both have the blocking methods of `Producer`.
PRODUCERS: Mapping[str, Callable[..., Any]] = {"threads": Producer, "asyncio": SynchronousProducer}

OPTIONS: dict[str, Any] = {"transactional_id": "x", "linger_ms": 0}


def end(producer: Any) -> None:
    getattr(producer, "end", producer.kill)()


def later(function: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Run a function in another thread. Return the thread, and the list for its result or error."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def machine(producer: Any) -> Any:
    return getattr(producer, "producer", producer)._runtime.engine.transactions


@contextmanager
def ctrl_c(moment: int) -> Iterator[None]:
    """Send SIGINT at a point of the client's code at which CPython may run a signal handler.

    These points are before the first line of each function and after each call. `moment` is the number of the
    point, counted from 1.
    """
    remaining = moment

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal remaining
        if event != "c_call" and "/consumer/" in frame.f_code.co_filename:
            remaining -= 1
            if not remaining:
                signal.raise_signal(signal.SIGINT)

    # In a background job of a shell, SIGINT is ignored until a handler is set.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
        signal.signal(signal.SIGINT, before)


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.005)


# ---- fixtures for tests of transactions


@pytest.fixture
def broker() -> Iterator[Coordinator]:
    with Coordinator() as coordinator:
        yield coordinator


@pytest.fixture(params=PRODUCERS)
def make(request: pytest.FixtureRequest, broker: Coordinator) -> Iterator[Callable[..., Any]]:
    """Return a function that creates a transactional producer, blocking or asyncio. The producers are closed
    at the end of the test.
    """
    producers: list[Any] = []

    def make(**options: Any) -> Any:
        producers.append(PRODUCERS[request.param](broker.bootstrap, **OPTIONS, **options))
        return producers[-1]

    yield make
    for producer in producers:
        end(producer)
