"""Authentication and authorization errors name their cause, on a real Kafka and on the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from kproto.errors import AuthenticationFailed, ConnectionFailed, NotAuthorized
from tests.conformance.secured_kafka import USERS
from tests.conformance.security_errors import BROKERS, CASES, SECRETS, Case, options, run_broker


@pytest.fixture(scope="module", params=BROKERS)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with run_broker(request.param, tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.mark.parametrize("by", ["threads", "asyncio"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_authentication_error_names_its_cause(kafka: Any, case: Case, by: str) -> None:
    options, place = case.options(kafka), kafka.places[case.listener]

    async def asking() -> None:
        async with AsyncAdmin(place, timeout=20, **options) as cluster:
            await cluster.topics()

    def ask() -> None:
        if by == "asyncio":
            asyncio.run(asyncio.wait_for(asking(), 60))
        else:
            with Admin(place, timeout=20, **options) as cluster:
                cluster.topics()

    with pytest.raises(AuthenticationFailed if case.final else ConnectionFailed, match=case.words) as caught:
        ask()
    assert not [secret for secret in SECRETS if secret in str(caught.value)]


def test_an_authentication_error_is_reported_once(kafka: Any) -> None:
    credentials = options(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-256", sasl_password="wr0ng-secret")
    reports: list[Any] = []
    with Consumer(kafka.places["SASL_PLAINTEXT"], group_id="told", **credentials) as consumer:
        consumer.events(reports.append)
        consumer.subscribe(["flights"])
        for _ in range(2):  # A repeated call raises the same error.
            with pytest.raises(AuthenticationFailed, match="are sasl_username and sasl_password right"):
                consumer.poll(20)
    assert len([report for report in reports if "sasl_password" in str(report)]) <= 1


def test_an_authorization_error_names_the_missing_acl(kafka: Any) -> None:
    how = options(kafka, "SASL_PLAINTEXT", "PLAIN", sasl_username="bob", sasl_password=USERS["bob"])
    place = kafka.places["SASL_PLAINTEXT"]
    with Consumer(place, group_id="bobs", **how) as consumer:
        consumer.subscribe(["flights"])
        with pytest.raises(NotAuthorized, match=r"flights|bobs") as caught:
            consumer.poll(20)
    assert "needs an ACL that allows" in str(caught.value)
    with (
        Producer(place, **how) as producer,
        pytest.raises(NotAuthorized, match=r"WRITE"),
    ):
        producer.send("flights", b"x").result(20)


def test_an_authorization_error_in_asyncio_names_the_missing_acl(kafka: Any) -> None:
    how = options(kafka, "SASL_PLAINTEXT", "PLAIN", sasl_username="bob", sasl_password=USERS["bob"])
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
