"""A connection to a real Kafka and one to the embedded broker, to compare the responses of both brokers."""

from __future__ import annotations

from typing import Any

from kproto.wire.message import Message
from tests.broker.stage import Socket

# The connection to Kafka, and the one to the embedded broker. The fixture `pair` opens them.
Pair = tuple[Socket, Socket]


def ask(pair: Pair, request: Message, version: int) -> list[Any]:
    """Send a request to both brokers, and return their responses."""
    return [each.ask(request, version) for each in pair]
