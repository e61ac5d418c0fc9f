"""What a test holds of its broker: an address for the code under test, and calls to prepare and to look.

    def test_the_service_counts(kafka):                   # the fixture of kproto.testing.plugin
        kafka.create_topic("flights", 3)
        kafka.produce("flights", b"departed", key=b"UA")
        service = start_service(bootstrap=kafka.bootstrap)
        kafka.wait_until(lambda: kafka.group("service").total_lag == 0)
        assert [record.value for record in kafka.records("counts")] == [b"1"]

Works the same on the embedded broker and on any real one. Every call raises a KprotoError when the broker
refuses or is gone. `AsyncKafka` has the same calls to be awaited.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, cast

# isort: off
from .. import (
    Cluster,
    Consumer,
    Producer,
)  # the door first: it tells of another module by the name `consumer`
from consumer import ConsumerRecord, Group, RecordMetadata

# isort: on

from ..errors import ConfigError, IllegalState, RequestTimedOut, UnknownTopic
from ..group.subscription import TopicPartition
from ..validation import checked

if TYPE_CHECKING:
    from consumer import AsyncCluster
    from consumer.security import SecurityConfig

    from ..broker.server import Server

NOT_YET: Final = (AssertionError, UnknownTopic)  # What a condition may raise until it comes true.

# pytest shows where a test called, and not how a call here ended.
__tracebackhide__ = True


class Kafka:
    """A broker in a test. `bootstrap` is the HOST:PORT for the code under test."""

    def __init__(
        self, bootstrap: str, server: Server | None = None, security: SecurityConfig | None = None
    ) -> None:
        self.bootstrap = bootstrap
        self._server = server
        self._security: SecurityConfig = security or {}
        self._own = bootstrap  # for the calls here, wherever `bootstrap` leads
        self.created: list[str] = []
        self._cluster: Cluster | None = None
        self._making = Lock()

    def __repr__(self) -> str:
        return f"<Kafka at {self.bootstrap}>"

    def options(self) -> SecurityConfig:
        """What kproto's own clients need beside `bootstrap` to get in: what --kafka-command-config says."""
        return {**self._security}

    @property
    def server(self) -> Server:
        """The embedded broker itself, to let things go wrong: `kafka.server.fail("Produce", ...)`. Raises
        IllegalState where the tests run on another broker.
        """
        if self._server is None:
            raise IllegalState("a real broker can't be told to fail: --kafka=embedded")
        return self._server

    @property
    def cluster(self) -> Cluster:
        """For everything that has no call here: any request, offsets by time, raw fetches."""
        with self._making:  # calls may come from several threads
            if self._cluster is None:
                self._cluster = Cluster(self._own, **self._security)
            return self._cluster

    @checked
    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Makes a topic and returns when every partition has a leader."""
        self.cluster.create_topics({name: partitions}, configs=configs)
        self.created.append(name)

    @checked
    def grow_topic(self, name: str, partitions: int) -> None:
        """Lets a topic have `partitions` in all."""
        self.cluster.create_partitions({name: partitions})

    @checked
    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> list[RecordMetadata]:
        """Writes records and returns where they are, when the broker has them; texts become UTF-8."""
        with Producer(self._own, linger_ms=0, **self._security) as producer:
            sent = [
                producer.send(
                    topic,
                    _encoded("value", value),
                    key=_encoded("key", key),
                    partition=partition,
                    timestamp=timestamp,
                    headers=headers,
                )
                for value in values
            ]
            return [delivery.result() for delivery in sent]

    @checked
    def records(
        self, topic: str, *, isolation_level: str = "read_committed", timeout: float = 30.0
    ) -> list[ConsumerRecord]:
        """Every record that is in the topic now and committed, partition by partition, in the order of
        offsets; with "read_uncommitted" also those of open and aborted transactions.

        RequestTimedOut says how far it came, where nothing more comes for `timeout` seconds.
        """
        end = _deadline(time.monotonic(), timeout)
        with Consumer(
            self._own,
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
            fetch_max_wait_ms=50,
            **self._security,
        ) as consumer:
            partitions = self.cluster.partitions(topic)
            ends = self.cluster.list_offsets(dict.fromkeys(partitions, "latest"), isolation=isolation_level)
            goals = {partition: ends[partition].offset or 0 for partition in partitions}
            found: dict[TopicPartition, list[ConsumerRecord]] = {partition: [] for partition in partitions}
            consumer.assign(partitions)
            while left := {
                partition: at
                for partition in partitions
                if (at := consumer.position(partition)) < goals[partition]
            }:
                records = consumer.poll(max(0.0, min(1.0, end - time.monotonic())))
                for record in records:
                    place = TopicPartition(record.topic, record.partition)
                    if record.offset < goals[place]:
                        found[place].append(record)
                if records:
                    end = _deadline(time.monotonic(), timeout)
                elif time.monotonic() >= end:
                    raise RequestTimedOut("records", int(timeout * 1_000), _not_read(left, goals))
        return [record for partition in partitions for record in found[partition]]

    @checked
    def group(self, name: str) -> Group:
        """The group now: its state, members, what it committed and how far behind it is."""
        return self.cluster.group(name)

    @checked
    def delete_group(self, name: str) -> None:
        """Forgets a group without members, and its commits."""
        self.cluster.delete_groups([name])

    @checked
    def wait_until(
        self, condition: Callable[[], object], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """Returns when `condition()` is true; AssertionError naming `what` and what came last after `timeout`
        seconds.

        A condition that raises AssertionError or UnknownTopic is asked again; one that only asserts must
        return True in the end.
        """
        end = _deadline(time.monotonic(), timeout)
        while True:
            last: object
            try:
                last = condition()
                if inspect.isawaitable(last):
                    raise _not_awaited(last)
                if last:
                    return
            except NOT_YET as error:
                last = error
            if time.monotonic() >= end:
                raise _too_late(what, timeout, last)
            time.sleep(0.02)

    def clean(self) -> None:
        """Deletes the topics that `create_topic` of this object made."""
        names, self.created = self.created, []
        there = self.cluster.topics() if names else {}
        if names := [name for name in names if name in there]:
            self.cluster.delete_topics(names)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _encoded(name: str, text: bytes | str | None) -> bytes | None:
    if not isinstance(text, str):
        return text
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(name, text, f"a text that has a UTF-8 form: {error.reason}") from None


def _deadline(now: float, timeout: float) -> float:
    """When to stop waiting. Raises ConfigError for what is no time."""
    if math.isnan(timeout):
        raise ConfigError("timeout", timeout, "a number of seconds")
    return now + timeout


def _not_read(left: Mapping[TopicPartition, int], goals: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{one} is read up to {at} of {goals[one]}" for one, at in left.items())


def _not_awaited(condition: object) -> ConfigError:
    """Nobody awaits it here, so it would count as true."""
    if inspect.iscoroutine(condition):
        condition.close()
    return ConfigError("condition", condition, "a function that returns its answer; async_kafka awaits one")


def _too_late(what: str, timeout: float, last: object) -> AssertionError:
    """The end of a wait, with what the condition did last."""
    if last is None:
        came = "the condition returned None; one that asserts returns True behind its asserts"
    elif isinstance(last, Exception):
        came = f"the last error was {type(last).__name__}: {last}"
    else:
        came = f"the last value was {last!r:.200}"
    made = AssertionError(f"{what} did not come true within {timeout} s; {came}")
    made.__cause__ = last if isinstance(last, AssertionError) else None
    return made


class AsyncKafka:
    """`Kafka` for tests that run in an event loop: the same calls, awaited; they don't block the loop."""

    def __init__(self, kafka: Kafka) -> None:
        self.bootstrap = kafka.bootstrap
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"<AsyncKafka at {self.bootstrap}>"

    def options(self) -> SecurityConfig:
        """As `Kafka.options`."""
        return self._kafka.options()

    @property
    def cluster(self) -> AsyncCluster:
        """As `Kafka.cluster`, awaited. It is closed with the test's broker."""
        return cast("AsyncCluster", _InThreads(self._kafka.cluster))

    @property
    def server(self) -> Server:
        """As `Kafka.server`."""
        return self._kafka.server

    @checked
    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        await asyncio.to_thread(self._kafka.create_topic, name, partitions, configs)

    @checked
    async def grow_topic(self, name: str, partitions: int) -> None:
        await asyncio.to_thread(self._kafka.grow_topic, name, partitions)

    @checked
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
        return await asyncio.to_thread(produce, topic, *values, headers=headers)

    @checked
    async def records(
        self, topic: str, *, isolation_level: str = "read_committed", timeout: float = 30.0
    ) -> list[ConsumerRecord]:
        records = partial(self._kafka.records, isolation_level=isolation_level, timeout=timeout)
        return await asyncio.to_thread(records, topic)

    @checked
    async def group(self, name: str) -> Group:
        return await asyncio.to_thread(self._kafka.group, name)

    @checked
    async def delete_group(self, name: str) -> None:
        await asyncio.to_thread(self._kafka.delete_group, name)

    @checked
    async def wait_until(
        self, condition: Callable[[], Any], timeout: float = 10.0, what: str = "the condition"
    ) -> None:
        """As `Kafka.wait_until`; `condition` may also return something to be awaited."""
        loop = asyncio.get_running_loop()
        end = _deadline(loop.time(), timeout)
        while True:
            last: object
            try:
                value = condition()
                last = await value if inspect.isawaitable(value) else value
                if last:
                    return
            except NOT_YET as error:
                last = error
            if loop.time() >= end:
                raise _too_late(what, timeout, last)
            await asyncio.sleep(0.02)


class _InThreads:
    """An object whose calls are awaited: each has a thread until it is over."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        return partial(asyncio.to_thread, found) if callable(found) else found
