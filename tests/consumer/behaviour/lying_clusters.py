"""Simulated clusters that lie in many ways for some time, and then respond correctly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from kproto.error_codes import ErrorCode
from kproto.errors import EncodeError, RecordError
from kproto.messages.headers import decode_response, encode_response
from kproto.messages.index import response_class
from kproto.testing.world.clients import Wire
from kproto.wire.message import Array, Message
from tests.consumer.behaviour.lying_brokers import change_a_field
from tests.consumer.stage import World

AGE_MS = 10_000
SESSION_MS = 6_000
REQUEST_TIMEOUT_MS = 8_000
# A client recovers within this time after the last wrong response. In the worst case three waits add up: a
# request times out, the metadata expires, and the session of an abandoned member expires.
RECOVERY_MS = REQUEST_TIMEOUT_MS + AGE_MS + SESSION_MS
PARTITIONS = 3
# The maximum number of requests in one second of virtual time. The largest number in 395 runs was 36.
MOST_REQUESTS = 60


class LyingCluster(World):
    """A simulated cluster whose brokers send some wrong responses while `is_lying` is set.

    `seed` determines which responses are wrong, and how.
    """

    def __init__(self, seed: int) -> None:
        super().__init__({"t": PARTITIONS}, brokers=2, seed=seed)
        self.lies = Random(seed)
        self.rate = self.lies.choice([0.05, 0.3, 0.8])  # The probability that a response is wrong.
        self.is_lying = True
        # How often each function in LIES was used, by the function's name.
        self.told: Counter[str] = Counter()
        self.earlier: dict[tuple[int, int], list[bytes]] = {}

    def _send_response(self, wire: Wire, body: bytes) -> None:
        key, version = self.pending_requests[wire.conn]
        if not self.is_lying:
            super()._send_response(wire, body)
            return
        earlier = self.earlier.setdefault((key, version), [])
        earlier.append(body)
        if self.lies.random() > self.rate:
            super()._send_response(wire, body)
            return
        lie = self.lies.choice(LIES)
        self.told[lie.__name__] += 1
        changed = lie(self, wire, key, version, body)
        if changed is not None:
            super()._send_response(wire, changed)


# A function that gets a correct response, and returns a wrong one, or None to suppress the response.
Lie = Callable[[LyingCluster, Wire, int, int, bytes], bytes | None]


def wrong_fields(world: LyingCluster, wire: Wire, key: int, version: int, body: bytes) -> bytes:
    """Change one or three random fields, such as an error code, a leader or a list."""
    correlation, response = decode_response(body, response_class(key), version)
    for _ in range(world.lies.choice([1, 1, 3])):
        change_a_field(response, world.lies)
    return _encode(response, version, correlation, body)


def error_codes(world: LyingCluster, wire: Wire, key: int, version: int, body: bytes) -> bytes:
    """Set every error code of the response to the same error."""
    correlation, response = decode_response(body, response_class(key), version)
    code = world.lies.choice([code for code in ErrorCode if code])
    _set_error_codes(response, code)
    return _encode(response, version, correlation, body)


def an_empty_response(world: LyingCluster, wire: Wire, key: int, version: int, body: bytes) -> bytes:
    """Empty every list, so that the response has no API, broker, topic, partition or group."""
    correlation, response = decode_response(body, response_class(key), version)
    for field in response.__fields__:
        if isinstance(field.kind, Array):
            setattr(response, field.name, [])
    return _encode(response, version, correlation, body)


def an_earlier_response(world: LyingCluster, wire: Wire, key: int, version: int, body: bytes) -> bytes:
    """Repeat an earlier response to the same API, with its leaders, epochs and records."""
    return body[:4] + world.lies.choice(world.earlier[key, version])[4:]


def a_truncated_response(world: LyingCluster, wire: Wire, key: int, version: int, body: bytes) -> bytes:
    return body[: world.lies.randrange(4, len(body) + 1)]


def another_correlation_id(world: LyingCluster, wire: Wire, key: int, version: int, body: bytes) -> bytes:
    return bytes([body[0] ^ 1]) + body[1:]


def no_response(world: LyingCluster, wire: Wire, key: int, version: int, body: bytes) -> None:
    return None


def a_closed_connection(world: LyingCluster, wire: Wire, key: int, version: int, body: bytes) -> None:
    world.disconnect_broker(wire)
    world.disconnect_client(wire, "the broker closed the connection")


LIES: tuple[Lie, ...] = (
    wrong_fields,
    wrong_fields,
    wrong_fields,
    error_codes,
    an_empty_response,
    an_earlier_response,
    a_truncated_response,
    another_correlation_id,
    no_response,
    a_closed_connection,
)


def _set_error_codes(message: Message, code: ErrorCode) -> None:
    for field in message.__fields__:
        value: Any = getattr(message, field.name)
        if field.name == "error_code":
            setattr(message, field.name, code)
        parts: list[Any] = value if isinstance(value, list) else [value]
        for part in parts:
            if hasattr(part, "__fields__"):
                _set_error_codes(part, code)


def _encode(response: Message, version: int, correlation: int, body: bytes) -> bytes:
    """Encode a changed response; return the original one if a field cannot have its new value."""
    try:
        return encode_response(response, version, correlation)
    except EncodeError:
        return body


class Run:
    """A consumer whose cluster sends wrong responses for some time. `play` returns after the recovery."""

    def __init__(self, seed: int) -> None:
        self.world = LyingCluster(seed)
        random = self.random = Random(f"{seed} run")
        self.consumer = self.world.consumer(
            client_id="a",
            group_id="g",
            group_instance_id=random.choice([None, None, "i"]),
            auto_offset_reset=random.choice(["earliest", "latest"]),
            partition_assignment_strategy=random.choice(["range", "cooperative-sticky"]),
            isolation_level=random.choice(["read_uncommitted", "read_committed"]),
            enable_auto_commit=random.random() < 0.5,
            auto_commit_interval_ms=1_000,
            metadata_max_age_ms=AGE_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=SESSION_MS,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
        )
        self.most_requests_in_a_second = 0

    def run(self, ms: int) -> None:
        """Run for `ms` milliseconds, and record the largest number of requests in one second."""
        for _ in range(ms // 1_000):
            before = len(self.world.requests)
            self.world.run(1_000)
            requests = len(self.world.requests) - before
            self.most_requests_in_a_second = max(self.most_requests_in_a_second, requests)

    def play(self) -> None:
        """Lie for 5 to 40 s, while records are written and leaders move. Then wait for the recovery."""
        if self.random.random() < 0.5:  # In half of the runs the lies begin only after 3 s.
            self.world.is_lying = False
            self.consumer.subscribe("t")
            self.run(3_000)
            self.world.is_lying = True
        else:
            self.consumer.subscribe("t")
        for number in range(self.random.choice([1, 4, 8])):
            for partition in range(PARTITIONS):
                self.world.write("t", partition, f"{number}")
            if self.random.random() < 0.3:
                self.world.elect("t", self.random.randrange(PARTITIONS), self.random.choice([1, 2]))
            self.run(5_000)
        self.world.is_lying = False
        self.run(RECOVERY_MS)

    def check(self) -> None:
        """Check that the consumer reads every partition to its end and commits.

        The consumer must not have sent more than MOST_REQUESTS in any second.

        The consumer may stop reading in two cases, in which each poll raises an error: the member is fenced,
        or a partition has an unreadable batch and the application has not sought past the batch.
        """
        world, consumer = self.world, self.consumer
        lies = dict(world.told)
        assert self.most_requests_in_a_second <= MOST_REQUESTS, (self.most_requests_in_a_second, lies)
        if consumer.has_final_error:
            assert consumer.errors
            return
        for partition in range(PARTITIONS):
            world.write("t", partition, f"last-{partition}")
        raised = len(consumer.errors)
        self.run(2_000)
        unread = {f"last-{partition}" for partition in range(PARTITIONS)} - set(consumer.values())
        unreadable = {
            f"last-{error.partition}" for error in consumer.errors[raised:] if isinstance(error, RecordError)
        }
        assert unread <= unreadable, f"{unread} not read, last errors {consumer.errors[-2:]}, {lies}"
        token = consumer.commit(timeout_ms=2_000)
        self.run(3_000)
        error = consumer.done[token][1]
        assert error is None, f"commit: {error!r}, {lies}"
