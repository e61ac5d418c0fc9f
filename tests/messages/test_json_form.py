"""Messages survive a round trip through JSON, and an error names the path of the invalid value.

`test_java_bytes.py` compares the JSON form with Kafka's.
"""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import EncodeError, UnsupportedVersion
from kproto.messages import index
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.describe_client_quotas import DescribeClientQuotasResponse, EntryData, ValueData
from kproto.messages.fetch import FetchResponse
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.json_form import PIECE, Base64, from_json, json_name, one_line, to_json, write_one_line
from kproto.testing.strategies import versioned
from kproto.wire import Message
from tests.bundles import bundles, check_each
from tests.wire.samples import sample

# At each position of a message, every `SHARE`-th value of `WRONG` is tested. The next position starts one
# value later, so that `SHARE` positions together cover all values.
SHARE = 16 if os.environ.get("KPROTO_PROFILE", "quick") == "quick" else 1

BEAT: dict[str, Any] = {"groupId": "g", "generationId": 3, "memberId": "m-1", "groupInstanceId": None}

SAMPLES: list[tuple[str, int, dict[str, Any], str]] = [
    ("HeartbeatRequest", 4, BEAT, "026700000003046d2d310000"),
    (
        "ApiVersionsRequest",
        3,
        {
            "clientSoftwareName": "k",
            "clientSoftwareVersion": "1",
            "_unknownTaggedFields": [{"tag": 77, "data": "AQI="}],
        },
        "026b0231014d020102",
    ),
    (
        "OffsetCommitValue",
        4,
        {
            "offset": 5,
            "leaderEpoch": -1,
            "metadata": "",
            "commitTimestamp": 1700000000000,
            "topicId": "AAAAAAAAAAEAAAAAAAAAAg",
        },
        "0000000000000005ffffffff010000018bcfe5680001001000000000000000010000000000000002",
    ),
    (
        "RequestHeader",
        2,
        {"requestApiKey": 18, "requestApiVersion": 3, "correlationId": 1, "clientId": "c"},
        "001200030000000100016300",
    ),
]


@pytest.mark.parametrize(("name", "version", "form", "data"), SAMPLES, ids=[sample[0] for sample in SAMPLES])
def test_a_sample_reads_and_writes(name: str, version: int, form: dict[str, Any], data: str) -> None:
    cls = index.message_class(name)
    assert to_json(cls.decode(bytes.fromhex(data), version), version) == form
    assert from_json(cls, form, version).encode(version).hex() == data


@given(st.sampled_from(index.names()), st.data())
def test_any_message_survives_a_json_round_trip(name: str, data: st.DataObject) -> None:
    cls = index.message_class(name)
    version, message = data.draw(versioned(cls, unknown_tags=True))
    assert (
        from_json(cls, json.loads(json.dumps(to_json(message, version), allow_nan=False)), version) == message
    )


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("group_id", "groupId"),
        ("k_raft_version", "kRaftVersion"),
        ("v3_and_below_topics", "v3AndBelowTopics"),
        ("enable2_pc", "enable2Pc"),
    ],
)
def test_keys_are_kafkas_names_with_a_small_first_letter(name: str, key: str) -> None:
    assert json_name(name) == key


@given(st.sampled_from(index.names()))
def test_every_field_has_a_unique_key(name: str) -> None:
    fields = index.message_class(name).__fields__
    assert len({json_name(f.name) for f in fields}) == len(fields)


def test_a_tagged_field_is_in_json_only_if_it_is_encoded() -> None:
    response = FetchResponse(throttle_time_ms=0, responses=[])
    assert "nodeEndpoints" not in to_json(response, 17)
    assert from_json(FetchResponse, to_json(response, 17), 17) == response


@pytest.mark.parametrize(
    ("value", "form"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (1024.5, 1024.5)]
)
def test_floats_that_json_lacks_are_text(value: float, form: object) -> None:
    entry = EntryData(entity=[], values=[ValueData(key="k", value=value)])
    message = DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=0, error_message=None, entries=[entry]
    )
    written = to_json(message, 1)
    assert written["entries"][0]["values"][0]["value"] == form
    assert from_json(DescribeClientQuotasResponse, written, 1).encode(1) == message.encode(1)


def test_one_line_is_one_line_for_every_reader() -> None:
    text = "".join(map(chr, range(0x3000))) + "\ud800 é 日 \U0001f600"
    line = one_line({"groupId": text})
    assert len(line.splitlines()) == 1
    assert json.loads(line.encode()) == {"groupId": text}
    assert "é 日 \U0001f600" in line


@given(st.sampled_from(index.names()), st.data())
def test_a_line_that_is_written_in_pieces_is_the_same_line(name: str, data: st.DataObject) -> None:
    version, message = data.draw(versioned(index.message_class(name), unknown_tags=True))
    pieces: list[str] = []
    write_one_line(to_json(message, version, binary=Base64), pieces.append)
    assert "".join(pieces) == one_line(to_json(message, version))


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 2])
def test_large_bytes_are_written_as_base64_of_the_whole(size: int) -> None:
    content, pieces = bytes(range(256)) * (size // 256) + bytes(size % 256), list[str]()
    write_one_line([Base64(content)], pieces.append)
    assert json.loads("".join(pieces)) == [base64.b64encode(content).decode()]
    assert max(map(len, pieces)) <= PIECE // 3 * 4


# Errors.


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"groupId": None}, "group_id", "nullable"),
        ({"groupId": 5}, "group_id", "string"),
        ({"generationId": "3"}, "generation_id", "int32"),
        ({"generationId": True}, "generation_id", "int32"),
        ({"generationId": 2**31}, "generation_id", "int32"),
        ({"generationId": 3.0}, "generation_id", "int32"),
        ({"groupID": "g"}, "", "groupID"),
        ({"_unknownTaggedFields": {}}, "_unknownTaggedFields", "not a list"),
        ({"_unknownTaggedFields": [{"tag": 1}]}, "_unknownTaggedFields", "not a list"),
        ({"_unknownTaggedFields": [{"tag": 1, "data": "*"}]}, "_unknownTaggedFields", "base64"),
        ({"_unknownTaggedFields": [{"tag": 1, "data": ""}] * 2}, "_unknownTaggedFields", "twice"),
    ],
)
def test_invalid_json_is_rejected_with_the_path(change: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(EncodeError, match=says) as refused:
        from_json(HeartbeatRequest, BEAT | change, 4)
    assert refused.value.field == field


@pytest.mark.parametrize("key", ["groupId", "generationId", "memberId", "groupInstanceId"])
def test_an_absent_untagged_field_is_an_error(key: str) -> None:
    with pytest.raises(EncodeError, match=f"the key {key} is missing"):
        from_json(HeartbeatRequest, {name: value for name, value in BEAT.items() if name != key}, 4)


@pytest.mark.parametrize("data", [None, [], "x", 3])
def test_json_that_is_not_an_object_is_rejected(data: object) -> None:
    with pytest.raises(EncodeError, match="not an object"):
        from_json(HeartbeatRequest, data, 4)


def test_the_path_of_an_error_includes_array_indices() -> None:
    form = to_json(
        JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="", protocol_type="", protocols=[]), 0
    )
    form["protocols"] = [{"name": "a", "metadata": ""}, {"name": "b", "metadata": "?"}]
    with pytest.raises(EncodeError) as refused:
        from_json(JoinGroupRequest, form, 0)
    assert refused.value.field == "protocols[1].metadata"


@pytest.mark.parametrize("uuid", ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAAA==", 5])
def test_a_uuid_is_22_characters_of_urlsafe_base64(uuid: object) -> None:
    with pytest.raises(EncodeError, match="not a UUID"):
        from_json(
            FetchResponse,
            {
                "throttleTimeMs": 0,
                "errorCode": 0,
                "sessionId": 0,
                "responses": [{"topicId": uuid, "partitions": []}],
            },
            17,
        )


def test_a_value_for_a_field_that_the_version_lacks_is_an_error_in_both_directions() -> None:
    with pytest.raises(EncodeError, match="lacks the field"):
        from_json(HeartbeatRequest, BEAT | {"groupInstanceId": "i"}, 2)
    message = HeartbeatRequest(group_id="g", generation_id=3, member_id="m", group_instance_id="i")
    with pytest.raises(EncodeError, match="lacks the field"):
        to_json(message, 2)


def test_an_ignorable_field_that_the_version_lacks_is_dropped() -> None:
    message = ApiVersionsRequest(client_software_name="k", client_software_version="1")
    assert to_json(message, 2) == {}
    assert from_json(ApiVersionsRequest, {"clientSoftwareName": "k"}, 2).encode(2) == b""


def test_an_unsupported_version_is_rejected() -> None:
    version = HeartbeatRequest.__versions__.max + 1
    with pytest.raises(UnsupportedVersion):
        from_json(HeartbeatRequest, BEAT, version)
    with pytest.raises(UnsupportedVersion):
        to_json(HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), version)


WRONG: list[Any] = [
    *(None, "x", 5, -(2**70), 10**5000, 1.5, True, [], {}, [None], [[]], [{}], b"x", object(), {"tag": 1}),
    *(math.nan, math.inf, "NaN", "\ud800", "x" * 40_000, "====", "AA==AA"),
    *("A" * 22, "A" * 21 + "é", "\u0661" * 22),
]


def everywhere(form: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON form: its container, and the key or index."""
    for key, value in list(form.items() if isinstance(form, dict) else enumerate(form)):
        yield form, key
        if isinstance(value, dict | list):
            yield from everywhere(value)


def read_or_refused(cls: type[Message], form: object, version: int) -> Message | None:
    try:
        return from_json(cls, form, version)
    except EncodeError as refused:
        error = refused
    assert (error.message, error.version) == (cls.__name__, version)
    assert str(error)
    return None


@pytest.mark.parametrize("names", bundles(index.names()))
def test_any_value_at_any_place_is_read_or_raises_encode_error(names: Sequence[str]) -> None:
    def check(name: str) -> None:
        cls = index.message_class(name)
        version = cls.__versions__.max
        form = to_json(sample(cls, version), version)
        for number, (owner, key) in enumerate(everywhere(form)):
            right = owner[key]
            for wrong in WRONG[number % SHARE :: SHARE]:
                owner[key] = wrong
                message = read_or_refused(cls, form, version)
                if message is not None:
                    restored = from_json(cls, to_json(message, version), version)
                    assert restored.encode(version) == message.encode(version), (key, wrong)
            owner[key] = right

    check_each(names, check)


@pytest.mark.parametrize("key", [5, None, ("groupId",)])
def test_a_key_that_is_not_a_string_is_rejected(key: Any) -> None:
    with pytest.raises(EncodeError, match="HeartbeatRequest has no"):
        from_json(HeartbeatRequest, {**BEAT, key: 1}, 4)
