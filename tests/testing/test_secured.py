"""The fixture `kafka_secured` authenticates and authorizes clients, and a test can cause faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, Consumer, Producer, TopicPartition
from consumer.security import Token
from kproto.errors import (
    AuthenticationFailed,
    BrokerError,
    ConfigError,
    ConnectionFailed,
    NotAuthorized,
)
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.issuer import Issuer, issuing
from kproto.testing.kafka import AsyncKafka
from kproto.testing.plugin import kafka_secured
from kproto.testing.secured import SecuredKafka, allow, deny

pytest.importorskip("trustme")
__all__ = ["kafka_secured"]
MakeKafka = Callable[..., SecuredKafka]
USERS = {"alice": "alice-secret"}
WRONG: Any = {"topics": "t"}
SOON = {"connections.max.reauth.ms": "500"}


@pytest.fixture(scope="session")
def _kafka_certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("kafka"))


def topics(kafka: SecuredKafka, **options: Any) -> dict[str, int]:
    all_options = {"timeout": 20, **kafka.options("alice", "alice-secret"), **options}
    with Admin(kafka.bootstrap, **all_options) as cluster:
        return cluster.topics()


def authentication_error(cluster: Admin) -> str:
    """Repeat a request, as a service does, until the cluster rejects the login. Return the error's text."""
    while True:
        try:
            cluster.topics()
        except ConnectionFailed:
            continue
        except AuthenticationFailed as error:
            return str(error)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_client_logs_in_and_the_fixture_reads_its_records(kafka_secured: MakeKafka, mechanism: str) -> None:
    kafka = kafka_secured("SASL_SSL", users=USERS)
    kafka.create_topic("t")
    with Producer(kafka.bootstrap, **kafka.options("alice", "alice-secret", mechanism)) as producer:
        producer.send("t", b"x").result(20)
    assert [record.value for record in kafka.records("t")] == [b"x"]


def test_the_async_kafka_is_awaited(kafka_secured: MakeKafka) -> None:
    import asyncio

    kafka = AsyncKafka(kafka_secured("SSL"))
    asyncio.run(kafka.create_topic("t"))
    assert kafka.bootstrap != ""


def test_a_client_sends_its_certificate_if_the_broker_requires_it(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SSL", client_auth="required")
    with Admin(kafka.bootstrap, **kafka.options()) as cluster:
        assert cluster.topics() == {}
    with (
        Admin(kafka.bootstrap, security_protocol="SSL", ssl_cafile=kafka.certificates.ca) as cluster,
        pytest.raises(AuthenticationFailed, match=r"alert certificate required.*set ssl_certfile"),
    ):
        cluster.topics()


def test_an_expired_certificate_is_rejected(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_SSL", users=USERS)
    assert topics(kafka) == {}
    kafka.show_certificate("expired")
    with pytest.raises(AuthenticationFailed, match="has expired"):
        topics(kafka)
    kafka.show_certificate("server")
    assert topics(kafka) == {}


def test_a_connected_client_sees_a_new_certificate_when_it_reconnects(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_SSL", users=USERS)
    with Admin(kafka.bootstrap, timeout=20, **kafka.options("alice", "alice-secret")) as cluster:
        assert cluster.topics() == {}
        kafka.show_certificate("elsewhere")
        assert cluster.topics() == {}
        kafka.drop_connections()
        assert "not for the host name" in authentication_error(cluster)


def test_a_changed_password_applies_when_the_session_ends(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_PLAINTEXT", users=USERS, settings=SOON)
    with Admin(kafka.bootstrap, timeout=20, **kafka.options("alice", "alice-secret")) as cluster:
        assert cluster.topics() == {}
        kafka.set_password("alice", "another")
        assert "rejects user 'alice'" in authentication_error(cluster)
    with Admin(kafka.bootstrap, **kafka.options("alice", "another")) as cluster:
        assert cluster.topics() == {}


def test_a_removed_user_cannot_log_in(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_PLAINTEXT", users=USERS)
    assert topics(kafka) == {}
    kafka.remove_user("alice")
    with pytest.raises(AuthenticationFailed, match="rejects user 'alice'"):
        topics(kafka)


def test_an_expired_token_is_rejected(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_PLAINTEXT")
    seconds = 60
    options = {**kafka.options("alice", mechanism="OAUTHBEARER")}
    # The provider reports an expiry time far in the future, because a client sends no token that it knows to
    # be expired.
    options["sasl_oauth_token_provider"] = lambda: Token(kafka.token("alice", seconds), 1e11)
    with Admin(kafka.bootstrap, timeout=20, **options) as cluster:
        assert cluster.topics() == {}
    seconds = -60
    with (
        Admin(kafka.bootstrap, timeout=20, **options) as cluster,
        pytest.raises(AuthenticationFailed, match="rejects the token"),
    ):
        cluster.topics()


def test_acls_allow_and_deny_operations(kafka_secured: MakeKafka) -> None:
    rules = [*allow("alice", "WRITE", "READ", topic="in", prefixed=True), *deny("alice", "ALL", topic="in-2")]
    kafka = kafka_secured("SASL_PLAINTEXT", users=USERS, acls=rules)
    for name in ("in-1", "in-2"):
        kafka.create_topic(name)
    options = kafka.options("alice", "alice-secret")
    with Producer(kafka.bootstrap, **options) as producer:
        producer.send("in-1", b"x").result(20)
        with pytest.raises(NotAuthorized, match="in-2"):
            producer.send("in-2", b"x").result(20)
    with Consumer(kafka.bootstrap, group_id="g", auto_offset_reset="earliest", **options) as consumer:
        consumer.subscribe(["in-1"])
        with pytest.raises(NotAuthorized, match=r"DESCRIBE \(or READ\) on the group"):
            consumer.poll(20)
    kafka.add(allow("alice", "DESCRIBE", group="g"))
    with Consumer(kafka.bootstrap, group_id="g", auto_offset_reset="earliest", **options) as consumer:
        consumer.subscribe(["in-1"])
        with pytest.raises(NotAuthorized, match=r"JoinGroup: .* an ACL that allows READ on the group"):
            consumer.poll(20)
    kafka.add(allow("alice", "READ", group="g"))
    with Consumer(kafka.bootstrap, group_id="g", auto_offset_reset="earliest", **options) as consumer:
        consumer.subscribe(["in-1"])
        assert next(iter(consumer)).value == b"x"


def test_removed_acls_apply_to_connected_clients(kafka_secured: MakeKafka) -> None:
    """The removal of ACLs takes effect for clients that are already connected.

    The consumer remains a member, and the producer aborts one transaction. Both continue when the ACLs are
    added again.
    """
    reads, writes = allow("alice", "READ", topic="t"), allow("alice", "WRITE", topic="t")
    rules = [
        *reads,
        *writes,
        *allow("alice", "READ", group="g"),
        *allow("alice", "WRITE", transactional_id="x"),
    ]
    kafka = kafka_secured("SASL_PLAINTEXT", users=USERS, acls=rules)
    kafka.create_topic("t")
    options = kafka.options("alice", "alice-secret")
    with (
        Consumer(kafka.bootstrap, group_id="g", auto_offset_reset="earliest", **options) as consumer,
        Producer(kafka.bootstrap, transactional_id="x", **options) as producer,
    ):
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(1)
        kafka.remove([*reads, *writes])
        with pytest.raises(NotAuthorized, match=r"an ACL that allows .* on the topic"):
            next(iter(consumer))
        with (
            pytest.raises(NotAuthorized, match=r"an ACL that allows .* on the topic"),
            producer.transaction(),
        ):
            producer.send("t", b"x").result(20)
        assert consumer.assignment() == {TopicPartition("t", 0)}
        kafka.add([*reads, *writes])
        with producer.transaction():
            producer.send("t", b"y")
        assert next(iter(consumer)).value == b"y"
    with pytest.raises(ConfigError, match="only rules that exist, exactly as"):
        kafka.remove(allow("alice", "READ", topic="another"))


def test_with_empty_acls_only_the_tests_own_calls_are_allowed(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_PLAINTEXT", users=USERS, acls=[])
    kafka.create_topic("t")
    assert topics(kafka) == {}
    assert kafka.cluster.topics() == {"t": 1}


def test_acls_are_rejected_without_an_authorizer(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_PLAINTEXT", users=USERS)
    with pytest.raises(BrokerError, match="CreateAcls"):
        kafka.add(allow("alice", "READ", topic="t"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: allow("alice", "READ"), "one of topic, group, transactional_id and cluster"),
        (lambda: allow("alice", topic="t"), "operations=None is not allowed; allowed: ALL, READ"),
        (lambda: allow("alice", "read", topic="t"), "operations='read'"),
        (lambda: allow("alice", "READ", **WRONG), "topics='t' is not allowed; a resource: topic, group"),
        (lambda: allow("alice", "READ", topic=["t"]), "topic=['t'] is not allowed; a text"),  # type: ignore[arg-type]
        (lambda: allow(None, "READ", topic="t"), "user=None"),  # type: ignore[arg-type]
    ],
)
def test_a_rule_without_a_resource_is_rejected(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert message in str(caught.value)


def test_a_user_may_be_written_as_kafka_writes_principals() -> None:
    assert allow("User:alice", "READ", topic="t") == allow("alice", "READ", topic="t")


@pytest.mark.parametrize("acls", [["READ"], "READ", 5])
def test_an_invalid_rule_is_rejected(kafka_secured: MakeKafka, acls: Any) -> None:
    with pytest.raises(ConfigError, match=r"acls=.* is not allowed; rules, as"):
        kafka_secured("SASL_PLAINTEXT", acls=acls)


@pytest.mark.parametrize("client_auth", [True, "REQUIRED"])
def test_client_auth_without_tls_is_rejected(kafka_secured: MakeKafka, client_auth: Any) -> None:
    with pytest.raises(ConfigError, match=r"client_auth=.*; allowed: none, requested, required"):
        kafka_secured("SSL", client_auth=client_auth)


@pytest.mark.parametrize("which", ["wrong", "ca"])
def test_only_a_server_certificate_can_be_shown(kafka_secured: MakeKafka, which: Any) -> None:
    kafka = kafka_secured("SSL")
    with pytest.raises(ConfigError, match="allowed: server, expired, elsewhere"):
        kafka.show_certificate(which)


def test_the_password_of_an_unknown_user_cannot_be_changed(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_PLAINTEXT", users=USERS)
    with pytest.raises(ConfigError, match="user='nobody' is not allowed; known users: alice"):
        kafka.set_password("nobody", "x")
    with pytest.raises(ConfigError, match="user='nobody' is not allowed; known users: alice"):
        kafka.remove_user("nobody")


def test_an_unknown_protocol_is_rejected(kafka_secured: MakeKafka) -> None:
    with pytest.raises(ConfigError, match="security='PLAINTEXT' is not allowed; allowed: SSL"):
        kafka_secured("PLAINTEXT")


def test_no_repr_has_a_password(kafka_secured: MakeKafka) -> None:
    kafka = kafka_secured("SASL_PLAINTEXT", users=USERS)
    for shown in (kafka, kafka.server, kafka.server.users, kafka.server.broker, vars(kafka)):
        assert USERS["alice"] not in repr(shown)
    assert Path(kafka.certificates.ca).exists()


def test_tokens_of_another_issuer_are_rejected(kafka_secured: MakeKafka) -> None:
    pytest.importorskip("jwt")
    issuer = Issuer(algorithm="ES256")
    kafka = kafka_secured("SASL_PLAINTEXT", issuer=issuer)
    options = {**kafka.options("alice", mechanism="OAUTHBEARER"), "timeout": 20}
    with Admin(kafka.bootstrap, **options) as cluster:
        assert cluster.topics() == {}
    options["sasl_oauth_token_provider"] = lambda: Issuer(algorithm="ES256").token("alice")
    with (
        pytest.raises(AuthenticationFailed, match="the token"),
        Admin(kafka.bootstrap, **options) as cluster,
    ):
        cluster.topics()


def test_an_issuer_issues_tokens_and_may_change_its_key(kafka_secured: MakeKafka) -> None:
    pytest.importorskip("jwt")
    with issuing({"orders": "s3cr3t"}, algorithm="ES256") as issuer:
        kafka = kafka_secured("SASL_PLAINTEXT", issuer=issuer)
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": issuer.token_url,
            "sasl_oauthbearer_client_id": "orders",
            "sasl_oauthbearer_client_secret": "s3cr3t",
        }
        for _ in range(2):
            with Admin(kafka.bootstrap, timeout=20, **options) as cluster:
                assert cluster.topics() == {}
            issuer.new_key()
    assert issuer.requested_forms == [{"grant_type": "client_credentials"}] * 2
    assert "s3cr3t" not in repr(issuer)
