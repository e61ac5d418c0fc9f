"""Kafka checks kproto's bytes around and inside messages: headers, tags and the consumer protocol."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.engine.network.throttle import CLIENT_PAUSES_FROM
from kproto.errors import DecodeError
from kproto.group.subscription import Assignment, Subscription, TopicPartition
from kproto.messages import index
from kproto.messages.control_records import ControlRecordTypeSchema, EndTxnMarker
from kproto.messages.headers import encode_request, response_header_version
from kproto.messages.json_form import to_json
from kproto.records import batches
from kproto.testing.strategies import INTEGERS, from_message
from kproto.wire import Message
from tests.conformance.java_bridge import Bridge, Refused, kafka_agrees
from tests.wire.samples import all_places, sample, structs_in

pytestmark = pytest.mark.java


def every_version(cls: type[Message]) -> range:
    return range(cls.__versions__.min, cls.__versions__.max + 1)


@pytest.mark.parametrize("api_key", sorted(index.API_NAMES))
@pytest.mark.parametrize("client_id", ["kproto €", "x" * 300, None], ids=["short", "long", "none"])
def test_kafkas_network_layer_parses_our_requests(
    bridge: Bridge, api_key: int, client_id: str | None
) -> None:
    """Kafka's network layer reads kproto's request headers. It reads a null client id as an empty one."""
    cls = index.request_class(api_key)
    for version in every_version(cls):
        request = sample(cls, version)
        assert bridge.frame(encode_request(request, version, -7, client_id)) == {
            "api": index.API_NAMES[api_key],
            "version": version,
            "header": 2 if version in cls.__flexible__ else 1,
            "answer": response_header_version(index.response_class(api_key), version),
            "client": client_id or "",
            "correlation": -7,
            "left": 0,
            "json": to_json(request, version),
        }


# Unknown tags: the tags of fields that the message has only in another version.


def foreign_tags(struct: Any, version: int) -> list[int]:
    return [f.tag for f in type(struct).__fields__ if f.tagged and version not in f.tagged]


def with_tag(message: Message, struct: Any, tag: int, version: int) -> bytes:
    """Encode `message` with an additional tagged field in `struct`, although `encode` rejects its tag."""
    before = struct.__unknown_tags__
    written = []
    for placeholder in (97, 98):
        struct.__unknown_tags__ = {placeholder: bytes(3)}
        written.append(message.encode(version))
    struct.__unknown_tags__ = before
    (at,) = [at for at, (first, second) in enumerate(zip(*written, strict=True)) if first != second]
    return written[0][:at] + bytes([tag]) + written[0][at + 1 :]


FOREIGN = [
    (name, version)
    for name in index.names()
    for version in every_version(index.message_class(name))
    if version in index.message_class(name).__flexible__
    and any(
        foreign_tags(struct, version) for struct in structs_in(sample(index.message_class(name), version))
    )
]


@pytest.mark.parametrize(("name", "version"), FOREIGN)
def test_kafka_and_we_reject_a_tag_of_another_version(bridge: Bridge, name: str, version: int) -> None:
    cls = index.message_class(name)
    message = sample(cls, version)
    for struct in structs_in(message):
        for tag in foreign_tags(struct, version):
            data = with_tag(message, struct, tag, version)
            with pytest.raises(Refused, match=f"Tag {tag} is not valid for version {version}"):
                bridge.decode(name, version, data)
            with pytest.raises(DecodeError, match=f"tag {tag} is not valid in this version"):
                cls.decode(data, version)


def test_there_are_tags_of_other_versions() -> None:
    assert len(FOREIGN) > 10


# Numbers that Kafka does not define: error codes, flags, types.


@pytest.mark.parametrize("name", index.names())
def test_kafka_and_we_keep_unknown_numbers(bridge: Bridge, name: str) -> None:
    cls = index.message_class(name)
    for version in every_version(cls):
        for extreme in (0, 1):
            message = sample(cls, version)
            for place in all_places(message, version):
                if place.is_present and getattr(place.kind, "name", "") in INTEGERS:
                    place.set(INTEGERS[place.kind.name][extreme])
            kafka_agrees(bridge, message, version)


# The consumer protocol: the metadata of JoinGroup and the assignment of SyncGroup.

names = st.text("ab\u00e9", min_size=1, max_size=4)
partitions = st.lists(st.builds(TopicPartition, names, st.integers(0, 2**31 - 1)), max_size=6, unique=True)
subscriptions = st.builds(
    Subscription,
    topics=st.lists(names, max_size=4, unique=True).map(tuple),
    user_data=st.none() | st.binary(max_size=5),
    owned=partitions.map(tuple),
    generation=st.none() | st.integers(0, 2**31 - 1),
    rack_id=st.none() | names,
)


@given(subscriptions, st.integers(0, 3))
def test_a_subscription_round_trips_through_kafka(
    bridge: Bridge, subscription: Subscription, version: int
) -> None:
    data = subscription.encode(version)
    theirs = bridge.subscription(data, version)
    assert Subscription.decode(theirs) == Subscription.decode(data)
    assert theirs.hex() == data.hex()


@given(partitions, st.none() | st.binary(max_size=5), st.integers(0, 3))
def test_kafka_reads_an_assignment_as_we_do(
    bridge: Bridge, assigned: list[TopicPartition], user_data: bytes | None, version: int
) -> None:
    """Kafka decodes and encodes the assignment. Only the order of the topics, which a hash map decides, may
    differ.
    """
    data = Assignment(partitions=tuple(assigned), user_data=user_data).encode(version)
    theirs = bridge.assignment(data, version)
    assert len(theirs) == len(data)
    assert theirs[:2] == data[:2]
    assert sorted(Assignment.decode(theirs).partitions) == sorted(assigned)
    assert Assignment.decode(theirs).user_data == user_data


# The bodies of the records in Kafka's control batches.


CONTROL = {
    "LeaderChangeMessage": 2,
    "SnapshotHeaderRecord": 3,
    "SnapshotFooterRecord": 4,
    "KRaftVersionRecord": 5,
    "VotersRecord": 6,
}


def control_record(data: bytes) -> tuple[int, bytes]:
    """Return the type and the value of the only record in a control batch."""
    (batch,) = batches(data)
    assert batch.is_control
    (record,) = batch.records()
    assert record.key is not None
    assert record.value is not None
    assert record.key[:2] == bytes(2)
    return ControlRecordTypeSchema.decode(record.key[2:], 0).type, record.value


@pytest.mark.parametrize(("name", "kind"), CONTROL.items())
@given(data=st.data())
def test_control_records_of_kafka_are_read(bridge: Bridge, name: str, kind: int, data: st.DataObject) -> None:
    """Kafka's raft layer always writes version 0, regardless of the record's version field."""
    message: Any = data.draw(from_message(index.message_class(name), 0))
    batch = bridge.control_batch(name, 0, to_json(message, 0))
    assert control_record(batch) == (kind, message.encode(0))
    assert type(message).decode(control_record(batch)[1], 0) == message


@pytest.mark.parametrize(("kind", "number"), [("ABORT", 0), ("COMMIT", 1)])
@pytest.mark.parametrize("epoch", [0, 7, 2**31 - 1])
def test_transaction_markers_of_kafka_are_read(bridge: Bridge, kind: str, number: int, epoch: int) -> None:
    record_type, value = control_record(bridge.marker(kind, epoch))
    assert (record_type, value[:2]) == (number, bytes(2))
    assert EndTxnMarker.decode(value[2:], 0) == EndTxnMarker(coordinator_epoch=epoch)


@pytest.mark.parametrize("api_key", sorted(index.API_NAMES))
def test_a_client_is_throttled_by_the_same_responses_as_javas(bridge: Bridge, api_key: int) -> None:
    """kproto's client obeys throttle times from the same version on as Java's (KIP-219)."""
    judged = 0
    for version in every_version(index.request_class(api_key)):
        try:
            theirs = bridge.quiet(api_key, version)
        except Refused:
            continue
        judged += 1
        assert (api_key in CLIENT_PAUSES_FROM and version >= CLIENT_PAUSES_FROM[api_key]) == theirs, version
    assert judged or api_key not in CLIENT_PAUSES_FROM
