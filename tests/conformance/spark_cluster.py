"""A Spark cluster on one computer, with a master and two workers as processes that a test may kill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from consumer.spark.session import launcher
from tests.conformance import judges

ROOT = Path(__file__).resolve().parents[2]
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """A standalone cluster. `master` is the URL for SparkSession.builder.master."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        judges.java()
        self.folder = folder
        self.home = Path(pyspark.__file__).parent
        self.port = judges.free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        deploy = "org.apache.spark.deploy"
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        self._run("master", f"{deploy}.master.Master", *address, "--webui-port", "0")
        for number in (1, 2):
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            work = ["--work-dir", str(self.folder / f"work-{number}")]
            self._run(f"worker-{number}", f"{deploy}.worker.Worker", *options, *work, self.master)
        eventually(lambda: self._log("master").count("Registering worker") == 2, "two workers", 600)

    def _run(self, name: str, *command: str) -> None:
        retries = "-Dspark.deploy.maxExecutorRetries=-1"
        environment = {
            **os.environ,
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{JAVA_OPTIONS} {retries}",
        }
        with open(self.folder / f"{name}.log", "wb") as log:
            run = [str(self.home / "bin" / "spark-class"), *command]
            self.processes.append(subprocess.Popen(run, env=environment, stdout=log, stderr=log))

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for process in self.processes:
            kill([process.pid, *below(process.pid)])
            process.wait()


def driver(cluster: Cluster, program: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a program as the driver of a session on the cluster.

    The output of the program is written to driver.log.
    """
    environment_ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": str(launcher(cluster.folder)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        **environment,
    }
    with open(cluster.folder / "driver.log", "ab") as log:
        run = [sys.executable, str(program), cluster.master, *arguments]
        return subprocess.Popen(run, env=environment_, stdout=log, stderr=log)


def session(master: str) -> object:
    """Return a session on a cluster, with settings for a faster start.

    As in an application, `SparkSession.builder` creates the session.
    """
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.environ.get("EXECUTORS_PYTHONPATH", str(ROOT)),
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(master).appName("kproto")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


# ---- the processes that a cluster starts


def below(*pids: int) -> dict[int, str]:
    """Return the descendants of these processes, each with its command line."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    descendants: set[int] = set()
    more = set(pids)
    while more:
        more = {pid for pid, parent in parents.items() if parent in more} - descendants
        descendants |= more
    return {pid: _command(pid) for pid in descendants}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(pids: list[int]) -> None:
    """Send SIGKILL to these processes."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def eventually(holds: Callable[[], bool], condition: str, seconds: float) -> None:
    """Wait until `holds` returns True; raise AssertionError if this takes longer than `seconds` seconds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s: {condition}"
        time.sleep(0.1)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Run a cluster until the end of the `with` block."""
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
