"""The documentation's examples run, even those that need other clients, other languages or Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conformance import judges
from tests.conformance.original_clients import SOURCES
from tests.documents import DOCS, PAGES, Block, blocks, run_python, with_kproto
from tests.programs import OUTPUTS

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
    """The example runs in a separate process. Otherwise it would stop the Spark session of other tests."""
    if find_spec("pyspark") is None:
        judges.missing("PySpark (pip install 'kproto[spark]')")
    judges.java()
    program = (
        "from tests.documents import DOCS, blocks, run_python\n"
        f"run_python([b for b in blocks(DOCS.parent / {block.page!r}) if b.line == {block.line}])\n"
    )
    env = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    subprocess.run([sys.executable, "-c", program], env=env, cwd=DOCS.parent, check=True, timeout=800)


@pytest.mark.kafka
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_program_runs_twice_on_a_real_kafka(name: str, real_kafka: judges.RealKafka) -> None:
    order = [sys.executable, str(DOCS.parent / "examples" / name), "--bootstrap", real_kafka.bootstrap]
    env = {**os.environ, "PYTHONPATH": str(DOCS.parent)}
    runs = [subprocess.run(order, env=env, capture_output=True, text=True, timeout=100) for _ in range(2)]
    assert [(run.returncode, run.stderr) for run in runs] == [(0, "")] * 2
    assert OUTPUTS[name] in runs[0].stdout


FILES = [block for page in PAGES for block in blocks(page) if block.file]


def _go(folder: Path) -> list[str]:
    go = shutil.which("go") or judges.missing("go")
    sarama = re.search(r"github.com/IBM/sarama v\S+", (SOURCES / "go.mod").read_text())
    assert sarama is not None
    (folder / "go.mod").write_text(f"module flights\n\ngo 1.24\n\nrequire {sarama[0]}\n")
    subprocess.run([go, "mod", "tidy"], cwd=folder, check=True)
    return [go, "test", "./..."]


def _java(folder: Path) -> list[str]:
    (program,) = folder.glob("*.java")
    return [judges.java(), "-cp", judges.kafka_jars(), program.name]


def _node(folder: Path) -> list[str]:
    node, npm = (shutil.which(name) or judges.missing(name) for name in ("node", "npm"))
    done = subprocess.run([npm, "install", "--no-audit", "--no-fund", "kafkajs@2.2.4"], cwd=folder)
    if done.returncode:
        judges.missing("kafkajs, which npm did not install")
    return [node, "--test"]


HOW: dict[str, Callable[[Path], list[str]]] = {"go": _go, "java": _java, "js": _node}


@pytest.mark.originals
@pytest.mark.parametrize("block", FILES, ids=lambda block: block.file)
def test_an_example_in_another_language_runs(block: Block, tmp_path: Path) -> None:
    folder = tmp_path / "example"
    folder.mkdir()
    (folder / block.file).write_text(block.code)
    order = HOW[block.kind](folder)
    subprocess.run(order, cwd=folder, env=with_kproto(tmp_path), check=True, timeout=400)


def test_every_language_has_an_example() -> None:
    assert {block.kind for block in FILES} == set(HOW)


def test_no_example_is_left_out() -> None:
    assert {block.needs for block in NEEDED} == {"clients", "spark"}
