"""The broker of a test, with an address for the code under test, and calls to prepare and inspect it.

    def test_the_service_counts(kafka):                   # the fixture of kproto.testing.plugin
        kafka.create_topic("flights", 3)
        kafka.produce("flights", b"departed", key=b"UA")
        service = start_service(bootstrap=kafka.bootstrap)
        kafka.wait_until(lambda: kafka.group("service").total_lag == 0)
        assert [record.value for record in kafka.records("counts")] == [b"1"]

A test works the same on the embedded broker and on a real one. Every call raises a KprotoError if the broker
rejects the call or is down. `AsyncKafka` has the same methods, as coroutines.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

# isort: off

# The names of kproto must be imported before `consumer`. Their import finds kproto's own package `consumer`
# even if another package on the path has this name.
from .. import (
    Admin,
    Consumer,
    Producer,
)
from consumer import ConsumerRecord, Group, RecordMetadata

# isort: on

from ..errors import ConfigError, IllegalState, PartialFailure, RequestTimedOut, UnknownTopic
from ..group.subscription import TopicPartition
from ..validation import FUNCTION_WITHOUT_ARGUMENTS, NAMES_TO_TEXTS, NUMBER, TEXT, WHOLE_NUMBER, checked

if TYPE_CHECKING:
    from consumer import AsyncAdmin
    from consumer.security import SecurityConfig

    from ..broker.server import Server

P = ParamSpec("P")
R = TypeVar("R")

# The exceptions that a condition of `wait_until` may raise before it is true.
NOT_YET: Final = (AssertionError, UnknownTopic)

# Hide this module in pytest's tracebacks, so that they end at the call in the test.
__tracebackhide__ = True


class Kafka:
    """A broker in a test. `bootstrap` is the HOST:PORT for the code under test. Thread-safe."""

    def __init__(
        self,
        bootstrap: str,
        server: Server | None = None,
        security: SecurityConfig | None = None,
        *,
        without_server: Callable[[str], BaseException] = IllegalState,
    ) -> None:
        self.bootstrap = bootstrap
        self._server = server
        self._security: SecurityConfig = security or {}
        self._without_server = without_server
        # The address that this object's methods use, even if `bootstrap` is replaced.
        self._address = bootstrap
        self.created: list[str] = []
        self._cluster: Admin | None = None
        self._cluster_lock = Lock()

    def __repr__(self) -> str:
        return f"<Kafka at {self.bootstrap}>"

    def options(self) -> SecurityConfig:
        """Return the security options with which kproto's clients connect to this broker."""
        return {**self._security}

    @property
    def server(self) -> Server:
        """The embedded broker itself, to inject errors: `kafka.server.fail("Produce", ...)`.

        With a real broker, reading this property skips the pytest test. Outside of the pytest fixture, it
        raises IllegalState instead.
        """
        if self._server is None:
            raise self._without_server(
                "faults cannot be injected into a real broker; run the tests with --kafka=embedded"
            )
        return self._server

    @property
    def cluster(self) -> Admin:
        """An `Admin` of this broker, for calls and requests that `Kafka` lacks, such as raw fetches."""
        with self._cluster_lock:  # A lock is needed, because calls may come from several threads.
            if self._cluster is None:
                self._cluster = Admin(self._address, **self._security)
            return self._cluster

    @checked(name=TEXT, partitions=WHOLE_NUMBER, configs=NAMES_TO_TEXTS)
    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. Returns when every partition has a leader."""
        self.cluster.create_topics({name: partitions}, configs=configs)
        self.created.append(name)

    @checked(name=TEXT, partitions=WHOLE_NUMBER)
    def grow_topic(self, name: str, partitions: int) -> None:
        """Increase the number of partitions of a topic to `partitions`."""
        self.cluster.create_partitions({name: partitions})

    @checked(topic=TEXT, partition=WHOLE_NUMBER, timestamp=WHOLE_NUMBER)
    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> list[RecordMetadata]:
        """Write records, wait for their acknowledgement, and return their metadata.

        Keys and values that are strings are encoded as UTF-8.

        `timestamp` is in ms since 1970. Without `partition`, the key selects the partition.
        """
        with Producer(self._address, linger_ms=0, **self._security) as producer:
            deliveries = [
                producer.send(
                    topic,
                    _encode_text("value", value),
                    key=_encode_text("key", key),
                    partition=partition,
                    timestamp=timestamp,
                    headers=headers,
                )
                for value in values
            ]
            return [delivery.result() for delivery in deliveries]

    @checked(topic=TEXT, isolation_level=TEXT, timeout=NUMBER)
    def records(
        self, topic: str, *, isolation_level: str = "read_committed", timeout: float = 30.0
    ) -> list[ConsumerRecord]:
        """Return all committed records in the topic, ordered by partition and offset.

        With `isolation_level="read_uncommitted"`, the result includes records of open and aborted
        transactions.

        Raises RequestTimedOut if no record arrives for `timeout` seconds. The error contains the offsets that
        were reached.
        """
        deadline = _deadline_after(time.monotonic(), timeout)
        with Consumer(
            self._address,
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
            fetch_max_wait_ms=50,
            **self._security,
        ) as consumer:
            partitions = self.cluster.partitions(topic)
            latest = self.cluster.list_offsets(dict.fromkeys(partitions, "latest"), isolation=isolation_level)
            end_offsets = {partition: latest[partition].offset or 0 for partition in partitions}
            by_partition: dict[TopicPartition, list[ConsumerRecord]] = {
                partition: [] for partition in partitions
            }
            consumer.assign(partitions)
            while remaining := {
                partition: position
                for partition in partitions
                if (position := consumer.position(partition)) < end_offsets[partition]
            }:
                records = consumer.poll(max(0.0, min(1.0, deadline - time.monotonic())))
                for record in records:
                    partition = TopicPartition(record.topic, record.partition)
                    if record.offset < end_offsets[partition]:
                        by_partition[partition].append(record)
                if records:
                    deadline = _deadline_after(time.monotonic(), timeout)
                elif time.monotonic() >= deadline:
                    progress = _describe_progress(remaining, end_offsets)
                    raise RequestTimedOut("records", int(timeout * 1_000), progress)
        return [record for partition in partitions for record in by_partition[partition]]

    @checked(name=TEXT)
    def group(self, name: str) -> Group:
        """Return the group's current state, members, committed offsets and lag."""
        return self.cluster.group(name, require_stable=True)

    @checked(name=TEXT)
    def delete_group(self, name: str) -> None:
        """Delete a group without members, and its committed offsets."""
        try:
            self.cluster.delete_groups([name])
        except PartialFailure as failure:
            raise failure.failed[name] from None

    @checked(condition=FUNCTION_WITHOUT_ARGUMENTS, timeout=NUMBER, what=TEXT)
    def wait_until(
        self, condition: Callable[[], object], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Return when `condition()` is true. Raises AssertionError after `timeout` seconds.

        The error contains `what`, and the last value or error of the condition. A condition that raises
        AssertionError or UnknownTopic counts as false.

        A condition that consists of assertions must end with `return True`.
        """
        deadline = _deadline_after(time.monotonic(), timeout)
        while True:
            outcome: object
            try:
                outcome = condition()
                if inspect.isawaitable(outcome):
                    raise _awaitable_error(outcome)
                if outcome:
                    return
            except NOT_YET as error:
                outcome = error
            if time.monotonic() >= deadline:
                raise _timeout_error(what, timeout, outcome)
            time.sleep(0.02)

    def clean(self) -> None:
        """Delete the topics that this object's `create_topic` has created."""
        created, self.created = self.created, []
        existing = self.cluster.topics() if created else {}
        if remaining := [topic for topic in created if topic in existing]:
            self.cluster.delete_topics(remaining)

    def close(self) -> None:
        """Close the connections of this object. The embedded broker keeps running."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _encode_text(name: str, text: bytes | str | None) -> bytes | None:
    """Encode a string as UTF-8; return bytes and None unchanged. `name` is for the error message."""
    if not isinstance(text, str):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(name, text, f"text that can be encoded as UTF-8: {error.reason}") from None


def _deadline_after(now: float, timeout: float) -> float:
    """Return the time at which a wait of `timeout` seconds ends. Raises ConfigError if `timeout` is not a
    number.
    """
    if math.isnan(timeout):
        raise ConfigError("timeout", timeout, "a number of seconds")
    return now + timeout


def _describe_progress(
    positions: Mapping[TopicPartition, int], end_offsets: Mapping[TopicPartition, int]
) -> str:
    return ", ".join(
        f"{partition} is read up to {position} of {end_offsets[partition]}"
        for partition, position in positions.items()
    )


def _awaitable_error(result: object) -> ConfigError:
    """Return the error for a condition that returns an awaitable, which would always count as true.

    Closes `result` if it is a coroutine, so that Python does not warn that it was never awaited.
    """
    if inspect.iscoroutine(result):
        result.close()
    return ConfigError(
        "condition",
        result,
        "a function that returns its result; only wait_until of async_kafka awaits one",
    )


def _timeout_error(what: str, timeout: float, outcome: object) -> AssertionError:
    """Return the error for a wait that timed out. `outcome` is the condition's last result or exception."""
    if outcome is None:
        reason = "the condition returned None; after assertions it must return True"
    elif isinstance(outcome, Exception):
        reason = f"the last error was {type(outcome).__name__}: {outcome}"
    else:
        reason = f"the last value was {outcome!r:.200}"
    error = AssertionError(f"{what} did not come true within {timeout} s; {reason}")
    error.__cause__ = outcome if isinstance(outcome, AssertionError) else None
    return error


class AsyncKafka:
    """`Kafka` for tests in an event loop: the same methods, as coroutines, which do not block the loop."""

    def __init__(self, kafka: Kafka) -> None:
        self.bootstrap = kafka.bootstrap
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"<AsyncKafka at {self.bootstrap}>"

    def options(self) -> SecurityConfig:
        """The same as `Kafka.options`."""
        return self._kafka.options()

    @property
    def cluster(self) -> AsyncAdmin:
        """The same as `Kafka.cluster`, with coroutines. The fixture closes the cluster."""
        return cast("AsyncAdmin", _AdminInThreads(self._kafka.cluster))

    @property
    def server(self) -> Server:
        """The same as `Kafka.server`."""
        return self._kafka.server

    @checked(name=TEXT, partitions=WHOLE_NUMBER, configs=NAMES_TO_TEXTS)
    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        await _in_thread(self._kafka.create_topic, name, partitions, configs)

    @checked(name=TEXT, partitions=WHOLE_NUMBER)
    async def grow_topic(self, name: str, partitions: int) -> None:
        await _in_thread(self._kafka.grow_topic, name, partitions)

    @checked(topic=TEXT, partition=WHOLE_NUMBER, timestamp=WHOLE_NUMBER)
    async def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> list[RecordMetadata]:
        produce = partial(self._kafka.produce, key=key, partition=partition, timestamp=timestamp)
        return await _in_thread(produce, topic, *values, headers=headers)

    @checked(topic=TEXT, isolation_level=TEXT, timeout=NUMBER)
    async def records(
        self, topic: str, *, isolation_level: str = "read_committed", timeout: float = 30.0
    ) -> list[ConsumerRecord]:
        records = partial(self._kafka.records, isolation_level=isolation_level, timeout=timeout)
        return await _in_thread(records, topic)

    @checked(name=TEXT)
    async def group(self, name: str) -> Group:
        return await _in_thread(self._kafka.group, name)

    @checked(name=TEXT)
    async def delete_group(self, name: str) -> None:
        await _in_thread(self._kafka.delete_group, name)

    @checked(condition=FUNCTION_WITHOUT_ARGUMENTS, timeout=NUMBER, what=TEXT)
    async def wait_until(
        self, condition: Callable[[], Any], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """The same as `Kafka.wait_until`; `condition` may also return an awaitable."""
        loop = _running_loop()
        deadline = _deadline_after(loop.time(), timeout)
        while True:
            outcome: object
            try:
                result = condition()
                outcome = await result if inspect.isawaitable(result) else result
                if outcome:
                    return
            except NOT_YET as error:
                outcome = error
            if loop.time() >= deadline:
                raise _timeout_error(what, timeout, outcome)
            await asyncio.sleep(0.02)


def _running_loop() -> asyncio.AbstractEventLoop:
    """Return asyncio's running loop. Raises IllegalState if none runs in this thread."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise IllegalState(
            "async_kafka needs a running asyncio event loop, and trio has none. With anyio, select the "
            "backend asyncio. With trio, use the fixture kafka in a thread"
        ) from None


async def _in_thread(function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """Run a function in a worker thread, so that it does not block the event loop."""
    _running_loop()
    return await asyncio.to_thread(function, *arguments, **options)


class _AdminInThreads:
    """A proxy for an `Admin`. Its methods are coroutines, each of which runs the call in a thread."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._admin, name)
        return partial(_in_thread, attribute) if callable(attribute) else attribute
