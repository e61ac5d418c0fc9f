"""Clients that are above a quota, as the operator has it (KIP-219): answered at once, and not read from for a
while.

* The answer says for how long; until then nothing more is taken from its connection.
* A Fetch that is throttled brings nothing: no records, and no session to one that asked for a session.
"""

from __future__ import annotations

from typing import Any

from ..messages.fetch import FetchRequest, FetchResponse
from ..wire.message import Message
from .sessions import INITIAL_EPOCH


def throttle(response: Message, request: Message, version: int, ms: int) -> None:
    """Makes this the answer to a client that is above its quota."""
    told: Any = response
    if any(one.name == "throttle_time_ms" and version in one.versions for one in response.__fields__):
        told.throttle_time_ms = ms
    if isinstance(response, FetchResponse) and isinstance(request, FetchRequest) and not response.error_code:
        response.responses = []
        response.node_endpoints = []
        if request.session_epoch == INITIAL_EPOCH:
            response.session_id = 0
