"""Kafka's generated classes check kproto's bytes of every message, in every version and both directions.

kproto's encoding of a message equals Kafka's encoding of its JSON form, and Kafka decodes kproto's bytes to
the same JSON. The messages are drawn by Hypothesis and by Kafka.

Kafka's classes and kproto both reject corrupted bytes, or both decode them to the same values.
`we_are_stricter` defines the exceptions.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from kproto.error_codes import REFRESH_METADATA, RETRIABLE, ErrorCode
from kproto.errors import DecodeError, EncodeError
from kproto.messages import index
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.describe_client_quotas import DescribeClientQuotasResponse, EntryData, ValueData
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.json_form import UNKNOWN_TAGS, from_json, to_json
from kproto.messages.update_raft_voter import CurrentLeader, UpdateRaftVoterResponse
from kproto.testing.strategies import from_message, versioned
from kproto.wire import interpreter
from kproto.wire.message import Message
from tests.conformance.java_bridge import Bridge, Refused, kafka_agrees
from tests.conformance.one_mistake import OneMistake
from tests.wire.samples import broken_bytes, sample

pytestmark = pytest.mark.java

MOST_USED = (
    "JoinGroupRequest",
    "JoinGroupResponse",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "FetchRequest",
    "FetchResponse",
)


@dataclass(frozen=True)
class Effort:
    """The numbers of examples and of corrupted examples that one run of the tests decodes.

    For each byte of a sample, `broken_bytes` makes up to `values` corrupted copies, in which only this byte
    differs. Other corrupted copies are truncated.

    Hypothesis draws `most_used` examples of each version of a frequent message, and `less_used` examples of
    each version of any other message. In addition, Kafka's message classes are filled with random values:
    `kafkas` examples of each version of every message.
    """

    most_used: int
    less_used: int
    kafkas: int
    values: int


PROFILE = os.environ.get("KPROTO_PROFILE", "quick")
EFFORT = {
    "quick": Effort(25, 3, 5, 1),
    "ci": Effort(150, 20, 200, 2),
    "soak": Effort(1000, 200, 2000, 5),
}[PROFILE]


def judge(bridge: Bridge, name: str, version: int, count: int) -> None:
    cls = index.message_class(name)

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(from_message(cls, version, unknown_tags=True))
    def check(message: Message) -> None:
        # Kafka prints Infinity in JSON, but cannot read it.
        assume("Infinity" not in json.dumps(to_json(message, version)))
        kafka_agrees(bridge, message, version)

    check()


def all_versions(names: list[str]) -> list[tuple[str, int]]:
    pairs = []
    for name in names:
        versions = index.message_class(name).__versions__
        pairs += [(name, version) for version in range(versions.min, versions.max + 1)]
    return pairs


@pytest.mark.parametrize(("name", "version"), all_versions(list(MOST_USED)))
def test_kafka_agrees_on_the_most_used_messages(bridge: Bridge, name: str, version: int) -> None:
    judge(bridge, name, version, EFFORT.most_used)


@pytest.mark.parametrize("name", [name for name in index.names() if name not in MOST_USED])
def test_kafka_agrees_on_every_version(bridge: Bridge, name: str) -> None:
    for _, version in all_versions([name]):
        judge(bridge, name, version, EFFORT.less_used)


SEED = random.randrange(2**31) if PROFILE == "soak" else 0


def reads_what_kafka_draws(bridge: Bridge, cls: type[Message], version: int, count: int, first: int) -> None:
    """Check that kproto decodes Kafka's bytes to Kafka's JSON, and encodes the message to the same bytes."""
    # One response of the bridge holds up to a hundred messages, each drawn from its own seed.
    for seed in range(first, first + count, 100):
        for drawn, data, form in bridge.draw(cls.__name__, version, min(100, count), seed):
            where = f"v{version}, seed {seed}: {drawn.hex()}"
            message = cls.decode(drawn, version)
            assert to_json(message, version) == form, where
            assert message.encode(version).hex() == data.hex(), where
            assert from_json(cls, form, version).encode(version).hex() == data.hex(), where


@pytest.mark.parametrize("name", index.names())
def test_messages_that_kafka_draws_round_trip(bridge: Bridge, name: str) -> None:
    for _, version in all_versions([name]):
        reads_what_kafka_draws(bridge, index.message_class(name), version, EFFORT.kafkas, SEED)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324])
def test_kafka_reads_nan_and_infinity_as_we_do(bridge: Bridge, value: float) -> None:
    entry = EntryData(entity=[], values=[ValueData(key="k", value=value)])
    message = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=0, error_message=None, entries=[entry]
    )
    read = bridge.decode("DescribeClientQuotasResponse", 1, message.encode(1))
    assert read == to_json(message, 1)


def test_a_tagged_struct_counts_as_set_when_only_its_unknown_tags_are(bridge: Bridge) -> None:
    leader = CurrentLeader(host="", port=0)
    leader.__unknown_tags__ = {9: b"x"}
    message = UpdateRaftVoterResponse(throttle_time_ms=0, error_code=0, current_leader=leader)
    kafka_agrees(bridge, message, 0)


# A mutant is a declaration with one mistake, for which the test must fail. The next test draws only values
# that the mutant accepts. So tests/messages/behaviour/test_against_kafka.py, and not this test, detects a
# mutant that rejects valid values.


@pytest.mark.parametrize(
    "mutant",
    [
        OneMistake.HeartbeatRequest,
        OneMistake.HeartbeatResponse,
        OneMistake.SyncGroupResponse,
        OneMistake.ApiVersionsRequest,
        OneMistake.EndTxnMarker,
    ],
)
def test_kafka_detects_one_mistake(bridge: Bridge, mutant: type[Message]) -> None:
    @settings(max_examples=200, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(versioned(mutant))
    def check(drawn: tuple[int, Message]) -> None:
        version, message = drawn
        try:
            kafka_agrees(bridge, message, version)
        except EncodeError as refused:  # kproto cannot encode Kafka's JSON with the mutated declaration.
            raise AssertionError from refused

    with pytest.raises((AssertionError, Refused)):
        check()


@pytest.mark.parametrize(
    ("mutant", "versions"),
    [
        (OneMistake.HeartbeatRequest, range(5)),
        (OneMistake.HeartbeatResponse, [3]),
        (OneMistake.SyncGroupResponse, [1]),
        (OneMistake.ApiVersionsRequest, [3, 4]),
        (OneMistake.EndTxnMarker, [0]),
    ],
)
def test_messages_that_kafka_draws_reveal_one_mistake(
    bridge: Bridge, mutant: type[Message], versions: Sequence[int]
) -> None:
    for version in versions:
        with pytest.raises((AssertionError, DecodeError, EncodeError)):
            reads_what_kafka_draws(bridge, mutant, version, 5, 0)


# Broken bytes: either both Kafka and kproto reject them, or both read the same values.


def read_or_none(cls: type[Message], data: bytes, version: int) -> Any:
    try:
        return to_json(cls.decode(data, version), version)
    except DecodeError:
        return None


def in_order(form: Any) -> Any:
    """Sort the unknown tagged fields and keep the last value of each tag, as kproto does.

    Kafka keeps repeated tags, in their original order.
    """
    if isinstance(form, list):
        return [in_order(item) for item in form]
    if not isinstance(form, dict):
        return form
    sorted_form = {key: in_order(value) for key, value in form.items()}
    if UNKNOWN_TAGS in sorted_form:
        last = {entry["tag"]: entry for entry in sorted_form[UNKNOWN_TAGS]}
        sorted_form[UNKNOWN_TAGS] = [last[tag] for tag in sorted(last)]
    return sorted_form


def we_are_stricter(cls: type[Message], version: int, data: bytes, theirs: Any) -> bool:
    """Return whether kproto deliberately rejects the bytes, although Kafka reads them.

    kproto rejects text that is not valid UTF-8, but Kafka replaces its invalid bytes.

    kproto also rejects a known tagged field whose size does not fit its value. Kafka ignores the size.
    """
    with pytest.raises(DecodeError) as refused:
        cls.decode(data, version)
    if refused.value.detail.startswith("not UTF-8"):
        return "\ufffd" in json.dumps(theirs, ensure_ascii=False)
    part: Any = cls
    for name in re.sub(r"\[\d+\]", "", refused.value.field).split("."):
        f = next((f for f in part.__fields__ if f.name == name), None)
        if f is None:
            return False
        if version in f.tagged:
            return True
        part = getattr(f.kind, "element", f.kind)
    return False


@pytest.mark.parametrize("name", index.names())
def test_kafka_and_we_reject_the_same_truncations_and_corruptions(bridge: Bridge, name: str) -> None:
    cls = index.message_class(name)
    for _, version in all_versions([name]):
        data = sample(cls, version).encode(version)
        broken = [data, *(data[:size] for size in range(len(data))), *broken_bytes(data, EFFORT.values)]
        for ours, theirs in zip(broken, bridge.read(name, version, broken), strict=True):
            form = read_or_none(cls, ours, version)
            if form != in_order(theirs):
                where = f"v{version}: {ours.hex()}"
                assert form is None, where
                assert we_are_stricter(cls, version, ours, theirs), where


@pytest.mark.parametrize("size", [32_767, 32_768])
@pytest.mark.parametrize("version", [3, 4])
def test_kafka_and_we_reject_strings_of_more_than_32767_bytes(
    bridge: Bridge, version: int, size: int
) -> None:
    form = {"groupId": "x" * size, "generationId": 3, "memberId": "m", "groupInstanceId": None}
    if size == 32_767:
        assert bridge.encode("HeartbeatRequest", version, form).hex() == (
            from_json(HeartbeatRequest, form, version).encode(version).hex()
        )
        return
    with pytest.raises(Refused, match="too long"):
        bridge.encode("HeartbeatRequest", version, form)
    with pytest.raises(EncodeError, match="32768 bytes"):
        from_json(HeartbeatRequest, form, version)
    if version == 4:
        data = interpreter.uvarint(size + 1) + b"x" * size + bytes(4) + b"\2m\0\0"
        with pytest.raises(Refused, match="invalid length"):
            bridge.decode("HeartbeatRequest", version, data)
        with pytest.raises(DecodeError, match="32768 bytes"):
            HeartbeatRequest.decode(data, version)


@settings(max_examples=2 * EFFORT.most_used, deadline=None)
@given(data=st.binary(max_size=40), version=st.integers(0, 4))
def test_kafka_and_we_reject_the_same_bytes(bridge: Bridge, data: bytes, version: int) -> None:
    (theirs,) = bridge.read("ApiVersionsRequest", version, [data])
    ours = read_or_none(ApiVersionsRequest, data, version)
    assert ours == in_order(theirs) or we_are_stricter(ApiVersionsRequest, version, data, theirs)


@pytest.mark.parametrize("version", range(5))
def test_kafka_and_we_reject_every_prefix(bridge: Bridge, version: int) -> None:
    data = HeartbeatRequest(group_id="g", generation_id=3, member_id="m-1").encode(version)
    for size in range(len(data)):
        with pytest.raises(Refused):
            bridge.decode("HeartbeatRequest", version, data[:size])
        with pytest.raises(DecodeError):
            HeartbeatRequest.decode(data[:size], version)


def test_kafka_rejects_null_where_we_do(bridge: Bridge) -> None:
    form = {"groupId": None, "generationId": 3, "memberId": "m", "groupInstanceId": None}
    with pytest.raises(Refused):
        bridge.encode("HeartbeatRequest", 4, form)
    with pytest.raises(EncodeError):
        from_json(HeartbeatRequest, form, 4)


# Error codes.


def test_the_error_codes_are_kafkas(bridge: Bridge) -> None:
    ours = [(code.value, code.name, code in RETRIABLE, code in REFRESH_METADATA) for code in ErrorCode]
    assert ours == bridge.error_codes()
