"""The keys and values of Kafka's internal topics are decoded, or rejected with the reason."""

from __future__ import annotations

import pytest

from kproto.errors import DecodeError
from kproto.inspect.internal_records import decode_internal
from kproto.messages.group_records import OffsetCommitKey, OffsetCommitValue
from kproto.messages.index import RECORDS_OF, TOPICS_WITHOUT_KEYS, record_classes, record_value_class
from kproto.messages.metadata_records import FeatureLevelRecord

KEY = b"\0\1" + OffsetCommitKey(group="g", topic="t", partition=3).encode(0)
VALUE = OffsetCommitValue(offset=7, metadata="", commit_timestamp=1)


@pytest.mark.parametrize("version", [0, 3])
def test_a_committed_offset_is_decoded_in_its_version(version: int) -> None:
    key, value = decode_internal(
        "__consumer_offsets", KEY, version.to_bytes(2, "big") + VALUE.encode(version)
    )
    assert key is not None
    assert value is not None
    assert str(key) == 'OffsetCommitKey v0 {"group": "g", "topic": "t", "partition": 3}'
    assert value.to_json()["name"] == "OffsetCommitValue"
    assert (value.version, value.to_json()["json"]["offset"]) == (version, 7)


def test_a_tombstone_has_no_value() -> None:
    key, value = decode_internal("__consumer_offsets", KEY, None)
    assert (key is not None, value) == (True, None)


def test_a_value_of_the_metadata_log_has_a_frame() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=25)
    key, value = decode_internal("__cluster_metadata", None, b"\1\x0c\0" + record.encode(0))
    assert key is None
    assert value is not None
    assert value.message == record


def test_each_number_of_a_frame_is_an_unsigned_varint_of_up_to_five_bytes() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=25)
    header = b"\x81\x80\x80\x80\0" + b"\x8c\0" + b"\x80\x80\0"
    _, value = decode_internal("__cluster_metadata", None, header + record.encode(0))
    assert value is not None
    assert (value.message, value.version) == (record, 0)


@pytest.mark.parametrize("topic", RECORDS_OF)
def test_every_record_type_has_its_classes(topic: str) -> None:
    for record_type, name in RECORDS_OF[topic].items():
        if topic in TOPICS_WITHOUT_KEYS:
            assert record_value_class(record_type, topic).__name__ == name
        else:
            assert [cls.__name__ for cls in record_classes(record_type, topic)] == [
                f"{name}Key",
                f"{name}Value",
            ]


@pytest.mark.parametrize(
    ("topic", "key", "value", "message"),
    [
        ("__consumer_offsets", None, b"", "__consumer_offsets: field key at offset 0: the key is null"),
        (
            "__consumer_offsets",
            b"\0",
            b"",
            "field key at offset 0: expected at least 2 bytes, but there are 1",
        ),
        ("__consumer_offsets", b"\0\x63", b"", "field key at offset 0: record type 99 is unknown"),
        ("__consumer_offsets", KEY, b"\0\x63", "version 99 is unknown; its versions are 0-4"),
        ("__consumer_offsets", KEY, b"\0\0\0", "OffsetCommitValue v0: field offset at offset 0"),
        ("__consumer_offsets", KEY[:-1], None, "OffsetCommitKey v0: field partition"),
        ("__cluster_metadata", None, b"\2\0\0", "frame version 2 is unknown; the only one is 1"),
        ("__cluster_metadata", None, b"\1\x7f\0", "field value at offset 1: record type 127 is unknown"),
        ("__cluster_metadata", None, b"\1", "field value at offset 1: the value ends within its header"),
        (
            "__cluster_metadata",
            None,
            b"\1" + b"\xff" * 9,
            "field value at offset 6: an unsigned varint of the header has more than 5 bytes",
        ),
        ("__cluster_metadata", None, b"\x81\1", "frame version 129 is unknown"),
        ("__cluster_metadata", None, b"\1\x8c\1\0", "record type 140 is unknown"),
        ("__cluster_metadata", None, b"\1\x0c\x81\1", "version 129 is unknown"),
    ],
)
def test_other_bytes_are_rejected_with_the_reason(
    topic: str, key: bytes | None, value: bytes, message: str
) -> None:
    with pytest.raises(DecodeError) as error:
        decode_internal(topic, key, value)
    assert message in str(error.value)
