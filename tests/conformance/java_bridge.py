"""Kafka's own message classes, asked over a pipe: `java/Bridge.java`, started once per session.

    bridge.encode("JoinGroupRequest", 9, {"groupId": ...}) -> bytes
    bridge.decode("JoinGroupRequest", 9, b"...") -> {"groupId": ...}
    bridge.both(name, version, json, data) -> (bytes, json)          # in one go
    bridge.read(name, version, [b"...", ...]) -> [json, None, ...]   # many; None for what is refused
    bridge.draw(name, version, 20, seed) -> [Drawn(...), ...]        # random messages made by Kafka

Where Kafka refuses, each raises Refused with Kafka's own words.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from tests.conformance import judges

SOURCE = Path(__file__).parent / "java" / "Bridge.java"


class Drawn(NamedTuple):
    """A random message of Kafka's: `drawn` has tagged fields at their defaults, `data` is without those."""

    drawn: bytes
    data: bytes
    form: Any


class Refused(Exception):
    """Kafka's classes did not want the message."""


class Bridge:
    """A running Bridge.java. Not for several threads at once."""

    def __init__(self, stdin: IO[bytes], stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr

    def encode(self, name: str, version: int, data: object) -> bytes:
        return bytes.fromhex(self._ask(name=name, version=version, json=data)["hex"])

    def decode(self, name: str, version: int, data: bytes) -> Any:
        return self._ask(name=name, version=version, hex=data.hex())["json"]

    def both(self, name: str, version: int, data: object, encoded: bytes) -> tuple[bytes, Any]:
        answer = self._ask(name=name, version=version, json=data, hex=encoded.hex())
        return bytes.fromhex(answer["hex"]), answer["json"]

    def read(self, name: str, version: int, all_data: list[bytes]) -> list[Any]:
        """What Kafka reads in each, None where it refuses."""
        answer = self._ask(name=name, version=version, all=[data.hex() for data in all_data])
        read: list[Any] = answer["read"]
        return read

    def draw(self, name: str, version: int, count: int, seed: int) -> list[Drawn]:
        answer = self._ask(name=name, version=version, draw=count, seed=seed)
        return [
            Drawn(bytes.fromhex(one["drawn"]), bytes.fromhex(one["hex"]), one["json"])
            for one in answer["drawn"]
        ]

    def frame(self, data: bytes) -> dict[str, Any]:
        """What a broker's network layer sees in a whole request."""
        return self._ask(frame=data.hex())

    def subscription(self, data: bytes, version: int) -> bytes:
        """A member's metadata, read and written again by Kafka's ConsumerProtocol."""
        return bytes.fromhex(self._ask(subscription=data.hex(), version=version)["hex"])

    def assignment(self, data: bytes, version: int) -> bytes:
        """A member's assignment, read and written again by Kafka's ConsumerProtocol."""
        return bytes.fromhex(self._ask(assignment=data.hex(), version=version)["hex"])

    def control_batch(self, name: str, version: int, data: object) -> bytes:
        """The batch that Kafka's raft layer makes of the body of a control record."""
        return bytes.fromhex(self._ask(control=name, version=version, json=data)["hex"])

    def marker(self, kind: str, epoch: int) -> bytes:
        """The batch that ends a transaction: kind is COMMIT or ABORT, the epoch the coordinator's."""
        return bytes.fromhex(self._ask(marker=kind, epoch=epoch)["hex"])

    def error_codes(self) -> list[tuple[int, str, bool, bool]]:
        """Code, name, whether it may be tried again, whether it wants fresh metadata: of every error."""
        return [
            cast("tuple[int, str, bool, bool]", tuple(error)) for error in self._ask(errors=True)["errors"]
        ]

    def quiet(self, api_key: int, version: int) -> bool:
        """Whether Java's clients are quiet for the time that this answer asks for."""
        found: bool = self._ask(throttled=api_key, version=version)["quiet"]
        return found

    def _ask(self, **question: object) -> dict[str, Any]:
        self._stdin.write(json.dumps(question).encode() + b"\n")
        self._stdin.flush()
        line = self._stdout.readline()
        if not line:
            self._stderr.seek(0)
            raise RuntimeError(f"the bridge ended: {self._stderr.read().decode(errors='replace')[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer


@contextmanager
def running() -> Iterator[Bridge]:
    """Start the bridge; its JVM ends with the context. A skip or failure where Java or jars are missing."""
    command = [judges.java(), "-Xmx512m", "-XX:+UseSerialGC", "-cp", judges.kafka_jars(), str(SOURCE)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Bridge(process.stdin, process.stdout, cast("IO[bytes]", errors))
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
