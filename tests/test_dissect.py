"""What `kproto decode` prints: every byte under its field, and an arrow at the byte that is wrong."""

from __future__ import annotations

import json

import pytest

from kproto.cli import main
from kproto.dissect import dissect, lines
from kproto.errors import UnsupportedVersion
from kproto.messages.headers import encode_request, encode_response
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.metadata import MetadataResponse, MetadataResponseBroker


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


def test_the_spans_cover_every_byte_once() -> None:
    found = dissect(join(t9=b"xx"))
    at = 0
    for part in found.parts:
        for span in part.reading.spans:
            assert span.start == at
            at = span.end
    assert at == found.end == len(found.data)


def test_a_field_stands_beside_its_bytes_and_offset() -> None:
    assert '000d  02 67                     group_id: string = "g"' in list(lines(dissect(join())))


def test_an_unknown_tag_is_shown() -> None:
    assert any("(tag 9): tagged bytes = 2 bytes 7878" in line for line in lines(dissect(join(t9=b"xx"))))


def test_a_size_in_front_is_taken_off() -> None:
    frame = join()
    framed = dissect(len(frame).to_bytes(4, "big") + frame)
    assert framed.error is None
    assert framed.parts[1].reading.message == dissect(frame).parts[1].reading.message


@pytest.mark.parametrize("cut", range(4, len(join())))
def test_a_cut_frame_is_pointed_at_where_it_ends(cut: int) -> None:
    found = dissect(join()[:cut])
    assert found.error is not None
    assert 0 <= found.error.offset <= cut
    assert list(lines(found))[-1].count("<--") == 1


def test_a_response_is_read_as_the_answer_to_what_was_asked() -> None:
    answer = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=9)], topics=[])
    found = dissect(encode_response(answer, 13, 5), ("Metadata", 13))
    assert found.parts[1].reading.message == answer


def test_an_api_that_nobody_has_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match="API key 255"):
        dissect(bytes.fromhex("00ff0003"))


def test_the_command_prints_kafkas_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", join().hex(), "--json"]) == 0
    header, body = map(json.loads, capsys.readouterr().out.splitlines())
    assert (header["name"], body["json"]["groupId"]) == ("RequestHeader", "g")


def test_the_command_reads_base64_and_files(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    import base64
    from pathlib import Path

    raw = Path(str(tmp_path), "frame")
    raw.write_bytes(join())
    printed = set()
    for argument in (join().hex(" "), base64.b64encode(join()).decode(), str(raw)):
        assert main(["decode", argument]) == 0
        printed.add(capsys.readouterr().out)
    assert len(printed) == 1


def test_the_command_fails_on_a_wrong_byte(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", join()[:-3].hex()]) == 1
    assert "<--" in capsys.readouterr().out


def test_the_command_names_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "zz!"]) == 1
    assert "hex, base64, the name of a file" in capsys.readouterr().err


def test_versions_lists_every_api(capsys: pytest.CaptureFixture[str]) -> None:
    from kproto.messages.index import API_NAMES

    assert main(["versions"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in API_NAMES.values())
    assert "  11  JoinGroup                      0-9       6" in printed
