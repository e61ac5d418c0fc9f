"""Clients that are above a quota, as the operator has it (KIP-219): answered at once, and not read from for a
while.

* The answer says for how long; until then nothing more is taken from its connection.
* A Fetch that is throttled brings nothing (`handlers.fetch`).
"""

from __future__ import annotations

from typing import Any

from ..wire.message import Message


def throttle(response: Message, version: int, ms: int) -> None:
    """Makes this the answer to a client that is above its quota."""
    told: Any = response
    if any(one.name == "throttle_time_ms" and version in one.versions for one in response.__fields__):
        told.throttle_time_ms = ms
