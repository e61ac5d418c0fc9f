"""Lines in Kafka's JSON form survive a round trip, and every input line has a result."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kproto.inspect.json_lines import BadQuestion, answers, decode, decode_records, encode, encode_records
from kproto.messages.group_records import OffsetCommitKey, OffsetCommitValue
from kproto.messages.json_form import one_line
from kproto.records import Record, encode_batch

MESSAGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"kind": "request", "name": "HeartbeatRequest", "api_key": 12, "version": 4},
        {"groupId": "g", "generationId": 3, "memberId": "m-1", "groupInstanceId": None},
        "026700000003046d2d310000",
    ),
    (
        {"kind": "request", "name": "ApiVersionsRequest", "api_key": 18, "version": 3},
        {
            "clientSoftwareName": "k",
            "clientSoftwareVersion": "1",
            "_unknownTaggedFields": [{"tag": 77, "data": "AQI="}],
        },
        "026b0231014d020102",
    ),
    (
        {"kind": "record", "name": "OffsetCommitValue", "api_key": 1, "version": 4},
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
        {"kind": "header", "name": "RequestHeader", "api_key": None, "version": 2},
        {"requestApiKey": 18, "requestApiVersion": 3, "correlationId": 1, "clientId": "c"},
        "001200030000000100016300",
    ),
]
RECORDS_HEX = (
    "000000000000002800000045ffffffff02ab50b5fc0000000000010000018bcfe568000000018bcfe5680100000000000000090001"
    "000000030000000216000000026b0276020268010e00020201027700"
)
RECORDS = {
    "valid": True,
    "batches": [
        {
            "baseOffset": 40,
            "lastOffset": 41,
            "magic": 2,
            "compression": "none",
            "timestampType": "CreateTime",
            "maxTimestamp": 1700000000001,
            "producerId": 9,
            "producerEpoch": 1,
            "baseSequence": 3,
            "isTransactional": False,
            "isControl": False,
            "partitionLeaderEpoch": -1,
            "deleteHorizonMs": None,
            "count": 2,
        }
    ],
    "rows": [
        {
            "offset": 40,
            "timestamp": 1700000000000,
            "timestampType": "CreateTime",
            "key": "aw==",
            "value": "dg==",
            "headers": [["h", None]],
        },
        {
            "offset": 41,
            "timestamp": 1700000000001,
            "timestampType": "CreateTime",
            "key": None,
            "value": "dw==",
            "headers": [],
        },
    ],
}


@pytest.mark.parametrize(
    ("message", "form", "data"), MESSAGES, ids=[message["name"] for message, _, _ in MESSAGES]
)
def test_a_message_survives_a_round_trip(
    message: dict[str, object], form: dict[str, object], data: str
) -> None:
    assert decode({**message, "hex": data}) == {"json": form}
    assert encode({**message, "json": form}) == {"hex": data}


def test_a_record_set_survives_a_round_trip() -> None:
    assert decode_records({"hex": RECORDS_HEX}) == RECORDS
    assert encode_records(RECORDS) == {"hex": RECORDS_HEX}


def test_a_truncated_last_batch_is_skipped() -> None:
    assert decode_records({"hex": RECORDS_HEX + RECORDS_HEX[:-2]}) == RECORDS


def test_a_wrong_checksum_is_invalid() -> None:
    result = decode_records({"hex": RECORDS_HEX[:-2] + "02"})
    assert result["valid"] is False
    assert "crc" in result["error"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"kind": "request", "version": 1, "hex": ""}', "the key 'name' is missing"),
        ("", "an empty line"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5000, "more digits"),
        ('{"version": NaN}', "NaN"),
        (b"\xff{}", "not UTF-8: invalid start byte at byte 0"),
        ('{"kind": "request", "name": "X", "version": 1, "hex": ""}', "no message 'X'"),
        ('{"kind": "request", "name": "Heartbeat", "version": 1, "hex": ""}', "such as HeartbeatRequest"),
        ('{"kind": "record", "name": "OffsetCommitKey", "api_key": 0, "version": 1}', "the type 1, not 0"),
        ('{"kind": "response", "name": "FetchRequest", "version": 4, "hex": ""}', "is of the kind 'request'"),
        ('{"kind": "request", "name": "FetchRequest", "api_key": 2, "version": 4, "hex": ""}', "API key 1"),
        ('{"kind": "request", "name": "FetchRequest", "version": 99, "hex": ""}', "99"),
        ('{"kind": "request", "name": "FetchRequest", "version": 4, "hex": "000"}', "3 digits"),
        ('{"kind": "request", "name": "FetchRequest", "version": 4, "hex": "00 zz"}', "'z' at 3 is no digit"),
        ('{"kind": "request", "name": "FetchRequest", "version": true, "hex": ""}', "not a whole number"),
        ('{"kind": "request", "name": "FetchRequest", "version": 4, "hex": "00"}', "replica_id"),
    ],
)
def test_an_error_affects_only_its_own_line(line: str | bytes, why: str) -> None:
    message, form, data = MESSAGES[0]
    first, second = answers([line, json.dumps({**message, "hex": data})], decode)
    assert why in first["error"]
    assert second == {"json": form}


@pytest.mark.parametrize(
    ("where", "key", "value", "why"),
    [
        (
            "batches",
            "baseOffset",
            1 << 63,
            "baseOffset is 9223372036854775808, which does not fit into int64",
        ),
        ("batches", "producerEpoch", 32768, "producerEpoch is 32768, which does not fit into int16"),
        ("batches", "producerEpoch", -32769, "producerEpoch is -32769, which does not fit into int16"),
        ("batches", "baseSequence", "3", 'baseSequence is "3", not a whole number'),
        ("batches", "isControl", 1, "isControl is 1, not true or false"),
        ("batches", "compression", [], "compression is [], not text"),
        ("batches", "compression", "brotli", "one of none, gzip, snappy, lz4, zstd"),
        ("batches", "timestampType", "NoTimestampType", "NoTimestampType doesn't exist in magic 2"),
        ("batches", "deleteHorizonMs", "x", 'deleteHorizonMs is "x", not a whole number'),
        ("batches", "lastOffset", 39, "the last offset is below the first"),
        ("batches", "magic", 1, "magic is 1, but only magic 2 can be encoded"),
        ("batches", "count", 3, "count is 3, but 2 rows are left"),
        ("batches", "isTransactonal", True, "isTransactonal is not a known key"),
        ("rows", "Key", "aw==", "Key is not a known key"),
        ("rows", "offset", None, "offset is null, not a whole number"),
        ("rows", "timestamp", 1 << 63, "timestamp is 9223372036854775808, which does not fit into int64"),
        ("rows", "value", "?", 'value is "?", not base64 or null'),
        ("rows", "headers", [["h"]], "headers is not a list of pairs [text, base64 or null]"),
        ("rows", "headers", [["\ud800", None]], "cannot be encoded as UTF-8"),
    ],
)
def test_a_wrong_value_in_a_record_set_is_named(where: str, key: str, value: object, why: str) -> None:
    invalid: dict[str, Any] = copy.deepcopy(RECORDS)
    invalid[where][0][key] = value
    (line,) = answers([json.dumps(invalid)], encode_records)
    assert f"{where}[0]" in line["error"]
    assert why in line["error"]


def test_half_a_surrogate_pair_comes_back_escaped() -> None:
    (line,) = answers(['{"kind": "\\ud800", "name": "FetchRequest", "version": 4, "hex": ""}'], decode)
    assert "\\ud800" in one_line(line).encode().decode()


def test_a_byte_order_mark_is_ignored() -> None:
    message, form, data = MESSAGES[0]
    line = json.dumps({**message, "hex": data}).encode("utf-8-sig")
    assert list(answers([line], decode)) == [{"json": form}]


def test_rows_that_do_not_match_the_counts_are_rejected() -> None:
    (line,) = answers([json.dumps({**RECORDS, "rows": []})], encode_records)
    assert "0 rows are left" in line["error"]


def test_a_batch_may_have_no_rows_but_not_fewer() -> None:
    (batch,) = RECORDS["batches"]
    empty = {**RECORDS, "batches": [{**batch, "count": 0}], "rows": []}
    assert "hex" in encode_records(empty)
    (line,) = answers([json.dumps({**empty, "batches": [{**batch, "count": -1}]})], encode_records)
    assert "batches[0].count is -1, but 0 rows are left" in line["error"]
    (line,) = answers([json.dumps({**RECORDS, "batches": []})], encode_records)
    assert "the batches' counts add up to 0, but there are 2 rows" in line["error"]


def test_an_answer_has_at_most_the_allowed_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproto.inspect.json_lines.MOST_ROWS", 3)
    question = {"hex": encode_batch([Record(n, 0, None, b"") for n in range(4)]).hex()}
    with pytest.raises(BadQuestion, match="more than 3 records"):
        decode_records(question)


def test_the_records_of_an_internal_topic_have_the_messages_in_their_keys_and_values() -> None:
    key = b"\0\1" + OffsetCommitKey(group="g", topic="t", partition=3).encode(0)
    value = b"\0\3" + OffsetCommitValue(offset=7, metadata="", commit_timestamp=1).encode(3)
    records = [Record(0, 0, key, value), Record(1, 0, key, None), Record(2, 0, b"\0", b"")]
    answer = decode_records({"hex": encode_batch(records).hex(), "topic": "__consumer_offsets"})
    first, deleted, invalid = answer["rows"]
    assert first["keyMessage"]["json"] == {"group": "g", "topic": "t", "partition": 3}
    assert first["valueMessage"]["json"]["offset"] == 7
    assert (deleted["keyMessage"], deleted["valueMessage"]) == (first["keyMessage"], None)
    assert "expected at least 2 bytes, but there are 1" in invalid["messageError"]
    assert "keyMessage" not in invalid


def test_control_records_of_an_internal_topic_contain_no_messages() -> None:
    marker = encode_batch([Record(0, 0, b"\0\0\0\1", bytes(6))], is_control=True, producer_id=1)
    (row,) = decode_records({"hex": marker.hex(), "topic": "__consumer_offsets"})["rows"]
    assert row.keys() == RECORDS["rows"][0].keys()


@pytest.mark.parametrize("where", ["batches", "rows"])
def test_an_entry_of_a_record_set_is_an_object(where: str) -> None:
    (line,) = answers([json.dumps({**RECORDS, where: [7]})], encode_records)
    assert f"{where}[0] is not an object" in line["error"]


def test_records_of_a_topic_that_kafka_does_not_write_are_rejected() -> None:
    with pytest.raises(BadQuestion, match="the topic 'flights' is not one of __consumer_offsets"):
        decode_records({"hex": RECORDS_HEX, "topic": "flights"})
