"""A client of Java logs in at the embedded broker with a delegation token."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from consumer import AclBinding, Admin
from kproto import running
from tests.conformance.kafka_tools import exit_code, tool

SETTINGS = {
    "authorizer.class.name": "StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
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
        with Admin(
            place,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="pw",
        ) as alice:
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
