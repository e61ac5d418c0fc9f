"""Each Spark process imports only the modules that it needs, because a query waits for the imports."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from consumer.spark.schema import full_schema
from consumer.spark.source import KprotoDataSource
from kproto.errors import ConfigError

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        (
            "source",
            (
                "numpy",
                "pyarrow",
                "consumer.operations.admin",
                "consumer.spark.stream",
                "consumer.spark.partition_reader",
            ),
        ),
        (
            "stream",
            (
                "numpy",
                "pyarrow",
                "consumer.operations.consumer",
                "consumer.operations.producer_base",
                "kproto.group.classic.member",
            ),
        ),
        (
            "partition_reader",
            (
                "consumer.operations.consumer",
                "consumer.operations.producer_base",
                "kproto.group.classic.member",
            ),
        ),
    ],
)
def test_each_spark_process_imports_only_what_it_needs(module: str, heavy: tuple[str, ...]) -> None:
    program = f"import sys, consumer.spark.{module}; print(*[n for n in {heavy!r} if n in sys.modules])"
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout.split() == []


def test_spark_finds_the_source_on_the_path() -> None:
    """Spark finds `pyspark_kproto` on Python's path, and pickles the source's class by name.

    Each Python worker of Spark imports `pyspark_kproto` to unpickle the source's class.
    """
    program = (
        "import sys; from io import BytesIO\n"
        "from pyspark.sql.worker import lookup_data_sources\n"
        "said = BytesIO()\n"
        "lookup_data_sources._main(BytesIO(), said)\n"
        "print(said.getvalue(), 'pyarrow' in sys.modules)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "kproto" in process.stdout
    assert "consumer.spark.source" in process.stdout
    assert "KprotoDataSource" in process.stdout
    assert len(process.stdout) < 300, "the class is named, not copied"
    declared = ConfigParser()
    declared.read(ROOT / "setup.cfg")
    assert declared.get("options", "py_modules") == "pyspark_kproto"


@pytest.mark.parametrize("first", ["latestOffset", "initialOffset"])
def test_a_stream_in_an_older_spark_raises_at_its_first_call(first: str) -> None:
    """A stream needs Spark 4.2. In older releases, each method of the stream reader raises an error.

    If kproto raised the error before the first call, Spark 4.0 and 4.1 would replace it with another error.
    Spark calls `latestOffset` first for a new query, and `initialOffset` first for a resumed one.
    """
    program = (
        "import sys\n"
        "from consumer.spark.source import KprotoDataSource\n"
        "sys.modules['pyspark.sql.streaming.datasource'] = None  # PySpark 4.1 has none\n"
        "source = KprotoDataSource({'kafka.bootstrap.servers': 'localhost:1', 'subscribe': 't'})\n"
        "reader = source.streamReader(source.schema())\n"
        f"try: reader.{first}()\n"
        "except ImportError as error: print(error)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith("a kproto stream needs PySpark 4.2 or newer: pip install")


@pytest.mark.parametrize(
    ("version", "package"), [("4.0.5", "streaming"), ("4.1.4", "streaming.checkpointing")]
)
def test_the_checkpoint_class_has_the_package_of_the_spark_version(version: str, package: str) -> None:
    """The package of the checkpoint class depends on the Spark version.

    With the package name of Spark 4.1, each stream in Spark 4.0 would fail with a ClassNotFoundException.
    """
    from consumer.spark.session import settings_of

    manager = settings_of(version)["spark.sql.streaming.checkpointFileManagerClass"]
    assert manager.rpartition(".")[0] == f"org.apache.spark.sql.execution.{package}"


@pytest.mark.parametrize(
    ("first", "arguments"), [("initialOffset", ()), ("latestOffset", ()), ("partitions", ({}, {}))]
)
def test_a_wrong_stream_option_raises_at_whichever_call_comes_first(first: str, arguments: Any) -> None:
    """An invalid option raises an error in the first method that Spark calls on the stream reader.

    If a query repeats a batch after a crash, Spark calls `partitions` before `initialOffset` and
    `latestOffset`.
    """
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "endingOffsets": "latest"}
    source = KprotoDataSource(options)
    with pytest.raises(ConfigError, match=r"endingOffsets.*a stream has no end"):
        getattr(source.streamReader(full_schema(source.parsed)), first)(*arguments)


def test_a_wrong_option_raises_without_our_stack_frames() -> None:
    """The error for an invalid option shows no stack frames of kproto.

    Spark prints the whole traceback above the message of the error, so frames of kproto would be noise.
    """
    with pytest.raises(ConfigError, match="startingOffsets='soon'") as raised:
        KprotoDataSource({"kafka.bootstrap.servers": "localhost:1", "startingOffsets": "soon"})
    assert [Path(entry.path).name for entry in raised.traceback] == [Path(__file__).name, "source.py"]


@pytest.mark.parametrize("name", ["spark", "experiments.spark_latency", "experiments.spark_scale"])
def test_the_benchmarks_can_import_the_measured_functions(name: str) -> None:
    import_module(f"benchmarks.{name}")


DECODES_VALUES = """
import json, sys
from pyspark.sql.types import *
from tests.consumer.spark.values_stage import avro, decoded, wired

class PrintsImports:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas": print("imports pandas")

sys.meta_path.insert(0, PrintsImports())
null = {"value.onError": "null"}
kind = StructType().add("i", IntegerType()).add("s", StringType()).add("l", ArrayType(LongType()))
kind = kind.add("m", MapType(StringType(), DoubleType())).add("b", BinaryType())
record = {"type": "record", "name": "r", "fields": [
    {"name": "i", "type": ["null", "int"]},
    {"name": "s", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
    {"name": "l", "type": {"type": "array", "items": "long"}},
    {"name": "m", "type": {"type": "map", "values": "double"}},
    {"name": "b", "type": "bytes"},
]}
rows = [{"i": n or None, "s": "B", "l": [n], "m": {"k": 0.5}, "b": b"AAAA"} for n in range(3)]
avros, texts = avro(record, *rows), [json.dumps({**row, "b": "AAAA"}).encode() for row in rows]
options = {"value.format": "avro", "value.schema": json.dumps(record), **null}
good = decoded([*avros, b"broken", None], kind, options)
assert [row["value"] and row["value"]["s"] for row in good] == ["B", "B", "B", None, None]
good = decoded([*texts, b"{", None], kind, {"value.format": "json", **null})
assert [row["value"] and row["value"]["s"] for row in good] == ["B", "B", "B", None, None]
decoded([b"x", bytes([255])], StringType(), {"value.format": "string", **null})
"""


def test_no_format_imports_pandas() -> None:
    """No format imports pandas, because each worker of a query would wait for this import. Many of pyarrow's
    conversions import pandas, so the formats avoid them.
    """
    done = subprocess.run(
        [sys.executable, "-c", DECODES_VALUES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
