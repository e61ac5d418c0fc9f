"""The simulated cluster of `kproto.testing` for tests of the client, and options for schedules of faults."""

from __future__ import annotations

from typing import Final

from kproto.testing.world import Client, Consumer, Producer, World, tp

__all__ = ["BEFORE_KIP_890", "QUICK_AGAIN", "Client", "Consumer", "Producer", "World", "tp"]

# The options of a producer that recovers from a fault within tenths of a second.
QUICK_AGAIN: Final[dict[str, int]] = {
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 80,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 80,
    "metadata_max_age_ms": 500,
    "socket_connection_setup_timeout_ms": 100,
}

# The highest version of EndTxn before KIP-890.
BEFORE_KIP_890: Final[dict[str, int]] = {"EndTxn": 4}
