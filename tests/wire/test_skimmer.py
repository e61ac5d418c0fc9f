"""`divide` splits an encoded request into several requests, each with some elements of one array."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import UUID

import pytest

from kproto.errors import DecodeError
from kproto.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kproto.wire.message import Message
from kproto.wire.skimmer import STRIDE, Division, divide, find_array


def divided(
    request: Message, version: int, most: int, most_of_one: int | None = None, *, unique: bool = False
) -> tuple[list[Any], int]:
    """Divide the request. Return the resulting requests, and the number of times that `divide` paused."""
    data = b"head" + request.encode(version)
    work: Generator[None, None, Division] = divide(
        type(request), data, 4, version, most, most_of_one or most, unique=unique
    )
    pauses = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return [type(request).decode(piece, version) for piece in end.value.pieces], pauses
        pauses += 1


def describe(*groups: str) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=list(groups), include_authorized_operations=True)


def fetch_offsets(**topics: list[int]) -> OffsetFetchRequest:
    group = OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            OffsetFetchRequestTopics(name=name, topic_id=UUID(int=0), partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=True)


@pytest.mark.parametrize("version", [3, 5])
def test_each_piece_has_a_share_of_the_array_and_all_other_fields(version: int) -> None:
    pieces, _ = divided(describe("a", "b", "c", "d", "e"), version, 2)
    assert pieces == [describe("a", "b"), describe("c", "d"), describe("e")]


def test_a_message_with_few_elements_is_not_copied() -> None:
    assert divided(describe("a", "b"), 5, 2) == ([], 0)


def test_equal_elements_are_omitted_from_a_divided_message() -> None:
    assert divided(describe(*"abababc"), 5, 3, unique=True)[0] == [describe("a", "b", "c")]


def test_an_element_with_many_elements_of_its_own_stands_in_several_pieces() -> None:
    pieces, _ = divided(fetch_offsets(a=[1, 2, 3], b=[4]), 9, 2)
    partitions = [
        (topic.name, topic.partition_indexes)
        for piece in pieces
        for group in piece.groups
        for topic in group.topics or ()
    ]
    assert partitions == [("a", [1, 2]), ("a", [3]), ("b", [4])]
    assert all(piece.require_stable for piece in pieces)


def test_an_element_is_not_divided_up_to_a_second_limit() -> None:
    pieces, _ = divided(fetch_offsets(a=[1, 2, 3], b=[4]), 9, 2, 4)
    sizes = [[topic.partition_indexes for topic in piece.groups[0].topics or ()] for piece in pieces]
    assert sizes == [[[1, 2, 3]], [[4]]]


def test_the_work_pauses_after_each_stride() -> None:
    _, pauses = divided(describe(*[""] * 10 * STRIDE), 5, STRIDE)
    assert 19 <= pauses <= 21, "the elements are read twice"


@pytest.mark.parametrize("cut", [1, 2, 5, 9])
def test_a_truncated_message_is_a_decode_error(cut: int) -> None:
    data = describe("a", "b", "c").encode(5)[:-cut]
    with pytest.raises(DecodeError, match="DescribeGroupsRequest v5"):
        list(divide(DescribeGroupsRequest, data, 0, 5, 2, 2))


def test_a_count_that_the_bytes_cannot_hold_is_a_decode_error() -> None:
    with pytest.raises(DecodeError):
        list(divide(DescribeGroupsRequest, b"\xff\xff\xff\x7f" + bytes(100), 0, 5, 2, 2))


def test_an_array_is_found_between_other_fields() -> None:
    group = DescribedGroup(
        error_code=0, group_id="g", group_state="", protocol_type="", protocol_data="", members=[]
    )
    data = DescribeGroupsResponse(groups=[group, group]).encode(5)
    array = find_array(DescribeGroupsResponse, data, 0, 5, "groups")
    assert (array.start, array.size, data[array.start : array.content]) == (4, 2, array.encode_count(2))
