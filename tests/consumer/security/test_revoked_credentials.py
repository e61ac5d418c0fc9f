"""Running clients whose password a broker changes raise errors that name the options to correct.

Undelivered records are logged. The clients continue when their password is accepted again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer import Consumer, Delivery, Producer, TopicPartition
from kproto.errors import AuthenticationFailed, NotDelivered
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.secured import SecuredKafka, secured

pytest.importorskip("trustme")
REFUSED = "are sasl_username and sasl_password right"
T0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def kafka(files: Certificates) -> Iterator[SecuredKafka]:
    settings = {"connections.max.reauth.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
    with secured("SASL_SSL", files, users={"alice": "secret"}, settings=settings) as kafka:
        kafka.create_topic("t")
        yield kafka


def repeat(ask: Callable[[], object]) -> None:
    while True:
        ask()


def test_a_rejected_renewal_loses_no_acknowledged_record_and_fails_the_others(
    kafka: SecuredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """When a session cannot be renewed, no acknowledged record is lost, and all other records fail.

    A Fetch or Produce request is always in flight, so the broker's rejection of the renewal also interrupts
    requests.
    """
    how: Any = kafka.options("alice", "secret")
    sent: list[Delivery] = []
    with (
        Producer(kafka.bootstrap, linger_ms=0, **how) as producer,
        Consumer(kafka.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=500, **how) as consumer,
    ):
        consumer.assign([T0])
        sent.append(producer.send("t", b"0"))
        sent[0].result(30)
        kafka.set_password("alice", "another")
        waiting: list[Delivery] = []
        poll_refused = send_refused = False
        while not (poll_refused and send_refused):
            try:
                consumer.poll(0.03)
            except AuthenticationFailed as error:
                poll_refused = REFUSED in str(error)
            sent.append(producer.send("t", b"%d" % len(sent)))
            waiting.append(sent[-1])
            while waiting and waiting[0].done():
                send_refused = waiting.pop(0).exception() is not None or send_refused
        sent += [producer.send("t", b"last") for _ in range(3)]
        with pytest.raises(NotDelivered, match=REFUSED):
            producer.flush()
    stored = {record.offset: record.value for record in kafka.records("t")}
    errors = [delivery.exception() for delivery in sent]
    assert all(error is None or isinstance(error, AuthenticationFailed) for error in errors)
    acknowledged = [delivery.result().offset for delivery in sent if delivery.exception() is None]
    assert set(acknowledged) <= stored.keys()
    lines = [line for line in caplog.messages if "undelivered" in line]
    assert len(lines) == 1, lines  # Hundreds of undelivered batches share one log line.


def test_clients_continue_after_the_password_is_correct_again(
    kafka: SecuredKafka,
) -> None:
    how: Any = kafka.options("alice", "secret")
    with (
        Producer(kafka.bootstrap, linger_ms=0, **how) as producer,
        Consumer(kafka.bootstrap, group_id="g", auto_offset_reset="earliest", **how) as consumer,
    ):
        consumer.subscribe(["t"])
        producer.send("t", b"before").result(30)
        assert next(iter(consumer)).value == b"before"
        kafka.set_password("alice", "another")
        kafka.drop_connections()
        for ask in (lambda: consumer.poll(30), lambda: producer.send("t", b"lost").result(30)):
            with pytest.raises(AuthenticationFailed, match=REFUSED):
                repeat(ask)
        kafka.set_password("alice", "secret")
        delivery = producer.send("t", b"after")
        # The first deliveries may still fail with the error of the last login before the password was
        # restored.
        while isinstance(delivery.exception(30), AuthenticationFailed):
            delivery = producer.send("t", b"after")
        values: list[bytes | None] = []
        while b"after" not in values:
            with contextlib.suppress(AuthenticationFailed):
                values += [record.value for record in consumer.poll(1.0)]
    assert values == [b"after"]


@pytest.mark.thorough
def test_short_lived_tokens_are_renewed_without_an_error(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with secured("SASL_SSL", files) as kafka:
        kafka.create_topic("t")
        tokens: list[str] = []

        def token() -> str:
            # Each token is valid for 3 s. A session is renewed with a new token after 85 to 95 % of this
            # time. The remaining time suffices for the renewal on a busy machine.
            tokens.append(kafka.token("alice", 3.0))
            return tokens[-1]

        how: Any = {**kafka.options("alice", mechanism="OAUTHBEARER"), "sasl_oauth_token_provider": token}
        with (
            Producer(kafka.bootstrap, linger_ms=0, **how) as producer,
            Consumer(kafka.bootstrap, auto_offset_reset="earliest", **how) as consumer,
        ):
            consumer.assign([T0])
            sent, read = list[Delivery](), list[bytes | None]()
            while len(tokens) < 6:  # By then each of the two clients has renewed its token twice.
                sent.append(producer.send("t", b"%d" % len(sent)))
                read += [record.value for record in consumer.poll(0.01)]
            producer.flush()
            while len(read) < len(sent):
                read += [record.value for record in consumer.poll(1.0)]
    assert read == [b"%d" % number for number in range(len(sent))]
    assert [line for line in caplog.messages if "undelivered" in line or "unreachable" in line] == []
