"""Records of `__consumer_offsets` are encoded as Kafka encodes them, even where its encoding is unusual."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)
from kproto.wire.types import ZERO_UUID


def member(**values: Any) -> ConsumerGroupMemberMetadataValue:
    defaults: dict[str, Any] = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "",
        "client_host": "",
        "subscribed_topic_names": [],
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": 0,
        "server_assignor": None,
    }
    return ConsumerGroupMemberMetadataValue(**defaults | values)


FRESH = ClassicMemberMetadata(session_timeout_ms=0, supported_protocols=[])
SET = ClassicMemberMetadata(session_timeout_ms=5, supported_protocols=[])


# Observed with Kafka 4.3.1's classes: a struct that is null is encoded as the byte ff in an untagged field,
# and as the byte 00 in a tagged field.
@pytest.mark.parametrize(
    ("metadata", "tags"), [(FRESH, "00"), (None, "01000100"), (SET, "01000701000000050100")]
)
def test_a_tagged_nullable_struct_has_kafkas_marker(
    metadata: ClassicMemberMetadata | None, tags: str
) -> None:
    message = member(classic_member_metadata=metadata)
    assert message.encode(0).hex() == "0000010101000000000000" + tags
    assert ConsumerGroupMemberMetadataValue.decode(message.encode(0), 0) == message


def test_json_null_is_no_default_so_the_list_is_empty() -> None:
    assert TopicPartitions(topic_id=ZERO_UUID, partitions=[]).assignment_epochs == []
    assert member().classic_member_metadata == FRESH
