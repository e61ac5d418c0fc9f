"""Authentication and connection errors are reported once and in time, at each entry point.

The cases run on a real Kafka and on the embedded broker. A run draws a sample of them with the seed
`KPROTO_SEED`. `KPROTO_ALL_PLAYS=1` runs all (tox -e soak). `test_spark_security_errors` covers Spark.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kproto.errors import AuthenticationFailed, ConnectionFailed, RequestTimedOut
from tests.conformance.client_scenarios import RUN_ALL, SEED
from tests.conformance.entry_points import COMMANDS, ENTRY_POINTS, WAIT, concerns
from tests.conformance.security_errors import BROKERS, CASES, SECRETS, Case, run_broker

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", params=BROKERS)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with run_broker(request.param, tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def entry_points_of(case: Case) -> list[str]:
    """Return two entry points for a case, or all in a full run. The cases together use every entry point."""
    every = Random(SEED).sample(sorted(ENTRY_POINTS), len(ENTRY_POINTS))
    first = 2 * CASES.index(case)
    return every if RUN_ALL else [every[(first + more) % len(every)] for more in range(2)]


def cases_of(command: str) -> list[Case]:
    """Return the cases that the command supports: all of them in a full run, else one drawn case."""
    concerned = [case for case in CASES if concerns(command, case)]
    return concerned if RUN_ALL else [Random(f"{SEED} {command}").choice(concerned)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_call_reports_the_cause_once(kafka: Any, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    for entry_point in entry_points_of(case):
        where = f"{entry_point}, KPROTO_SEED={SEED}"
        caplog.clear()
        began = time.monotonic()
        with pytest.raises((AuthenticationFailed, ConnectionFailed, RequestTimedOut)) as caught:
            ENTRY_POINTS[entry_point](kafka.places[case.listener], case.options(kafka))
        took, message = time.monotonic() - began, str(caught.value)
        assert len(re.findall(case.words, message)) == 1, f"{where}: {message}"
        assert "\n" not in message, where
        assert isinstance(caught.value, AuthenticationFailed) == case.final, where
        assert took < WAIT / 2, where
        logged = [record.getMessage() for record in caplog.records if record.name == "kproto.consumer"]
        assert len([line for line in logged if re.search(case.words, line)]) <= 1, f"{where}: {logged}"
        assert not [secret for secret in SECRETS if secret in f"{message}{logged}"], where


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_reports_the_cause_in_one_line(kafka: Any, command: str, tmp_path: Path) -> None:
    for case in cases_of(command):
        folder = tmp_path / case.listener / str(CASES.index(case))
        folder.mkdir(parents=True)
        lines = COMMANDS[command](kafka.places[case.listener], case.file(kafka, folder), folder)
        words = case.words
        if command == "kproto watch" and case.changes.get("security_protocol") == "PLAINTEXT":
            words = "this port speaks TLS, but the proxy does not: set --tls"
        where = f"{case.name}, KPROTO_SEED={SEED}: {lines}"
        assert len([line for line in lines if re.search(words, line)]) == 1, where
        assert not [line for line in lines if line.startswith("Traceback")], where
        assert not [secret for secret in SECRETS if secret in "\n".join(lines)], where
