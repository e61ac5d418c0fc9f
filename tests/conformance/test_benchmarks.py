"""Every benchmark runs to its end with a small amount of work, and does not change tracked files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = {
    "codec": "--rounds 1 --only Metadata",
    "records": "--rounds 1 --megabytes 0.02 --codecs none",
    "consumer": "--rounds 1 --records 2000 --kafka-records 4000 --partitions 1",
    "producer": "--rounds 1 --records 2000",
    "group": "--rounds 1 --members 4 --partitions 8",
    "world": "--rounds 1 --minutes 1",
    "security": "--rounds 1 --records 2000 --only embedded",
    "spark": "--runs 1 --rows 1000 --only batch",
    "experiments.client_models": "--rounds 1 --minutes 0.1",
    "experiments.flat_tuples": "--rounds 1",
    "experiments.message_bases": "--rounds 1",
    "experiments.record_batches": "--rounds 1",
    "experiments.spark_latency": "--runs 1",
    # Only its help is printed, because this benchmark reads gigabytes from a Kafka that an option names.
    "experiments.spark_scale": "--help",
}


def test_every_benchmark_has_a_case() -> None:
    files = (
        path for path in (ROOT / "benchmarks").rglob("*.py") if "def main() -> None:" in path.read_text()
    )
    names = {".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts) for path in files}
    assert names == set(CASES)


@pytest.mark.kafka
@pytest.mark.clients
@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_runs(name: str) -> None:
    before = _tracked_files()
    command = [sys.executable, "-m", f"benchmarks.{name}", *CASES[name].split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
    assert _tracked_files() == before


def _tracked_files() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (ROOT / "benchmarks").rglob("*.svg")}
