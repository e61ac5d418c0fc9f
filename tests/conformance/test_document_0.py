"""The Go program of docs/lessons/000 prints the results that kproto's scenarios of this document predict.

The program is built with confluent-kafka-go, which contains librdkafka. It sends HTTP requests to itself, at
the times that a schedule of `kproto scenario race` contains. The handler of these requests assigns, seeks and
polls. In some schedules it also subscribes. In the others the program subscribes once, at its start.

The test runs each schedule on a broker. After each poll, the printed assignment and event must be exactly
as in the schedule's model.

Repeated output counts once, because the number of polls during a fetch depends on the computer.
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

from consumer import Admin, Producer
from kproto.broker.server import running
from kproto.group.subscription import TopicPartition
from kproto.scenarios import find
from kproto.scenarios.offset_minus_1000 import COMMITTED, END, NIL, TP
from kproto.scenarios.offset_minus_1000_around import NOTHING
from kproto.scenarios.race import PROGRAMS, RaceProgram, play_program
from tests.conformance import judges, original_clients

pytestmark = pytest.mark.originals

DELAY = "group.initial.rebalance.delay.ms"
POLLS = 10
# The time from the start of the program to its first request. The client connects in this time, so that a
# join without a rebalance delay can end during the 20 ms that program H sleeps.
LEAD_MS = 500

Printed = list[tuple[str, str]]


def _schedules() -> dict[str, RaceProgram]:
    """Return the programs that need no rejoin, changed to call poll at least POLLS times.

    With fewer polls, a program might end before one of its polls returns the last event.
    """
    schedules: dict[str, RaceProgram] = {}
    for name, program in PROGRAMS.items():
        if program.rejoin_ms is None:
            waits = (program.waits[0] + LEAD_MS, *program.waits[1:])
            schedules[name] = replace(program, waits=waits, polls=max(program.polls, POLLS))
    return schedules


def _without_repeats(prints: Iterator[tuple[str, str]]) -> Printed:
    """Drop repeated lines of output, and lines about polls that returned nothing."""
    once = [printed for printed, _ in groupby(prints)]
    return [
        printed
        for before, printed in zip([None, *once], once, strict=False)
        if printed[1] != NIL or before is None or before[0] != printed[0]
    ]


def model_prints(program: RaceProgram) -> list[Printed]:
    handler, _ = play_program(program)
    return [_without_repeats(iter(request.prints)) for request in handler.requests]


# The maximum number of runs of a program. A run may fail on a busy machine, because the program's calls are
# only milliseconds apart.
TRIES = 6


def run_original(program: RaceProgram, bootstrap: str, name: str) -> tuple[list[Printed], int]:
    """Return the program's output, and the offset that its group committed."""
    partition = TopicPartition(name, 0)
    with Admin(bootstrap) as cluster:
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
        printed = [
            _without_repeats(
                (at.replace(name, TP.topic), event.replace(name, TP.topic)) for at, event in line
            )
            for line in lines
        ]
        committed = cluster.committed_offsets(name)[partition]
        assert committed is not None
        return printed, committed.offset


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def brokers(request: pytest.FixtureRequest) -> Iterator[dict[int, str]]:
    """Map the initial rebalance delays 0 and 3 s to brokers with these delays."""
    with ExitStack() as stack:
        bootstraps: dict[int, str] = {}
        for delay in (0, 3_000):
            settings = {DELAY: str(delay)}
            if request.param == "kafka":
                bootstraps[delay] = stack.enter_context(judges.real_kafka(settings)).bootstrap
            else:
                bootstraps[delay] = stack.enter_context(running(settings=settings)).bootstrap
        yield bootstraps


def test_the_documents_program_prints_as_in_its_scenarios(brokers: dict[int, str]) -> None:
    # The program is built once, before several threads need it.
    original_clients.with_modules("offset_minus_1000")
    schedules = _schedules()
    numbers = count()

    def run(program: RaceProgram) -> tuple[list[Printed], int]:
        return run_original(program, brokers[program.join_ms], f"race-{next(numbers)}")

    with ThreadPoolExecutor(len(schedules)) as pool:
        futures = {name: pool.submit(run, program) for name, program in schedules.items() if program.join_ms}
        outcomes = {name: future.result() for name, future in futures.items()}
    for name, program in schedules.items():
        # Programs for the broker without an initial rebalance delay run one at a time. On a busy computer,
        # their joins could take longer than the delays in the programs.
        for _ in range(TRIES):
            if name in outcomes and outcomes[name][0] == model_prints(program):
                break
            outcomes[name] = run(program)
    assert {name: printed for name, (printed, _) in outcomes.items()} == {
        name: model_prints(program) for name, program in schedules.items()
    }
    assert {committed for _, committed in outcomes.values()} == {COMMITTED}, "S0-10"


def test_rejected_calls_and_properties_print_the_texts_of_the_stories(brokers: dict[int, str]) -> None:
    """The program prints the error texts of S0-17, of S0-19, and of the last property of S1-19."""
    words = [
        original_clients.with_modules("offset_minus_1000"),
        brokers[0],
        "mistakes",
        "mistakes",
        "mistakes",
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-1_000:]
    printed = [f"{call}: {text}".replace(NIL, NOTHING) for call, text in json.loads(done.stdout)]
    properties, protocol, calls = printed[:3], printed[3], printed[4:]
    story = find("S0-17").run().results
    assert properties == [f"{name}: {text}" for name, text in story.items() if "=" in name]
    assert protocol == f"security.protocol=SASL: {find('S1-19').run().results['security.protocol=SASL']}"
    assert calls == find("S0-19").run().results["printed"]
