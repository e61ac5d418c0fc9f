"""A real Kafka from the jars, which a test can kill with -9 and restart on the same logs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kproto.testing import brokers
from tests.conformance import judges


class Killable:
    """One broker that advertises the port `advertised`, for instance the port of a proxy."""

    def __init__(self, scratch: Path, *, advertised: int | None = None) -> None:
        self.port, controller = judges.free_port(), judges.free_port()
        self.scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            **brokers._KRAFT_PROPERTIES,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{advertised or self.port}",
            "log.dirs": f"{scratch}/logs",
        }
        self._config = scratch / "server.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        java = [judges.java(), "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._run = [*java, "-cp", judges.kafka_jars()]
        cluster = ["--standalone", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(self._config)]
        completed = subprocess.run(
            [*self._run, "kafka.tools.StorageTool", "format", *cluster], capture_output=True, text=True
        )
        if completed.returncode:
            judges.missing(f"a real Kafka: {completed.stdout[-300:]}{completed.stderr[-300:]}")

    def start(self) -> None:
        with open(self.scratch / "broker.log", "a") as log:
            self._process = subprocess.Popen(
                [*self._run, "kafka.Kafka", str(self._config)], stdout=log, stderr=log
            )
        if why := brokers.why_silent(f"127.0.0.1:{self.port}", self._process):
            judges.missing(f"a real Kafka: it did not start ({why})")

    def kill(self) -> None:
        """Kill the broker with SIGKILL, and wait until its process has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
