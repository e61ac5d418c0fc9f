"""The operations of consumers that need no request."""

from __future__ import annotations

import asyncio

from consumer import AsyncConsumer, Consumer, TopicPartition

T0 = TopicPartition("t", 0)
NOWHERE = "127.0.0.1:1"


def test_why_names_a_closed_consumer() -> None:
    with Consumer(NOWHERE, group_id="g") as reader:
        assert reader.why(T0).reason == "not assigned"
    assert reader.why(T0).reason == "closed"


def test_why_names_a_closed_asyncio_consumer() -> None:
    async def main() -> str:
        async with AsyncConsumer(NOWHERE, group_id="g") as reader:
            reader.assign([T0])
        return reader.why(T0).reason

    assert asyncio.run(main()) == "closed"


def test_why_quotes_the_error_of_a_failed_consumer() -> None:
    with Consumer(NOWHERE, group_id="g") as reader:
        reader._runtime._fail(ZeroDivisionError("broken"))
        status = reader.why(T0)
        assert (status.reason, status.detail) == ("error", "the consumer failed: ZeroDivisionError('broken')")
