"""Kafka's own message classes, called over a pipe: `java/Bridge.java`, started once per session.

The classes come from the Kafka release whose messages kproto declares (`index.KAFKA_RELEASE`).

    bridge.encode("JoinGroupRequest", 9, {"groupId": ...}) -> bytes
    bridge.decode("JoinGroupRequest", 9, b"...") -> {"groupId": ...}
    bridge.both(name, version, json, data) -> (bytes, json)          # encode and decode in one call
    bridge.read(name, version, [b"...", ...]) -> [json, None, ...]   # None for a rejected message
    bridge.draw(name, version, 20, seed) -> [Drawn(...), ...]        # random messages made by Kafka

If Kafka rejects a message, each method raises Refused with Kafka's error text.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from kproto.messages.index import KAFKA_RELEASE
from kproto.messages.json_form import from_json, to_json
from kproto.wire.message import Message
from tests.conformance import judges

SOURCE = Path(__file__).parent / "java" / "Bridge.java"


class Drawn(NamedTuple):
    """A random message in two encodings.

    `drawn` is the encoding by Kafka's schema codec. `data` is the encoding by Kafka's message classes, which
    omit tagged fields with default values.
    """

    drawn: bytes
    data: bytes
    form: Any


class Refused(Exception):
    """Raised if Kafka's classes reject the message."""


class Bridge:
    """A running Bridge.java. It is not thread-safe."""

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
        """Decode several messages. The result of a message that Kafka rejects is None."""
        answer = self._ask(name=name, version=version, all=[data.hex() for data in all_data])
        read: list[Any] = answer["read"]
        return read

    def draw(self, name: str, version: int, count: int, seed: int) -> list[Drawn]:
        answer = self._ask(name=name, version=version, draw=count, seed=seed)
        return [
            Drawn(bytes.fromhex(message["drawn"]), bytes.fromhex(message["hex"]), message["json"])
            for message in answer["drawn"]
        ]

    def frame(self, data: bytes) -> dict[str, Any]:
        """Return the fields that Kafka's network layer reads from a request, including its header."""
        return self._ask(frame=data.hex())

    def subscription(self, data: bytes, version: int) -> bytes:
        """Let Kafka's ConsumerProtocol decode and encode a member's metadata."""
        return bytes.fromhex(self._ask(subscription=data.hex(), version=version)["hex"])

    def assignment(self, data: bytes, version: int) -> bytes:
        """Let Kafka's ConsumerProtocol decode and encode a member's assignment."""
        return bytes.fromhex(self._ask(assignment=data.hex(), version=version)["hex"])

    def control_batch(self, name: str, version: int, data: object) -> bytes:
        """Return the batch in which Kafka's raft layer writes a control record with this body."""
        return bytes.fromhex(self._ask(control=name, version=version, json=data)["hex"])

    def marker(self, kind: str, epoch: int) -> bytes:
        """Return the batch that ends a transaction: COMMIT or ABORT, with the coordinator's epoch."""
        return bytes.fromhex(self._ask(marker=kind, epoch=epoch)["hex"])

    def error_codes(self) -> list[tuple[int, str, bool, bool]]:
        """Return a tuple for each error: code, name, is it retriable, does it invalidate metadata."""
        return [
            cast("tuple[int, str, bool, bool]", tuple(error)) for error in self._ask(errors=True)["errors"]
        ]

    def quiet(self, api_key: int, version: int) -> bool:
        """Return whether Java's clients pause for the throttle time of this response."""
        is_quiet: bool = self._ask(throttled=api_key, version=version)["quiet"]
        return is_quiet

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
    """Start the bridge, and stop it after the `with` block.

    Without Java or jars, the test is skipped. With `KPROTO_JUDGES=required` it fails.
    """
    command = [
        judges.java(),
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-cp",
        judges.kafka_jars(KAFKA_RELEASE),
        str(SOURCE),
    ]
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


def kafka_agrees(bridge: Bridge, message: Message, version: int) -> None:
    """Check that Kafka encodes the JSON to these bytes, and decodes these bytes to the JSON."""
    name = type(message).__name__
    ours, form = message.encode(version), to_json(message, version)
    theirs, read = bridge.both(name, version, form, ours)
    assert theirs.hex() == ours.hex(), f"{name} v{version}: Kafka writes {theirs.hex()}, and we {ours.hex()}"
    assert read == form, f"{name} v{version}: Kafka reads {read}, and we {form}"
    assert from_json(type(message), json.loads(json.dumps(read)), version) == message
