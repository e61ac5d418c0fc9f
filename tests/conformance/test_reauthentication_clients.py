"""Sessions that end (KIP-368), over TLS on our broker: each client renews them by each mechanism, and reads.

test_reauthentication_like_kafka compares with a real broker. Here the embedded broker reports renewals.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass

import pytest

from kproto.testing.certificates import certificates
from kproto.testing.secured import SecuredKafka, secured
from tests.conformance import judges
from tests.conformance.secured_clients import ALL, Member, members, order

pytest.importorskip("trustme")
pytestmark = [pytest.mark.clients, pytest.mark.java, pytest.mark.originals]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# Opens a new connection after the broker closes the old one, see test_reauthentication_like_kafka.
NEVER = {"aiokafka"}
MODULES = {"librdkafka": "confluent_kafka", "kafka-python": "kafka", "aiokafka": "aiokafka"}
LOGIN = ("alice", "alice-secret")
SESSION_MS = 3_000


@dataclass(frozen=True)
class Seen:
    """By mechanism: whose sessions were renewed on their connections, who came on further ones, and what each
    member read of what was written after that."""

    renewed: set[str]
    returned: set[str]
    read: dict[str, set[str]]
    written: set[str]


def looked(kafka: SecuredKafka, renewed: set[str], first: dict[int, str], returned: set[str]) -> None:
    """Notes down who is connected now, and who has renewed."""
    for number, connection in list(kafka.server.broker.connections.items()):
        sasl = connection.authenticator
        if sasl is None or sasl.expires_at is None:
            continue
        if sasl.reauthenticated_at is not None:
            renewed.add(sasl.mechanism)
        if number > max(first, default=number):
            returned.add(sasl.mechanism)


@pytest.fixture(scope="module", params=sorted(ALL))
def client(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if name in MODULES and importlib.util.find_spec(MODULES[name]) is None:
        judges.missing(name)
    return name


@pytest.fixture(scope="module")
def seen(client: str, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("renewals")
    files = certificates(folder)
    settings = {"connections.max.reauth.ms": str(SESSION_MS), "group.initial.rebalance.delay.ms": "0"}
    with secured("SASL_SSL", files, users=dict([LOGIN]), settings=settings) as kafka:
        kafka.create_topic("flights", 4)
        place = kafka.bootstrap
        orders = {how: order(client, place, files.ca, how, LOGIN, "g", folder) for how in MECHANISMS}
        with members(orders) as there:
            return watched(client, kafka, there)


def watched(client: str, kafka: SecuredKafka, there: dict[str, Member]) -> Seen:
    one = next(iter(there.values()))
    one.until(
        lambda: (
            kafka.group("g").state == "Stable" and len(set(kafka.group("g").owners.values())) == len(there)
        )
    )
    first = dict.fromkeys(kafka.server.broker.connections, "")
    renewed: set[str] = set()
    returned: set[str] = set()
    wanted = returned if client in NEVER else renewed
    end = time.monotonic() + 60
    while len(wanted) < len(there) and time.monotonic() < end:
        looked(kafka, renewed, first, returned)
        time.sleep(0.05)
    written = {f"after {partition}" for partition in range(4)}
    for partition in range(4):
        kafka.produce("flights", f"after {partition}", partition=partition)
    while time.monotonic() < end and not written <= {
        value for member in there.values() for value in member.read
    }:
        time.sleep(0.05)
    return Seen(renewed, returned, {how: set(member.read) for how, member in there.items()}, written)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_over_tls_is_renewed(client: str, seen: Seen, mechanism: str) -> None:
    if client in NEVER:
        assert mechanism not in seen.renewed
        assert mechanism in seen.returned
    else:
        assert mechanism in seen.renewed
    assert seen.read[mechanism]


def test_nothing_is_missed_meanwhile(seen: Seen) -> None:
    assert set().union(*seen.read.values()) >= seen.written
