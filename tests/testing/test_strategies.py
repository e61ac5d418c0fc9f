"""Values of `kproto.testing.strategies` are valid, include corner cases, and shrink well."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, assume, find, given, seed, settings
from hypothesis import strategies as st

from kproto.errors import ConfigError, UnsupportedVersion
from kproto.messages import index
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.fetch import FetchRequest, FetchResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kproto.records import Record, assign_offsets, batches, rows
from kproto.testing.strategies import (
    NOW,
    Drawn,
    RecordBatch,
    from_message,
    record_batches,
    record_sets,
    requests,
    responses,
    versioned,
)
from kproto.wire import ZERO_UUID

ENOUGH = settings(
    max_examples=1000, database=None, derandomize=True, deadline=None, phases=[Phase.generate, Phase.shrink]
)
NO_SHRINKING = settings(ENOUGH, phases=[Phase.generate])


@given(st.sampled_from(index.names()), st.data())
def test_drawn_messages_round_trip(name: str, data: st.DataObject) -> None:
    cls = index.message_class(name)
    version, message = data.draw(versioned(cls, unknown_tags=True))
    assert cls.decode(message.encode(version), version) == message


def test_the_smallest_example_is_nearly_empty() -> None:
    smallest = find(from_message(JoinGroupRequest, 9), lambda request: True, settings=ENOUGH)
    assert smallest == JoinGroupRequest(
        group_id="",
        session_timeout_ms=0,
        rebalance_timeout_ms=0,
        member_id="",
        protocol_type="",
        protocols=[],
    )


def test_an_example_shrinks_to_the_relevant_fields() -> None:
    def has_a_protocol(request: JoinGroupRequest) -> bool:
        return len(request.protocols) > 0

    smallest = find(from_message(JoinGroupRequest, 9), has_a_protocol, settings=ENOUGH)
    assert smallest.protocols == [JoinGroupRequestProtocol(name="", metadata=b"")]


@pytest.mark.parametrize(
    "corner",
    [
        lambda request: request.group_instance_id is not None,
        lambda request: request.session_timeout_ms < 0,
        lambda request: len(request.group_id.encode()) > 127,
        lambda request: len(request.protocols) > 1,
        lambda request: bool(request.__unknown_tags__),
        lambda request: any(protocol.__unknown_tags__ for protocol in request.protocols),
    ],
)
def test_corners_are_reached(corner: Any) -> None:
    assert find(from_message(JoinGroupRequest, 9, unknown_tags=True), corner, settings=NO_SHRINKING)


def test_the_zero_uuid_is_drawn_and_others_shrink_to_it() -> None:
    smallest = find(from_message(FetchRequest, 18), lambda request: bool(request.topics), settings=ENOUGH)
    assert smallest.topics[0].topic_id == ZERO_UUID


def test_a_failing_example_is_shown_field_by_field() -> None:
    @settings(ENOUGH, report_multiple_bugs=False)
    @given(requests(["Heartbeat"], versions=[4]))
    def fails(drawn: Drawn) -> None:
        raise AssertionError

    with pytest.raises(AssertionError) as failure:
        fails()
    note = "".join("".join(failure.value.__notes__).split())
    assert "drawn=Drawn(api_key=12,version=4,message=HeartbeatRequest(group_id='',generation_id=0," in note


def test_a_tagged_struct_is_sometimes_set() -> None:
    def is_set(request: FetchRequest) -> bool:
        return request.replica_state.replica_id != -1

    assert find(from_message(FetchRequest, 18), is_set, settings=NO_SHRINKING)


@given(from_message(JoinGroupRequest, 4, unknown_tags=True))
def test_fields_missing_in_the_version_keep_their_defaults(request: JoinGroupRequest) -> None:
    assert (request.reason, request.group_instance_id) == (None, None)
    assert request.__unknown_tags__ == {}


@given(from_message(FetchResponse, 13, unknown_tags=True))
def test_unknown_tags_are_not_declared_by_the_message(response: FetchResponse) -> None:
    assert 0 not in response.__unknown_tags__


def test_the_newest_version_is_drawn_by_default() -> None:
    assert find(
        from_message(JoinGroupRequest), lambda request: request.reason is not None, settings=NO_SHRINKING
    )


@pytest.mark.parametrize("cls", ["FetchRequest", 1, int, JoinGroupRequestProtocol])
def test_a_class_that_is_not_a_message_is_rejected(cls: Any) -> None:
    with pytest.raises(ConfigError, match="a message class such as"):
        from_message(cls)


def test_an_unknown_version_is_rejected() -> None:
    with pytest.raises(UnsupportedVersion):
        from_message(JoinGroupRequest, 10)


# Requests and responses


@given(requests(unknown_tags=True) | responses(unknown_tags=True))
def test_messages_of_any_api_round_trip(drawn: Drawn) -> None:
    cls = type(drawn.message)
    assert cls.decode(drawn.message.encode(drawn.version), drawn.version) == drawn.message
    assert cls.__api_key__ == drawn.api_key


@given(requests(["Fetch", 11], versions=range(5, 8)), responses([11, "Fetch"], versions=[6]))
def test_apis_are_named_or_numbered_and_versions_narrowed(request: Drawn, response: Drawn) -> None:
    assert isinstance(request.message, FetchRequest | JoinGroupRequest)
    assert 5 <= request.version <= 7
    assert isinstance(response.message, FetchResponse | JoinGroupResponse)
    assert response.version == 6


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [requests, responses])
def test_many_apis_are_drawn(kind: Any) -> None:
    api_keys: set[int] = set()

    @settings(NO_SHRINKING, max_examples=200, derandomize=True)
    @given(kind())
    def collect(drawn: Drawn) -> None:
        api_keys.add(drawn.api_key)

    collect()
    # Hypothesis draws several examples of an API in a row, so 200 examples have only 32 to 50 different APIs.
    assert len(api_keys) > 25


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"apis": ["Fetsch"]}, "'Fetsch'.* such as Fetch"),
        ({"apis": ["JoinGroupRequest"]}, "such as JoinGroup"),
        ({"apis": [4]}, "apis=4"),
        ({"apis": "Fetch"}, r"\['Fetch'\]"),
        ({"apis": 1}, r"\[1\]"),
        ({"apis": []}, "at least one"),
        ({"versions": 5}, r"versions=5.*\[5\]"),
        ({"apis": [11], "versions": [99]}, "none of these APIs has such a version"),
    ],
    ids=str,
)
def test_an_unknown_api_or_version_is_rejected_at_once(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        requests(**wrong)


def test_the_smallest_request_is_the_first_one() -> None:
    smallest = find(requests(["ApiVersions", "Fetch"]), lambda drawn: True, settings=ENOUGH)
    assert smallest == (18, 0, ApiVersionsRequest())


# Record batches

ANY_MAGIC = st.integers(0, 2).flatmap(record_batches)


@given(record_sets(ANY_MAGIC))
def test_drawn_batches_contain_the_drawn_records(drawn: list[RecordBatch]) -> None:
    data = b"".join(batch.data for batch in drawn)
    assert rows(data, control=True) == [record for batch in drawn for record in batch.records]


@given(record_sets())
def test_the_batches_of_a_set_follow_each_other(drawn: list[RecordBatch]) -> None:
    assert all(batch.last_offset < following.base_offset for batch, following in pairwise(drawn))


LONG = RecordBatch([Record((1 << 63) - (1 << 27) + (step << 21), NOW, None, None) for step in range(20)])


@given(record_sets(st.just(LONG), max_size=5))
def test_a_set_ends_before_the_largest_offset(drawn: list[RecordBatch]) -> None:
    assert len(rows(b"".join(batch.data for batch in drawn))) == 20 * len(drawn)
    assert all(batch.last_offset < 1 << 63 for batch in drawn)


@given(record_batches(compacted=False, control=False))
def test_batches_that_are_not_compacted_are_accepted_by_brokers(batch: RecordBatch) -> None:
    assert next(batches(assign_offsets(batch.data, 7, 0))).base_offset == 7


@given(
    record_batches(
        codecs=["lz4"], keys=st.none(), values=st.just(b"v"), headers=st.just(()), timestamps=st.just(5)
    )
)
def test_keys_and_values_can_be_chosen(batch: RecordBatch) -> None:
    assume(not batch.header.get("is_control"))
    assert batch.header["compression"] == "lz4"
    assert {(row.key, row.value, row.headers, row.timestamp) for row in batch.records} <= {
        (None, b"v", (), 5)
    }


def test_the_smallest_batch_is_one_plain_record() -> None:
    for magic in range(3):
        smallest = find(record_batches(magic), lambda batch: True, settings=ENOUGH)
        assert smallest.records == [Record(0, NOW if magic else -1, None, None)]
        assert next(batches(smallest.data)).compression == "none"
        assert set(smallest.header) <= {"compression", "base_offset", "last_offset"}
    assert find(record_sets(), lambda drawn: True, settings=ENOUGH) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"magic": 3}, "magic=3"),
        ({"codecs": "lz4"}, "codecs='lz4'"),
        ({"max_records": 0}, "max_records=0.*at least 1"),
        ({"codecs": ["brotli"]}, "none, gzip, snappy, lz4, zstd"),
        ({"magic": 1, "codecs": ["zstd"]}, "for magic 1 one of none, gzip, snappy, lz4\n"),
    ],
    ids=str,
)
def test_an_unknown_magic_or_codec_is_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find(record_batches(**wrong), lambda batch: True, settings=NO_SHRINKING)


def test_a_producer_id_shrinks_to_zero() -> None:
    smallest = find(record_batches(), lambda batch: bool(batch.header.get("is_control")), settings=ENOUGH)
    assert smallest.header["producer_id"] == 0


def test_without_hypothesis_the_extra_is_named() -> None:
    script = """
import sys
sys.modules["hypothesis"] = None
from kproto.errors import MissingExtra
try:
    import kproto.testing.strategies
except MissingExtra as error:
    print(error)
"""
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'kproto[testing]'" in process.stdout


CORNERS: dict[str, Callable[[RecordBatch], Any]] = {
    "a commit": lambda batch: batch.header.get("is_control") and batch.written[0].key == b"\0\0\0\1",
    "append time": lambda batch: batch.header.get("timestamp_type") == "LogAppendTime",
    "horizon": lambda batch: "delete_horizon_ms" in batch.header,
    "emptied": lambda batch: not batch.written,
    "gaps": lambda batch: batch.written and batch.written[-1].offset > batch.base_offset + len(batch.written),
    "transaction": lambda batch: batch.header.get("is_transactional") and not batch.header.get("is_control"),
    "idempotence": lambda batch: batch.header.get("producer_id") and not batch.header["is_transactional"],
    "zstd": lambda batch: batch.header["compression"] == "zstd",
    "a header's null": lambda batch: any(value is None for row in batch.written for _, value in row.headers),
    "a long value": lambda batch: any(len(row.value or b"") > 8191 for row in batch.written),
    "many records": lambda batch: len(batch.written) > 8,
    "far offsets": lambda batch: batch.base_offset > 1 << 62,
}


def test_corners_of_batches_are_reached() -> None:
    """The strategy draws every corner case of `CORNERS` within 500 batches. Most runs need 50 to 200."""
    reached: set[str] = set()

    def collect(batch: RecordBatch) -> None:
        reached.update(name for name, is_reached in CORNERS.items() if is_reached(batch))

    for number in range(10):
        if reached != set(CORNERS):
            draw = settings(NO_SHRINKING, max_examples=50, database=None)(given(record_batches())(collect))
            seed(number)(draw)()
    assert reached == set(CORNERS)


def test_a_batch_shrinks_to_the_relevant_record() -> None:
    smallest = find(
        record_batches(), lambda batch: any(row.headers for row in batch.written), settings=ENOUGH
    )
    *before, last = smallest.records
    assert len(before) < 4
    assert (last.timestamp, last.key, last.value, last.headers) == (NOW, None, None, (("", None),))
    assert smallest.header == {"compression": "none", "base_offset": 0, "last_offset": last.offset}
