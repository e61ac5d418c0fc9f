"""Each pipeline in examples/spark runs unchanged, with the same results as pandas.

If `KPROTO_SPARK_KILLS` is set (tox -e soak), all pipelines run; otherwise two run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "spark"
SAYS = {
    "windowed_means.py": "hours: ",
    "join.py": "turnarounds: ",
    "upsert.py": "aircraft: ",
    "backfill_then_live.py": "departures: 5000 rows",
    "sessions.py": "sessions: ",
    "enrichment.py": "days of airlines: ",
}


def test_every_pipeline_is_listed_and_tested() -> None:
    programs = {path.name for path in FOLDER.glob("*.py")} - {"flights.py"}
    assert programs == set(SAYS)
    text = (FOLDER / "README.md").read_text()
    assert all(f"`{name}`" in text for name in programs)


RUN = list(SAYS) if "KPROTO_SPARK_KILLS" in os.environ else ["join.py", "sessions.py"]


@pytest.mark.parametrize("name", RUN)
def test_the_pipeline_has_the_results_of_pandas(name: str) -> None:
    run = [sys.executable, str(FOLDER / name), "--rows", "5000"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert SAYS[name] in done.stdout
    assert "rows, equal to those of pandas" in done.stdout
