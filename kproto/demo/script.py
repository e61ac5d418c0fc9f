"""What happens in the demo: a broker, a topic, a group that lives through a join, a kill and growth, Spark.

The parent process produces and keeps the books; the broker, each member of the group and Spark are processes
of their own. What came out is judged in `books.py`.
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

from consumer import Cluster, Delivery, Producer
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
from .checks import Books, Outcome, judge
from .flights import Departure
from .spark import hourly_query

PARTITIONS, GROWN = 3, 6
MEMBERS = 3
_PROCESSES = multiprocessing.get_context("spawn")


class Failed(KprotoError):
    """The demo could not come to its end; the text says where it stood."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the demo shall do. Producing is stretched over `seconds`, so that the rebalances fall into it."""

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


class Group:
    """The members' processes, and a thread that enters what they tell into the books."""

    def __init__(self, options: member.Options, books: Books, bar: tqdm[Any]) -> None:
        self.options, self.books, self.bar = options, books, bar
        self.members: dict[str, _Member] = {}
        self.broken: list[str] = []
        self._closing = False
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="group-books", daemon=True)
        self._reader.start()

    def start(self, name: str) -> None:
        here, there = _PROCESSES.Pipe()
        process = _PROCESSES.Process(
            target=member.run, args=(there, name, self.options), name=name, daemon=True
        )
        process.start()
        there.close()
        with self._lock:
            self.members[name] = _Member(name, process, here)

    def kill(self, name: str) -> None:
        """SIGKILL: no leave, no commit, the coordinator must find out by itself."""
        victim = self.members[name]
        victim.alive = False
        victim.process.kill()
        victim.process.join()
        self._note(GroupEvent(_now(), "killed", name, reason=f"{name} is killed without leaving"))

    def stop(self) -> None:
        """Let every member that lives leave the group and end."""
        for one in self.members.values():
            if one.alive:
                with contextlib.suppress(OSError):
                    one.pipe.send("stop")
        for one in self.members.values():
            one.process.join(60)
            if one.process.is_alive():
                one.process.kill()
                one.process.join()
        self._closing = True
        self._reader.join(5)

    def settled(self, partitions: int, members: int) -> bool:
        """Whether each of `members` owns something and together they own all partitions, each once."""
        owned = self.books.owned()
        held = [partition for mine in owned.values() for partition in mine]
        return len(held) == len(set(held)) == partitions and sum(map(bool, owned.values())) == min(
            members, partitions
        )

    def note(self, kind: Any, partitions: tuple[TopicPartition, ...], reason: str) -> None:
        self._note(GroupEvent(_now(), kind, partitions=partitions, reason=reason))

    def _note(self, event: GroupEvent) -> None:
        with self._lock:
            self.books.enter(event)

    def _read(self) -> None:
        open_pipes: dict[Connection, _Member] = {}
        seen: set[str] = set()
        while True:
            with self._lock:
                for member in self.members.values():
                    if member.name not in seen:
                        seen.add(member.name)
                        open_pipes[member.pipe] = member
            if not open_pipes:
                time.sleep(0.05)
            ready = wait(list(open_pipes), timeout=0.1) if open_pipes else []
            for pipe in ready:
                assert isinstance(pipe, Connection)
                try:
                    told = pipe.recv()
                except (EOFError, OSError):
                    gone = open_pipes.pop(pipe)
                    if gone.alive and not any(
                        e.kind == "left" and e.member == gone.name for e in self.books.events
                    ):
                        self.broken.append(gone.name)
                    continue
                with self._lock:
                    self.bar.update(self.books.enter(told))
            if self._closing and not ready:
                return


def tell(plan: Plan) -> Outcome:
    """Do it all. Raises `KprotoError` when it can't be done; what came out wrong is in `faults`."""
    began = time.monotonic()
    security: SecurityConfig = (
        client_properties(plan.command_config, "cluster") if plan.command_config else {}
    )
    if plan.bootstrap is not None:  # who doesn't get in hears so before the flights are read
        with Cluster(plan.bootstrap, **security) as cluster:
            cluster.metadata([])
    frame = flights.table(plan.records)
    with contextlib.ExitStack() as stack:
        bootstrap = plan.bootstrap or stack.enter_context(_broker())
        with Cluster(bootstrap, **security) as cluster:
            if plan.topic in cluster.topics():
                raise IllegalState(
                    f"topic {plan.topic!r} exists on {bootstrap} with other records: choose another --topic"
                )
            # The flights are old: a real Kafka would soon delete them.
            cluster.create_topics({plan.topic: PARTITIONS}, configs={"retention.ms": "-1"})
        bar = stack.enter_context(tqdm(total=len(frame), unit=" records", desc="starting", smoothing=0.1))
        books = Books()
        group_id = f"{plan.topic}-demo-{plan.seed}-{_now() % 1_000_000}"
        options = member.Options(
            bootstrap, plan.topic, group_id, plan.eager, command_config=plan.command_config
        )
        group = Group(options, books, bar)
        stack.callback(group.stop)
        for number in range(1, MEMBERS + 1):
            group.start(f"member {number}")
        query = hourly_query(bootstrap, plan.topic, plan.command_config)
        spark = stack.enter_context(query) if plan.spark else None
        _await(lambda: group.settled(PARTITIONS, MEMBERS), group, "the group to settle")
        bar.set_description("read by the group")
        produced = _live(plan, list(flights.departures(frame)), group, bootstrap, security)
        _await(lambda: len(books.rows) >= produced, group, "the group to read everything", patience=60)
        _await(lambda: group.settled(GROWN, MEMBERS), group, "the group to own all partitions")
        group.stop()
        bar.close()
        hourly = spark.result(produced) if spark else None
        with Cluster(bootstrap, **security) as cluster:
            partitions = [TopicPartition(plan.topic, p) for p in range(GROWN)]
            latest = cluster.list_offsets(dict.fromkeys(partitions, "latest"))
            ends = {partition: latest[partition].offset or 0 for partition in partitions}
            found = cluster.committed_offsets(group_id, partitions)
            committed = {partition: one.offset for partition, one in found.items() if one is not None}
    outcome = judge(frame, produced, books, ends, committed, hourly)
    outcome.history.append(
        f"all of it took {time.monotonic() - began:.0f} s; the group's life is drawn in {plan.picture}"
    )
    plan.picture.write_text(timeline(books.events, _title(plan), outcome.checks), encoding="utf-8")
    return outcome


def _live(plan: Plan, rows: list[Departure], group: Group, bootstrap: str, security: SecurityConfig) -> int:
    """Produce at an even pace while the group lives its life; the answer is how many were acknowledged."""
    draw = random.Random(plan.seed)
    victim = f"member {draw.randint(1, MEMBERS)}"
    steps = [
        (draw.uniform(0.18, 0.24), "join"),
        (draw.uniform(0.38, 0.44), "kill"),
        (draw.uniform(0.74, 0.80), "grow"),
    ]
    done = 0
    start = time.monotonic()
    with Producer(bootstrap, linger_ms=20, metadata_max_age_ms=250, **security) as producer:
        acknowledged: list[Delivery] = []
        while done < len(rows):
            share = min((time.monotonic() - start) / plan.seconds, 1.0)
            if steps and share >= steps[0][0]:
                what = steps.pop(0)[1]
                if what == "join":
                    group.start(f"member {MEMBERS + 1}")
                elif what == "kill":
                    group.kill(victim)
                else:
                    with Cluster(bootstrap, **security) as cluster:
                        cluster.create_partitions({plan.topic: GROWN})
                    new = tuple(TopicPartition(plan.topic, p) for p in range(PARTITIONS, GROWN))
                    group.note(
                        "grown", new, f"topic {plan.topic} grows from {PARTITIONS} to {GROWN} partitions"
                    )
            due = max(int(share * len(rows)), done)
            for row in rows[done:due]:
                acknowledged.append(
                    producer.send(plan.topic, row.value, key=row.key, timestamp=row.timestamp)
                )
            done = due
            if group.broken:
                raise Failed(f"{group.broken[0]} ended by itself; its traceback stands above")
            time.sleep(0.02)
        producer.flush()
        for one in acknowledged:
            one.result(timeout=30)  # raises what went wrong
        return len(acknowledged)


def _await(done: Any, group: Group, what: str, patience: float = 45) -> None:
    """Wait until `done()`, as long as something still moves; `patience` in seconds without any movement."""
    last, since = -1, time.monotonic()
    while not done():
        now = len(group.books.rows) + len(group.books.events)
        if now != last:
            last, since = now, time.monotonic()
        if group.broken:
            raise Failed(f"waiting for {what}: {group.broken[0]} ended by itself; its traceback stands above")
        if time.monotonic() - since > patience:
            raise Failed(
                f"waited {patience:.0f} s for {what}, nothing moved; read so far: {len(group.books.rows):,}"
            )
        time.sleep(0.05)


def _title(plan: Plan) -> str:
    how = "eager (range)" if plan.eager else "cooperative-sticky"
    return f"A group reads {plan.topic}: {how}, on {plan.bootstrap or 'the embedded broker'}"


@contextlib.contextmanager
def _broker() -> Generator[str]:
    """The embedded broker in a process of its own; its HOST:PORT."""
    here, there = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_serve, args=(there,), name="kproto broker", daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(30):
            raise Failed("the embedded broker did not start within 30 s")
        yield here.recv()
    except EOFError:
        raise Failed("the embedded broker ended by itself; its traceback stands above") from None
    finally:
        with contextlib.suppress(OSError):
            here.send("stop")
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
