"""What plans are made of. A plan yields a list of `Ask` or a `Rest`; see the package for the rules."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import ConnectionFailed, RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from ...errors import broker_error
from ..error_actions import ErrorAction, Row, action_for
from ..network.client import MAIN
from ..network.connection import Call, Prepared

# More looks at the metadata, before a topic counts as unknown: 0.7 s.
PATIENCE = 3


class Ask(msgspec.Struct):
    """One request to the broker `node`, or to any. `timeout_ms` None: request.timeout.ms."""

    request: Message | Prepared
    node: int | None = None
    lane: int = MAIN
    timeout_ms: int | None = None
    max_version: int | None = None


class Rest(msgspec.Struct):
    """Nothing to do for a while, which grows from rest to rest; `why` is what a caller reads when it gives up
    meanwhile."""

    why: str


Answers = list[Call]
R = TypeVar("R")
Plan = Generator[list[Ask] | Rest, Answers, R]


def expect(kind: type[R], call: Call) -> R:
    """The call's answer, which must be a `kind`; raises the call's error."""
    if call.error is not None:
        raise call.error
    if not isinstance(call.response, kind):
        raise TypeError(f"{call.name}: expected {kind.__name__}, got {type(call.response).__name__}")
    return call.response


def lost(call: Call) -> bool:
    """True when the call may be repeated: the connection broke, or the broker was silent."""
    return isinstance(call.error, (ConnectionFailed, RequestTimedOut))


def try_again(row: Row, code: int, request: str, detail: str) -> Rest:
    """The pause after an error code that is worth another try; raises BrokerError for one that is not."""
    if action_for(row, code) in (
        ErrorAction.RETRY,
        ErrorAction.REFRESH_METADATA,
        ErrorAction.FIND_COORDINATOR,
    ):
        return Rest(f"{request} for {detail} was answered with {ErrorCode(code).name}")
    raise broker_error(code, request, detail)


def left_out(request: str, what: TopicPartition | str) -> Rest:
    """The pause after an answer that says neither yes nor no."""
    return Rest(f"the response to {request} does not contain {what}")
