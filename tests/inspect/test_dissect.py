"""`kproto decode` prints every byte under its field, and marks an invalid byte with an arrow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kproto.cli import main
from kproto.errors import UnsupportedVersion
from kproto.group.subscription import Subscription
from kproto.inspect.dissect import dissect, dissect_message, lines, record_lines, split
from kproto.inspect.hexdump import FORMS
from kproto.messages.api_versions import ApiVersionsResponse
from kproto.messages.consumer_group_heartbeat import Assignment, ConsumerGroupHeartbeatResponse
from kproto.messages.group_records import OffsetCommitKey
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.metadata import MetadataResponse, MetadataResponseBroker
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import Record, encode_batch


def join(**tags: bytes) -> bytes:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=45_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"abc")],
    )
    request.protocols[0].__unknown_tags__ = {int(tag[1:]): data for tag, data in tags.items()}
    return encode_request(request, 9, 7, "me")


def join_with_subscription() -> bytes:
    """Return the JoinGroup request `join` with an encoded subscription as its metadata."""
    body = Subscription(topics=("t",)).encode()
    return join().replace(b"\x04abc", bytes([len(body) + 1]) + body)


def test_the_spans_cover_every_byte_once() -> None:
    dissection = dissect(join(t9=b"xx"))
    at = 0
    for part in dissection.parts:
        for span in part.reading.spans:
            assert span.start == at
            at = span.end
    assert at == dissection.end == len(dissection.data)


def test_a_field_stands_beside_its_bytes_and_offset() -> None:
    assert '000d  02 67                     group_id: string = "g"' in list(lines(dissect(join())))


def test_the_fields_of_a_nullable_struct_follow_its_name() -> None:
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        member_id="m",
        member_epoch=1,
        heartbeat_interval_ms=5,
        assignment=Assignment(topic_partitions=[]),
    )
    frame = encode_response(response, 1, 1)
    printed = [line[30:] for line in lines(dissect(frame, ("ConsumerGroupHeartbeat", 1)))]
    at = printed.index("  assignment: marker = 1")
    assert printed[at + 1 : at + 3] == ["  assignment", "    topic_partitions: count = 0"]


def test_an_unknown_tag_is_shown() -> None:
    assert any('(tag 9): tagged bytes = 2 bytes "xx"' in line for line in lines(dissect(join(t9=b"xx"))))


def test_a_leading_size_is_recognized() -> None:
    frame = join()
    framed = dissect(len(frame).to_bytes(4, "big") + frame)
    assert framed.error is None
    assert framed.parts[1].reading.message == dissect(frame).parts[1].reading.message


def test_a_truncated_frame_is_marked_at_its_end() -> None:
    for length in range(4, len(join())):
        dissection = dissect(join()[:length])
        assert dissection.error is not None
        assert 0 <= dissection.error.offset <= length
        assert list(lines(dissection))[-1].count("<--") == 1


def test_the_size_of_a_truncated_frame_is_not_taken_for_a_header() -> None:
    frame = join()
    dissection = dissect((len(frame).to_bytes(4, "big") + frame)[:-3])
    assert dissection.error is not None
    assert dissection.error.message == "JoinGroupRequest"
    assert next(lines(dissection)).endswith(f"= {len(frame)}, but {len(frame) - 3} bytes follow")


def test_an_invalid_byte_in_a_sized_response_is_marked() -> None:
    frame = encode_response(HeartbeatResponse(error_code=25), 4, 1)[:-1] + b"\x0b"
    dissection = dissect(len(frame).to_bytes(4, "big") + frame, ("Heartbeat", 4))
    assert dissection.error is not None
    assert dissection.error.offset == 4 + len(frame)


def test_a_caller_may_say_whether_a_frame_has_its_size() -> None:
    size = len(join()).to_bytes(4, "big")
    for data, sized in ((size + join(), True), (join(), False)):
        dissection = dissect(data, sized=sized)
        assert (dissection.start, dissection.end, dissection.error) == (4 * sized, len(data), None)


def test_a_correlation_id_may_look_like_a_size() -> None:
    frame = encode_response(HeartbeatResponse(error_code=25), 4, 8)
    assert len(frame) == 12
    dissection = dissect(frame, ("Heartbeat", 4))
    assert (dissection.error, dissection.end) == (None, 12)


def test_consecutive_frames_are_split() -> None:
    frame = len(join()).to_bytes(4, "big") + join()
    assert split(frame * 3) == [frame] * 3
    assert split(frame * 3 + b"x") == [frame * 3 + b"x"]
    assert split(join()) == [join()]
    shortest = len(join()[:8]).to_bytes(4, "big") + join()[:8]
    assert split(shortest * 2) == [shortest] * 2
    too_short = len(join()[:7]).to_bytes(4, "big") + join()[:7]
    assert split(too_short * 2) == [too_short * 2]


def test_unprintable_characters_are_escaped() -> None:
    request = HeartbeatRequest(group_id='a"\n\x7f\u2028\u202eb', generation_id=1, member_id="é")
    printed = list(lines(dissect(encode_request(request, 4, 1, ""))))
    assert any('group_id: string = "a\\"\\n\\u007f\\u2028\\u202eb"' in line for line in printed)
    assert any('member_id: string = "é"' in line for line in printed)


def test_a_uuid_is_shown_as_kafka_prints_it() -> None:
    uuid = "AAAAAAAAAAEAAAAAAAAAAg"
    data = bytes.fromhex("00000000 0000 00000000 02 00000000000000010000000000000002 01 00 00")
    assert any(
        f"topic_id: uuid = {uuid}" in line for line in lines(dissect_message(data, "FetchResponse", 17))
    )


def test_an_error_code_and_an_api_key_have_their_names() -> None:
    response = encode_response(HeartbeatResponse(error_code=25), 4, 1)
    assert any("= 25 (UNKNOWN_MEMBER_ID)" in line for line in lines(dissect(response, ("Heartbeat", 4))))
    assert any("= 11 (JoinGroup)" in line for line in lines(dissect(join())))


@pytest.mark.parametrize("code", [-2, 999])
def test_an_unknown_error_code_stays_a_number(code: int) -> None:
    response = encode_response(HeartbeatResponse(error_code=code), 4, 1)
    assert any(
        line.endswith(f"error_code: int16 = {code}") for line in lines(dissect(response, ("Heartbeat", 4)))
    )


RECORDS = [Record(n, 1_700_000_000_000 + n, b"k", b"\xff" if n else None, (("h", None),)) for n in range(12)]


def test_records_are_printed_below_their_field() -> None:
    partition = PartitionProduceData(index=0, records=encode_batch(RECORDS))
    request = ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )
    printed = [line.strip() for line in lines(dissect(encode_request(request, 11, 1, "")))]
    at = printed.index('0  2023-11-14T22:13:20.000Z  key "k"  value null  header "h" null')
    assert printed[at - 1].startswith("batch at 0000")
    assert printed[at + 10] == "... and 2 more (--hex shows all)"


def test_all_bytes_of_a_field_are_printed_on_request() -> None:
    request = dissect(join(t9=bytes(range(20))))
    (at,) = (span.start for span in request.parts[1].reading.spans if span.end - span.start == 20)
    printed = list(lines(request, whole=True))
    first = next(index for index, line in enumerate(printed) if line.startswith(f"{at:04x}"))
    assert [line[: 4 + 2 + 8 * 3].strip() for line in printed[first + 1 : first + 3]] == [
        f"{at + 8:04x}  08 09 0a 0b 0c 0d 0e 0f",
        f"{at + 16:04x}  10 11 12 13",
    ]


def test_the_records_of_an_internal_topic_are_printed_with_their_messages() -> None:
    key = b"\0\1" + OffsetCommitKey(group="g", topic="t", partition=3).encode(0)
    records = [Record(0, 0, key, None), Record(1, 0, b"\0", b"")]
    _, _, message, _, error = record_lines(encode_batch(records), topic="__consumer_offsets")
    assert message == '      key OffsetCommitKey v0 {"group": "g", "topic": "t", "partition": 3}'
    assert error.startswith("      <-- __consumer_offsets: field key at offset 0: expected at least 2 bytes")
    marker = encode_batch([Record(0, 0, b"\0\0\0\1", bytes(6))], is_control=True, producer_id=1)
    assert len(list(record_lines(marker, topic="__consumer_offsets"))) == 2


@pytest.mark.parametrize("size", range(4))
def test_a_frame_without_a_whole_api_version_is_a_truncated_header(size: int) -> None:
    dissection = dissect(join()[:size])
    assert dissection.error is not None
    field = "request_api_key" if size < 2 else "request_api_version"
    assert str(dissection.error).startswith(f"RequestHeader v1: field {field} at offset {size // 2 * 2}: ")


def test_an_unknown_api_has_no_response() -> None:
    with pytest.raises(UnsupportedVersion, match="no API has this name"):
        dissect(bytes(8), ("Unknown", 1))


def test_all_records_are_printed_on_request() -> None:
    assert len(list(record_lines(encode_batch(RECORDS), whole=True))) == 13


@pytest.mark.parametrize(
    ("fields", "details"),
    [
        ({}, "offset 5, 1 record, none, magic 2, CreateTime 2023-11-14T22:13:20.001Z"),
        (
            {"last_offset": 9, "partition_leader_epoch": 0, "timestamp_type": "LogAppendTime"},
            "offsets 5 to 9, 1 record, none, magic 2, LogAppendTime 2023-11-14T22:13:20.001Z, leader epoch 0",
        ),
        (
            {"producer_id": 0, "producer_epoch": 3, "base_sequence": 7, "is_transactional": True},
            "offset 5, 1 record, none, magic 2, CreateTime 2023-11-14T22:13:20.001Z, "
            "producer 0 epoch 3 sequence 7, transactional",
        ),
        (
            {"delete_horizon_ms": 1, "base_timestamp": 1_700_000_000_001},
            "offset 5, 1 record, none, magic 2, CreateTime 2023-11-14T22:13:20.001Z, "
            "delete horizon 1970-01-01T00:00:00.001Z",
        ),
        ({"max_timestamp": -1}, "offset 5, 1 record, none, magic 2, CreateTime no time"),
        (
            {"max_timestamp": 253_402_300_800_000},
            "offset 5, 1 record, none, magic 2, CreateTime 253402300800000",
        ),
    ],
)
def test_the_line_of_a_batch_has_the_fields_of_its_header(fields: dict[str, Any], details: str) -> None:
    data = encode_batch([Record(5, 1_700_000_000_001, None, b"v")], **fields)
    assert next(iter(record_lines(data))) == f"batch at 0000, {len(data)} bytes: {details}"


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Record(5, 0, b"k", None), '5  1970-01-01T00:00:00.000Z  key "k"  value null'),
        (
            Record(5, -1, None, b"\xff\0", (("h", b"1"), ("i", None))),
            '5  no time  key null  value 2 bytes ff00  header "h" "1"  header "i" null',
        ),
        (Record(5, -7, b"a\nb", b""), '5  -7  key 3 bytes 610a62  value ""'),
    ],
)
def test_the_line_of_a_record_has_its_parts(record: Record, text: str) -> None:
    lines_of_batch = list(record_lines(encode_batch([record])))
    assert lines_of_batch[1].strip() == text


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (b"\0\0\0\0", "marker ABORT"),
        (b"\0\0\0\2", "marker LEADER_CHANGE"),
        (b"\0\0\0\3", "marker SNAPSHOT_HEADER"),
        (b"\0\0\0\4", "marker SNAPSHOT_FOOTER"),
        (b"\0\0\0\5", "marker KRAFT_VERSION"),
        (b"\0\0\0\6", "marker KRAFT_VOTERS"),
        (b"\0\0\0\x63", "marker of the unknown type 99"),
        (b"\0\0\0", "key 3 bytes 000000"),
    ],
)
def test_the_type_of_a_control_record_is_in_its_key(key: bytes, name: str) -> None:
    data = encode_batch([Record(0, 0, key, b"")], is_control=True, is_transactional=True, producer_id=1)
    head, row = record_lines(data)
    assert head.endswith("transactional, control")
    assert name in row


def test_a_transaction_marker_is_named() -> None:
    marker = Record(0, -1, b"\0\0\0\1", bytes(6))
    data = encode_batch([marker], is_control=True, is_transactional=True, producer_id=1)
    assert "marker COMMIT" in list(record_lines(data))[1]


def test_an_invalid_batch_is_marked_after_the_valid_ones() -> None:
    good = encode_batch(RECORDS[:1])
    printed = list(record_lines(good + good[:-1] + b"\xee"))
    assert printed[0].startswith("batch at 0000")
    assert printed[-1].startswith(f"<-- RecordBatch v2: field crc at offset {len(good) + 17}")


def test_a_truncated_batch_is_reported() -> None:
    good = encode_batch(RECORDS[:1])
    for complete in (good, b""):
        *_, last = record_lines(complete + good[:-1])
        assert last == f"{len(good) - 1} bytes of a truncated batch, which readers fetch again"
    assert list(record_lines(b"")) == []


def test_a_response_is_decoded_for_the_given_api_and_version() -> None:
    response = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=9)], topics=[])
    dissection = dissect(encode_response(response, 13, 5), ("Metadata", 13))
    assert dissection.parts[1].reading.message == response


@pytest.mark.parametrize(
    ("frame", "at", "why"),
    [
        ("00ff0003 00000001 0000", 0, "no API with the key 255"),
        ("000c0063 00000001 0000", 2, f"Heartbeat has the versions {HeartbeatRequest.__versions__}"),
        ("0000000a 00ff0003 00000001 0000", 4, "no API with the key 255"),
    ],
)
def test_an_unknown_request_is_marked_in_its_header(frame: str, at: int, why: str) -> None:
    dissection = dissect(bytes.fromhex(frame))
    assert dissection.error is not None
    assert dissection.error.offset == at
    assert (dissection.parts[0].version, dissection.error.version) == (1, 1)
    assert why in list(lines(dissection))[-1]


def test_the_command_prints_kafkas_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", join_with_subscription().hex(), "--json"]) == 0
    header, body = map(json.loads, capsys.readouterr().out.splitlines())
    assert (header["name"], body["json"]["groupId"]) == ("RequestHeader", "g")


def test_the_command_reads_base64_and_files(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    import base64
    from pathlib import Path

    raw = Path(str(tmp_path), "frame")
    raw.write_bytes(join_with_subscription())
    printed = set()
    for argument in (
        join_with_subscription().hex(" "),
        base64.b64encode(join_with_subscription()).decode(),
        str(raw),
    ):
        assert main(["decode", argument]) == 0
        printed.add(capsys.readouterr().out)
    assert len(printed) == 1


def test_the_command_fails_on_an_invalid_byte(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", join()[:-3].hex()]) == 1
    assert "<--" in capsys.readouterr().out


@pytest.mark.parametrize("form", [[], ["--json"]])
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (join().hex(), "topics at offset"),
        (join_with_subscription().hex() + "0000", "2 bytes"),
        (
            (len(join_with_subscription()) + 2).to_bytes(4, "big").hex() + join_with_subscription().hex(),
            "size",
        ),
    ],
)
def test_the_command_fails_on_invalid_contents_size_and_trailing_bytes(
    data: str, why: str, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", data, *form]) == 1
    assert why in "".join(capsys.readouterr())


def test_the_command_fails_on_an_invalid_byte_in_a_records_field(capsys: pytest.CaptureFixture[str]) -> None:
    batch = encode_batch([Record(0, 0, None, b"x")])
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 7, 1, "me")
    assert main(["decode", request.hex()]) == 0
    corrupted = request.replace(batch, batch[:-1] + b"y")
    assert main(["decode", corrupted.hex()]) == 1
    assert "<-- " in capsys.readouterr().out


def test_the_faults_of_a_frame_are_its_size_its_contents_and_the_bytes_after_it() -> None:
    request = join_with_subscription()
    assert not list(dissect(len(request).to_bytes(4, "big") + request).faults())
    (size,) = dissect((len(request) + 9).to_bytes(4, "big") + request).faults()
    assert size == f"the frame size is not that of the {len(request)} bytes after it"
    assert list(dissect(request + b"abc").faults()) == ["3 bytes follow the end of the message"]
    (content,) = dissect(request.replace(b"\0\x01t", b"\0\x09t")).faults()
    assert content.startswith("in protocols[0].metadata: ConsumerProtocolSubscription v3: field topics[0]")


def test_an_invalid_frame_has_its_error_and_no_faults() -> None:
    dissection = dissect(join()[:-3])
    assert (dissection.wrong, list(dissection.faults())) == (True, [])
    assert dissection.error is not None


def test_only_the_headers_of_the_batches_after_many_records_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kproto.inspect.dissect._MAX_CHECKED_RECORDS", 3)
    good = encode_batch([Record(n, 0, None, b"") for n in range(3)])
    for batches, is_wrong in ((good + good, False), (good + good[:-1] + b"\x7f", True)):
        partition = PartitionProduceData(index=0, records=batches)
        topic = TopicProduceData(name="t", partition_data=[partition])
        request = encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 7, 1, "me")
        assert dissect(request).wrong is is_wrong


def test_the_command_names_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "zz!"]) == 2
    printed = capsys.readouterr().err
    assert "data='zz!' is not allowed; allowed: an existing file, or " in printed
    assert all(form.description in printed for form in FORMS.values())


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_a_response_that_rejects_api_versions_is_decoded_as_v0(
    version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A response that rejects ApiVersions is decoded as version 0 (KIP-511).

    The response is decoded as version 0 even if this release does not know the version of the request.
    """
    response = encode_response(ApiVersionsResponse(error_code=35, api_keys=[]), 0, 7)
    assert main(["decode", "--response", f"ApiVersions:{version}", response.hex()]) == 0
    assert "ApiVersionsResponse v0" in capsys.readouterr().out
    accepted = encode_response(ApiVersionsResponse(error_code=0, api_keys=[]), 0, 7)
    with pytest.raises(UnsupportedVersion, match="version 9 is not supported; allowed: 0-5"):
        dissect(accepted, ("ApiVersions", 9))


def test_versions_lists_every_api(capsys: pytest.CaptureFixture[str]) -> None:
    from kproto.messages.index import API_NAMES

    assert main(["versions"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in API_NAMES.values())
    assert "  11  JoinGroup                      0-9       6" in printed


def test_a_batch_of_many_records_is_not_decoded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kproto.inspect.dissect._MAX_CHECKED_RECORDS", 2000)
    data = encode_batch([Record(n, 0, None, b"") for n in range(5000)], compression="gzip")
    shown = list(record_lines(data))
    assert len(shown) == 12
    assert shown[-1] == "  ... and 4990 more (--hex shows all), 3000 of them not decoded"
    assert len(list(record_lines(data, whole=True))) == 5001
    partitions = [PartitionProduceData(index=number, records=data) for number in range(2)]
    topic = TopicProduceData(name="t", partition_data=partitions)
    request = encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 7, 1, "")
    notes = [line.strip() for line in lines(dissect(request)) if "not decoded" in line]
    assert notes == ["... and 4990 more (--hex shows all), 4000 of them not decoded"] * 2
