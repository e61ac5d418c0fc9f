"""Clients re-authenticate expiring sessions (KIP-368) over TLS.

Each client re-authenticates with each mechanism on the embedded broker.

The embedded broker counts the re-authentications for these tests. test_reauthentication_like_kafka runs the
same clients on a real Kafka and on the embedded broker.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass

import pytest

from kproto.testing.certificates import certificates
from kproto.testing.secured import SecuredKafka, secured
from tests.conformance import judges
from tests.conformance.secured_clients import ALL, SecuredMember, members, order

pytest.importorskip("trustme")
pytestmark = [pytest.mark.clients, pytest.mark.java, pytest.mark.originals]
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# A client that does not re-authenticate. It opens a new connection when the broker has closed the old one.
# test_reauthentication_like_kafka checks this on a real Kafka, too.
NEVER = {"aiokafka"}
MODULES = {"librdkafka": "confluent_kafka", "kafka-python": "kafka", "aiokafka": "aiokafka"}
LOGIN = ("alice", "alice-secret")
SESSION_MS = 3_000


@dataclass(frozen=True)
class Outcome:
    """The mechanisms whose clients re-authenticated or reconnected, and the values that were read.

    `renewed` contains the mechanisms whose client re-authenticated a session. `returned` contains those whose
    client opened a new connection instead. `read` maps each mechanism to the values that its member read.

    `written` lists the values written after the re-authentications.
    """

    renewed: set[str]
    returned: set[str]
    read: dict[str, set[str]]
    written: set[str]


def collect_mechanisms(
    kafka: SecuredKafka, renewed: set[str], first: dict[int, str], returned: set[str]
) -> None:
    """Add the mechanisms that re-authenticated to `renewed`, and those that reconnected to `returned`."""
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
def outcome(client: str, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("renewals")
    files = certificates(folder)
    settings = {"connections.max.reauth.ms": str(SESSION_MS), "group.initial.rebalance.delay.ms": "0"}
    with secured("SASL_SSL", files, users=dict([LOGIN]), settings=settings) as kafka:
        kafka.create_topic("flights", 4)
        place = kafka.bootstrap
        orders = {how: order(client, place, files.ca, how, LOGIN, "g", folder) for how in MECHANISMS}
        with members(orders) as started:
            return observe(client, kafka, started)


def observe(client: str, kafka: SecuredKafka, members: dict[str, SecuredMember]) -> Outcome:
    first_member = next(iter(members.values()))

    def every_member_owns_a_partition() -> bool:
        group = kafka.group("g")
        return group.state == "Stable" and len(set(group.owners.values())) == len(members)

    first_member.until(every_member_owns_a_partition)
    first = dict.fromkeys(kafka.server.broker.connections, "")
    renewed: set[str] = set()
    returned: set[str] = set()
    wanted = returned if client in NEVER else renewed
    end = time.monotonic() + 60
    while len(wanted) < len(members) and time.monotonic() < end:
        collect_mechanisms(kafka, renewed, first, returned)
        time.sleep(0.05)
    written: set[str] = set()
    # Records are written until each member has read some. On a busy machine the session of a member may
    # expire, and another member then reads its partitions.
    for round_number in range(10):
        first_member.until(every_member_owns_a_partition)
        for partition in range(4):
            value = f"after {round_number}-{partition}"
            kafka.produce("flights", value, partition=partition)
            written.add(value)
        end = time.monotonic() + 20
        while time.monotonic() < end and not written <= set().union(*(m.read for m in members.values())):
            time.sleep(0.05)
        if all(member.read for member in members.values()):
            break
    return Outcome(renewed, returned, {how: set(member.read) for how, member in members.items()}, written)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_session_over_tls_is_reauthenticated(client: str, outcome: Outcome, mechanism: str) -> None:
    if client in NEVER:
        assert mechanism not in outcome.renewed
        assert mechanism in outcome.returned
    else:
        assert mechanism in outcome.renewed
    assert outcome.read[mechanism]


def test_no_record_is_missed_during_reauthentication(outcome: Outcome) -> None:
    assert set().union(*outcome.read.values()) >= outcome.written
