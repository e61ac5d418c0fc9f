"""Who is not let in, or may not do what it asks, hears why: a real Kafka and our broker, both clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer import AsyncCluster, AsyncConsumer, AsyncProducer, Cluster, Consumer, Producer
from consumer.security import Token
from kproto.errors import AuthenticationFailed, ConnectionFailed, NotAuthorized
from kproto.security.oauthbearer import unsecured_token

secured = pytest.importorskip("tests.conformance.secured")
SECRETS = ("wr0ng-secret", *secured.USERS.values())


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param("real", marks=[pytest.mark.kafka, pytest.mark.java])],
)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("secured")
    if request.param == "embedded":
        with secured.embedded_kafka(folder) as broker:
            yield broker
        return
    with secured.real_kafka(folder) as broker:
        with Cluster(broker.places["PLAINTEXT"], timeout=60) as cluster:
            cluster.create_topics({"flights": 1})
        yield broker


def options(kafka: Any, listener: str, mechanism: str = "", **changes: Any) -> dict[str, Any]:
    """What gets in at a listener, and then what a test changes; None: without it."""
    protocol = {"PLAINTEXT": "PLAINTEXT", **secured.LISTENERS}[listener]
    protocol = changes.pop("security_protocol", protocol)
    given: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        given["ssl_cafile"] = kafka.certificates.ca
    if protocol.startswith("SASL"):
        given["sasl_mechanism"] = mechanism or "PLAIN"
        if mechanism != "OAUTHBEARER":
            given |= {"sasl_username": "alice", "sasl_password": secured.USERS["alice"]}
    given |= {
        name: value(kafka) if callable(value) and name.startswith("ssl") else value
        for name, value in changes.items()
    }
    return {name: value for name, value in given.items() if value is not None}


def token(seconds: float) -> Callable[[], str]:
    """Gives a token that begins then."""
    return lambda: unsecured_token("alice", int((time.time() + seconds) * 1000), 60_000)


WRONG = {"sasl_password": "wr0ng-secret"}
NOBODY = {"sasl_username": "nobody"}
REFUSED = [
    *(
        (
            f"a wrong password by {mechanism}",
            "SASL_SSL",
            mechanism,
            WRONG,
            rf"refuses user 'alice' with {mechanism}.*are sasl_username and",
        )
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ),
    (
        "a stranger",
        "SASL_PLAINTEXT",
        "SCRAM-SHA-256",
        NOBODY,
        r"refuses user 'nobody'.*are sasl_username and",
    ),
    (
        "a mechanism that is not offered",
        "PLAIN_ONLY",
        "SCRAM-SHA-512",
        {},
        "SCRAM-SHA-512 is not offered here; there are: PLAIN$",
    ),
    (
        "a token of tomorrow",
        "SASL_SSL",
        "OAUTHBEARER",
        {"sasl_oauth_token_provider": token(3600)},
        r"refuses the token.*has it run out \(do the clocks agree\?\)",
    ),
    (
        "a token of yesterday",
        "SASL_SSL",
        "OAUTHBEARER",
        {"sasl_oauth_token_provider": token(-3600)},
        "ran out .* s ago by this machine's clock",
    ),
    (
        "a token that lasts by the client's clock, and by the broker's skew only",
        "SKEWED",
        "OAUTHBEARER",
        {"sasl_oauth_token_provider": lambda: Token(token(-90)(), 1e11)},
        "let the token in, and closed the connection on the first request: has it run out by the broker's",
    ),
    ("no token", "SASL_SSL", "OAUTHBEARER", {"sasl_oauth_token_provider": lambda: "x"}, "refuses the token"),
    (
        "no SASL where it is wanted",
        "SASL_PLAINTEXT",
        "",
        {"security_protocol": "PLAINTEXT"},
        "does this listener want SASL",
    ),
    ("SASL where none is wanted", "PLAINTEXT", "", {"security_protocol": "SASL_PLAINTEXT"}, "wants no SASL"),
    ("no TLS where it is spoken", "SSL", "", {"security_protocol": "PLAINTEXT"}, "this port speaks TLS"),
    (
        "SASL without TLS where both are wanted",
        "SASL_SSL",
        "",
        {"security_protocol": "SASL_PLAINTEXT"},
        "this port speaks TLS",
    ),
    ("TLS where none is spoken", "PLAINTEXT", "", {"security_protocol": "SSL"}, "does this port speak TLS"),
    (
        "an unknown authority",
        "SSL",
        "",
        {"ssl_cafile": None},
        "nobody known vouches for the certificate of localhost.*set ssl_cafile",
    ),
    (
        "a certificate that has expired",
        "EXPIRED",
        "",
        {},
        "the certificate of localhost has expired: renew it on the broker",
    ),
    ("another host's certificate", "ELSEWHERE", "", {}, "the certificate is not for the host name localhost"),
    ("no client certificate", "MTLS", "", {}, "it may ask for a client certificate; set ssl_certfile"),
    (
        "a stranger's client certificate",
        "MTLS",
        "",
        {"ssl_certfile": lambda kafka: kafka.certificates.stranger},
        "refuses this client's certificate",
    ),
]


@pytest.mark.parametrize("by", ["threads", "asyncio"])
@pytest.mark.parametrize(
    ("listener", "mechanism", "how", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_who_is_not_let_in_hears_why(
    kafka: Any, listener: str, mechanism: str, how: dict[str, Any], words: str, by: str
) -> None:
    given = options(kafka, listener, mechanism, **how)
    place = kafka.places[listener]

    async def asking() -> None:
        async with AsyncCluster(place, timeout=20, **given) as cluster:
            await cluster.topics()

    def ask() -> None:
        if by == "asyncio":
            asyncio.run(asyncio.wait_for(asking(), 60))
        else:
            with Cluster(place, timeout=20, **given) as cluster:
                cluster.topics()

    with pytest.raises((AuthenticationFailed, ConnectionFailed), match=words) as told:
        ask()
    assert not [secret for secret in SECRETS if secret in str(told.value)]


def test_who_is_refused_is_told_so_once_and_asks_no_more(kafka: Any) -> None:
    given = options(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-256", **WRONG)
    reports: list[Any] = []
    with Consumer(kafka.places["SASL_PLAINTEXT"], group_id="told", **given) as consumer:
        consumer.events(reports.append)
        consumer.subscribe(["flights"])
        for _ in range(2):  # whoever asks again hears the same
            with pytest.raises(AuthenticationFailed, match="are sasl_username and sasl_password right"):
                consumer.poll(20)
    assert len([one for one in reports if "sasl_password" in str(one)]) <= 1


def test_who_may_do_nothing_hears_which_rule_is_missing(kafka: Any) -> None:
    how = options(kafka, "SASL_PLAINTEXT", "PLAIN", sasl_username="bob", sasl_password=secured.USERS["bob"])
    place = kafka.places["SASL_PLAINTEXT"]
    with Consumer(place, group_id="bobs", **how) as consumer:
        consumer.subscribe(["flights"])
        with pytest.raises(NotAuthorized, match=r"flights|bobs") as told:
            consumer.poll(20)
    assert "needs an ACL that allows" in str(told.value)
    with (
        Producer(place, **how) as producer,
        pytest.raises(NotAuthorized, match=r"WRITE"),
    ):
        producer.send("flights", b"x").result(20)


def test_and_so_it_is_by_asyncio(kafka: Any) -> None:
    how = options(kafka, "SASL_PLAINTEXT", "PLAIN", sasl_username="bob", sasl_password=secured.USERS["bob"])
    place = kafka.places["SASL_PLAINTEXT"]

    async def consuming() -> None:
        async with AsyncConsumer(place, group_id="bobs", **how) as consumer:
            consumer.subscribe(["flights"])
            await consumer.poll(20)

    async def producing() -> None:
        async with AsyncProducer(place, **how) as producer:
            await (await producer.send("flights", b"x"))

    for work in (consuming, producing):
        with pytest.raises(NotAuthorized, match="needs an ACL that allows"):
            asyncio.run(asyncio.wait_for(work(), 60))
