"""Who was let in, and is not any more: told by name, nothing is lost unsaid, and it goes on when it may."""

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


def forever(ask: Callable[[], object]) -> None:
    while True:
        ask()


def test_a_renewal_that_is_refused_loses_nothing_that_was_acknowledged_and_tells_the_rest(
    kafka: SecuredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    """While a fetch and a produce are always under way."""
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
                consumer.poll(0.01)
            except AuthenticationFailed as error:
                poll_refused = REFUSED in str(error)
            sent.append(producer.send("t", b"%d" % len(sent)))
            waiting.append(sent[-1])
            while waiting and waiting[0].done():
                send_refused = waiting.pop(0).exception() is not None or send_refused
        sent += [producer.send("t", b"last") for _ in range(3)]
        with pytest.raises(NotDelivered, match=REFUSED):
            producer.flush()
    there = {record.offset: record.value for record in kafka.records("t")}
    told = [delivery.exception() for delivery in sent]
    assert all(error is None or isinstance(error, AuthenticationFailed) for error in told)
    acknowledged = [delivery.result().offset for delivery in sent if delivery.exception() is None]
    assert set(acknowledged) <= there.keys()
    lines = [line for line in caplog.messages if "undelivered" in line]
    assert len(lines) == 1, lines  # of hundreds of batches


def test_who_comes_back_after_the_password_changed_is_refused_and_goes_on_when_it_is_right(
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
                forever(ask)
        kafka.set_password("alice", "secret")
        delivery = producer.send("t", b"after")
        while isinstance(delivery.exception(30), AuthenticationFailed):  # of the last try before
            delivery = producer.send("t", b"after")
        found: list[bytes | None] = []
        while b"after" not in found:
            with contextlib.suppress(AuthenticationFailed):
                found += [record.value for record in consumer.poll(1.0)]
    assert found == [b"after"]


@pytest.mark.thorough
def test_tokens_that_end_soon_are_renewed_without_a_word(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with secured("SASL_SSL", files) as kafka:
        kafka.create_topic("t")
        asked: list[str] = []

        def token() -> str:
            # Renewed when 85 to 95 % of their time are over: what is left a busy machine needs.
            asked.append(kafka.token("alice", 3.0))
            return asked[-1]

        how: Any = {**kafka.options("alice", mechanism="OAUTHBEARER"), "sasl_oauth_token_provider": token}
        with (
            Producer(kafka.bootstrap, linger_ms=0, **how) as producer,
            Consumer(kafka.bootstrap, auto_offset_reset="earliest", **how) as consumer,
        ):
            consumer.assign([T0])
            sent, read = list[Delivery](), list[bytes | None]()
            while len(asked) < 6:  # two clients, three tokens each
                sent.append(producer.send("t", b"%d" % len(sent)))
                read += [record.value for record in consumer.poll(0.01)]
            producer.flush()
            while len(read) < len(sent):
                read += [record.value for record in consumer.poll(1.0)]
    assert read == [b"%d" % number for number in range(len(sent))]
    assert [line for line in caplog.messages if "undelivered" in line or "unreachable" in line] == []
