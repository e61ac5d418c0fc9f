"""The program of document 000, in Go as it stands there, prints what its scenarios say that it prints.

It is built with confluent-kafka-go, which brings librdkafka, and runs each program of `kproto scenario race`
on a broker: HTTP requests that subscribe, assign, seek and poll. Compared is what each poll of each request
prints: where partition 0 was assigned at, and the event. Polls that print what the one before them printed
are one, as how long a fetch takes is the machine's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import count, groupby

import pytest

from consumer import Cluster, Producer
from kproto.broker.server import running
from kproto.group.subscription import TopicPartition
from kproto.scenarios.offset_minus_1000 import COMMITTED, END
from kproto.scenarios.race import PROGRAMS, Program, played
from tests.conformance import judges, original_clients

pytestmark = pytest.mark.originals

DELAY = "group.initial.rebalance.delay.ms"
POLLS = 10
LEAD_MS = 500  # The program has connected when its first request comes: a quick join would race with that.

Printed = list[tuple[int | None, str]]


def _schedules() -> dict[str, Program]:
    """Those of the table whose join takes what a broker says, with polls enough to see the end."""
    found: dict[str, Program] = {}
    for name, one in PROGRAMS.items():
        if one.rejoin_ms is None:
            waits = (one.waits[0] + LEAD_MS, *one.waits[1:])
            found[name] = replace(one, waits=waits, polls=max(one.polls, POLLS))
    return found


def _told(prints: Iterator[tuple[int | None, str]]) -> Printed:
    """Without what was printed twice; nor what a poll printed in whose time nothing came."""
    once = [one for one, _ in groupby(prints)]
    return [
        one
        for before, one in zip([None, *once], once, strict=False)
        if one[1] != "nil" or before is None or before[0] != one[0]
    ]


def modelled(program: Program) -> list[Printed]:
    handler, _ = played(program)
    return [_told(iter(request.prints)) for request in handler.requests]


# So often a program is run at most: its steps are milliseconds apart, on a machine that others use.
TRIES = 6


def original(program: Program, bootstrap: str, name: str) -> tuple[list[Printed], int]:
    """What it printed, and what its group has committed afterwards."""
    partition = TopicPartition(name, 0)
    with Cluster(bootstrap) as cluster:
        cluster.create_topics({name: 1})
        with Producer(bootstrap) as producer:
            for number in range(END):
                producer.send(name, b"m%d" % number, partition=0)
        cluster.commit_offsets(name, {partition: COMMITTED})
        schedule = {
            "inside": program.inside,
            "sleep_ms": program.sleep_ms,
            "waits_ms": program.waits,
            "polls": program.polls,
        }
        words = [
            original_clients.with_modules("offset_minus_1000"),
            bootstrap,
            name,
            name,
            json.dumps(schedule),
        ]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-1_000:]
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        told = [_told((at, event) for at, event in line) for line in lines]
        committed = cluster.committed_offsets(name)[partition]
        assert committed is not None
        return told, committed.offset


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def brokers(request: pytest.FixtureRequest) -> Iterator[dict[int, str]]:
    """Where groups begin at once, and where they wait for three seconds."""
    with ExitStack() as stack:
        found: dict[int, str] = {}
        for delay in (0, 3_000):
            settings = {DELAY: str(delay)}
            if request.param == "kafka":
                found[delay] = stack.enter_context(judges.real_kafka(settings)).bootstrap
            else:
                found[delay] = stack.enter_context(running(settings=settings)).bootstrap
        yield found


def test_the_documents_program_prints_what_its_scenarios_say(brokers: dict[int, str]) -> None:
    original_clients.with_modules("offset_minus_1000")  # built once, before they all want it
    schedules = _schedules()
    numbers = count()

    def run(one: Program) -> tuple[list[Printed], int]:
        return original(one, brokers[one.join_ms], f"race-{next(numbers)}")

    with ThreadPoolExecutor(len(schedules)) as pool:
        asked = {name: pool.submit(run, one) for name, one in schedules.items() if one.join_ms}
        found = {name: one.result() for name, one in asked.items()}
    for name, one in schedules.items():
        for _ in range(TRIES):  # alone: so a join that takes no time has the best chance
            if name in found and found[name][0] == modelled(one):
                break
            found[name] = run(one)
    assert {name: printed for name, (printed, _) in found.items()} == {
        name: modelled(one) for name, one in schedules.items()
    }
    assert {committed for _, committed in found.values()} == {COMMITTED}, "S0-10"
