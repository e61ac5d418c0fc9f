"""`kproto tokens` creates, renews, expires and describes delegation tokens."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kproto.broker.server import Server, running
from tests.cli.stage import Shell

DAY_MS = 24 * 3600 * 1000


# With a lifetime this long, a token's MAXDATE is after the year 9999, the last year of Python's datetime.
MAX_LIFETIME_MS = 2**60


@pytest.fixture
def broker() -> Iterator[Server]:
    """A broker that issues delegation tokens and authenticates its clients."""
    listen = ["SASL_PLAINTEXT://127.0.0.1:0"]
    settings = {
        "delegation.token.secret.key": "secret",
        "delegation.token.max.lifetime.ms": str(MAX_LIFETIME_MS),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    }
    with running(settings=settings, listen=listen, users={"alice": "pw"}) as server:
        yield server


@pytest.fixture
def login(tmp_path: Path) -> str:
    """The option with which a command authenticates as alice."""
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="alice" password="pw";\n'
    )
    return f"--command-config {file}"


def test_a_token_is_created_renewed_and_expired(shell: Shell, login: str) -> None:
    words = f"tokens create --renewer-principal User:bob --max-life-time-period 48h {login}"
    [token] = shell.json(words)
    assert token["owner"] == token["tokenRequester"] == "User:alice"
    assert token["renewers"] == ["User:bob"]
    assert token["maxTimestamp"] - token["issueTimestamp"] == 2 * DAY_MS
    assert shell.json(f"tokens describe {login}") == [token]
    assert shell.json(f"tokens describe --owner-principal User:bob {login}") == [token]
    assert shell.json(f"tokens describe --owner-principal User:carol {login}") == []

    [renewed] = shell.json(f"tokens renew --hmac {token['hmac']} --renew-time-period 3600000 {login}")
    assert renewed["done"] == "renewed"
    assert 0 <= renewed["expiryTimestamp"] - token["issueTimestamp"] - 3_600_000 < 600_000

    words = f"tokens expire --hmac {token['hmac']} --expiry-time-period -1 {login}"
    assert shell(words) == ["expire a delegation token"]
    assert "add --execute" in shell.errors
    assert shell.json(f"tokens describe {login}") != []
    [line] = shell(f"{words} --execute")
    assert re.fullmatch(r"Completed expire operation\. New expiry date : \d{4}-\d\d-\d\dT\d\d:\d\d", line)
    assert shell.json(f"tokens describe {login}") == []
    shell(f"tokens renew --hmac {token['hmac']} {login}", code=1)
    assert "DELEGATION_TOKEN_NOT_FOUND" in shell.errors


def test_the_columns_are_those_of_kafkas_tool(shell: Shell, login: str) -> None:
    created, titles, row = shell(f"tokens create {login}")
    token_id = created.removeprefix("Created delegation token with tokenId : ")
    columns = "TOKENID HMAC OWNER REQUESTER RENEWERS ISSUEDATE EXPIRYDATE MAXDATE"
    assert " ".join(titles.split()) == columns
    first, _, *columns = row.split()
    assert (first, columns[:3]) == (token_id, ["User:alice", "User:alice", "[]"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d", columns[4])
    assert int(columns[5]) > MAX_LIFETIME_MS
    assert shell(f"tokens describe {login}") == ["Total number of tokens : 1", titles, row]


def test_the_hmac_may_be_read_from_stdin_or_a_variable(
    shell: Shell, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [token] = shell.json(f"tokens create {login}")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{token['hmac']}\n"))
    assert [row["done"] for row in shell.json(f"tokens renew {login}")] == ["renewed"]
    monkeypatch.setenv("KPROTO_TOKEN_HMAC", token["hmac"])
    assert [row["done"] for row in shell.json(f"tokens expire --execute {login}")] == ["expired"]


@pytest.mark.parametrize("hmac", ["s3cr3t", "s3cr3t!", ""])
def test_an_invalid_hmac_is_an_error_that_does_not_show_it(shell: Shell, hmac: str) -> None:
    shell("tokens renew --hmac", hmac, code=2)
    assert "--hmac=[hidden] is not allowed; the HMAC of a token, in base64" in shell.errors.replace("'", "")
    assert "s3cr3t" not in shell.errors


def test_invalid_periods_and_principals_are_errors(shell: Shell, login: str) -> None:
    shell("tokens create --max-life-time-period -5", code=2)
    shell("tokens create --max-life-time-period 1week", code=2)
    assert "'1week' is not a time such as 400ms, 4s, 10m or 1h" in shell.errors
    shell(f"tokens create --renewer-principal bob {login}", code=2)
    assert "'bob' is not TYPE:NAME, such as User:alice" in shell.errors
