"""Every error survives pickling and copying, with its notes."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import consumer
import kproto.inspect.json_lines
from kproto.errors import IllegalState, KprotoError, PartialFailure
from kproto.messages.headers import UnsupportedRequest, decode_request, encode_request
from kproto.messages.heartbeat import HeartbeatRequest

_ = consumer, kproto.inspect.json_lines  # The imports define the errors that the tests enumerate.


def classes(of: type[KprotoError] = KprotoError) -> Iterator[type[KprotoError]]:
    for subclass in of.__subclasses__():
        if subclass.__module__.startswith(("kproto.", "consumer.")):
            yield subclass
            yield from classes(subclass)


def build(cls: type[KprotoError]) -> KprotoError | None:
    """Build an error of this class, or return None if it needs arguments other than numbers and strings."""
    arguments: list[Any] = []
    _, *parameters = inspect.signature(cls.__init__).parameters.values()
    for parameter in parameters:
        if parameter.default is not parameter.empty or parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            continue
        kind = str(parameter.annotation).split(" |", maxsplit=1)[0]
        if kind not in ("int", "str", "object"):
            return None
        arguments.append(3 if kind == "int" else "text")
    return cls(*arguments)


def are_equal(error: KprotoError, copied: KprotoError) -> bool:
    return type(copied) is type(error) and (str(copied), vars(copied)) == (str(error), vars(error))


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickled": lambda error: pickle.loads(pickle.dumps(error)),
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES)
def test_every_error_can_be_pickled_and_copied(how: str) -> None:
    """Every error can be unpickled. An error that cannot would block a multiprocessing.Pool forever."""
    count = 0
    for cls in sorted(set(classes()), key=lambda cls: cls.__qualname__):
        error = build(cls)
        if error is not None:
            count += 1
            error.add_note("in partition 3")
            assert are_equal(error, COPIES[how](error)), cls
    assert count > 20


@pytest.mark.parametrize("how", COPIES)
def test_an_unsupported_request_can_be_pickled_and_copied(how: str) -> None:
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    frame = bytearray(encode_request(beat, 4, 7, "me"))
    frame[2:4] = b"\0\x63"
    with pytest.raises(UnsupportedRequest) as raised:
        decode_request(frame)
    restored = COPIES[how](raised.value)
    assert are_equal(raised.value, restored)
    assert restored.header.correlation_id == 7


def test_a_partial_failure_names_each_item_once() -> None:
    failure = PartialFailure(
        "Delete", {"a": None}, {"t": IllegalState("the last topic"), "topic": IllegalState("topic is in use")}
    )
    text = "Delete failed for 2 of 3 items: t: the last topic; topic is in use"
    assert str(failure) == text
