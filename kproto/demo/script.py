"""Run the demo: produce to a topic, and read it with a consumer group and with Spark.

During the demo a member joins the group, another is killed, and the topic gets new partitions.
`checks.py` checks the results.

The broker, each member and Spark have their own processes. The parent process produces the records, and
collects the members' reports.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from consumer import Admin, Delivery, Producer
from consumer.security import SecurityConfig, client_properties

from ..errors import IllegalState, KprotoError, MissingExtra
from ..inspect.diagrams import timeline

try:
    from tqdm import tqdm
except ImportError as error:
    raise MissingExtra("the demo", "tqdm", "demo") from error

from ..group.subscription import TopicPartition
from ..inspect.timeline import GroupEvent
from . import flights, member
from .checks import DemoResult, GroupReports, check_results
from .flights import Departure
from .spark import hourly_query

# The number of the topic's partitions at the start and at the end of the demo.
PARTITIONS, GROWN = 3, 6
MEMBERS = 3
_PROCESSES = multiprocessing.get_context("spawn")


class DemoFailed(KprotoError):
    """The demo could not finish. The message names the step at which it stopped."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The parameters of a run. Producing takes `seconds` seconds, during which the group rebalances."""

    bootstrap: str | None = None
    topic: str = flights.TOPIC
    records: int | None = None
    seed: int = 0
    eager: bool = False
    spark: bool = True
    seconds: float = 30.0
    picture: Path = Path("kproto-demo.html")
    command_config: Path | None = None


@dataclass(slots=True)
class _Member:
    """A member's process, and the parent's end of its pipe. `alive` is False after the member was killed."""

    name: str
    process: BaseProcess
    pipe: Connection
    alive: bool = True


class MemberGroup:
    """The processes of the members, and a thread that collects their reports."""

    def __init__(self, options: member.MemberOptions, reports: GroupReports, bar: tqdm[Any]) -> None:
        self.options, self.reports, self.bar = options, reports, bar
        self.members: dict[str, _Member] = {}
        self.broken: list[str] = []  # The names of the members whose process ended unexpectedly.
        self._closing = False
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._collect_reports, name="group-reports", daemon=True)
        self._reader.start()

    def start(self, name: str) -> None:
        """Start the process of a member, which joins the group."""
        parent_end, child_end = _PROCESSES.Pipe()
        process = _PROCESSES.Process(
            target=member.run, args=(child_end, name, self.options), name=name, daemon=True
        )
        process.start()
        child_end.close()
        with self._lock:
            self.members[name] = _Member(name, process, parent_end)

    def kill(self, name: str) -> None:
        """Kill a member with SIGKILL; without LeaveGroup, only the session timeout removes it."""
        victim = self.members[name]
        victim.alive = False
        victim.process.kill()
        victim.process.join()
        self._add_event(GroupEvent(_now(), "killed", name, reason=f"{name} is killed without leaving"))

    def stop(self) -> None:
        """Stop every live member; each of them leaves the group."""
        for member_ in self.members.values():
            if member_.alive:
                with contextlib.suppress(OSError):
                    member_.pipe.send("stop")
        for member_ in self.members.values():
            member_.process.join(60)
            if member_.process.is_alive():
                member_.process.kill()
                member_.process.join()
        self._closing = True
        self._reader.join(5)

    def is_settled(self, partitions: int, members: int) -> bool:
        """Return whether each partition has one owner, and as many members as possible own partitions."""
        owned = self.reports.owned()
        owned_partitions = [
            partition for member_partitions in owned.values() for partition in member_partitions
        ]
        owner_count = sum(map(bool, owned.values()))
        has_one_owner_each = len(owned_partitions) == len(set(owned_partitions)) == partitions
        return has_one_owner_each and owner_count == min(members, partitions)

    def record_event(self, kind: Any, partitions: tuple[TopicPartition, ...], reason: str) -> None:
        """Add an event of the topic at the current time. Members do not report such events."""
        self._add_event(GroupEvent(_now(), kind, partitions=partitions, reason=reason))

    def _add_event(self, event: GroupEvent) -> None:
        with self._lock:
            self.reports.add(event)

    def _collect_reports(self) -> None:
        """Receive the reports of all members, also of those that start later, until the group stops."""
        open_pipes: dict[Connection, _Member] = {}
        known_names: set[str] = set()
        while True:
            with self._lock:
                for member in self.members.values():
                    if member.name not in known_names:
                        known_names.add(member.name)
                        open_pipes[member.pipe] = member
            if not open_pipes:
                time.sleep(0.05)
            ready = wait(list(open_pipes), timeout=0.1) if open_pipes else []
            for pipe in ready:
                assert isinstance(pipe, Connection)
                try:
                    report = pipe.recv()
                except (EOFError, OSError):
                    ended = open_pipes.pop(pipe)
                    has_left = any(e.kind == "left" and e.member == ended.name for e in self.reports.events)
                    if ended.alive and not has_left:
                        self.broken.append(ended.name)
                    continue
                with self._lock:
                    self.bar.update(self.reports.add(report))
            if self._closing and not ready:
                return


def run_demo(plan: DemoPlan) -> DemoResult:
    """Run the demo and return its result; failed checks are in `faults`.

    Raises `KprotoError` if the demo cannot finish.
    """
    started = time.monotonic()
    security: SecurityConfig = client_properties(plan.command_config, "admin") if plan.command_config else {}
    # Connect before the flights are read, so that a failed authentication is reported immediately.
    if plan.bootstrap is not None:
        with Admin(plan.bootstrap, **security) as cluster:
            cluster.metadata([])
    frame = flights.table(plan.records)
    with contextlib.ExitStack() as stack:
        bootstrap = plan.bootstrap or stack.enter_context(_run_broker())
        with Admin(bootstrap, **security) as cluster:
            _create_topic(cluster, plan.topic, bootstrap)
        bar = stack.enter_context(tqdm(total=len(frame), unit=" records", desc="starting", smoothing=0.1))
        reports = GroupReports()
        group_id = f"{plan.topic}-demo-{plan.seed}-{_now() % 1_000_000}"
        options = member.MemberOptions(
            bootstrap, plan.topic, group_id, plan.eager, command_config=plan.command_config
        )
        group = MemberGroup(options, reports, bar)
        stack.callback(group.stop)
        for number in range(1, MEMBERS + 1):
            group.start(f"member {number}")
        query = hourly_query(bootstrap, plan.topic, plan.command_config)
        spark = stack.enter_context(query) if plan.spark else None
        _await(lambda: group.is_settled(PARTITIONS, MEMBERS), group, "the group to settle")
        bar.set_description("read by the group")
        produced = _produce_during_changes(plan, list(flights.departures(frame)), group, bootstrap, security)
        _await(lambda: len(reports.rows) >= produced, group, "the group to read everything", patience_s=60)
        _await(lambda: group.is_settled(GROWN, MEMBERS), group, "the group to own all partitions")
        group.stop()
        bar.close()
        hourly = spark.result(produced) if spark else None
        with Admin(bootstrap, **security) as cluster:
            ends, committed = _end_and_committed_offsets(cluster, plan.topic, group_id)
    outcome = check_results(frame, produced, reports, ends, committed, hourly)
    outcome.history.append(
        f"the demo took {time.monotonic() - started:.0f} s; the timeline of the group is in {plan.picture}"
    )
    plan.picture.write_text(timeline(reports.events, _title(plan), outcome.checks), encoding="utf-8")
    return outcome


def _create_topic(cluster: Admin, topic: str, bootstrap: str) -> None:
    """Create the demo's topic. Raises IllegalState if a topic with this name already exists."""
    if topic in cluster.topics():
        raise IllegalState(f"topic {topic!r} already exists on {bootstrap}: choose another --topic")
    # The records have timestamps from 2013: with Kafka's default retention, they would soon be deleted.
    cluster.create_topics({topic: PARTITIONS}, configs={"retention.ms": "-1"})


def _end_and_committed_offsets(
    cluster: Admin, topic: str, group_id: str
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the end offset of each partition of the grown topic, and the group's committed offsets."""
    partitions = [TopicPartition(topic, p) for p in range(GROWN)]
    latest = cluster.list_offsets(dict.fromkeys(partitions, "latest"))
    ends = {partition: latest[partition].offset or 0 for partition in partitions}
    offsets = cluster.committed_offsets(group_id, partitions)
    committed = {partition: offset.offset for partition, offset in offsets.items() if offset is not None}
    return ends, committed


def _produce_during_changes(
    plan: DemoPlan, rows: list[Departure], group: MemberGroup, bootstrap: str, security: SecurityConfig
) -> int:
    """Produce at a constant rate while the group changes; return the number of acknowledged records."""
    rng = random.Random(plan.seed)
    victim = f"member {rng.randint(1, MEMBERS)}"
    # When each change begins, as a fraction of the demo's duration.
    steps = [
        (rng.uniform(0.18, 0.24), "join"),
        (rng.uniform(0.38, 0.44), "kill"),
        (rng.uniform(0.74, 0.80), "grow"),
    ]
    sent = 0
    start = time.monotonic()
    with Producer(bootstrap, linger_ms=20, metadata_max_age_ms=250, **security) as producer:
        acknowledged: list[Delivery] = []
        while sent < len(rows):
            progress = min((time.monotonic() - start) / plan.seconds, 1.0)
            if steps and progress >= steps[0][0]:
                step = steps.pop(0)[1]
                if step == "join":
                    group.start(f"member {MEMBERS + 1}")
                elif step == "kill":
                    group.kill(victim)
                else:
                    with Admin(bootstrap, **security) as cluster:
                        cluster.create_partitions({plan.topic: GROWN})
                    new_partitions = tuple(TopicPartition(plan.topic, p) for p in range(PARTITIONS, GROWN))
                    reason = f"topic {plan.topic} grows from {PARTITIONS} to {GROWN} partitions"
                    group.record_event("grown", new_partitions, reason)
            due_count = max(int(progress * len(rows)), sent)
            for row in rows[sent:due_count]:
                acknowledged.append(
                    producer.send(plan.topic, row.value, key=row.key, timestamp=row.timestamp)
                )
            sent = due_count
            if group.broken:
                raise DemoFailed(f"{group.broken[0]} ended unexpectedly; its traceback is above")
            time.sleep(0.02)
        producer.flush()
        for delivery in acknowledged:
            delivery.result(timeout=30)  # If the record could not be produced, the call raises the error.
        return len(acknowledged)


def _await(is_done: Callable[[], bool], group: MemberGroup, goal: str, patience_s: float = 45) -> None:
    """Wait until `is_done()`. Raises DemoFailed after `patience_s` seconds without a new report.

    An unexpected end of a member raises DemoFailed immediately. `goal` describes the awaited state.
    """
    last_count, changed_at = -1, time.monotonic()
    while not is_done():
        report_count = len(group.reports.rows) + len(group.reports.events)
        if report_count != last_count:
            last_count, changed_at = report_count, time.monotonic()
        if group.broken:
            raise DemoFailed(
                f"waiting for {goal}: {group.broken[0]} ended unexpectedly; its traceback is above"
            )
        if time.monotonic() - changed_at > patience_s:
            raise DemoFailed(
                f"waited {patience_s:.0f} s for {goal} without progress; "
                f"records read so far: {len(group.reports.rows):,}"
            )
        time.sleep(0.05)


def _title(plan: DemoPlan) -> str:
    protocol = "eager (range)" if plan.eager else "cooperative-sticky"
    return f"A group reads {plan.topic}: {protocol}, on {plan.bootstrap or 'the embedded broker'}"


@contextlib.contextmanager
def _run_broker() -> Generator[str]:
    """Run the embedded broker in its own process, and yield its HOST:PORT."""
    parent_end, child_end = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_serve_broker, args=(child_end,), name="kproto broker", daemon=True)
    process.start()
    child_end.close()
    try:
        if not parent_end.poll(30):
            raise DemoFailed("the embedded broker did not start within 30 s")
        yield parent_end.recv()
    except EOFError:
        raise DemoFailed("the embedded broker ended unexpectedly; its traceback is above") from None
    finally:
        with contextlib.suppress(OSError):
            parent_end.send("stop")
        process.join(5)
        if process.is_alive():
            process.kill()


def _serve_broker(pipe: Connection) -> None:
    """Send the broker's HOST:PORT, and serve until the parent sends "stop" or ends."""
    import signal

    from ..broker.server import running

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with running(topics={}, settings={"group.initial.rebalance.delay.ms": "200"}) as server:
        pipe.send(server.bootstrap)
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()


def _now() -> int:
    return time.time_ns() // 1_000_000
