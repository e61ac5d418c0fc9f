"""The function calls and response bytes of a request are at most linear in its size.

The tests send random requests of every API to a broker with topics, records and groups. The requests have
large arrays, repeated names, and names of existing resources.

A request's work is measured as its number of calls of Python and C functions. Unlike the time, this number
does not depend on the speed of the machine.

`tox -e soak` draws 10,000 requests. To repeat one, set KPROTO_SEED to the seed that its failure reports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from kproto.broker import large_request
from kproto.broker.apis import describe_groups
from kproto.broker.apis.repeated_names import MAX_REPEATED
from kproto.broker.apis.table import APIS
from kproto.broker.machine import FrameReceived, Tick, next_deadline
from kproto.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kproto.messages.describe_groups import DescribeGroupsRequest
from kproto.messages.headers import encode_request
from kproto.wire.message import Message
from tests.broker.behaviour.large_requests import GROUPS, SERVED, LargeRequests, stage_with_data
from tests.broker.stage import Stage
from tests.seeds import repeatable, seeds

PROFILE = os.environ.get("KPROTO_PROFILE", "quick")
COUNT = int(os.environ.get("KPROTO_REQUESTS", {"quick": 40, "ci": 500, "soak": 10_000}[PROFILE]))
# The maximum number of elements in the large array. A request with 30,000 elements is divided or rejected,
# because PIECE and MAX_ELEMENTS of kproto/broker/large_request.py are lower.
MOST_ELEMENTS = {"quick": 1_000, "ci": 5_000, "soak": 30_000}[PROFILE]

# The maximum number of calls for a request, in addition to CALLS_PER_BYTE for each byte of the request.
# Describing all configs of a topic needs the most.
CALLS_OF_A_REQUEST = 20_000
# IncrementalAlterConfigs needs the most calls per byte: 17, with 13,395 equal configs in one resource.
CALLS_PER_BYTE = 20
# The maximum number of calls in one step. A step serves a piece of a divided request (at most PIECE
# elements), or the whole of a request that cannot be divided (at most MAX_ELEMENTS elements).
CALLS_OF_A_PIECE = 150_000
CALLS_OF_A_STEP = 500_000
# The maximum number of bytes of a response, in addition to SIZE_PER_BYTE for each byte of the request. A
# response with all configs, topics, records and groups of the broker is smaller.
SIZE_OF_A_RESPONSE = MAX_REPEATED + 200_000
# For a partition that takes 6 bytes in the request, ElectLeaders returns an error message of 50 bytes.
SIZE_PER_BYTE = 12


class Cost:
    """The cost of a request: the calls of functions in each step, and the size of its responses in bytes."""

    def __init__(self, stage: Stage, request: Message, version: int) -> None:
        client = stage.client()
        frame = encode_request(request, version, 1, "me")
        self.size = len(frame)
        assert request.__api_key__ is not None
        self.is_divided = bool(APIS[request.__api_key__].divided)
        self.steps: list[int] = []
        self._step(stage, FrameReceived(client.conn, frame, stage.random_id()))
        while (due := next_deadline(stage.broker)) is not None and due <= stage.now:
            self._step(stage, Tick())
        self.responses = sum(map(len, client.answers))

    def _step(self, stage: Stage, event: Any) -> None:
        with counting_calls() as calls:
            stage.step(event)
        self.steps.append(calls[0])

    def check(self) -> None:
        calls = sum(self.steps)
        assert self.responses <= SIZE_OF_A_RESPONSE + SIZE_PER_BYTE * self.size, f"{self.responses} bytes"
        assert calls <= CALLS_OF_A_REQUEST + CALLS_PER_BYTE * self.size, f"{calls} calls"
        most = CALLS_OF_A_PIECE if self.is_divided else CALLS_OF_A_STEP
        assert max(self.steps) <= most, f"{max(self.steps)} calls in one step"


@contextmanager
def counting_calls() -> Generator[list[int]]:
    """Count the calls of functions within the `with` block."""
    calls = [0]

    def count(frame: FrameType, event: str, arg: Any) -> None:
        if event in ("call", "c_call"):
            calls[0] += 1

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(previous)


def check_cost(seed: int) -> None:
    """Check the cost of the random request of `seed`. Consecutive seeds choose the APIs in turn."""
    stage = stage_with_data()
    requests = LargeRequests(seed, stage, MOST_ELEMENTS)
    version, request = requests.draw(SERVED[seed % len(SERVED)])
    try:
        Cost(stage, request, version).check()
    except BaseException as error:
        name = f"{type(request).__name__} v{version}"
        error.add_note(f"{name}: {requests.count} elements ({requests.names}) in {requests.large}")
        raise


def test_work_and_responses_are_bounded_by_the_size_of_the_request() -> None:
    # The profiles quick and ci draw the same requests each time, so that failures are reproducible.
    draws_new = PROFILE == "soak" or "KPROTO_SEED" in os.environ
    for seed in seeds(COUNT) if draws_new else range(COUNT):
        with repeatable(seed, "KPROTO_REQUESTS=1"):
            check_cost(seed)


def test_error_messages_about_partitions_of_a_topic_with_a_long_name_are_bounded() -> None:
    partitions = [ReassignablePartition(partition_index=0, replicas=None)] * 5_000
    topic = ReassignableTopic(name="t" * 3_000, partitions=partitions)
    Cost(stage_with_data(), AlterPartitionReassignmentsRequest(topics=[topic]), version=1).check()


# ---- `check_cost` detects a missing limit


def naming_one_group(count: int) -> Cost:
    request = DescribeGroupsRequest(groups=[GROUPS[0]] * count)
    return Cost(stage_with_data(), request, version=5)


def test_a_response_without_a_limit_of_repeated_names_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def repeat_all(answers: Any, names: Any, size: Any) -> list[Any]:
        return [answers[name] for name in names]

    naming_one_group(200).check()
    monkeypatch.setattr(describe_groups, "repeat_as_named", repeat_all)
    with pytest.raises(AssertionError, match="bytes"):
        naming_one_group(200).check()


def test_a_large_request_that_is_served_in_one_step_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    request = DescribeGroupsRequest(groups=[f"{index}" for index in range(5_000)])
    Cost(stage_with_data(), request, version=5).check()
    monkeypatch.setattr(large_request, "PIECE", len(request.groups))
    with pytest.raises(AssertionError, match="calls in one step"):
        Cost(stage_with_data(), request, version=5).check()
