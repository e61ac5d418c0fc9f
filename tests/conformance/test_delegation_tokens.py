"""With delegation tokens, Java's client logs in to the embedded broker, and kproto's to a real Kafka."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from consumer import AclBinding, Admin
from consumer.security import SecurityConfig
from kproto import running
from kproto.cli import main
from kproto.errors import AuthenticationFailed, BrokerError
from kproto.testing import brokers
from tests.conformance import judges
from tests.conformance.admin_calls import until
from tests.conformance.kafka_tools import exit_code, tool

SETTINGS = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
}
PASSWORD: SecurityConfig = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "pw",
}
LISTEN = ("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0")


@pytest.mark.java
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_javas_client_has_the_permissions_of_the_owner(
    kafka_jars: str, tmp_path: Path, mechanism: str
) -> None:
    with running({"flights": 1, "secret": 1}, SETTINGS, listen=LISTEN, users={"alice": "pw"}) as server:
        place = server.places["SASL_PLAINTEXT"]
        with Admin(server.bootstrap) as admin:
            admin.create_acls([AclBinding("topic", "flights", "User:alice", "describe")])
        with Admin(place, **PASSWORD) as alice:
            token = alice.create_delegation_token()
        file = tmp_path / "client.properties"
        password = b64encode(token.hmac).decode()

        def arguments(password: str) -> list[str]:
            file.write_text(
                f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{token.token_id}" password="{password}" tokenauth="true";\n'
            )
            return ["--list", "--bootstrap-server", place, "--command-config", str(file)]

        assert tool(kafka_jars, "TopicCommand", *arguments(password)).split() == ["flights"]
        assert exit_code(kafka_jars, "TopicCommand", *arguments("wrong")) != 0


@pytest.mark.java
def test_the_command_prints_what_kafkas_tool_prints(
    kafka_jars: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="pw";\n'
    )
    with running(settings=SETTINGS, listen=LISTEN, users={"alice": "pw"}) as server:
        place = ["--bootstrap-server", server.places["SASL_PLAINTEXT"], "--command-config", str(file)]

        def theirs(words: str) -> list[list[str]]:
            """Run Kafka's tool, and return the words of its lines, without the first line ("Calling ...")."""
            printed = tool(kafka_jars, "DelegationTokenCommand", *words.split(), *place)
            return [line.split() for line in printed.splitlines() if line.strip()][1:]

        def ours(words: str) -> list[list[str]]:
            assert main(["tokens", *words.split(), *place]) == 0
            return [line.split() for line in capsys.readouterr().out.splitlines()]

        periods = "--renewer-principal User:bob --renewer-principal User:carol --max-life-time-period"
        [_, titles, row] = theirs(f"--create {periods} 86400000")
        [_, our_titles, our_row] = ours(f"create {periods} 24h")
        assert our_titles == titles
        assert our_row[2:6] == row[2:6] == ["User:alice", "User:alice", "[User:bob,", "User:carol]"]
        for name in ("alice", "carol", "dave"):
            words = f"--owner-principal User:{name}"
            assert sorted(ours(f"describe {words}")) == sorted(theirs(f"--describe {words}"))
        renew = f"--hmac {row[1]} --renew-time-period"
        assert ours(f"renew {renew} 3600000") == theirs(f"--renew {renew} 3600000")
        expire = f"--hmac {row[1]} --expiry-time-period -1"
        assert ours(f"expire {expire} --execute")[0][:6] == [
            "Completed",
            "expire",
            "operation.",
            "New",
            "expiry",
            "date",
        ]
        assert exit_code(kafka_jars, "DelegationTokenCommand", "--expire", *expire.split(), *place) == 1
        assert main(["tokens", "expire", *expire.split(), *place, "--execute"]) == 1


@pytest.mark.kafka
def test_our_client_logs_in_at_kafka_with_a_token() -> None:
    port = judges.free_port()
    listener, security = "listener.name.sasl_plaintext", "org.apache.kafka.common.security"
    properties = {
        "delegation.token.secret.key": "secret",
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{listener}.plain.sasl.jaas.config": (
            f'{security}.plain.PlainLoginModule required user_alice="pw";'
        ),
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{security}.scram.ScramLoginModule required;",
    }
    try:
        with brokers.jars(properties, listeners={"SASL_PLAINTEXT": port}):
            with Admin(f"localhost:{port}", **PASSWORD) as alice:
                token = alice.create_delegation_token()
                until(lambda: alice.describe_delegation_token())
            login: SecurityConfig = {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": token.token_id,
                "sasl_password": b64encode(token.hmac).decode(),
                "sasl_token_auth": True,
            }
            with Admin(f"localhost:{port}", **login) as admin:
                assert admin.topics() == {}
                with pytest.raises(BrokerError, match="REQUEST_NOT_ALLOWED"):
                    admin.create_delegation_token()
            without: SecurityConfig = {**login, "sasl_token_auth": False}
            with Admin(f"localhost:{port}", **without) as admin, pytest.raises(AuthenticationFailed):
                admin.topics()
    except brokers.BrokerMissing as error:
        judges.missing(str(error))
