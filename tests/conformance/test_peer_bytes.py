"""The codecs of two other clients, kio and kafka-python, check kproto's bytes.

Both codecs are generated from Kafka's definitions. kio decodes in Rust, and encodes in Python.

kio and kafka-python decode kproto's bytes to the same field names and values, and encode these values to the
same bytes.

`DEFECTS` lists known errors of these clients. A message that would trigger a listed error is changed first. A
test fails when a client has fixed a listed error.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from kproto.error_codes import ErrorCode
from kproto.messages import index
from kproto.messages.api_versions import ApiVersionsResponse
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.renew_delegation_token import RenewDelegationTokenResponse
from kproto.testing.strategies import from_message
from kproto.wire import ZERO_UUID, Message, Struct
from kproto.wire.message import Field
from tests.conformance import judges
from tests.conformance.one_mistake import OneMistake
from tests.wire.samples import sample, structs_in

pytestmark = pytest.mark.clients

EXAMPLES = {"quick": 2, "ci": 6, "soak": 200}[os.environ.get("KPROTO_PROFILE", "quick")]

# The type of a function that decodes a message and encodes it again, and returns the object and the new
# bytes.
Codec = Callable[[bytes], tuple[Any, bytes]]


class Peer(Protocol):
    package: str
    pairs: int  # The minimum number of (message, version) pairs that the test has to check.

    def codec(self, name: str, version: int) -> Codec | None:
        """Return the peer's codec, or None if the peer does not have this message or version."""


class Kio:
    """kio: all messages except group coordinator records, with one class per message and version."""

    package = "kio"
    pairs = 620

    def codec(self, name: str, version: int) -> Codec | None:
        path = _kio_paths().get((name, version))
        if path is None:
            return None
        entity = getattr(import_module(path.split(":")[0]), name)
        serial = import_module("kio.serial")
        read, write = serial.entity_reader(entity), serial.entity_writer(entity)

        def again(data: bytes) -> tuple[Any, bytes]:
            message, end = read(data, 0)
            assert end == len(data)
            out = io.BytesIO()
            write(out, message)
            return message, out.getvalue()

        return again


@cache
def _kio_paths() -> dict[tuple[str, int], str]:
    schemas = import_module("kio.schema.index").schema_name_map
    return {
        (path.split(":")[1], version): path
        for versions in schemas.values()
        for version, kinds in versions.items()
        for path in kinds.values()
    }


class KafkaPython:
    """kafka-python: one class per message, for the APIs that clients use and for the consumer protocol."""

    package = "kafka"
    pairs = 480

    def codec(self, name: str, version: int) -> Codec | None:
        peer = _kafka_python_classes().get(name)
        if peer is None or not peer.valid_versions[0] <= version <= peer.valid_versions[1]:
            return None

        def api(data: bytes) -> tuple[Any, bytes]:
            message = peer.decode(data, version=version)
            # kafka-python's `encode` reads this attribute, which a decoded message lacks.
            message._header = None
            return message, bytes(message.encode(version=version))

        def body(data: bytes) -> tuple[Any, bytes]:
            message = peer.decode(data, version=version, header=False)
            return message, bytes(message.encode(version=version, header=False))

        return api if peer.type in ("request", "response") else body


@cache
def _kafka_python_classes() -> dict[str, Any]:
    classes: dict[str, Any] = {}
    for part in ("consumer", "metadata", "admin", "producer", "sasl"):
        module = import_module(f"kafka.protocol.{part}")
        classes |= {name: getattr(module, name) for name in dir(module) if name in index.names()}
    return classes


PEERS: list[Peer] = [Kio(), KafkaPython()]


@pytest.fixture(params=PEERS, ids=lambda peer: peer.package)
def peer(request: pytest.FixtureRequest) -> Peer:
    chosen: Peer = request.param
    if find_spec(chosen.package) is None:
        judges.missing(chosen.package)
    return chosen


# The known bugs of the peers.


@dataclass(frozen=True)
class Defect:
    """A known bug of a peer, which `example` triggers.

    `narrow` changes a struct so that the peer supports it.
    """

    package: str
    description: str
    # Called for each struct within a message, with the struct and the message's name.
    narrow: Callable[[Any, str], None]
    example: Message
    version: int
    # The error that the peer raises. It is empty if the peer reads the example but writes other bytes.
    shown: str


def drop_unknown_tags(struct: Struct, _: str) -> None:
    struct.__unknown_tags__ = {}


def known_errors(struct: Any, _: str) -> None:
    for f in type(struct).__fields__:
        value = getattr(struct, f.name)
        if f.name.endswith("error_code") and value not in KNOWN_TO_KIO:
            setattr(struct, f.name, value % max(KNOWN_TO_KIO))


# kio knows the error codes of Kafka 4.3, and rejects later ones.
KNOWN_TO_KIO = [code.value for code in ErrorCode if code <= ErrorCode.SHARE_SESSION_LIMIT_REACHED]

INSTANTS = {
    "issue_timestamp_ms",
    "expiry_timestamp_ms",
    "max_timestamp_ms",
    "transaction_start_time_ms",
    "log_append_time_ms",
}


def instants_after_1970(struct: Any, _: str) -> None:
    for name in INSTANTS.intersection(type(struct).__options__):
        setattr(struct, name, getattr(struct, name) % YEAR_9999)


YEAR_9999 = 253_402_300_800_000
DURATIONS = {
    "max_lifetime_ms",
    "expiry_time_period_ms",
    "retention_time_ms",
    "renew_period_ms",
    "session_lifetime_ms",
}


def short_durations(struct: Any, _: str) -> None:
    for name in DURATIONS.intersection(type(struct).__options__):
        setattr(struct, name, getattr(struct, name) % YEAR_9999)


def no_error_in_api_versions(struct: Any, name: str) -> None:
    if isinstance(struct, ApiVersionsResponse):
        struct.error_code = 0


TAGGED_BEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
TAGGED_BEAT.__unknown_tags__ = {99: b"x"}
COMMIT = OffsetCommitRequest(group_id="g", member_id="m", retention_time_ms=2**62, topics=[])
RENEWED = RenewDelegationTokenResponse(error_code=0, expiry_timestamp_ms=-2, throttle_time_ms=0)
NO_VERSIONS = ApiVersionsResponse(error_code=35, api_keys=[], throttle_time_ms=7)

DEFECTS = [
    Defect("kio", "unknown tags", drop_unknown_tags, TAGGED_BEAT, 4, "KeyError"),
    Defect("kio", "unknown errors", known_errors, HeartbeatResponse(error_code=999), 4, "ValueError"),
    Defect("kio", "instants before 1970", instants_after_1970, RENEWED, 2, "OutOfBoundValue"),
    Defect("kio", "long durations", short_durations, COMMIT, 2, "ValueError"),
    Defect("kafka", "unknown tags are dropped", drop_unknown_tags, TAGGED_BEAT, 4, ""),
    Defect("kafka", "an error makes it version 0", no_error_in_api_versions, NO_VERSIONS, 1, ""),
]


def narrowed(peer: Peer, message: Message) -> Message:
    for defect in DEFECTS:
        if defect.package == peer.package:
            for struct in structs_in(message):
                defect.narrow(struct, type(message).__name__)
    return message


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.package}: {defect.description}")
def test_a_known_defect_of_a_peer_still_exists(defect: Defect) -> None:
    if find_spec(defect.package) is None:
        judges.missing(defect.package)
    (peer,) = (peer for peer in PEERS if peer.package == defect.package)
    codec = peer.codec(type(defect.example).__name__, defect.version)
    assert codec is not None
    data = defect.example.encode(defect.version)
    if defect.shown:
        with pytest.raises(Exception) as caught:  # noqa: PT011  the names of the peers' own errors
            codec(data)
        assert type(caught.value).__name__ == defect.shown
    else:
        assert codec(data)[1] != data


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.package}: {defect.description}")
def test_narrowing_removes_only_the_defect(defect: Defect) -> None:
    """A defect's example is changed by the `narrow` of this defect, and by no other `narrow`."""
    version = defect.version
    data = defect.example.encode(version)
    for checked in DEFECTS:
        message = type(defect.example).decode(data, version)
        for struct in structs_in(message):
            checked.narrow(struct, type(message).__name__)
        assert (message.encode(version) != data) == (checked.narrow is defect.narrow)


# Checks.


def judge(peer: Peer, message: Message, version: int) -> None:
    """Check that the peer reads the same values from kproto's bytes, and writes the same bytes."""
    codec = peer.codec(type(message).__name__, version)
    assert codec is not None
    data = message.encode(version)
    theirs, encoded = codec(data)
    assert encoded.hex() == data.hex()
    same_values(message, theirs, version)


def same_values(ours: Any, theirs: Any, version: int) -> None:
    """Compare the fields that both objects have.

    kio omits the unit from a field's name if the type implies it, so such fields are not compared.
    """
    for f in type(ours).__fields__:
        if version in f.versions and hasattr(theirs, f.name):
            mine, yours = getattr(ours, f.name), getattr(theirs, f.name)
            if isinstance(mine, list) and yours is not None:
                assert len(mine) == len(yours), f.name
                for our_item, their_item in zip(mine, yours, strict=True):
                    same_value(f, our_item, their_item, version)
            else:
                same_value(f, mine, yours, version)


def same_value(f: Field, mine: Any, yours: Any, version: int) -> None:
    if yours is None:
        # The other client may return None for a null UUID, and for a tagged struct that the message lacks.
        assert mine in (None, ZERO_UUID, f.initial()), f.name
    elif isinstance(mine, Struct):
        same_values(mine, yours, version)
    elif isinstance(yours, set):
        assert all((mine >> bit & 1) == (bit in yours) for bit in range(32)), f.name  # A bit field.
    else:
        assert mine == yours, f.name


@pytest.mark.parametrize("name", index.names())
def test_our_bytes_round_trip_through_a_peer(peer: Peer, name: str) -> None:
    cls = index.message_class(name)
    for version in range(cls.__versions__.min, cls.__versions__.max + 1):
        if peer.codec(name, version) is None:
            continue
        for elements in (1, 3):
            judge(peer, narrowed(peer, sample(cls, version, elements)), version)

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(from_message(cls, version))
        def check(message: Message) -> None:
            judge(peer, narrowed(peer, message), version)  # noqa: B023

        check()


def test_the_peers_have_most_messages(peer: Peer) -> None:
    pairs = [
        (name, version)
        for name in index.names()
        for version in range(33)
        if version in index.message_class(name).__versions__ and peer.codec(name, version) is not None
    ]
    assert len(pairs) >= peer.pairs


@pytest.mark.parametrize(
    ("mutant", "version"),
    [(OneMistake.HeartbeatRequest, 0), (OneMistake.HeartbeatResponse, 3), (OneMistake.SyncGroupResponse, 1)],
)
def test_a_peer_detects_one_mistake_in_a_declaration(peer: Peer, mutant: type[Message], version: int) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011  any error of the peer
        judge(peer, sample(mutant, version), version)
    assert not isinstance(caught.value, NameError)
