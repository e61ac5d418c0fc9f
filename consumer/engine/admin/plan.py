"""The steps of a plan: `Ask` and `Rest`. At its deadline a plan receives `DeadlinePassed`.

The docstring of the package states the rules of plans.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeVar

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import ConnectionFailed, RequestTimedOut, UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from ...errors import broker_error
from ..error_actions import ErrorAction, Row, action_for
from ..network.call import Call, Prepared
from ..network.client import MAIN

# A topic counts as unknown after this number of Metadata responses without it, and a partition after this
# number of retries at its leader. These retries take less than a second.
UNKNOWN_TOPIC_RETRIES = 3


class Ask(msgspec.Struct):
    """One request to the broker `node`, or to any broker if `node` is None.

    The request times out after `timeout_ms`, or after request.timeout.ms if `timeout_ms` is None.

    `lane` selects one of the connections to the broker (`NetworkClient`). `max_version` is the highest API
    version in which the request may be sent.
    """

    request: Message | Prepared
    node: int | None = None
    lane: int = MAIN
    timeout_ms: int | None = None
    max_version: int | None = None


class DeadlinePassed(Exception):
    """The runner throws this exception into a plan at the plan's deadline.

    `calls` are the calls that the plan waits for. Some of them may already have a response.

    A plan may catch this exception, and then return a result or raise another error. If the plan does not
    catch it, the plan's caller receives `error`.
    """

    def __init__(self, error: RequestTimedOut, calls: Sequence[Call]) -> None:
        super().__init__(error)
        self.error = error
        self.calls = calls


class Rest(msgspec.Struct):
    """A pause of a plan, with exponential backoff. If the plan times out, its error contains `why`."""

    why: str


EndedCalls = list[Call]
R = TypeVar("R")
Plan = Generator[list[Ask] | Rest, EndedCalls, R]


def expect_response(response_type: type[R], call: Call) -> R:
    """Return the response of the call, a `response_type`. Raises the call's error if it has one."""
    if call.error is not None:
        raise call.error
    if not isinstance(call.response, response_type):
        received = type(call.response).__name__
        raise TypeError(f"{call.name}: expected {response_type.__name__}, got {received}")
    return call.response


def failed_without_response(call: Call) -> bool:
    """Return whether the call failed without a response: the connection broke, or the request timed out."""
    return isinstance(call.error, (ConnectionFailed, RequestTimedOut))


def pause_after_error(row: Row, code: int, request: str, detail: str) -> Rest:
    """Return the pause that precedes a retry if the error code is retriable, else raise BrokerError."""
    if action_for(row, code) in (
        ErrorAction.RETRY,
        ErrorAction.REFRESH_METADATA,
        ErrorAction.FIND_COORDINATOR,
    ):
        return Rest(f"{request} for {detail} was answered with {ErrorCode(code).name}")
    raise broker_error(code, request, detail)


def pause_for_missing(request: str, item: TopicPartition | str) -> Rest:
    """Return the pause after a response that does not contain the requested `item`."""
    return Rest(f"the response to {request} does not contain {item}")


def require_version(api: str, version: int, first_version: int, release: str, purpose: str) -> None:
    """Raise UnsupportedVersion if `version` is below `first_version`, which introduced the feature.

    `release` is the first Kafka release with this version. `purpose` is the end of the error message, such as
    "to filter by state".

    Call this function only if the request uses the feature.
    """
    if version < first_version:
        allowed = f"{first_version} and higher (Kafka {release} and later) {purpose}"
        raise UnsupportedVersion(api, version, allowed)
