"""The examples of the documentation that need other clients, or Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.conformance import judges
from tests.documents import DOCS, PAGES, Block, blocks, run_python

NEEDED = [block for page in PAGES for block in blocks(page) if block.kind == "python" and block.needs]


def _of(judge: str) -> list[Block]:
    return [block for block in NEEDED if block.needs == judge]


@pytest.mark.clients
@pytest.mark.parametrize("block", _of("clients"), ids=lambda block: f"{block.page}:{block.line}")
def test_an_example_with_another_client_runs(block: Block) -> None:
    for module in ("kafka", "aiokafka", "confluent_kafka"):
        if f"from {module} import" in block.code and find_spec(module) is None:
            judges.missing(module)
    run_python([block])


@pytest.mark.spark
@pytest.mark.parametrize("block", _of("spark"), ids=lambda block: f"{block.page}:{block.line}")
def test_an_example_with_spark_runs(block: Block) -> None:
    """In a process of its own: the example stops its session."""
    if find_spec("pyspark") is None:
        judges.missing("PySpark (pip install 'kproto[spark]')")
    judges.java()
    program = (
        "from tests.documents import DOCS, blocks, run_python\n"
        f"run_python([b for b in blocks(DOCS.parent / {block.page!r}) if b.line == {block.line}])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    subprocess.run([sys.executable, "-c", program], env=env, cwd=DOCS.parent, check=True, timeout=800)


def test_no_example_is_left_out() -> None:
    assert {block.needs for block in NEEDED} == {"clients", "spark"}
