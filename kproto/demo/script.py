"""Run the demo: produce to a topic, and read it with a consumer group and with Spark.

During the demo a member joins the group, another is killed, and the topic grows. `checks.py` checks the
results.

The broker, each member and Spark have their own processes. The parent process produces the records, and
collects the members' reports.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import threading
import time
from collections.abc import Generator
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
    name: str
    process: BaseProcess
    pipe: Connection
    alive: bool = True


class MemberGroup:
    """The processes of the members, and a thread that collects their reports."""

    def __init__(self, options: member.MemberOptions, reports: GroupReports, bar: tqdm[Any]) -> None:
        self.options, self.reports, self.bar = options, reports, bar
        self.members: dict[str, _Member] = {}
        self.broken: list[str] = []
        self._closing = False
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="group-reports", daemon=True)
        self._reader.start()

    def start(self, name: str) -> None:
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
        self._note(GroupEvent(_now(), "killed", name, reason=f"{name} is killed without leaving"))

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
        owned_partitions = [partition for partitions_ in owned.values() for partition in partitions_]
        return len(owned_partitions) == len(set(owned_partitions)) == partitions and sum(
            map(bool, owned.values())
        ) == min(members, partitions)

    def record_event(self, kind: Any, partitions: tuple[TopicPartition, ...], reason: str) -> None:
        self._note(GroupEvent(_now(), kind, partitions=partitions, reason=reason))

    def _note(self, event: GroupEvent) -> None:
        with self._lock:
            self.reports.add(event)

    def _read(self) -> None:
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
                    if ended.alive and not any(
                        e.kind == "left" and e.member == ended.name for e in self.reports.events
                    ):
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
        bootstrap = plan.bootstrap or stack.enter_context(_broker())
        with Admin(bootstrap, **security) as cluster:
            if plan.topic in cluster.topics():
                raise IllegalState(
                    f"topic {plan.topic!r} exists on {bootstrap} with other records: choose another --topic"
                )
            # The records have timestamps from 2013: with Kafka's default retention, they would soon be
            # deleted.
            cluster.create_topics({plan.topic: PARTITIONS}, configs={"retention.ms": "-1"})
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
        produced = _live(plan, list(flights.departures(frame)), group, bootstrap, security)
        _await(lambda: len(reports.rows) >= produced, group, "the group to read everything", patience=60)
        _await(lambda: group.is_settled(GROWN, MEMBERS), group, "the group to own all partitions")
        group.stop()
        bar.close()
        hourly = spark.result(produced) if spark else None
        with Admin(bootstrap, **security) as cluster:
            partitions = [TopicPartition(plan.topic, p) for p in range(GROWN)]
            latest = cluster.list_offsets(dict.fromkeys(partitions, "latest"))
            ends = {partition: latest[partition].offset or 0 for partition in partitions}
            offsets = cluster.committed_offsets(group_id, partitions)
            committed = {
                partition: offset.offset for partition, offset in offsets.items() if offset is not None
            }
    outcome = check_results(frame, produced, reports, ends, committed, hourly)
    outcome.history.append(
        f"the demo took {time.monotonic() - started:.0f} s; the timeline of the group is in {plan.picture}"
    )
    plan.picture.write_text(timeline(reports.events, _title(plan), outcome.checks), encoding="utf-8")
    return outcome


def _live(
    plan: DemoPlan, rows: list[Departure], group: MemberGroup, bootstrap: str, security: SecurityConfig
) -> int:
    """Produce at a constant rate while the group changes; return the number of acknowledged records."""
    draw = random.Random(plan.seed)
    victim = f"member {draw.randint(1, MEMBERS)}"
    steps = [
        (draw.uniform(0.18, 0.24), "join"),
        (draw.uniform(0.38, 0.44), "kill"),
        (draw.uniform(0.74, 0.80), "grow"),
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
                    new = tuple(TopicPartition(plan.topic, p) for p in range(PARTITIONS, GROWN))
                    group.record_event(
                        "grown", new, f"topic {plan.topic} grows from {PARTITIONS} to {GROWN} partitions"
                    )
            due = max(int(progress * len(rows)), sent)
            for row in rows[sent:due]:
                acknowledged.append(
                    producer.send(plan.topic, row.value, key=row.key, timestamp=row.timestamp)
                )
            sent = due
            if group.broken:
                raise DemoFailed(f"{group.broken[0]} ended unexpectedly; its traceback is above")
            time.sleep(0.02)
        producer.flush()
        for delivery in acknowledged:
            delivery.result(timeout=30)  # If the record could not be produced, the call raises the error.
        return len(acknowledged)


def _await(done: Any, group: MemberGroup, goal: str, patience: float = 45) -> None:
    """Wait until `done()` is true; raise DemoFailed after `patience` seconds without a new report."""
    count, changed_at = -1, time.monotonic()
    while not done():
        now = len(group.reports.rows) + len(group.reports.events)
        if now != count:
            count, changed_at = now, time.monotonic()
        if group.broken:
            raise DemoFailed(
                f"waiting for {goal}: {group.broken[0]} ended unexpectedly; its traceback is above"
            )
        if time.monotonic() - changed_at > patience:
            raise DemoFailed(
                f"waited {patience:.0f} s for {goal} without progress; "
                f"records read so far: {len(group.reports.rows):,}"
            )
        time.sleep(0.05)


def _title(plan: DemoPlan) -> str:
    protocol = "eager (range)" if plan.eager else "cooperative-sticky"
    return f"A group reads {plan.topic}: {protocol}, on {plan.bootstrap or 'the embedded broker'}"


@contextlib.contextmanager
def _broker() -> Generator[str]:
    """Run the embedded broker in its own process, and yield its HOST:PORT."""
    parent_end, child_end = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_serve, args=(child_end,), name="kproto broker", daemon=True)
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


def _serve(pipe: Connection) -> None:
    import signal

    from ..broker.server import running

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with running(topics={}, settings={"group.initial.rebalance.delay.ms": "200"}) as server:
        pipe.send(server.bootstrap)
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()


def _now() -> int:
    return time.time_ns() // 1_000_000
