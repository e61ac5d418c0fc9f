"""Each of kproto's models sends the Fetch, ListOffsets and Metadata requests of its original, field by field.

The test compares only the first Fetch and the distinct lookups, because the numbers of requests depend on
timing. test_clients_like_originals compares the requests to the coordinator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from consumer import Admin, Producer
from kproto.broker.server import running
from kproto.models.index import model_names
from tests.conformance import judges, original_clients
from tests.conformance.client_scenarios import DrivenMember
from tests.conformance.document_programs import Place
from tests.conformance.recording_proxy import RecordedRequest, RecordingProxy, lookup_lines

pytestmark = pytest.mark.originals

RECORDS = 5
# These options of the drivers' protocol are set, because sarama's driver has no defaults for them.
OPTIONS = {
    "reset": "earliest",
    "session_ms": 10_000,
    "heartbeat_ms": 3_000,
    "max_poll_ms": 60_000,
    "auto_commit": True,
    "auto_commit_ms": 60_000,
    "metadata_ms": 600_000,
}
WAIT_MS = 100  # The maximum wait in the Fetch requests of all drivers.


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    port = judges.free_port()
    with ExitStack() as stack:
        server = stack.enter_context(running())
        server.advertise(f"127.0.0.1:{port}")
        behind = int(server.bootstrap.rpartition(":")[2])
        proxy = stack.enter_context(RecordingProxy(port, behind, frozenset({"Fetch"})))
        address = f"127.0.0.1:{port}"
        cluster, producer = (stack.enter_context(kind(address)) for kind in (Admin, Producer))
        yield Place(proxy, address, cluster, producer)


def _first_fetch(requests: list[RecordedRequest]) -> dict[str, Any]:
    fetch = next(request for request in requests if request.api == "Fetch")
    request = fetch.request
    parts = [partition for topic in request.topics for partition in topic.partitions]
    # kafka-go subtracts the measured round-trip time from max_wait_ms.
    waits = WAIT_MS if WAIT_MS / 2 <= request.max_wait_ms <= WAIT_MS else request.max_wait_ms
    return {
        "version": fetch.envelope.version,
        "wait": waits,
        "bytes": (request.min_bytes, request.max_bytes),
        "isolation": request.isolation_level,
        "session": (request.session_id, request.session_epoch),
        "rack": request.rack_id,
        "partitions": [
            (part.partition, part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch)
            for part in parts
        ],
        "replica's fields": [(part.log_start_offset, part.last_fetched_epoch) for part in parts],
    }


def _sent(place: Place, command: list[str], client: str, kind: str) -> dict[str, Any]:
    """Let a member read a topic. Return its first Fetch request, and its requests for each lookup API."""
    name = topic = f"first-{client}-{kind}"
    place.cluster.create_topics({topic: 1})
    for number in range(RECORDS):
        place.producer.send(topic, b"%d" % number, partition=0)
    place.producer.flush()
    member = DrivenMember(name, [*command, place.bootstrap, name, name, json.dumps(OPTIONS)])
    try:
        member.send(f"subscribe {topic}")
        member.until_read(RECORDS)
        requests = place.proxy.requests(name)
    finally:
        member.kill()
    lookups = {
        api: sorted(line.replace(topic, "t") for line in lines)
        for api, lines in lookup_lines(requests).items()
    }
    return {"Fetch": _first_fetch(requests), **lookups}


@pytest.mark.parametrize("client", [name for name in model_names() if name in original_clients.NAMES])
def test_a_model_sends_the_fetches_and_lookups_of_its_original(client: str, place: Place) -> None:
    model = [sys.executable, "-m", "kproto", "member", "--as", client]
    original = original_clients.program(client)
    assert _sent(place, model, client, "a") == _sent(place, original, client, "b")
