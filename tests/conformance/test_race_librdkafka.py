"""librdkafka and its model have the same results in random schedules of the race in docs/lessons/000.

librdkafka runs on its own mock cluster.

A schedule contains the times at which the document's program acts. The program assigns, seeks and polls in
each HTTP request, and sleeps between the requests. In some schedules it also subscribes in each request. In
the others it subscribes once, at its start.

The test compares the results of each HTTP request: the assignment after the request's polls, the first
message that they return, and the result of seek.

Only schedules without ties are drawn. In a tie, two events may occur in either order, so the result may vary.

In the model, a schedule has no tie if its result stays the same in three variations: on a slow network, with
joins 300 ms earlier, and with joins 300 ms later.

A seek immediately after an assign is a tie: the seek fails with _STATE if the fetcher of the previous
assignment still runs, and succeeds otherwise. Schedules therefore have a gap between assign and seek.

A run with an unexpected result is repeated if its sleeps and polls took longer than planned. The last
repetition has few parallel runs, because librdkafka's own threads may have waited for a CPU.

The mock cluster completes a group's first join after 3 s. It completes a member's next join 1 s before the
member's session expires (rdkafka_mock_cgrp.c).

`KPROTO_RACES=200` sets the number of schedules (tox -e soak). `KPROTO_SEED` sets the seed
of the first schedule.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.messages.join_group import JoinGroupRequest
from kproto.models import contract, librdkafka
from kproto.models.common import OffsetToCommit, offset_commit_request
from kproto.testing.world import ModelClient, World
from tests import seeds
from tests.conformance import judges

pytestmark = pytest.mark.clients

RACES = int(os.environ.get("KPROTO_RACES", "40"))
SEED = seeds.FIRST
AT_ONCE = 40
FEW = 4
TRIES = 3
TP = TopicPartition("test", 0)
COMMITTED, END, WANTED = 5, 9, 2
FIRST_JOIN_MS = 3_000
MARGIN_MS = 300
# librdkafka's fetch.wait.max.ms, which is short because a fetch in flight delays the next one by up to this
# time. Calls less than this time apart count as a tie.
FETCH_WAIT_MS = 50
SETTLES_MS = 500  # The wait (ms) before a client's first request, during which the client connects.


@dataclass(frozen=True)
class Schedule:
    """A schedule of HTTP requests. Its times are in milliseconds."""

    inside: bool
    session: int
    # The wait before each HTTP request.
    pauses: tuple[int, ...]
    # The wait between subscribe and assign in each HTTP request.
    naps: tuple[int, ...]
    # The wait between assign and seek.
    gap: int
    polls: int
    timeout: int


@dataclass(frozen=True)
class Request:
    """The results of an HTTP request to the document's program."""

    # The offset that assignment() reports for partition 0 after the polls of this HTTP request.
    assigned: int | None
    # The offset of the first message that these polls return.
    first: int | None
    # The error of seek.
    seek: str


def draw(random: Random) -> Schedule:
    requests = random.choice((1, 2, 2, 3, 3))
    return Schedule(
        random.random() < 0.5,
        random.randrange(4_000, 7_000, 100),
        tuple(random.choice((0, *[random.randrange(500, 6_000, 100)] * 3)) for _ in range(requests)),
        tuple(random.choice((0, 0, 100, random.randrange(500, 4_000, 100))) for _ in range(requests)),
        random.randrange(100, 500, 50),
        random.randint(3, 8),
        random.randrange(200, 600, 50),
    )


def schedules(seed: int) -> Iterator[tuple[Schedule, list[Request]]]:
    """Yield schedules, each with the results that the model expects.

    A schedule is skipped if slightly different times would change its results.
    """
    for number in count(seed):
        schedule = draw(Random(number))
        expected = run_model(schedule)
        variations = ((-MARGIN_MS, 1), (MARGIN_MS, 1), (0, 25))
        if expected and all(run_model(schedule, *variation) == expected for variation in variations):
            yield schedule, expected


# ---- the model, on a simulated cluster whose coordinator has the delays of the mock cluster


def run_model(schedule: Schedule, later: int = 0, latency: int = 1) -> list[Request]:
    """Return the requests' results, or an empty list if the client became two members.

    The response to JoinGroup v3 assigns the member id. A client that subscribes again before the response
    sends a second JoinGroup without an id, and becomes a second member. The first member never rejoins.

    A schedule with two members has no comparable result: the model's coordinator and the mock cluster do not
    wait equally long for the first member.
    """
    # JoinGroup 3 is the last version without MEMBER_ID_REQUIRED. The mock cluster never returns this error.
    world = World({"test": 4}, brokers=2, latency=(latency, latency), trace=False, highest={"JoinGroup": 3})
    world.write("test", 0, *["x"] * END)
    world.elect("test", 0, 1)
    world.send_as_operator(offset_commit_request("g", -1, "", None, {TP: OffsetToCommit(COMMITTED)}), 2)
    world.move_coordinator("g", 2)
    ids: list[str] = []

    def slowly(client: Any, request: Any, version: int) -> None:
        if isinstance(request, JoinGroupRequest):
            ids.append(request.member_id)
            wait = FIRST_JOIN_MS if len(ids) == 1 else schedule.session - 1_000
            world.fault("stall", node=2, lasts=wait + later)

    world.tamper = slowly
    app: ModelClient = world.join(
        "app",
        librdkafka,
        group_id="g",
        session_ms=schedule.session,
        heartbeat_ms=500,
        auto_commit=False,
        reset="earliest",
        fetch_wait_ms=FETCH_WAIT_MS,
        extra={"enable.auto.offset.store": False},
    )
    requests: list[Request] = []
    world.run(SETTLES_MS)
    for number, (pause, nap) in enumerate(zip(schedule.pauses, schedule.naps, strict=True)):
        world.run(pause)
        if schedule.inside or number == 0:
            app.do(contract.SubscribeCalled(("test",)))
        world.run(nap)
        before, reports = len(app.records), len(app.reports)
        app.do(contract.AssignCalled({TP: WANTED}))
        world.run(schedule.gap)
        app.do(contract.SeekCalled(TP, WANTED))
        refused = [report.name for report in app.reports[reports:] if report.name.startswith("_")]
        for _ in range(schedule.polls):
            app.poll_once(schedule.timeout)
            world.run(schedule.timeout + 1_000, until=lambda: not app.polling)
        records = app.records[before:]
        requests.append(
            Request(
                librdkafka.assigned_offsets(app.state).get(TP),
                records[0].offset if records else None,
                refused[0] if refused else "ok",
            )
        )
    return requests if ids.count("") == 1 else []


# ---- the original client


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    try:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient
    except ImportError:
        judges.missing("confluent-kafka")
    admin = AdminClient({"test.mock.num.brokers": 1, "bootstrap.servers": "ignored"})
    broker = next(iter(admin.list_topics(timeout=10).brokers.values()))
    bootstrap = f"{broker.host}:{broker.port}"
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(END):
        producer.produce("test", b"x", partition=0)
    assert producer.flush(10) == 0
    yield bootstrap
    del admin


def run_librdkafka(schedule: Schedule, bootstrap: str, group: str) -> tuple[list[Request], bool]:
    """Return the results of the requests, and whether sleeps and polls took as long as the schedule says."""
    from confluent_kafka import Consumer, KafkaException
    from confluent_kafka import TopicPartition as Place

    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "session.timeout.ms": schedule.session,
        "heartbeat.interval.ms": 500,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": FETCH_WAIT_MS,
    }
    app = Consumer(options)
    app.commit(offsets=[Place("test", 0, COMMITTED)], asynchronous=False)
    requests: list[Request] = []
    late_s = 0.0

    def wait(ms: int, how: Callable[[float], Any] = time.sleep) -> Any:
        nonlocal late_s
        begun = time.monotonic()
        answer = how(ms / 1000)
        late_s += max(0.0, time.monotonic() - begun - ms / 1000)
        return answer

    wait(SETTLES_MS)
    for number, (pause, nap) in enumerate(zip(schedule.pauses, schedule.naps, strict=True)):
        wait(pause)
        if schedule.inside or number == 0:
            # The callback does not call assign. In this case confluent_kafka, like the Go binding, assigns
            # the partitions itself.
            app.subscribe(["test"], on_assign=lambda *_: None, on_revoke=lambda *_: None)
        wait(nap)
        app.assign([Place("test", 0, WANTED)])
        wait(schedule.gap)
        seek_result = "ok"
        try:
            app.seek(Place("test", 0, WANTED))
        except KafkaException as error:
            seek_result = error.args[0].name()
        first: int | None = None
        for _ in range(schedule.polls):
            message = wait(schedule.timeout, app.poll)
            if message is not None and message.error() is None and first is None:
                first = message.offset()
        assigned = {partition.partition: partition.offset for partition in app.assignment()}
        requests.append(Request(assigned.get(0), first, seek_result))
    app.close()
    return requests, late_s < MARGIN_MS / 2000


def test_librdkafka_ends_each_schedule_as_its_model(mock_cluster: str) -> None:
    print(f"KPROTO_SEED={SEED}")
    groups = count()

    def run_with_retries(case: tuple[Schedule, list[Request]]) -> list[Request] | None:
        """Return librdkafka's results, or None if every try was late and differed from the model."""
        for _ in range(TRIES):
            theirs, in_time = run_librdkafka(case[0], mock_cluster, f"g{next(groups)}")
            if in_time or theirs == case[1]:
                return theirs
        return None

    # All schedules are drawn before the first one runs, because drawing would delay the running ones.
    drawn = list(islice(schedules(SEED), RACES))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(run_with_retries, drawn))
    repeated = [number for number, (_, ours) in enumerate(drawn) if results[number] != ours]
    with ThreadPoolExecutor(FEW) as pool:
        for number, theirs in zip(
            repeated, pool.map(run_with_retries, [drawn[number_] for number_ in repeated]), strict=True
        ):
            results[number] = theirs
    wrong = [
        (schedule, theirs, ours)
        for (schedule, ours), theirs in zip(drawn, results, strict=True)
        if theirs not in (None, ours)
    ]
    assert wrong == [], f"{len(wrong)} of {RACES}: schedule, librdkafka, model (KPROTO_SEED={SEED})"
    assert results.count(None) < RACES / 4, f"this machine was too busy for {results.count(None)} of {RACES}"
