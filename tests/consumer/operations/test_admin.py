"""Admin clients check their options and timeouts, and `close` ends their calls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, AsyncAdmin
from kproto.broker.server import running
from kproto.errors import ConfigError, IllegalState, RequestTimedOut

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """Yield the address of a broker that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_call_ends_after_its_timeout_or_that_of_the_client(silent_broker: str) -> None:
    with Admin(silent_broker, timeout=0.04) as admin:
        with pytest.raises(RequestTimedOut, match="within 40 ms"):
            admin.topics()
        with pytest.raises(RequestTimedOut, match="within 20 ms"):
            admin.topics(timeout=0.02)


@pytest.mark.parametrize(
    ("option", "smallest"),
    [("request_timeout_ms", 1), ("receive_message_max_bytes", 1_000), ("timeout", 0)],
)
def test_an_option_below_its_minimum_is_rejected(option: str, smallest: int) -> None:
    config: dict[str, Any] = {option: smallest}
    Admin(NOWHERE, **config).close()
    with pytest.raises(ConfigError, match=option):
        Admin(NOWHERE, **{option: smallest - 1})


def test_an_option_of_security_is_checked() -> None:
    with pytest.raises(ConfigError, match="security_protocol='OOPS'"):
        Admin(NOWHERE, security_protocol="OOPS")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="an admin client"):
        Admin(NOWHERE, group_id="g")  # type: ignore[call-arg]


def test_a_client_is_described_by_its_id_and_whether_it_is_closed() -> None:
    admin = Admin(NOWHERE, client_id="tool")
    assert repr(admin) == "<Admin 'tool'>"
    admin.close()
    assert repr(admin) == "<Admin 'tool': closed>"
    admin.close()
    with pytest.raises(IllegalState, match="this admin client is closed; make a new one"):
        admin.topics()


def test_an_asyncio_client_is_closed_at_the_end_of_its_block() -> None:
    async def main(bootstrap: str) -> None:
        async with AsyncAdmin(bootstrap) as admin:
            assert await admin.topics() == {"t": 2}
            assert admin.view.topics["t"].name == "t"
            assert admin.metrics()
        with pytest.raises(IllegalState, match="closed"):
            await admin.topics()
        await admin.close()

    with running(topics={"t": 2}) as server:
        asyncio.run(main(server.bootstrap))
