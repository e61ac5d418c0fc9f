"""JSON lines in and out: the samples of Kafka's JSON form, and an answer for every line."""

from __future__ import annotations

import json

import pytest

from kproto.json_lines import answers, decode, decode_records, encode, encode_records

MESSAGES = [
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


@pytest.mark.parametrize(("what", "form", "data"), MESSAGES, ids=[what["name"] for what, _, _ in MESSAGES])
def test_a_message_goes_both_ways(what: dict[str, object], form: dict[str, object], data: str) -> None:
    assert decode({**what, "hex": data}) == {"json": form}
    assert encode({**what, "json": form}) == {"hex": data}


def test_a_record_set_goes_both_ways() -> None:
    assert decode_records({"hex": RECORDS_HEX}) == RECORDS
    assert encode_records(RECORDS) == {"hex": RECORDS_HEX}


def test_a_cut_last_batch_is_not_there() -> None:
    assert decode_records({"hex": RECORDS_HEX + RECORDS_HEX[:-2]}) == RECORDS


def test_a_wrong_checksum_is_not_valid() -> None:
    told = decode_records({"hex": RECORDS_HEX[:-2] + "02"})
    assert told["valid"] is False
    assert "crc" in told["error"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"kind": "request", "version": 1, "hex": ""}', "the key 'name' is missing"),
        ('{"kind": "request", "name": "X", "version": 1, "hex": ""}', "no message 'X'"),
        ('{"kind": "response", "name": "FetchRequest", "version": 4, "hex": ""}', "is of the kind 'request'"),
        ('{"kind": "request", "name": "FetchRequest", "api_key": 2, "version": 4, "hex": ""}', "API key 1"),
        ('{"kind": "request", "name": "FetchRequest", "version": 99, "hex": ""}', "99"),
        ('{"kind": "request", "name": "FetchRequest", "version": 4, "hex": "0"}', "hex"),
        ('{"kind": "request", "name": "FetchRequest", "version": true, "hex": ""}', "not a whole number"),
        ('{"kind": "request", "name": "FetchRequest", "version": 4, "hex": "00"}', "replica_id"),
    ],
)
def test_a_bad_line_is_answered_with_its_error_and_the_next_one_still_answered(line: str, why: str) -> None:
    what, form, data = MESSAGES[0]
    first, second = answers([line, json.dumps({**what, "hex": data})], decode)
    assert why in json.loads(first)["error"]
    assert json.loads(second) == {"json": form}


def test_rows_and_counts_that_do_not_agree_are_refused() -> None:
    (line,) = answers([json.dumps({**RECORDS, "rows": []})], encode_records)
    assert "0 rows are left" in json.loads(line)["error"]
