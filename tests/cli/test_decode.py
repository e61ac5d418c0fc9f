"""`kproto decode --pcap` prints frames and errors, with the filters and the short form of `kproto watch`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from uuid import UUID

import pytest

from kproto.cli import main
from kproto.inspect.pcap import PcapWriter
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kproto.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.wire.frame import frame
from kproto.wire.message import Message
from tests.inspect.stage import Segment, segments_of, write_capture

pytest.importorskip("dpkt")

EXCHANGES: list[tuple[str, Message, Message | None]] = [
    (
        "flights-1",
        HeartbeatRequest(group_id="flights", generation_id=1, member_id="m"),
        HeartbeatResponse(error_code=27),
    ),
    (
        "books-1",
        HeartbeatRequest(group_id="books", generation_id=1, member_id="m"),
        HeartbeatResponse(error_code=0),
    ),
    ("flights-1", LeaveGroupRequest(group_id="flights", member_id="m"), LeaveGroupResponse(error_code=0)),
    ("books-1", HeartbeatRequest(group_id="books", generation_id=2, member_id="m"), None),
]


@pytest.fixture
def capture_path(tmp_path: Path) -> Path:
    segments: list[Segment] = []
    requests = responses = b""
    for number, (client, request, response) in enumerate(EXCHANGES):
        requests += frame(encode_request(request, 2, number, client))
        if response is not None:
            responses += frame(encode_response(response, 2, number))
    segments = [*segments_of(True, requests, 1000), *segments_of(False, responses, 1000)]
    return write_capture(tmp_path / "c.pcap", segments)


def decode_capture(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    main(["decode", "--pcap", *map(str, words)])
    return capsys.readouterr().out


def test_the_short_form_is_a_line_for_each_request_and_a_summary(
    capture_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = decode_capture(capsys, capture_path, "--short", "--all")
    assert re.search(r"0\.000  flights-1 +Heartbeat v2 .* -> REBALANCE_IN_PROGRESS", text)
    assert re.search(r"books-1 +Heartbeat v2 .*generation=2.* !! ", text)
    assert re.search(r"\nHeartbeat +2 +1 ", text)


def test_routine_exchanges_are_left_out_as_by_watch(
    capture_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = decode_capture(capsys, capture_path, "--short")
    assert "generation=1" in text
    assert not re.search(r"books-1 .*generation=1", text)


@pytest.mark.parametrize("form", [[], ["--short", "--all"], ["--json"]])
@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--client", "flights"], 2),
        (["--group", "books"], 2),
        (["--api", "LeaveGroup"], 1),
        (["--not-api", "LeaveGroup"], 3),
    ],
)
def test_the_filters_apply_to_every_output_form(
    capture_path: Path,
    capsys: pytest.CaptureFixture[str],
    form: list[str],
    words: list[str],
    count: int,
) -> None:
    text = decode_capture(capsys, capture_path, *form, *words)
    shown = re.findall(r"Request v2 #" if form != ["--short", "--all"] else r"^ .* v2 ", text, re.MULTILINE)
    assert len(shown) == count


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--api", "Fetch", "00"], "--api='Fetch' is not allowed; allowed only with --pcap FILE"),
        (["--short", "00"], "with --pcap FILE"),
        (["--port", "9092", "00"], "--port=9092 is not allowed; allowed only with --pcap FILE"),
        (["--lines", "--port", "9092"], "with --pcap FILE"),
        (["--lines", "--hex"], "--lines=True is not allowed; allowed only alone or with --records"),
        (["--pcap", "x.pcap", "--short", "--hex"], "--hex=True is not allowed; allowed only without --short"),
        (["--pcap", "x.pcap", "--form", "hex"], "--form='hex' is not allowed; allowed only without --pcap"),
        (["--pcap", "x.pcap", "--topic", "__consumer_offsets"], "allowed with --records: __consumer_offsets"),
        (["--pcap", "x.pcap", "--all"], "with --short"),
        (["--pcap", "x.pcap", "00"], "--pcap='x.pcap' is not allowed; allowed only without other data"),
        (["--pcap", "x.pcap", "--html", "x.html"], "with --short"),
    ],
)
def test_options_that_would_have_no_effect_are_rejected(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["decode", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_capture_can_be_written_as_a_page(
    capture_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decode_capture(capsys, capture_path, "--short", "--html", tmp_path / "page.html")
    assert "LeaveGroup" in (tmp_path / "page.html").read_text()


def test_topic_names_are_shared_between_connections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flights, broker = UUID(int=7), ("10.0.0.1", 9092)
    metadata_request = MetadataRequest(topics=None)
    topic = MetadataResponseTopic(name="flights", topic_id=flights, error_code=0, partitions=[])
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id="m",
        topics=[
            OffsetCommitRequestTopic(
                topic_id=flights,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
                ],
            )
        ],
    )
    with (tmp_path / "c.pcap").open("wb") as file:
        writer, at = PcapWriter(file), 10**18
        metadata_client, committing_client = ("10.0.0.7", 5000), ("10.0.0.7", 5001)
        writer.write_frame(metadata_client, broker, True, encode_request(metadata_request, 13, 1, "me"), at)
        response = MetadataResponse(brokers=[], topics=[topic])
        writer.write_frame(metadata_client, broker, False, encode_response(response, 13, 1), at)
        writer.write_frame(committing_client, broker, True, encode_request(commit, 10, 1, "me"), at)
    assert "flights-0@5" in decode_capture(capsys, tmp_path / "c.pcap", "--short", "--group", "g")


def test_an_invalid_frame_of_a_capture_is_an_object_with_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beat = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 2, 1, "me")
    segments = segments_of(True, frame(beat) + frame(beat[:-2]), 1_000)
    path = str(write_capture(tmp_path / "c.pcap", segments))
    assert main(["decode", "--pcap", path, "--json"]) == 1
    good, bad = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "error" not in good
    assert [part["name"] for part in good["parts"]] == ["RequestHeader", "HeartbeatRequest"]
    assert bad["parts"] == []
    assert bad["error"].startswith("HeartbeatRequest v2: ")
    assert main(["decode", "--pcap", path, "--port", "9092"]) == 1
    assert capsys.readouterr().out.count("<-- HeartbeatRequest v2: ") == 1


def test_a_capture_without_data_on_the_port_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_capture(tmp_path / "c.pcap", []))
    assert main(["decode", "--pcap", path]) == 0
    assert "the connections to port 9092 carry no data in this capture" in capsys.readouterr().err


def test_requests_that_the_capture_lacks_are_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = encode_response(HeartbeatResponse(error_code=0), 2, 1)
    path = write_capture(tmp_path / "c.pcap", segments_of(False, frame(answer), 1_000))
    note = "the requests of 1 responses are not in the capture"
    assert main(["decode", "--pcap", str(path), "--json"]) == 1
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (line["title"], line["parts"], line["error"]) == ("not read", [], note)
    assert main(["decode", "--pcap", str(path)]) == 1
    assert capsys.readouterr().out.endswith(f" not read ({note})\n")
    assert main(["decode", "--pcap", str(path), "--short"]) == 1
    assert capsys.readouterr().out.splitlines()[0].endswith(f" not read {note}")
    assert main(["decode", "--pcap", str(path), "--client", "me"]) == 0
    assert capsys.readouterr().out == ""


def test_a_frame_has_its_time_in_utc_and_no_note_if_it_was_decoded(
    capture_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = decode_capture(capsys, capture_path, "--api", "LeaveGroup")
    assert re.match(r"\n1970-01-01T00:00:\d\d\.\d{6}Z \S+ -> \S+:9092 LeaveGroupRequest v2 #2\n", text)
    row = json.loads(decode_capture(capsys, capture_path, "--api", "LeaveGroup", "--json").splitlines()[0])
    assert (row["title"], row["parts"][1]["json"]["groupId"]) == ("LeaveGroupRequest v2 #2", "flights")
    assert "error" not in row


def test_a_decoded_capture_is_a_success_unless_a_frame_is_invalid(capture_path: Path) -> None:
    assert main(["decode", "--pcap", str(capture_path)]) == 0
    assert main(["decode", "--pcap", str(capture_path), "--short"]) == 0


def test_a_port_without_traffic_is_rejected_with_the_ports_that_have_some(
    capture_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decode", "--pcap", str(capture_path), "--port", "9094"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "port=9094 is not allowed" in printed.err
    assert "9092 (4 segments)" in printed.err


def test_the_short_form_of_an_empty_capture_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_capture(tmp_path / "c.pcap", []))
    assert main(["decode", "--pcap", path, "--short"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("\nno requests\n", "")


@pytest.mark.parametrize(
    ("words", "data", "message"),
    [
        ([], b"\xd4\xc3\xb2\xa1rest", "data='a capture' is not allowed; use --pcap FILE for a capture"),
        (["--form", "hex"], b"\xff\xfe\xfd", "--form='hex' is not allowed; use --form raw, because"),
    ],
)
def test_a_file_in_another_form_is_rejected(
    words: list[str], data: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(data)
    assert main(["decode", *words, str(tmp_path / "file")]) == 2
    assert message in capsys.readouterr().err


def test_raw_bytes_come_only_from_a_file_or_stdin(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--form", "raw", "00"]) == 2
    assert "--form='raw' is not allowed; allowed only with the name of an existing file" in (
        capsys.readouterr().err
    )


def test_an_empty_record_set_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--records", ""]) == 0
    assert capsys.readouterr().out == "no batch\n"
