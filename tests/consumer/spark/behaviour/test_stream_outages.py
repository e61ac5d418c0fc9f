"""A stream survives an outage of a few seconds. If no broker responds, the query fails after its request
timeout.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from consumer.spark.options import parse
from consumer.spark.schema import full_schema
from consumer.spark.stream import KprotoStreamReader
from kproto.broker.server import Server
from kproto.errors import ConnectionFailed
from tests.consumer.spark.stage import Filled
from tests.consumer.spark.stream_stage import Run


def test_a_query_survives_a_broker_restart_of_seconds() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run_in_loop(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(10)

    server = Server()
    run_in_loop(server.start())
    try:
        filled = Filled(server.bootstrap)
        filled.topic("t", 3)
        run = Run(filled, startingOffsets="earliest")
        assert run.batch() == {"t-0": [0, 1, 2]}
        filled.put("t", 0, 2)
        run_in_loop(server.stop())
        asyncio.run_coroutine_threadsafe(_later(4, server.start()), loop)
        assert run.batch() == {"t-0": [3, 4]}
        filled.cluster.close()
        run.reader.stop()
        run_in_loop(server.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _later(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    await asyncio.sleep(seconds)
    await work


def test_a_cluster_never_reached_raises_after_the_request_timeout() -> None:
    options = parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "kafka.request.timeout.ms": "1500",
            "fetchOffset.numRetries": "0",
        }
    )
    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1") as failure:
        KprotoStreamReader(full_schema(options), options).latestOffset({"@new": {}}, ReadAllAvailable())
    assert failure.value.__notes__ == ["It was tried for 1.5 s; see kafka.request.timeout.ms."]
    assert 0.5 < time.monotonic() - began < 20


def test_a_shorter_api_timeout_replaces_the_request_timeout() -> None:
    options = parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "kafka.default.api.timeout.ms": "200",
        }
    )
    with pytest.raises(ConnectionFailed) as failure:
        KprotoStreamReader(full_schema(options), options).latestOffset({"@new": {}}, ReadAllAvailable())
    assert failure.value.__notes__ == ["It was tried for 0.2 s; see kafka.default.api.timeout.ms."]
