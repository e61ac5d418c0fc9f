"""franz-go's own tests of its client pass on the embedded broker.

The tests pass on a real Kafka 4.3.1. Some read and write in groups with changing members, or in exactly-once
transactions. Others pause partitions, or add and remove them. Most tests run in parallel, each with its
own topics.

A run draws half of the tests with the seed `KPROTO_SEED`, and sets their number of records to 10,000.
`KPROTO_ALL_PLAYS=1` runs all tests, with 50,000 records (tox -e soak).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from random import Random
from typing import Final

import pytest

from kproto.broker.server import running
from tests.conformance import judges, original_clients
from tests.conformance.client_scenarios import SEED

pytestmark = pytest.mark.originals

# Tests of features that `help(kproto.broker)` lists as missing. Subtests with 848 in their name are skipped
# by franz-go itself.
LACKS: Final = {
    "TestConsumeRegex": "there is no __consumer_offsets to be skipped",
    "TestConsumeRegexShareSkipsInternal": "share groups",
    "TestShareGroup": "share groups",
    "TestShareGroupETL": "share groups",
    "TestShareGroupAckOnClose": "share groups",
    "TestShareGroupOffsetsAdmin": "share groups",
    "Test848RegexBrokerResolves": "KIP-848",
}
TOO_NEW: Final = "TestIssueProduceBrokerTooOldFailsRecords"  # franz-go also skips this test on Kafka 4.

# The tests that every run includes. They cover every assignor with and without static members, and groups
# with at-least-once and exactly-once semantics.
ALWAYS: Final = frozenset({"TestGroupETL", "TestTxnEtl"})


def suite() -> tuple[Path, Path]:
    """Compile franz-go's tests; return the executable, and the folder to run it in."""
    compiler = shutil.which("go") or judges.missing("go")
    return original_clients.own_tests(compiler, "github.com/twmb/franz-go", "pkg/kgo")


def test_franz_gos_own_tests_pass_on_the_embedded_broker() -> None:
    program, folder = suite()
    listed = subprocess.run(
        [program, "-test.list", "^Test"], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    names = sorted({*listed.stdout.split()} - {*LACKS})
    assert {*listed.stdout.split()} > {*LACKS}
    assert {*names} > ALWAYS
    drawn, records = names, 50_000
    if not os.environ.get("KPROTO_ALL_PLAYS"):
        records = 10_000
        drawn = sorted({*Random(SEED).sample(names, len(names) // 2)} | ALWAYS)
    listen = ["PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0"]
    with running(listen=listen, users={"alice": "tea for two"}) as server:
        completed = subprocess.run(
            [program, "-test.v", "-test.timeout", "400s", "-test.run", f"^({'|'.join(drawn)})$"],
            cwd=folder,
            env={
                **os.environ,
                "KGO_SEEDS": server.places["PLAINTEXT"],
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": str(records),
                "KGO_TEST_SCRAM": "alice:tea for two",
                "KGO_TEST_SCRAM_SEEDS": server.places["SASL_PLAINTEXT"],
                "KGO_LOG_LEVEL": "none",
            },
            capture_output=True,
            text=True,
            timeout=420,
        )
    ended = {
        name: word for word, name in re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", completed.stdout, re.M)
    }
    assert completed.returncode == 0, (
        f"KPROTO_SEED={SEED}\n{_complaints(completed.stdout)}\n{completed.stderr[-500:]}"
    )
    assert {*drawn} <= {*ended}
    assert {name for name, word in ended.items() if word == "SKIP" and "848" not in name} <= {TOO_NEW}
    for name in ALWAYS:
        parts = {test for test in ended if test.startswith(f"{name}/") and "848" not in test}
        assert len(parts) >= 3
        assert {ended[part] for part in parts} == {"PASS"}


def _complaints(text: str) -> str:
    """Return the output before each failure or panic. A repeated or lost record causes a panic."""
    lines = text.splitlines()
    ends = [number for number, line in enumerate(lines) if re.match(r" *--- FAIL|panic:", line)]
    return "\n".join(line for end in ends for line in lines[max(0, end - 10) : end + 1])
